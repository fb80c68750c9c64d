"""Reductions over more positions than one instruction sums exactly, or a tile holds: slice by slice.

May import: lower.base, lower.emitter, lower.pooling, lower.rows, graph_table, numerics. Must not: place buffers.

Every slice is reduced to one row of channels, which joins that of the slices before it. Sums are kept in f32 whatever the format is,
and rounded once, so that the result is that of one sum; short slices keep the digits that a long sum loses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tx8fast.graph_table import OpRecord
from tx8fast.lower.base import FLOATS, Lowering, NotLowerable, Slice
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.pooling import MAX_CHANNELS, WORK
from tx8fast.lower.rows import REDUCES
from tx8fast.lower.transfer import Local
from tx8fast.lower.windows import MAX_EXTENT
from tx8fast.machine import Machine
from tx8fast.numerics.formats import FORMAT_CODES, ITEM_BYTES
from tx8fast.numerics.layout import block_size

POSITION = 2  # the factor that is summed


class LongReduce(Lowering):
    """sum, mean, max or min over all positions of each image; channels stay. Factors: image, channel, position."""

    kind = "long positions"
    in_lines = True
    takes = frozenset({"reduce"})

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        x, out = record.operands[0], record.results[0]
        fn = REDUCES.get(record.attr("op"), "")
        if (
            x is None
            or not fn
            or x.dtype not in FLOATS
            or out.dtype != x.dtype
            or {x.layout, out.layout} != {"blocked"}
        ):
            raise NotLowerable(
                "a reduction over positions is a sum, mean, maximum or minimum of one float format in blocks"
            )
        rank = len(x.shape)
        axes = sorted({a % rank for a in record.attr("axes")})
        kept = [x.shape[a] for a in range(1, rank - 1) if a not in axes]
        if rank < 3 or len(out.shape) != rank or not {0, rank - 1}.isdisjoint(axes) or math.prod(kept) != 1:
            raise NotLowerable("a long reduction is over all positions of an image")
        self.dtype = x.dtype
        self.sums = fn in ("sum", "avg")
        self.join = "add" if self.sums else fn
        self.scale = 1.0 / math.prod(x.shape[1:-1]) if fn == "avg" else 1.0
        self.work = WORK if self.sums else self.dtype  # format of what slices are reduced to
        block = min(x.shape[-1], block_size(x.dtype))
        self.loop_over([(0,), (rank - 1,), axes], (1, block, 1), (1, MAX_CHANNELS, MAX_EXTENT))
        self.reads, self.writes = [self.operand_access(0, merged=True)], [self.result_access()]

    def _local(self, lo: Sequence[int], hi: Sequence[int], rows: int) -> Local:
        return Local(rows, hi[1] - lo[1], self.dtype, True)

    def scratch_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> list[int]:
        """A row of channels, and the slice in the wider format."""
        each = ITEM_BYTES[self.work]
        row = self._local(lo, hi, 1).elems * each
        wide = self._local(lo, hi, hi[POSITION] - lo[POSITION]).elems * each
        return [row, *([wide] if self.work != self.dtype else [])]

    def acc_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> int:
        return self._local(lo, hi, 1).elems * ITEM_BYTES[self.work]

    def emit(self, em: Emitter, s: Slice) -> None:
        rows, src = s.hi[POSITION] - s.lo[POSITION], s.reads[0]
        row, *wide = s.scratch
        n = self._local(s.lo, s.hi, 1).elems
        if wide:
            em.cvt(src, wide[0], self._local(s.lo, s.hi, rows).elems, self.dtype, self.work)
            src = wide[0]
        made = row if not s.first or s.last else s.acc
        name = "sum" if self.sums else self.join
        em.add(
            f"reduce_{name}",
            src0=src,
            dst=made,
            dim=4,
            n=1,
            h=1,
            w=rows,
            c=s.hi[1] - s.lo[1],
            fmt=FORMAT_CODES[self.work],
        )
        if not s.first:
            em.vv(self.join, s.acc, row, row if s.last else s.acc, n, self.work)
        if not s.last:
            return
        if self.scale != 1.0:
            em.vs("mul", row, self.scale, row, n, self.work)
        if wide:
            em.cvt(row, s.writes[0], n, self.work, self.dtype)
        else:
            em.copy(row, s.writes[0], n * ITEM_BYTES[self.dtype])

    def ops_per_point(self) -> float:
        bytes_per_point = ITEM_BYTES[self.work] + (ITEM_BYTES[self.dtype] if self.work != self.dtype else 0)
        return bytes_per_point / self.machine.ct.bytes_per_cycle
