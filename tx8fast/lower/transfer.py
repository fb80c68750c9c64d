"""Copies between a DDR tensor's box and its slice in scratchpad, as strided descriptors.

May import: graph_table, numerics. Must not: know ops or schedules.

Both sides are described per tensor dimension; the last dimension is the channel. A blocked tensor keeps
its channels in blocks of 64 (128 for one-byte formats) per position, followed by a narrower tail (TX8
hardware manual 7.2-7.3). A slice in scratchpad is one matrix: every leading dimension contributes rows,
the channel range contributes columns, blocked or dense. All intervals are half-open, strides in bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from operator import mul
from typing import NamedTuple

from tx8fast.graph_table import TensorSpec
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import (
    batch_stride_bytes,
    block_size,
    blocked_params,
    npc,
    padded_channels,
)

Box = tuple[tuple[int, int], ...]
Strides = tuple[tuple[int, ...], tuple[int, ...], int, int, int]  # `ddr_strides`
PIECES = 2  # parts of a tensor with bases of their own: dense or full blocks, and the channel tail
LINE_BYTES = 256


class Descriptor(NamedTuple):
    """`piece` 0 = dense or full blocks, 1 = channel tail. `loops`: (ddr stride, count), innermost first."""

    piece: int
    ddr: int
    spm: int
    run_bytes: int
    loops: tuple[tuple[int, int], ...]

    @property
    def size_bytes(self) -> int:
        return self.run_bytes * math.prod(n for _, n in self.loops)


class Local(NamedTuple):
    """A matrix of `rows` x `cols` in scratchpad; `blocked` as the channel-blocked form, else row-major."""

    rows: int
    cols: int
    dtype: str
    blocked: bool

    @property
    def size_bytes(self) -> int:
        e = ITEM_BYTES[self.dtype]
        return self.elems * e

    @property
    def elems(self) -> int:
        """Elements including padding lanes: what a whole-buffer vector instruction works on."""
        if not self.blocked:
            return self.rows * self.cols
        cx, c0 = blocked_params(self.cols, self.dtype)
        return self.rows * (cx * block_size(self.dtype) + c0)

    def offset(self, row: int, col: int) -> int:
        e = ITEM_BYTES[self.dtype]
        if not self.blocked:
            return (row * self.cols + col) * e
        b = block_size(self.dtype)
        cx, c0 = blocked_params(self.cols, self.dtype)
        if col < cx * b:
            return ((col // b * self.rows + row) * b + col % b) * e
        return (cx * b * self.rows + row * c0 + col - cx * b) * e


@lru_cache(maxsize=4096)
def spec_bytes(spec: TensorSpec) -> int:
    """DDR footprint of a tensor, padding included."""
    e = ITEM_BYTES[spec.dtype]
    if spec.layout != "blocked":
        return math.prod(spec.shape) * e
    n, p, c = npc(spec.shape)
    return n * batch_stride_bytes(p, c, spec.dtype)


@lru_cache(maxsize=4096)
def ddr_strides(spec: TensorSpec) -> Strides:
    """Byte strides of the leading dims in piece 0 and piece 1, block stride, tail base, first tail channel."""
    e = ITEM_BYTES[spec.dtype]
    shape = spec.shape or (1,)
    if spec.layout != "blocked":
        strides, acc = [], e
        for d in reversed(shape):
            strides.append(acc)
            acc *= d
        strides.reverse()
        return tuple(strides[:-1]), tuple(strides[:-1]), 0, 0, shape[-1]
    b = block_size(spec.dtype)
    n, p, c = npc(shape)
    cx, c0 = blocked_params(c, spec.dtype)
    batch = batch_stride_bytes(p, c, spec.dtype)
    main, tail = [], []
    rows = p
    for i, d in enumerate(shape[:-1]):
        if i == 0 and len(shape) >= 3:
            main.append(batch)
            tail.append(batch)
            continue
        rows //= d
        main.append(rows * b * e)
        tail.append(rows * c0 * e)
    return tuple(main), tuple(tail), p * b * e, cx * b * p * e, cx * b


def ddr_offsets(spec: TensorSpec, starts: Sequence[int], strides: Strides | None = None) -> tuple[int, int]:
    """Byte offsets of the element at `starts` inside either piece; linear in every leading coordinate, and in the
    channel over whole blocks. Used as the base that tiles of one class differ by. strides: `ddr_strides` where they are known."""
    main, tail, block, tail_base, _ = strides or ddr_strides(spec)
    e = ITEM_BYTES[spec.dtype]
    starts = starts or (0,)
    c, off = starts[-1], sum(map(mul, main, starts))
    if spec.layout != "blocked":
        return off + c * e, off + c * e
    b = block_size(spec.dtype)
    return off + c // b * block + c % b * e, sum(map(mul, tail, starts)) + tail_base


def channel_form(spec: TensorSpec, strides: Strides, lo: int, hi: int) -> tuple[int, int, bool]:
    """Return what the descriptors of channels [lo, hi) depend on besides their number: the lane of the first, how
    many lie before the tail region, and whether the last one is the tensor's last. strides: `ddr_strides`."""
    if spec.layout != "blocked":
        return 0, 0, False
    before_tail = strides[4] - lo
    whole = spec.shape[-1] if spec.shape else 1
    return lo % block_size(spec.dtype), min(max(before_tail, 0), hi - lo), hi == whole


