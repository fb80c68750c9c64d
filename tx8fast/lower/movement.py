"""Data movement through scratchpad: transpose, slice, broadcast, concat, pad and the layout change.

May import: lower.base, lower.transfer, graph_table. Must not: place buffers.

Every result slice is assembled by gatherScatter from the operand boxes it needs, so any op whose result
coordinates are affine in its operand coordinates fits here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tx8fast.graph_table import Dim, OpRecord, TensorSpec
from tx8fast.lower.base import Access, Emitter, Lowering, NotLowerable, Slice
from tx8fast.lower.transfer import Local, Move, moves
from tx8fast.machine import Machine
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import block_size, blocked_params


class Movement(Lowering):
    """Dense tensors; factors are the result's dimensions."""

    kind = "movement"
    takes = frozenset({"transpose", "slice", "broadcast", "concat", "pad"})
    positional = True

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        out = record.results[0]
        self.e = ITEM_BYTES[out.dtype]
        if not out.shape or len(record.results) != 1:
            raise NotLowerable("movement needs one ranked result")
        if any(o is None or (o.layout == "blocked" and len(o.shape) > 1) for o in (*record.operands, out)):
            raise NotLowerable("movement works on dense tensors")
        self.op = record.kind
        self.attrs = dict(record.attrs)
        self.set_factors(out.shape, [*(1,) * (len(out.shape) - 1), min(out.shape[-1], 64)])
        build = getattr(self, f"_dims_{self.op}", None)
        if build is None:
            raise NotLowerable(f"{self.op} is not a strided move")
        self.identity = [Dim(s, ((i, 1),)) for i, s in enumerate(out.shape)]
        for spec, dims in zip(record.operands, build(record.operands, out), strict=True):
            assert spec is not None
            self.reads.append(Access(spec, dims, False, True))
        self.writes = [Access(out, self.identity, False)]

    # -- operand dimensions over result factors, and (per operand) result dim -> operand (dim, step) ------------

    def _dims_transpose(self, ins: Sequence[TensorSpec], out: TensorSpec) -> list[list[Dim]]:
        perm = [p % len(out.shape) for p in self.attrs["perm"]]
        self.links = [[(perm[d], 1) for d in range(len(perm))]]
        dims: list[Dim] = [Dim(1)] * len(perm)
        for d, p in enumerate(perm):
            dims[p] = Dim(out.shape[d], ((d, 1),))
        self.positional = False
        return [dims]

    def _dims_slice(self, ins: Sequence[TensorSpec], out: TensorSpec) -> list[list[Dim]]:
        step, start = self.attrs["step"], self.attrs["start"]
        if any(s < 1 for s in step):
            raise NotLowerable("a slice with a negative step")
        self.links = [[(d, step[d]) for d in range(len(step))]]
        return [[Dim(n, ((d, step[d]),), start[d]) for d, n in enumerate(ins[0].shape)]]

    def _dims_broadcast(self, ins: Sequence[TensorSpec], out: TensorSpec) -> list[list[Dim]]:
        shape = ins[0].shape
        pad = len(out.shape) - len(shape)
        full = [shape[d - pad] == out.shape[d] if d >= pad else False for d in range(len(out.shape))]
        self.links = [[(d - pad, 1) if full[d] else None for d in range(len(out.shape))]]
        self.positional = False
        return [[Dim(n, ((d + pad, 1),)) if full[d + pad] else Dim(1) for d, n in enumerate(shape)]]

    def _dims_concat(self, ins: Sequence[TensorSpec], out: TensorSpec) -> list[list[Dim]]:
        axis = self.attrs["axis"] % len(out.shape)
        self.links, result, offset = [], [], 0
        for spec in ins:
            self.links.append([(d, 1) for d in range(len(out.shape))])
            result.append([Dim(n, ((d, 1),), -offset if d == axis else 0) for d, n in enumerate(spec.shape)])
            offset += spec.shape[axis]
        return result

    def _dims_pad(self, ins: Sequence[TensorSpec], out: TensorSpec) -> list[list[Dim]]:
        if self.attrs["mode"] != "constant" or any(p < 0 for p in (*self.attrs["lo"], *self.attrs["hi"])):
            raise NotLowerable("only constant padding is a strided move")
        if out.dtype not in ("bf16", "f16", "f32"):
            raise NotLowerable("padding fills float formats only")
        self.links = [[(d, 1) for d in range(len(out.shape))]]
        return [[Dim(n, ((d, 1),), -self.attrs["lo"][d]) for d, n in enumerate(ins[0].shape)]]

    # -------------------------------------------------------------------------------------------------------

    def emit(self, em: Emitter, s: Slice) -> None:
        out_box = self.writes[0].box(s.lo, s.hi)
        n = math.prod(b - a for a, b in out_box)
        if self.op == "pad" and self.reads[0].local(self.reads[0].box(s.lo, s.hi)).elems < n:  # some of it is padding
            em.fill(s.writes[0], self.attrs["value"], n, self.writes[0].spec.dtype)
        out_strides = self._strides(out_box)
        for access, links, src in zip(self.reads, self.links, s.reads, strict=True):
            box = access.box(s.lo, s.hi)
            if any(a >= b for a, b in box):
                continue
            in_strides = self._strides(box)
            axes, dst0 = [], 0
            for d, link in enumerate(links):
                r0, r1 = out_box[d]
                if link is None:
                    axes.append((r1 - r0, 0, out_strides[d]))
                    continue
                dim, step = link
                a, b = box[dim]
                shift = access.dims[dim].c0
                # result coordinates whose operand coordinate lies in [a, b)
                first = max(r0, -(-(a - shift) // step))
                last = min(r1, (b - 1 - shift) // step + 1)
                dst0 += (first - r0) * out_strides[d]
                axes.append((last - first, step * in_strides[dim], out_strides[d]))
            em.gather(src, s.writes[0] + dst0, moves(axes, self.e))

    def _strides(self, box: Sequence[tuple[int, int]]) -> list[int]:
        strides, acc = [], self.e
        for a, b in reversed(box):
            strides.append(acc)
            acc *= b - a
        return strides[::-1]

    def ops_per_point(self) -> float:
        return 1.0 if self.op == "transpose" else self.e / self.machine.tdma.bytes_per_cycle


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
        self.set_factors(src.shape, [*(1,) * (n - 1), min(src.shape[-1], block_size(src.dtype))])
        dims = [Dim(s, ((i, 1),)) for i, s in enumerate(src.shape)]
        self.reads = [Access(src, dims, src.layout == "blocked")]
        self.writes = [Access(dst, dims, dst.layout == "blocked")]

    def emit(self, em: Emitter, s: Slice) -> None:
        src = self.reads[0].local(self.reads[0].box(s.lo, s.hi))
        dst = self.writes[0].local(self.writes[0].box(s.lo, s.hi))
        em.gather(s.reads[0], s.writes[0], relayout(src, dst))

    def ops_per_point(self) -> float:
        return ITEM_BYTES[self.reads[0].spec.dtype] / self.machine.tdma.bytes_per_cycle


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
