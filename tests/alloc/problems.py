"""Seeded placement problems of the kinds that schedules produce, and brute force for tiny ones."""

from __future__ import annotations

import random
from collections.abc import Callable

from tx8fast.alloc import Buffer, Problem, merge_intervals


def short_stretches(r: random.Random, n: int) -> list[Buffer]:
    """Stretches of a dozen buffers that share no time with the next stretch."""
    rows = []
    for i in range(n):
        lo = i // 12 * 20 + r.randrange(12)
        rows.append(Buffer(f"b{i}", ((lo, lo + r.randint(1, 8)),), r.randint(1, 400) * 64))
    return rows


def nested(r: random.Random, n: int) -> list[Buffer]:
    """Lifetimes one inside the other, as those of nested calls."""
    rows, spans = [], [(0, 4 * n)]
    while len(rows) < n:
        lo, hi = spans.pop(0)
        rows.append(Buffer(f"b{len(rows)}", ((lo, hi),), r.randint(1, 200) * 256))
        cut = r.randint(lo + 1, hi - 1) if hi - lo > 2 else hi
        spans += [(a, z) for a, z in ((lo, cut), (cut, hi)) if z - a > 1] or [(0, r.randint(4, n))]
    return rows


def equal_sizes(r: random.Random, n: int) -> list[Buffer]:
    """Tiles of one size: a placement at the lower bound always exists."""
    starts = [r.randrange(n) for _ in range(n)]
    return [Buffer(f"b{i}", ((a, a + r.randint(1, n // 4 + 1)),), 4096) for i, a in enumerate(starts)]


def pipeline(r: random.Random, n: int) -> list[Buffer]:
    """Short overlapping lives with a few long ones, as of streamed layers with resident weights."""
    rows = []
    for i in range(n):
        length = n // 2 if i % 11 == 0 else r.randint(1, 9)
        rows.append(Buffer(f"b{i}", ((i, i + length),), r.choice([1, 2, 3, 5, 8, 13, 21]) * 1024))
    return rows


def aligned(r: random.Random, n: int) -> list[Buffer]:
    """Odd sizes at mixed alignments."""
    return [
        Buffer(b.label, b.lifetimes, b.size_bytes - r.randrange(64), r.choice([1, 64, 256, 4096]))
        for b in pipeline(r, n)
    ]


def fixed(r: random.Random, n: int) -> list[Buffer]:
    """A pipeline in which some buffers, at separate times, must stand at given offsets."""
    rows = pipeline(r, n)
    for i in range(5, n, 10):
        rows[i] = Buffer(f"b{i}", ((i, i + 4),), 3072, 256, fixed=r.randrange(16) * 1024)
    return rows


def several_lives(r: random.Random, n: int) -> list[Buffer]:
    """Buffers that keep their offset over up to three uses."""
    rows = []
    for i in range(n):
        spans = [(a, a + r.randint(1, 6)) for a in (r.randrange(2 * n) for _ in range(r.randint(1, 3)))]
        rows.append(Buffer(f"b{i}", merge_intervals(spans), r.randint(1, 64) * 256))
    return rows


KINDS: dict[str, Callable[[random.Random, int], list[Buffer]]] = {
    kind.__name__: kind for kind in (short_stretches, nested, equal_sizes, pipeline, aligned, fixed, several_lives)
}


def make(kind: str, seed: int, n: int) -> Problem:
    """Return the problem that a kind, a seed and a number of buffers stand for."""
    return Problem(tuple(KINDS[kind](random.Random(f"{kind} {seed}"), n)))


def fits(problem: Problem, height: int) -> bool:
    """Say whether the buffers fit `height` bytes, by trying every aligned offset of every buffer."""
    buffers = problem.buffers
    at: list[int] = []

    def together(i: int, k: int) -> bool:
        pairs = ((a, b) for a in buffers[i].lifetimes for b in buffers[k].lifetimes)
        return any(a[0] < b[1] and b[0] < a[1] for a, b in pairs)

    def place(i: int) -> bool:
        if i == len(buffers):
            return True
        b = buffers[i]
        top = height - b.size_bytes + 1
        for offset in range(0, top, b.align_bytes) if b.fixed is None else range(b.fixed, min(b.fixed + 1, top)):
            if all(
                at[k] + buffers[k].size_bytes <= offset or offset + b.size_bytes <= at[k] or not together(i, k)
                for k in range(i)
            ):
                at.append(offset)
                if place(i + 1):
                    return True
                at.pop()
        return False

    return place(0)
