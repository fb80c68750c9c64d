"""Attention rows in scratchpad: scores, softmax and mix of one head and a band of rows per slice.

May import: lower.base, lower.contraction, lower.fused, graph_table. Must not: place buffers.

    q' = q * scale                          vector engine, small
    S  = q' K^T + E mask                    matrix engine; E repeats the mask's rows over grouped heads
    S -= rowmax(S)                          channel maximum, then a rank-1 update on the matrix engine
    P  = exp(S)                             vector engine: the dearest step
    y  = (P V) / (P 1)                      matrix engine; the division touches the small result only

Scores never leave scratchpad; keys and values are read once per head, by all tiles together where the rows of
one head lie on several tiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tx8fast.graph_table import Dim, GroupRecord
from tx8fast.lower.base import Access, Emitter, Lowering, NotLowerable, Slice
from tx8fast.lower.contraction import Contraction
from tx8fast.lower.fused import Link, LinkedAccess
from tx8fast.lower.transfer import Local, moves
from tx8fast.machine import Machine
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import padded_channels

SUM = "f32"
MAX_COLS = 16384  # field range of the reduction and of matrix dimensions
MAX_MASK_ROWS = 64  # one channel block of the row-repeating matrix
LOWEST = {"bf16": -3.3895313892515355e38, "f16": -65504.0, "f32": -3.4028234663852886e38}
ATTENTION = ("contract", "softmax", "contract")


class Attention(Lowering):
    """Group factors: the scores' batch factors, then its row factors; only the last row factor is cut."""

    kind = "attention"
    shares = True
    shared_copies = 1  # more rows per slice are worth more than loading the next head early
    overlaps = True
    staged = True

    def __init__(self, record: GroupRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        scores, softmax, mix = record.ops
        self.first = Contraction(scores, machine)
        self.second = Contraction(mix, machine, rows_of_left=True)
        self.dtype = scores.results[0].dtype
        self._check(record)
        first, second = self.first, self.second
        self.batch, self.rows = first.batch, first.m
        free = [*self.batch, *self.rows]
        if not self.rows or not first.n or len(first.n) != 1:
            raise NotLowerable("scores need a row and one column dimension")
        index = {f: i for i, f in enumerate(free)}
        self.cols = first.sizes[first.n[0]]
        self.depth = math.prod(second.sizes[f] for f in second.n)
        if max(self.cols, self.depth) > MAX_COLS:
            raise NotLowerable(f"{self.cols} keys are above the limit of {MAX_COLS}")
        own = [Link(index.get(f, -1), n) for f, n in enumerate(first.sizes)]
        across = self._match(record, index)
        last = free.index(self.rows[-1])
        n = len(free)
        self.set_factors(
            [first.sizes[f] for f in free], [1] * n,
            [i < len(self.batch) or i == last for i in range(n)], [i < len(self.batch) or i == last for i in range(n)],
            max_len=[1 if i < len(self.batch) else MAX_COLS for i in range(n)],
        )  # fmt: skip
        self.last = last
        self.scale = float(softmax.attr("scale"))
        self.reads = [LinkedAccess(first.reads[0], own), LinkedAccess(first.reads[1], own),
                      LinkedAccess(second.reads[1], across)]  # fmt: skip
        self.args = [self._wire(0, first.arguments()[0]), self._wire(0, first.arguments()[1]),
                     self._wire(2, second.arguments()[1])]  # fmt: skip
        self.mask_rows = False
        self.masked = len(softmax.operands) > 1 and softmax.operands[1] is not None
        if self.masked:
            self._add_mask(record, index)
        self.writes = [LinkedAccess(second.writes[0], across)]

    def _check(self, record: GroupRecord) -> None:
        scores, softmax, mix = record.ops
        wired = record.wires[1][0] == ("op", 0) and record.wires[2][self.second.arguments()[0]] == ("op", 1)
        if not wired or record.outputs != (2,) or self.second.bias or self.first.bias or softmax.attr("log"):
            raise NotLowerable("not the shape of attention")
        if softmax.attr("axis") not in (-1, len(scores.results[0].shape) - 1):
            raise NotLowerable("attention normalises the last dimension")
        if {softmax.results[0].dtype, mix.results[0].dtype} != {self.dtype} or self.first.l_trs or self.second.l_trs:
            raise NotLowerable("attention needs one float format and row-major queries")
        if self.first.swapped or self.second.swapped:
            raise NotLowerable("operands are in the wrong order")

    def _match(self, record: GroupRecord, index: dict[int, int]) -> list[Link]:
        """Links of the second product's factors, found through the probabilities' dimensions."""
        rules = record.ops[0].rule, record.ops[2].rule
        assert rules[0] is not None and rules[1] is not None
        links = [Link(-1, n) for n in self.second.sizes]
        for mine, theirs in zip(rules[0].outs[0], rules[1].ins[0] or (), strict=True):
            if len(mine.terms) != len(theirs.terms):
                raise NotLowerable("the two products see the probabilities differently")
            for (f, _), (g, _) in zip(mine.terms, theirs.terms, strict=True):
                if rules[0].sizes[f] != rules[1].sizes[g]:
                    raise NotLowerable("the two products see the probabilities differently")
                if f in index:
                    links[g] = Link(index[f], rules[1].sizes[g])
        rows = [index[f] for f in self.rows]
        if [links[g].factor for g in self.second.m] != rows:
            raise NotLowerable("the two products order rows differently")
        if {links[g].factor for g in self.second.batch} != {index[f] for f in self.batch}:
            raise NotLowerable("the two products have different batches")
        return links

    def _wire(self, op: int, operand: int) -> int:
        wire = self.record.wires[op][operand]
        if wire is None or wire[0] != "in":
            raise NotLowerable("queries, keys and values come from outside the group")
        return wire[1]

    def _add_mask(self, record: GroupRecord, index: dict[int, int]) -> None:
        softmax = record.ops[1]
        spec = softmax.operands[1]
        rule = record.ops[0].rule
        assert spec is not None and rule is not None
        out = rule.outs[0]
        if spec.dtype != self.dtype or spec.shape[-1] != self.cols:
            raise NotLowerable("the mask must have the scores' format and columns")
        dims: list[Dim] = []
        for size, d in zip(spec.shape, out[len(out) - len(spec.shape) :], strict=True):
            if size == 1 or d is out[-1]:
                dims.append(Dim(size, full=True))
            elif d.identity in index and d.identity in (*self.batch, self.rows[-1]):
                dims.append(Dim(size, ((index[d.identity], 1),)))
                self.mask_rows |= d.identity == self.rows[-1]
            else:
                raise NotLowerable("the mask differs between grouped heads")
        self.reads.append(Access(spec, dims, True))
        self.args.append(self._wire(1, 1))

    def arguments(self) -> list[int]:
        return self.args

    # -- geometry -----------------------------------------------------------------------------------------------

    def _rows(self, lo: Sequence[int], hi: Sequence[int]) -> tuple[int, int]:
        """Score rows of a slice, and those of the last row factor alone."""
        lens = [b - a for a, b in zip(lo, hi, strict=True)]
        return math.prod(lens[len(self.batch) :]), lens[self.last]

    def may_share(self, k: int) -> bool:
        """Keys and values; a mask changes with every slice and would make the tiles meet as often."""
        return self.sharing and k in (1, 2)

    def fits(self, lens: Sequence[int]) -> bool:
        rows, band = self._rows((0,) * len(lens), lens)
        return rows <= MAX_COLS and (not self.mask_rows or band <= MAX_MASK_ROWS)

    def scratch_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> list[int]:
        rows, band = self._rows(lo, hi)
        e = ITEM_BYTES[self.dtype]
        scores = Local(rows, self.cols, self.dtype, True).size_bytes
        repeat = rows * padded_channels(band if self.mask_rows else 1, self.dtype) * e if self.masked else 0
        mixed = Local(rows, self.depth, SUM, True).size_bytes
        stats = rows * 4 * ITEM_BYTES[SUM]
        return [scores, scores, repeat, stats, stats, rows * 64 * ITEM_BYTES[SUM], mixed]

    def const_bytes(self) -> list[int]:
        """Ones: one per key, four rows of all keys, and one block of sums."""
        e = ITEM_BYTES[self.dtype]
        lanes = padded_channels(self.cols, self.dtype)
        return [max(lanes, 64) * e, 4 * lanes * e, 64 * ITEM_BYTES[SUM]]

    def prologue(self, em: Emitter, consts: Sequence[int]) -> None:
        lanes = padded_channels(self.cols, self.dtype)
        em.fill(consts[0], 1.0, max(lanes, 64), self.dtype)
        em.fill(consts[1], 1.0, 4 * lanes, self.dtype)
        em.fill(consts[2], 1.0, 64, SUM)

    # -- instructions -------------------------------------------------------------------------------------------

    def front(self, em: Emitter, s: Slice) -> None:
        """Scores up to the exponential: the vector engine works on it while the next slice's scores are made."""
        fmt = self.dtype
        rows, band = self._rows(s.lo, s.hi)
        scores, repeat, stat = s.scratch[s.parity], s.scratch[2], s.scratch[3]
        q, keys = s.reads[:2]
        depth = math.prod(self.first.sizes[f] for f in self.first.k)
        if self.scale != 1.0:
            em.vs("mul", q, self.scale, q, rows * padded_channels(depth, fmt), fmt)
        if self.masked:
            self._spread_mask(em, s, repeat, rows, band, scores)
        em.gemm(left=q, right=keys, out=scores, m=rows, k=depth, n=self.cols, r_trs=self.first.r_trs, fmt=fmt,
                psum=scores, psum_fmt=fmt, psum_en=int(self.masked))  # fmt: skip
        local = Local(rows, self.cols, fmt, True)
        em.reduce("max", scores, stat, local, fmt)
        em.v("neg", stat, stat, rows * 4, fmt)
        em.gemm(left=stat, right=s.consts[0], out=scores, m=rows, k=1, n=self.cols, r_trs=1, fmt=fmt, psum=scores,
                psum_fmt=fmt, psum_en=1)  # fmt: skip
        em.v("exp" if fmt == "f32" else "exp_lp", scores, scores, local.elems, fmt)

    def back(self, em: Emitter, s: Slice) -> None:
        """Mix the values and divide by the sums."""
        fmt, values = self.dtype, s.reads[2]
        rows, _ = self._rows(s.lo, s.hi)
        scores, sums, spread, mixed = s.scratch[s.parity], *s.scratch[4:]
        em.gemm(left=scores, right=s.consts[1], out=sums, m=rows, k=self.cols, n=4, fmt=fmt, out_fmt=SUM)
        em.gemm(left=scores, right=values, out=mixed, m=rows, k=self.cols, n=self.depth, r_trs=self.second.r_trs, fmt=fmt,
                out_fmt=SUM)  # fmt: skip
        em.v("recip", sums, sums, rows * 4, SUM)
        self._divide(em, mixed, sums, spread, s.consts[2], rows)
        n = Local(rows, self.depth, SUM, True).elems
        if fmt == SUM:
            em.copy(mixed, s.writes[0], n * ITEM_BYTES[SUM])
        else:
            em.cvt(mixed, s.writes[0], n, SUM, fmt)

    def _spread_mask(self, em: Emitter, s: Slice, repeat: int, rows: int, band: int, scores: int) -> None:
        """scores = E mask: every group of heads sees the same mask rows."""
        fmt, e = self.dtype, ITEM_BYTES[self.dtype]
        depth = band if self.mask_rows else 1
        lanes = padded_channels(depth, fmt)
        # an infinite mask entry times a zero of E would be NaN; the largest finite value masks as well
        n = self.reads[3].local(self.reads[3].box(s.lo, s.hi)).elems
        em.vs("max", s.reads[3], LOWEST[fmt], s.reads[3], n, fmt)
        em.fill(repeat, 0.0, rows * lanes, fmt)
        if self.mask_rows:
            axes = [(band, 0, (lanes + 1) * e), (rows // band, 0, band * lanes * e)]
        else:
            axes = [(rows, 0, lanes * e)]
        em.gather(s.consts[0], repeat, moves(axes, e))
        em.gemm(left=repeat, right=s.reads[3], out=scores, m=rows, k=depth, n=self.cols, r_trs=1, fmt=fmt)

    def _divide(self, em: Emitter, mixed: int, inverse: int, spread: int, ones: int, rows: int) -> None:
        """Multiply every row of the mixed values by the inverse of its sum."""
        full, tail = divmod(self.depth, 64)
        if tail > 32:
            full, tail = full + 1, 0
        block = rows * 64 * ITEM_BYTES[SUM]
        if full:
            em.broadcast_rows(inverse, ones, spread, rows, 64, SUM)
            for j in range(full):
                em.vv("mul", mixed + j * block, spread, mixed + j * block, rows * 64, SUM)
        if tail:
            at = mixed + full * block
            em.broadcast_rows(inverse, ones, spread, rows, tail, SUM)
            em.vv("mul", at, spread, at, rows * padded_channels(tail, SUM), SUM)

    def ops_per_point(self) -> float:
        """Vector cycles per score row: exponential and maximum dominate."""
        return self.cols * 6 * ITEM_BYTES[self.dtype] / self.machine.ct.bytes_per_cycle
