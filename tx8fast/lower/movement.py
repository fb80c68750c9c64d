"""Data movement through scratchpad: transpose, slice, broadcast, concat, pad and the layout change.

May import: lower.base, lower.emitter, lower.transfer, graph_table. Must not: place buffers.

Every result slice is assembled by gatherScatter from the operand boxes it needs, so any op whose result
coordinates are affine in its operand coordinates fits here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tx8fast.graph_table import OpRecord, TensorSpec
from tx8fast.isa.base import NAMED
from tx8fast.lower.access import Access
from tx8fast.lower.base import FLOATS, Lowering, NotLowerable, Slice
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.rows import MAX_CHANNELS
from tx8fast.lower.transfer import Box, Local, Move, moves
from tx8fast.lower.windows import MAX_EXTENT
from tx8fast.machine import Machine
from tx8fast.numerics.formats import FORMAT_CODES, ITEM_BYTES
from tx8fast.numerics.layout import block_size, blocked_params


class Movement(Lowering):
    """Tensors in one form; factors are the result's dimensions. Blocks of channels are moved as they are: each is a matrix of its own,
    of whose rows some go elsewhere."""

    kind = "movement"
    takes = frozenset({"transpose", "slice", "broadcast", "concat", "pad"})

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        out = record.results[0]
        self.e = ITEM_BYTES[out.dtype]
        if not out.shape or len(record.results) != 1:
            raise NotLowerable("movement needs one ranked result")
        rank = len(out.shape)
        self.blocked = out.layout == "blocked" and rank > 1
        if any(o is None or (o.layout == "blocked" and len(o.shape) > 1) != self.blocked for o in record.operands):
            raise NotLowerable("movement works on tensors of one form")
        if self.blocked and record.kind == "transpose":
            raise NotLowerable("transpositions are of dense tensors")
        self.filler = self._filler(out)
        unit = block_size(out.dtype) if self.blocked else 64
        self.loop_over([(f,) for f in range(rank)], [*(1,) * (rank - 1), min(out.shape[-1], unit)])
        self.reads = [self.operand_access(j, self.blocked) for j in range(len(record.operands))]
        self.writes = [self.result_access(self.blocked)]
        if self.blocked and any(a.dims[-1] != self.writes[0].dims[-1] for a in self.reads):
            raise NotLowerable("channels in blocks stay where they are")
        # False: what a slice needs lies alike wherever it is
        self.positional = any([d.terms and d != self.writes[0].dims[d.terms[0][0]] for a in self.reads for d in a.dims])
        self.perm = record.attr("perm") if record.kind == "transpose" else ()

    def _filler(self, out: TensorSpec) -> float | None:
        """Return what is filled in where no operand is, None if nothing. Raises NotLowerable for what is no strided move."""
        record = self.record
        if record.kind == "slice" and min(record.attr("step")) < 1:
            raise NotLowerable("a slice with a negative step")
        if record.kind != "pad":
            return None
        if record.attr("mode") != "constant" or min((*record.attr("lo"), *record.attr("hi"))) < 0:
            raise NotLowerable("only constant padding is a strided move")
        if out.dtype not in FLOATS:
            raise NotLowerable("padding fills float formats only")
        return record.attr("value")

    # -------------------------------------------------------------------------------------------------------

    def emit(self, em: Emitter, s: Slice) -> None:
        out_box = self.writes[0].box(s.lo, s.hi)
        lens = [b - a for a, b in out_box]
        if self.perm and self._turn(em, s, turned(lens, self.perm)):
            return
        n = self.writes[0].local(out_box).elems
        own = self.reads[0].local(self.reads[0].box(s.lo, s.hi)).elems
        if self.filler is not None and own < n:  # some of it is padding
            em.fill(s.writes[0], self.filler, n, self.writes[0].spec.dtype)
        for access, src in zip(self.reads, s.reads, strict=True):
            box = access.box(s.lo, s.hi)
            if not any(a >= b for a, b in box):
                em.gather(src, s.writes[0], self._moves(access, box, out_box))

    def _turn(self, em: Emitter, s: Slice, matrices: tuple[int, int, int] | None) -> bool:
        """Emit the transposition of matrices (n, rows, columns); False if instructions take none of that size or format."""
        dtype = self.writes[0].spec.dtype
        if matrices is None or dtype not in NAMED or matrices[2] > MAX_CHANNELS:
            return False
        n, rows, cols = matrices
        h = next((h for h in range(min(rows, MAX_EXTENT), 0, -1) if rows % h == 0), 1)
        if rows // h > MAX_EXTENT:
            return False
        for i in range(0, n, MAX_EXTENT):
            at, count = i * rows * cols * self.e, min(MAX_EXTENT, n - i)
            shape = {"n": count, "h": h, "w": rows // h, "c": cols, "fmt": FORMAT_CODES[dtype]}
            em.add("nhwc2nchw", src0=s.reads[0] + at, dst=s.writes[0] + at, **shape)
        return True

    def _moves(self, access: Access, box: Box, out_box: Box) -> list[Move]:
        """Return the moves of an operand's box into the result's."""
        moved = len(out_box) - self.blocked  # dimensions, of items or of rows of a block
        out_strides, strides = _strides(out_box[:moved]), _strides(box[:moved])
        axes = [(b - a, 0, stride) for (a, b), stride in zip(out_box, out_strides, strict=False)]
        at = 0
        for (a, b), dim, stride in zip(box, access.dims[:moved], strides, strict=False):
            for d, step in dim.terms:
                # result coordinates whose operand coordinate lies in [a, b)
                first = max(out_box[d][0], -(-(a - dim.c0) // step))
                last = min(out_box[d][1], (b - 1 - dim.c0) // step + 1)
                at += (first - out_box[d][0]) * out_strides[d]
                axes[d] = last - first, step * stride, out_strides[d]
        if not self.blocked:
            return moves([(n, i * self.e, j * self.e) for n, i, j in axes], self.e, 0, at * self.e)
        src, dst = access.local(box), self.writes[0].local(out_box)
        blocks, tail = blocked_params(dst.cols, dst.dtype)
        lanes, found = block_size(dst.dtype), []
        for n, run, channel in ((blocks, lanes * self.e, 0), (min(tail, 1), tail * self.e, blocks * lanes)):
            if n:
                each = [(count, i * run, j * run) for count, i, j in axes]
                each.append((n, src.rows * run, dst.rows * run))
                found += moves(each, run, src.offset(0, channel), dst.offset(0, channel) + at * run)
        return found

    def ops_per_point(self) -> float:
        by_item = self.perm and self.perm[-1] != len(self.perm) - 1 and not turned(self.sizes, self.perm)
        return 1.0 if by_item else self.e / self.machine.tdma.bytes_per_cycle


def _strides(box: Box) -> list[int]:
    """Return by dimension of a dense box how many of its elements a step is."""
    return [math.prod([b - a for a, b in box[i + 1 :]]) for i in range(len(box))]


def turned(lens: Sequence[int], perm: Sequence[int]) -> tuple[int, int, int] | None:
    """Return (n, rows, columns) of the matrices whose transpositions a permutation is, None if it is something else.

    lens: the result's. An instruction reads rows, where moves of a permutation go item by item (hardware manual 11.4, 16.5)."""
    kept = [(d, n) for d, n in zip(perm, lens, strict=True) if n > 1]
    groups: list[list[int]] = []  # source dimensions that stay side by side, their sizes' product
    for d, n in kept:
        if groups and not any(groups[-1][0] < k < d for k, _ in kept) and d > groups[-1][0]:
            groups[-1] = [d, groups[-1][1] * n]
        else:
            groups.append([d, n])
    order = [d for d, _ in groups]
    if len(order) == 3 and order[0] < order[2] < order[1]:
        n, (_, cols), (_, rows) = groups[0][1], groups[1], groups[2]
        return n, rows, cols
    if len(order) == 2 and order[1] < order[0]:
        return 1, groups[1][1], groups[0][1]
    return None


