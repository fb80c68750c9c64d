"""Attention in scratchpad: scores, softmax and mix of some heads, a band of rows and a range of keys per slice.

May import: lower.base, lower.emitter, lower.contraction, lower.score_{bands,keys,ops,packing,pieces,shape}, graph_table. Must not: place buffers.

    q' = q * scale                            vector engine, once per band of rows
    S  = q' K^T (+ mask)                      matrix engine, or f(q K^T) * scale with ops on scores; the mask where it hides something
    m' = max(m, rowmax(S)); c = exp(m - m')   channel maximum; what was summed before is rescaled by c
    P  = exp(S - m')                          a rank-1 update on the matrix engine, then the dearest vector step
    l  = l * c + P 1;  y = y * c + P V        matrix engine
    result y / l                              after the last range of keys

A slice is closed: what it rescales and sums needs nothing of a later one. Scores and corrections have two copies, so that the
matrix engine makes further scores while the vector engine works on the exponential. Scores never leave scratchpad. Where the
mask is known to hide everything in a slice, the slice does not exist.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tx8fast.graph_table import GroupRecord
from tx8fast.lower.access import Access
from tx8fast.lower.base import ALIGN_BYTES, Lowering, NotLowerable, Slice, round_up
from tx8fast.lower.contraction import Contraction, LaneAccess
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.links import Folded, Link, LinkedAccess, Links
from tx8fast.lower.score_bands import Band, BandAccess, add_whole, mask_dims
from tx8fast.lower.score_keys import CHUNK, KeyChunks, scores_with
from tx8fast.lower.score_ops import ScoreOps, is_attention
from tx8fast.lower.score_packing import HeadUnits, Packing, head_units
from tx8fast.lower.score_pieces import ENDS, add_values, pieces, scale_rows
from tx8fast.lower.score_shape import check_shape, through_scores
from tx8fast.lower.transfer import Local
from tx8fast.machine import Machine
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import block_size, padded_channels

SUM = "f32"
MAX_COLS = 16384  # field range of the reduction and of matrix dimensions
SCRATCH = 11  # buffers besides those of heads that are packed
MAX_KEYS = 4096  # keys of a slice: bounds the rows of ones


class Attention(Lowering):
    """Group factors: the scores' batch factors, then its row factors, then the keys, a reduction."""

    kind = "attention"
    shared_copies = 1  # more rows per slice are worth more than loading the next head early
    overlaps = True
    keeps = True
    turns = 2
    ends: tuple[float, ...] = ENDS  # of pieces of scores; () where other work fills the engines meanwhile

    def __init__(
        self, record: GroupRecord, machine: Machine, loads: bool = True, folded: bool = False, together: bool = False
    ) -> None:
        """loads: False: operands are in scratchpad, keys and values one matrix each, and masks whole. folded: rows of a known band are
        in pairs from either end (`links.Folded`). together: slices have as many heads as fill whole blocks (`HeadUnits`)."""
        super().__init__(record, machine)
        self.balanced = folded
        if not is_attention(record.ops):
            raise NotLowerable("attention is a matrix product, a softmax and a matrix product")
        scores, *between, softmax, mix = record.ops
        self.between = ScoreOps(record, len(between), float(softmax.attr("scale")), machine)
        self.first = Contraction(scores, machine)
        self.second = Contraction(mix, machine, rows_of_left=True)
        self.dtype = scores.results[0].dtype
        check_shape(record, self.first, self.second, self.dtype)
        first, second = self.first, self.second
        self.batch, self.rows = first.batch, first.m
        if not self.rows or len(first.n) != 1 or len(second.k) != 1:
            raise NotLowerable("scores need a row and one column dimension")
        free = [*self.batch, *self.rows[:-1], *[-1] * folded, self.rows[-1], *first.n]
        index = {f: i for i, f in enumerate(free) if f >= 0}
        n, self.side, sizes = len(free), free.index(-1) if folded else -1, [first.sizes[f] for f in free]
        self.keys = first.sizes[first.n[0]]
        self.depth = math.prod(second.sizes[f] for f in second.n)
        if self.depth > MAX_COLS:
            raise NotLowerable(f"heads of {self.depth} values are above the limit of {MAX_COLS}")
        at = {f: Link(i, first.sizes[f]) for f, i in index.items()}
        if folded:
            if not softmax.attr("visible") or sizes[n - 2] % 2 or not math.prod(sizes[: self.side]) % machine.n_tiles:
                raise NotLowerable("rows are in pairs where these are more equal work for tiles than heads")
            at[self.rows[-1]] = Folded(n - 2, sizes[n - 2], side=self.side)
            sizes[self.side], sizes[n - 2] = 2, sizes[n - 2] // 2
        own = [at.get(f, Link(-1, size)) for f, size in enumerate(first.sizes)]
        across = through_scores(first, second, at)
        units, head = [1] * (n - 1), -1
        heads = [(first.reads[0], own), (first.reads[1], own), (second.reads[1], across), (second.writes[0], across)]
        if together:
            head, units[head] = head_units(heads, sizes, math.prod([first.sizes[f] for f in self.rows]))
        self.set_factors(
            sizes,
            [*units, min(64, self.keys)],
            [i != self.side for i in range(n - 1)] + [False],
            reduce=[False] * (n - 1) + [True],
            max_len=[units[i] if i < len(self.batch) or i == self.side else MAX_COLS for i in range(n - 1)]
            + [MAX_KEYS],
        )
        self.band, self.range = n - 2, n - 1  # factors: the rows that a mask tells apart, the keys
        self.row = at[self.rows[-1]]
        #: queries, keys, values and results whose heads begin inside of blocks: they are packed in scratchpad
        self.lanes = {j: Links(links) for j, (access, links) in enumerate(heads) if access.staggered}
        made = [
            LinkedAccess(LaneAccess(a, together) if j in self.lanes else a, links)  # type: ignore[arg-type]
            for j, (a, links) in enumerate(heads)
        ]
        self.packing = Packing({j: made[j] for j in self.lanes}, self.keys)
        self.heads = HeadUnits(self.packing.lanes, self.keys, head) if together else None
        self.reads = [*made[:3]]
        self.args = [
            self._wire(0, first.arguments()[0]),
            self._wire(0, first.arguments()[1]),
            self._wire(-1, second.arguments()[1]),
        ]
        self.chunked = self.mask_rows = False
        self.masked = len(softmax.operands) > 1 and softmax.operands[1] is not None
        self.visible: tuple[int, int] | None = None  # row i sees keys (i + offset - window, i + offset]
        if self.masked:
            self._add_mask(record, index)
            if head in self.reads[3].factors:
                raise NotLowerable("heads of a slice have one mask")
            if softmax.attr("visible") and self.mask_rows:
                offset, window = softmax.attr("visible")
                self.visible = offset, window or 2 * self.keys + self.row.size + offset
                mask, depth = self.reads[3], math.prod(first.sizes[f] for f in first.k)
                self.seen = BandAccess(mask.spec, mask.dims, self.visible, self.row, self.range, loads)
                self.reads[3] = self.seen
                if loads and not (first.r_trs or 1 in self.lanes):
                    self.chunked = depth > block_size(self.dtype) and self.keys > CHUNK
                    self.reads[1] = KeyChunks(first.reads[1], own, self.range, self.chunked)
                if loads and second.r_trs and 2 not in self.lanes:
                    self.reads[2] = KeyChunks(second.reads[1], across, self.range, False)
                self.skipping, self.unequal = frozenset((*self.row.factors, self.range)), self.row.factors[::-1]
                self.rare = frozenset((3,))
        self.given = len(self.reads)  # the first of the single elements that ops on the scores take
        self.reads += self.between.reads
        self.args += self.between.args
        self.writes = [made[3]]

    def _wire(self, op: int, operand: int) -> int:
        wire = self.record.wires[op][operand]
        if wire is None or wire[0] != "in":
            raise NotLowerable("queries, keys and values come from outside the group")
        return wire[1]

    def _add_mask(self, record: GroupRecord, index: dict[int, int]) -> None:
        spec = record.ops[-2].operands[1]
        rule = record.ops[0].rule
        assert spec is not None and rule is not None
        out = rule.outs[0]
        if spec.dtype != self.dtype or spec.shape[-1] != self.keys:
            raise NotLowerable("the mask must have the scores' format and columns")
        within = {*self.batch, self.rows[-1], self.first.n[0]}
        dims = mask_dims(spec.shape, out, {f: at for f, at in index.items() if f in within})
        self.mask_rows = any(dict(d.terms).keys() & {index[self.rows[-1]]} for d in dims)
        self.reads.append(Access(spec, dims, True))
        self.args.append(self._wire(-2, 1))

    def arguments(self) -> list[int]:
        return self.args

    # -- geometry -----------------------------------------------------------------------------------------------

    def _extent(self, lo: Sequence[int], hi: Sequence[int]) -> tuple[int, int]:
        """Score rows and keys of a slice."""
        lens = [b - a for a, b in zip(lo, hi, strict=True)]
        return math.prod(lens[len(self.batch) : -1]), lens[-1]

    def _hides(self, lo: Sequence[int], hi: Sequence[int]) -> str:
        """Return what the mask hides of a slice: "all", "some" or "none"."""
        return self.seen.hides(lo, hi) if self.visible else "some" if self.masked else "none"

    def skips(self, lo: Sequence[int], hi: Sequence[int]) -> bool:
        return self._hides(lo, hi) == "all"

    def working(self, lo: Sequence[int], hi: Sequence[int], slices: Sequence[int]) -> int:
        return int(self.seen.whole(lo, hi, slices).sum())

    def amounts(self, lo: Sequence[int], hi: Sequence[int], slices: Sequence[int]) -> Sequence[float]:
        return self.seen.parts(lo, hi, slices).tolist()

    def fullest(self, lo: Sequence[int], hi: Sequence[int], slices: Sequence[int]) -> Sequence[int]:
        f, n = self.band, slices[self.band]
        if self.balanced:
            return (*lo[: self.side], hi[self.side] - 1, *lo[f:])
        return (*lo[:f], lo[f] + max(0, (hi[f] - lo[f]) // n - 1) * n, *lo[f + 1 :]) if self.visible else lo

    def hindmost(self, lens: Sequence[int]) -> tuple[int, ...]:
        return tuple([int(f == self.side) for f in range(len(lens))]) if self.balanced else super().hindmost(lens)

    def in_step(self, slices: Sequence[int]) -> bool:
        return self.balanced and slices[self.range] >= self.keys

    @property
    def chains(self) -> bool:
        """A tile's rows from either end are no one range, which nests before and behind would take them for."""
        return not self.balanced and super().chains

    def arrivals(self, reads: Sequence[int], lo: Sequence[int], hi: Sequence[int]) -> int:
        return 1 if self.balanced else super().arrivals(reads, lo, hi)

    def contents(self, lo: Sequence[int], hi: Sequence[int]) -> list[Any]:
        """Of a known band the place along the diagonal does not matter."""
        found = super().contents(lo, hi)
        if self.visible is not None:
            begin, end = self.seen.columns(lo, hi)
            at, (a, b) = lo[self.range] + begin, self.row.range(lo, hi)
            found[3] = a - at, b - at, end - begin
        return found

    def density(self, lo: Sequence[int], hi: Sequence[int]) -> float:
        return self.seen.density(lo, hi) if self.visible else 1.0

    def needs(self, k: int, lo: Sequence[int], hi: Sequence[int]) -> bool:
        if k != 3 or not self.masked or not self.visible:
            return True
        return self._hides(lo, hi) == "some" and self.seen.divides(lo, hi)

    def place(self, lo: Sequence[int], hi: Sequence[int]) -> tuple:
        return (lo[self.band], hi[self.band]) if self.visible else ()

    def slice_form(self, lo: Sequence[int], hi: Sequence[int]) -> tuple:
        hides, heads = self._hides(lo, hi), self.packing.lanes.values()
        diagonal = self.row.range(lo, hi)[0] - lo[self.range] if hides == "some" and self.visible else 0
        return (super().slice_form(lo, hi), hides, diagonal, self.packing.form(lo) if self.heads is None else 0), *[
            a.box(lo, hi)[-1][0] % block_size(self.dtype) for a in heads
        ]

    def cost_form(self, lo: Sequence[int], hi: Sequence[int]) -> tuple:
        """Rows of grouped heads are rows like others, unless they have a mask in common."""
        if self.heads is not None or self._hides(lo, hi) == "some":
            return self.slice_form(lo, hi)[:1]
        return self._extent(lo, hi)

    def may_share(self, k: int) -> bool:
        """Keys and values, if heads are whole blocks: a trial prices others too low. With a mask tiles would meet at every slice."""
        return self.sharing and k in (1, 2) and not self.reads[k].staggered

    def fits(self, lens: Sequence[int]) -> bool:
        return self._extent((0,) * len(lens), lens)[0] <= MAX_COLS

    def scratch_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> list[int]:
        """Scores; maxima and corrections, two copies; a spare column, two of sums; one block and the mixed values."""
        rows, keys = self._extent(lo, hi)
        own, packing = self._own_bytes(rows, keys), self.packing
        if self.heads is not None:
            own, packing = [n * self.heads.count(lo, hi) for n in own], self.heads
        return own + packing.scratch_bytes(lo, hi) + self.between.scratch_bytes(Local(rows, keys, self.dtype, True))

    def _own_bytes(self, rows: int, keys: int) -> list[int]:
        scores = Local(rows, keys, self.dtype, True).size_bytes
        mixed = Local(rows, self.depth, SUM, True).size_bytes
        column, wide = rows * 4 * ITEM_BYTES[self.dtype], rows * 4 * ITEM_BYTES[SUM]
        own = [scores, scores, column, column, wide, wide, column, wide, wide, rows * 64 * ITEM_BYTES[SUM], mixed]
        return [round_up(n, ALIGN_BYTES) for n in own]

    def const_bytes(self) -> list[int]:
        """Ones: one per key, four rows of all keys, and one block of sums."""
        e = ITEM_BYTES[self.dtype]
        lanes = padded_channels(min(self.keys, MAX_KEYS), self.dtype)
        return [max(lanes, 64) * e, 4 * lanes * e, 64 * ITEM_BYTES[SUM]]

    def prologue(self, em: Emitter, consts: Sequence[int]) -> None:
        lanes = padded_channels(min(self.keys, MAX_KEYS), self.dtype)
        em.fill(consts[0], 1.0, max(lanes, 64), self.dtype)
        em.fill(consts[1], 1.0, 4 * lanes, self.dtype)
        em.fill(consts[2], 1.0, 64, SUM)

    def prepares(self, changed: Sequence[int]) -> bool:
        """Keys and values are packed when their heads change, if a slice has all of them."""
        return self.heads is None and any(j in changed for j in self.lanes if j in (1, 2))

    # -- instructions -------------------------------------------------------------------------------------------

    def emit(self, em: Emitter, s: Slice) -> None:
        if self.heads is not None:
            for i, head in self.heads.each(s, self._own_bytes(*self._extent(s.lo, s.hi))):
                self._attend(em, head, self.heads.pack_head(em, head, i, s, s.scratch[SCRATCH:], self.dtype), s)
            return
        self._attend(em, s, self.packing.pack(em, s, s.scratch[SCRATCH:], self.dtype) if self.lanes else s, s)

    def _attend(self, em: Emitter, s: Slice, own: Slice, whole: Slice) -> None:
        """own: slice s with matrices; whole: the slice of which it is a head."""
        self._weigh(em, own)
        self._mix(em, own)
        if s.last and 3 in self.lanes:
            self.packing.unpack(em, s, own.writes[0], whole)

    def _weigh(self, em: Emitter, s: Slice) -> None:
        """Emit what makes scores and their exponentials, and the correction of what was summed before."""
        fmt = self.dtype
        rows, keys = self._extent(s.lo, s.hi)
        scores, top, old = s.scratch[s.parity], s.scratch[2 + s.parity], s.scratch[3 - s.parity]
        factor, spare, wide = s.scratch[4 + s.parity], s.scratch[6], s.scratch[7]
        q = s.reads[0]
        depth = math.prod(self.first.sizes[f] for f in self.first.k)
        shown, queries = self._shown(s), rows * padded_channels(depth, fmt)
        local = Local(rows, shown, fmt, True)
        if s.first:
            self.between.emit_factors(em, q, queries, s.reads[self.given :])
        scores_with(em, q, s.reads[1], scores, rows, depth, keys, shown, self.chunked, bool(self.first.r_trs), fmt)
        self.between.emit(em, scores, local, s.reads[self.given :], s.scratch[-1])
        band = self._add_masked(em, s, scores, local) if self._hides(s.lo, s.hi) == "some" else None
        if s.first:
            em.reduce("max", scores, top, local, fmt)
        else:
            em.reduce("max", scores, spare, local, fmt)
            em.vv("max", spare, old, top, rows * 4, fmt)
            if fmt == SUM:
                em.vv("sub", old, top, factor, rows * 4, SUM)
            else:
                em.cvt(old, factor, rows * 4, fmt, SUM)
                em.cvt(top, wide, rows * 4, fmt, SUM)
                em.vv("sub", factor, wide, factor, rows * 4, SUM)
            em.v("exp", factor, factor, rows * 4, SUM)
        em.v("neg", top, spare, rows * 4, fmt)
        for at, part in (parts := pieces(scores, local, self.ends, self.depth, self.machine)):
            em.gemm(
                left=spare,
                right=s.consts[0],
                out=at,
                m=rows,
                k=1,
                n=part.cols,
                r_trs=1,
                fmt=fmt,
                psum=at,
                psum_fmt=fmt,
                psum_en=1,
            )
        for at, part in parts:
            begin = (at - scores) // ITEM_BYTES[fmt]
            within = begin, begin + part.elems
            for a, b in [within] if band is None else band.shown_of(within):
                place = scores + a * ITEM_BYTES[fmt]
                em.v("exp" if fmt == SUM else "exp_lp", place, place, b - a, fmt)
            if band is not None:
                band.fill(em, scores, 0.0, within)

    def _mix(self, em: Emitter, s: Slice) -> None:
        """Emit what rescales the sums, adds the slice's values, and divides by the sums after the last ones."""
        fmt, more = self.dtype, int(not s.first)
        (rows, keys), key = self._extent(s.lo, s.hi), 0
        scores, factor = s.scratch[s.parity], s.scratch[4 + s.parity]
        sums, spread, mixed = s.scratch[8:SCRATCH]
        ones = s.consts[2]
        if more:
            em.vv("mul", sums, factor, sums, rows * 4, SUM)
            scale_rows(em, mixed, factor, spread, ones, rows, self.depth)
        for at, part in pieces(scores, Local(rows, self._shown(s), fmt, True), self.ends[1:], self.depth, self.machine):
            em.gemm(
                left=at,
                right=s.consts[1],
                out=sums,
                m=rows,
                k=part.cols,
                n=4,
                fmt=fmt,
                out_fmt=SUM,
                psum=sums,
                psum_en=more,
            )
            add_values(em, at, part, (s.reads[2], key, keys, self.depth), bool(self.second.r_trs), mixed, more)
            key, more = key + part.cols, 1
        if not s.last:
            return
        em.v("recip", sums, sums, rows * 4, SUM)
        scale_rows(em, mixed, sums, spread, ones, rows, self.depth)
        n = Local(rows, self.depth, SUM, True).elems
        if fmt == SUM:
            em.copy(mixed, s.writes[0], n * ITEM_BYTES[SUM])
        else:
            em.cvt(mixed, s.writes[0], n, SUM, fmt)

    def _add_masked(self, em: Emitter, s: Slice, scores: int, local: Local) -> Band | None:
        """Add the slice's mask to the scores of every grouped head; return what it hides, if nothing more is done with that."""
        seen = self.reads[3].local(self.reads[3].box(s.lo, s.hi))
        if self.visible is not None:
            band = self.seen.of(s.lo, s.hi, local)
            if not band.masked or band.pays(self.machine):
                band.mask(em, scores, s.reads[3])
                return band
            begin, end = self.seen.columns(s.lo, s.hi)
            seen = seen._replace(cols=end - begin)
            scores, local = scores + local.offset(0, begin), local._replace(cols=seen.cols)
        add_whole(em, scores, s.reads[3], local, seen)
        return None

    def _shown(self, s: Slice) -> int:
        """Return the keys of a slice that are looked at."""
        return self.seen.shown(s.lo, s.hi) if self.visible else self._extent(s.lo, s.hi)[1]

    def ops_per_point(self) -> float:
        """Vector cycles per score: exponential and maximum dominate. Hidden scores cost nothing."""
        part = self.density((0,) * len(self.sizes), self.sizes)
        own = 6 * ITEM_BYTES[self.dtype] / self.machine.ct.bytes_per_cycle
        return part * (own + self.between.ops_per_point())
