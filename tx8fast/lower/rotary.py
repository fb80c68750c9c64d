"""Rotary position embedding.

May import: lower.base, lower.emitter, lower.transfer, graph_table. Must not: place buffers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tx8fast.graph_table import OpRecord
from tx8fast.lower.base import FLOATS, Lowering, NotLowerable, Slice
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.transfer import Local, moves
from tx8fast.machine import Machine
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import block_size

PARTNERS = 2  # buffers of heads that are turned, so that one is filled while another is worked on


class Rope(Lowering):
    """Rotary embedding: y = x * cos + partner(x) * sin per head; the sine table carries the sign."""

    kind = "rope"
    takes = frozenset({"rope"})
    in_place = (0,)

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        x, cos, sin = record.operands
        assert x is not None and cos is not None and sin is not None
        if len({x.dtype, cos.dtype, sin.dtype, record.results[0].dtype}) != 1 or x.dtype not in FLOATS:
            raise NotLowerable("tables and input need one float format")
        self.dtype = x.dtype
        heads = int(record.attr("heads"))
        self.dim = x.shape[-1] // heads
        rotary = int(record.attr("rotary_dim"))
        self.rotary = self.dim if rotary < 0 else rotary
        self.interleaved = record.attr("style") == "interleaved"
        block = block_size(self.dtype)
        step = block // math.gcd(block, self.dim) if self.dim * heads > block else heads
        h = self.head_factor = len(x.shape) - 1  # the lanes of a head stay together
        self.row_factors = (h,)
        self.loop_over([(f,) for f in range(h + 1)], (*(1,) * h, min(step, heads)))
        self.row_table = cos.shape[0] == 1
        if {cos.shape, sin.shape} != {(1 if self.row_table else x.shape[-2], self.dim)}:
            raise NotLowerable("tables must be [positions or 1, head size]")
        self.reads = [self.operand_access(j) for j in range(3)]
        self.writes = [self.result_access()]

    def _shape(self, lo: Sequence[int], hi: Sequence[int]) -> tuple[Local, int, int]:
        heads = hi[self.head_factor] - lo[self.head_factor]
        rows = math.prod(b - a for a, b in zip(lo[:-1], hi[:-1], strict=True))
        seq = 1 if self.row_table else hi[self.head_factor - 1] - lo[self.head_factor - 1]
        return Local(rows, heads * self.dim, self.dtype, True), heads, seq

    @property
    def apart(self) -> bool:
        """True if every head is a matrix of its own, of whole channel blocks."""
        return self.dim % block_size(self.dtype) == 0

    def scratch_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> list[int]:
        local, heads, seq = self._shape(lo, hi)
        if not self.apart:
            return [local.size_bytes] * 3
        head = local._replace(cols=self.dim).size_bytes
        return [head] * PARTNERS + [head if seq != local.rows else 0] * 2

    def emit(self, em: Emitter, s: Slice) -> None:
        local, heads, seq = self._shape(s.lo, s.hi)
        own, tables = (local._replace(cols=self.dim), 1) if self.apart else (local, heads)
        *partners, big_cos, big_sin = s.scratch
        _, cos, sin = s.reads
        if not (self.apart and seq == local.rows):  # else the tables are as large as a head, and lie like it
            for table, big in ((cos, big_cos), (sin, big_sin)):
                self._spread(em, table, big, own, tables, seq)
            cos, sin = big_cos, big_sin
        for h in range(heads // tables):
            at = h * own.size_bytes
            x, y, partner = s.reads[0] + at, s.writes[0] + at, partners[h % len(partners)]
            self._swap(em, x, partner, own, tables)
            em.vv("mul", partner, sin, partner, own.elems, self.dtype)
            em.vv("mul", x, cos, y, own.elems, self.dtype)
            em.vv("add", y, partner, y, own.elems, self.dtype)

    def _swap(self, em: Emitter, x: int, y: int, local: Local, heads: int) -> None:
        """y[j] = x[partner(j)]; lanes that do not rotate keep their own value."""
        half = self.rotary // 2
        for h in range(heads):
            c = h * self.dim
            if self.interleaved:
                swap_pairs(em, local, x, y, c, self.rotary, self.dtype)
            else:
                copy_columns(em, local, x, c + half, local, y, c, half, self.dtype)
                copy_columns(em, local, x, c, local, y, c + half, half, self.dtype)
            if self.rotary < self.dim:
                rest = self.dim - self.rotary
                copy_columns(em, local, x, c + self.rotary, local, y, c + self.rotary, rest, self.dtype)

    def _spread(self, em: Emitter, table: int, big: int, local: Local, heads: int, seq: int) -> None:
        """Repeat the table [seq, dim] over the leading rows and the heads."""
        src = Local(seq, self.dim, self.dtype, True)
        for h in range(heads):
            copy_columns(em, src, table, 0, local, big, h * self.dim, self.dim, self.dtype)

    def ops_per_point(self) -> float:
        return 8 * self.dim * ITEM_BYTES[self.dtype] / self.machine.ct.bytes_per_cycle


def copy_columns(
    em: Emitter, src: Local, src_at: int, src_col: int, dst: Local, dst_at: int, dst_col: int, cols: int, fmt: str
) -> None:
    """Copy a column range between two blocked matrices; the source's rows repeat to fill the destination's."""
    e = ITEM_BYTES[fmt]
    done = 0
    while done < cols:
        a, b = src_col + done, dst_col + done
        n = min(cols - done, 64 - a % 64, 64 - b % 64)
        run_a = src.offset(1, a) - src.offset(0, a) if src.rows > 1 else 0
        run_b = dst.offset(1, b) - dst.offset(0, b) if dst.rows > 1 else 0
        axes = [(src.rows, run_a, run_b), (dst.rows // src.rows, 0, run_b * src.rows)]
        em.gather(src_at + src.offset(0, a), dst_at + dst.offset(0, b), moves(axes, n * e))
        done += n


def swap_pairs(em: Emitter, local: Local, src_at: int, dst_at: int, col: int, cols: int, fmt: str) -> None:
    """Copy columns [col, col + cols) of a blocked matrix, those of every pair in turn; the pairs of a channel block at once."""
    e, end = ITEM_BYTES[fmt], col + cols
    while col < end:
        pairs = min(end - col, 64 - col % 64) // 2
        row = local.offset(1, col) - local.offset(0, col) if local.rows > 1 else 0
        for a, b in ((col, col + 1), (col + 1, col)):
            if pairs:
                axes = [(local.rows, row, row), (pairs, 2 * e, 2 * e)]
                em.gather(src_at + local.offset(0, a), dst_at + local.offset(0, b), moves(axes, e))
            else:  # the pair lies in two blocks
                copy_columns(em, local, src_at, a, local, dst_at, b, 1, fmt)
        col += 2 * max(1, pairs)