class ChannelNorm(Lowering):
    """Dense <-> channel-blocked, one gatherScatter per block group (hardware manual 11.2)."""

    kind = "channel_norm"
    takes = frozenset({"channel_norm"})

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        src, dst = record.operands[0], record.results[0]
        assert src is not None
        if not src.shape or {src.layout, dst.layout} != {"dense", "blocked"} or src.dtype != dst.dtype:
            raise NotLowerable("a layout change has one dense and one blocked side")
        n = len(src.shape)
        self.loop_over([(f,) for f in range(n)], [*(1,) * (n - 1), min(src.shape[-1], block_size(src.dtype))])
        self.reads = [self.operand_access(0, src.layout == "blocked")]
        self.writes = [self.result_access(dst.layout == "blocked")]

    def emit(self, em: Emitter, s: Slice) -> None:
        src = self.reads[0].local(self.reads[0].box(s.lo, s.hi))
        dst = self.writes[0].local(self.writes[0].box(s.lo, s.hi))
        em.gather(s.reads[0], s.writes[0], relayout(src, dst))

    def ops_per_point(self) -> float:
        return ITEM_BYTES[self.reads[0].spec.dtype] / self.machine.tdma.bytes_per_cycle


class Relabelled(Lowering):
    """A change of layout inside a group, where every value lies in blocks: transfers put it into them and take it out of them.
    The record is that of rows and columns in blocks."""

    kind = "relabelled"
    in_place = (0,)

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        self.loop_over([(0,), (1,)])
        self.reads, self.writes = [self.operand_access(0)], [self.result_access()]

    def emit(self, em: Emitter, s: Slice) -> None:
        """Nothing, unless somebody else needs the operand where it is."""
        if s.reads[0] != s.writes[0]:
            em.copy(s.reads[0], s.writes[0], self.writes[0].size_bytes(s.lo, s.hi))


def relayout(src: Local, dst: Local) -> list[Move]:
    """Return the moves that copy a matrix between its dense and blocked forms."""
    e = ITEM_BYTES[src.dtype]
    b = block_size(src.dtype)
    rows, cols = src.rows, src.cols
    cx, c0 = blocked_params(cols, src.dtype)
    out: list[Move] = []
    full = cols // b
    row_s, row_d = (_row_step(x, b * e) for x in (src, dst))
    if full:
        blk_s, blk_d = (rows * b * e if x.blocked else b * e for x in (src, dst))
        out += moves([(rows, row_s, row_d), (full, blk_s, blk_d)], b * e)
    tail = cols - full * b
    if tail:
        width = (c0 if cx == full else b) * e
        axes = [(rows, _row_step(src, width), _row_step(dst, width))]
        out += moves(axes, tail * e, src.offset(0, full * b), dst.offset(0, full * b))
    return out


def _row_step(x: Local, blocked_bytes: int) -> int:
    return blocked_bytes if x.blocked else x.cols * ITEM_BYTES[x.dtype]
