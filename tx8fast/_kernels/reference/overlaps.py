"""Twin of the kernel of overlapping rows: asks at every stop of time what every lane does.

May import: the standard library. Must not: share code with the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil

SLACK = 1e-6


def number_pairs(a: Sequence[int], b: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return where distinct pairs first stand, and which each pair is; see `_kernels.number_pairs`."""
    known: dict[tuple[int, int], int] = {}
    first, which = [], []
    for i, pair in enumerate(zip(a, b, strict=True)):
        if pair not in known:
            known[pair] = len(first)
            first.append(i)
        which.append(known[pair])
    return first, which


def overlapping(
    start: Sequence[int], end: Sequence[int], lane: Sequence[int], form: Sequence[int], lanes: int
) -> tuple[list[int], list[int], list[tuple[int, ...]]]:
    """Return knots, the set from each to the next, and the sets; see `_kernels.overlapping`."""
    rows = [(s, e, k, f) for s, e, k, f in zip(start, end, lane, form, strict=True) if k >= 0 and e > s]
    knots = sorted({s for s, *_ in rows} | {e for _, e, *_ in rows})
    state, sets = [], []
    for when, _ in pairwise(knots):
        now = [-1] * lanes
        for s, e, k, f in rows:
            if s <= when < e:
                now[k] = f
        if tuple(now) not in sets:
            sets.append(tuple(now))
        state.append(sets.index(tuple(now)))
    return knots, state, sets


def stretched(
    start: Sequence[int],
    lane: Sequence[int],
    work: Sequence[int],
    knots: Sequence[int],
    state: Sequence[int],
    speed: Sequence[Sequence[float]],
) -> list[int]:
    """Return the cycles of rows; see `_kernels.stretched`."""
    out = []
    for s, k, n in zip(start, lane, work, strict=True):
        if k < 0:
            out.append(n)
            continue
        done = [0.0]
        for at, (a, b) in enumerate(pairwise(knots)):
            done.append(done[-1] + speed[state[at]][k] * (b - a))
        want = done[knots.index(s)] + n
        if want > done[-1]:
            until = knots[-1] + want - done[-1]
        else:
            at = max(i for i, d in enumerate(done) if d <= want)
            until = float(knots[at])
            if done[at] != want:
                until += (knots[at + 1] - knots[at]) / (done[at + 1] - done[at]) * (want - done[at])
        out.append(max(n, ceil(until - s - SLACK)))
    return out