def _segments(spec: TensorSpec, lo: int, hi: int, local: Local, col0: int):
    """Yield (first channel, lanes, blocks, piece, local column) so that each segment is uniform on both sides."""
    b = block_size(spec.dtype)
    ddr_blocked, loc_blocked = spec.layout == "blocked", local.blocked
    if not ddr_blocked and not loc_blocked:
        yield lo, hi - lo, 1, 0, col0
        return
    ddr_full = ddr_strides(spec)[4] if ddr_blocked else 1 << 62
    loc_full = blocked_params(local.cols, local.dtype)[0] * b if loc_blocked else 1 << 62
    aligned = (not ddr_blocked or lo % b == 0) and (not loc_blocked or col0 % b == 0)
    c = lo
    if aligned and ddr_blocked and loc_blocked and hi == (spec.shape[-1] if spec.shape else 1):
        hi = padded_channels(hi, spec.dtype)  # both sides pad alike: whole lines keep the stream dense
    if aligned:
        full = min(hi, ddr_full, lo + max(loc_full - col0, 0))
        blocks = (full - lo) // b
        if blocks > 0:
            yield lo, b, blocks, 0, col0
            c = lo + blocks * b
    while c < hi:
        end = hi
        if ddr_blocked:
            end = min(end, (c // b + 1) * b if c < ddr_full else hi)
        col = col0 + c - lo
        if loc_blocked:
            end = min(end, c + ((col // b + 1) * b - col if col < loc_full else hi))
        yield c, end - c, 1, int(ddr_blocked and c >= ddr_full), col
        c = end


def descriptors(
    spec: TensorSpec, box: Box, local: Local, row_strides: Sequence[int], row0: int = 0, col0: int = 0
) -> list[Descriptor]:
    """Return the transfers that move `box` of a DDR tensor to or from `local`.

    row_strides: for each leading dimension, how many local rows one step of it advances. The local side
    of a DMA is a dense stream, so what is not contiguous there becomes several descriptors.
    """
    e = ITEM_BYTES[spec.dtype]
    shape = spec.shape or (1,)
    if not spec.shape:
        box = ((0, 1),)
    main, tail, block, _, full = known = ddr_strides(spec)
    lo, hi = box[-1]
    b = block_size(spec.dtype)
    starts = [x for x, _ in box]
    out: list[Descriptor] = []
    for c, lanes, blocks, piece, col in _segments(spec, lo, hi, local, col0):
        strides = tail if piece else main
        starts[-1] = c
        ddr = ddr_offsets(spec, starts, known)[piece]
        if piece:
            ddr += (c - full) * e
        row_bytes = local.offset(1, col) - local.offset(0, col) if local.rows > 1 else 0
        axes = [(box[i][1] - box[i][0], strides[i], row_strides[i] * row_bytes) for i in range(len(shape) - 1)]
        if blocks > 1:
            ddr_step = block if spec.layout == "blocked" else b * e
            axes.append((blocks, ddr_step, local.offset(0, col + b) - local.offset(0, col)))
        out.extend(_pack(piece, ddr, local.offset(row0, col), lanes * e, axes))
    return out


def _pack(piece: int, ddr: int, spm: int, run: int, axes: list[tuple[int, int, int]]) -> list[Descriptor]:
    """Merge contiguous axes into the run, up to three more into loops, and unroll the rest."""
    axes = sorted((a for a in axes if a[0] > 1), key=lambda a: a[2])
    dense = run
    loops: list[tuple[int, int]] = []
    rest: list[tuple[int, int, int]] = []
    for count, d, s in axes:
        if s != dense or rest:
            rest.append((count, d, s))
            continue
        if not loops and d == run:
            run *= count
        elif loops and d == loops[-1][0] * loops[-1][1]:
            loops[-1] = (loops[-1][0], loops[-1][1] * count)
        elif len(loops) < 3:
            loops.append((d, count))
        else:
            rest.append((count, d, s))
            continue
        dense *= count
    points = [(ddr, spm)]
    for count, d, s in rest:
        points = [(x + i * d, y + i * s) for i in range(count) for x, y in points]
    return [Descriptor(piece, x, y, run, tuple(loops)) for x, y in sorted(points, key=lambda t: t[1])]


def clip(d: Descriptor, lo: int, hi: int) -> Iterator[Descriptor]:
    """Yield the parts of a transfer whose local bytes lie in [lo, hi)."""
    if not d.loops:
        a, b = max(d.spm, lo), min(d.spm + d.run_bytes, hi)
        if a < b:
            yield Descriptor(d.piece, d.ddr + a - d.spm, a, b - a, ())
        return
    *rest, (stride, count) = d.loops
    inner = d.run_bytes * math.prod(n for _, n in rest)

    def part(i: int, loops: tuple[tuple[int, int], ...]) -> Descriptor:
        return Descriptor(d.piece, d.ddr + i * stride, d.spm + i * inner, d.run_bytes, loops)

    bound = lambda x: min(count, max(0, x))  # noqa: E731
    touched = bound((lo - d.spm) // inner), bound(-(-(hi - d.spm) // inner))
    whole = bound(-(-(lo - d.spm) // inner)), bound((hi - d.spm) // inner)
    if whole[0] < whole[1]:
        for i in range(touched[0], whole[0]):
            yield from clip(part(i, tuple(rest)), lo, hi)
        yield part(whole[0], (*rest, (stride, whole[1] - whole[0])))
        for i in range(whole[1], touched[1]):
            yield from clip(part(i, tuple(rest)), lo, hi)
        return
    for i in range(*touched):
        yield from clip(part(i, tuple(rest)), lo, hi)


def part_bytes(size_bytes: int, tiles: int) -> int:
    """Bytes of a shared slice that each tile loads itself, in whole lines of scratchpad."""
    return -(-size_bytes // (tiles * LINE_BYTES)) * LINE_BYTES


class Move(NamedTuple):
    """One gatherScatter: byte offsets, run size and up to three (source stride, destination stride, count)."""

    src: int
    dst: int
    size: int
    loops: tuple[tuple[int, int, int], ...]


def moves(axes: Sequence[tuple[int, int, int]], run: int, src: int = 0, dst: int = 0) -> list[Move]:
    """Return the gatherScatter moves for axes (count, source stride, destination stride) over runs of `run` bytes."""
    axes = sorted((a for a in axes if a[0] > 1), key=lambda a: (a[2], a[1]))
    loops: list[tuple[int, int, int]] = []
    for count, s, d in axes:
        if not loops and s == run and d == run:
            run *= count
        elif loops and s == loops[-1][0] * loops[-1][2] and d == loops[-1][1] * loops[-1][2]:
            loops[-1] = (loops[-1][0], loops[-1][1], loops[-1][2] * count)
        else:
            loops.append((s, d, count))
    loops.sort(key=lambda a: -a[2])  # the longest loops go into the instruction, the rest is unrolled
    inner, rest = sorted(loops[:3], key=lambda a: a[1]), loops[3:]
    points = [(src, dst)]
    for s, d, count in rest:
        points = [(x + i * s, y + i * d) for i in range(count) for x, y in points]
    return [Move(x, y, run, tuple(inner)) for x, y in points]


def runs(items: Iterable[Descriptor]) -> list[tuple[int, int, int]]:
    """Return (DDR byte, scratchpad byte, bytes) of every run of transfers, in scratchpad's order, runs that go on merged."""
    found: list[tuple[int, int, int]] = []
    for d in items:
        at = [(d.ddr, d.spm)]
        inner = d.run_bytes
        for stride, count in d.loops:
            at = [(ddr + i * stride, spm + i * inner) for ddr, spm in at for i in range(count)]
            inner *= count
        found += [(ddr, spm, d.run_bytes) for ddr, spm in at if d.run_bytes]
    merged: list[tuple[int, int, int]] = []
    for ddr, spm, n in sorted(found, key=lambda run: run[1]):
        if merged and (merged[-1][0] + merged[-1][2], merged[-1][1] + merged[-1][2]) == (ddr, spm):
            merged[-1] = (merged[-1][0], merged[-1][1], merged[-1][2] + n)
        else:
            merged.append((ddr, spm, n))
    return merged
