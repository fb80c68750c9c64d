"""What a tile moves between DDR and scratchpad: descriptors made into rows, and cut into the parts of several tiles.

May import: lower.transfer, isa. Must not: choose what is moved, or where to.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from tx8fast import isa
from tx8fast.lower.transfer import PIECES, Descriptor, clip, part_bytes

Span = tuple[int, int]
_LOOPS = (("s0", "n0"), ("s1", "n1"), ("s2", "n2"))  # stride and count fields of a transfer, innermost first


def dma_rows(
    name: str,
    found: Sequence[Descriptor],
    address: int,
    slot: int = 0,
    base: Sequence[int] = (0,) * PIECES,
    worker: int = 0,
) -> list[tuple]:
    """Return the rows of transfers (name: "rdma" loads, "wdma" stores) to or from scratchpad byte `address`. slot: DDR slot
    of piece 0; base: DDR bytes that the slots of the pieces stand for; worker: register window."""
    side, rows = "dst" if name == "rdma" else "src", []
    for d in found:
        if d.run_bytes:
            fields = {side: address + d.spm}
            for (s, n), (stride, count) in zip(_LOOPS, d.loops, strict=False):
                fields[s], fields[n] = stride, count
            rows.append(
                isa.make(
                    name,
                    run_bytes=d.run_bytes,
                    slot=slot + d.piece,
                    ddr=d.ddr - base[d.piece],
                    op=0,
                    worker=worker,
                    **fields,
                )
            )
    return rows


def in_pieces(found: Sequence[Descriptor], most_bytes: int) -> Sequence[Descriptor]:
    """Return transfers of at most so many bytes each (0: any), as far as their runs allow it: equal pieces of one of their loops."""
    out: list[Descriptor] = []
    for d in found if most_bytes else ():
        unit, level = d.run_bytes, 0
        while level < len(d.loops) and unit * d.loops[level][1] <= most_bytes:
            unit *= d.loops[level][1]
            level += 1
        if level == len(d.loops):
            out.append(d)
            continue
        count = d.loops[level][1]
        step = -(-count // -(-count // max(1, most_bytes // unit))) * unit
        for begin in range(d.spm, d.spm + d.size_bytes, count * unit):
            for at in range(begin, begin + count * unit, step):
                out += clip(d, at, min(at + step, begin + count * unit))
    return out if most_bytes else found


def chunk_of(found: Sequence[Descriptor], spans: Sequence[Span]) -> list[Descriptor]:
    """Return the transfers of the byte ranges `spans` of a slice, one range behind the other from 0 on; of two equal runs one, so that
    none of them is put off for itself."""
    out, at = [], 0
    for a, b in spans:
        out += [c._replace(spm=c.spm - a + at) for d in found for c in clip(d, a, b)]
        at += b - a
    run = out[0].run_bytes
    steps = {y.ddr - x.ddr for x, y in itertools.pairwise(out)}
    even = all(d[:1] + d[2:] == (out[0].piece, out[0].spm + i * run, run, ()) for i, d in enumerate(out))
    return [out[0]._replace(loops=((steps.pop(), len(out)),))] if even and len(steps) == 1 and min(steps) > 0 else out


def in_spans(spans: Sequence[Span], start: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Yield of `size` bytes from `start` on of a chunk that lies in the ranges `spans`: which of them begin a run, where that begins in
    the slice, and its bytes."""
    at = 0
    for a, b in spans:
        x, y = max(start, at), min(start + size, at + b - a)
        if x < y:
            yield x - start, a + x - at, y - x
        at += b - a


def part_of(found: Sequence[Descriptor], rank: int, tiles: int) -> tuple[list[Descriptor], int, int, int]:
    """Return what tile `rank` (negative: none) of those that load a slice together loads of it: transfers to a buffer of
    its own, the part's start in the slice, its bytes, and the bytes of the whole slice."""
    total = max((d.spm + d.size_bytes for d in found), default=0)
    if rank < 0:
        return [], 0, 0, total
    size = part_bytes(total, tiles)
    a, b = min(total, rank * size), min(total, (rank + 1) * size)
    moved = [c._replace(spm=c.spm - a) for d in found for c in clip(d, a, b)]
    return moved, a, b - a, total
