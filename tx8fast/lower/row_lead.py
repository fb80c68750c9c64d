"""A normalisation that leads a group: the rows that matrix products read are normalised in scratchpad, where they lie.

May import: lower.base, lower.emitter, lower.contraction, lower.rows, lower.transfer, graph_table. Must not: place buffers.

    m = x 1 / C                           matrix engine, some channels at a time: while the next ones are still being loaded
    d = 1 / sqrt((x - m)^2 1 / C + eps)   x - m 1' is a product that is added to x; the vector engine squares and sums
    y = x * (d scale') - (m d) scale' + 1 shift'   in place; products of the first channels need not wait for the last ones

What repeats a value over channels or rows, or adds such a thing, is a product of depth 1 on the matrix engine, which has nothing else
to do before the rows are normalised; it widens to f32 and narrows on the way, and adds the shift as a bias. The vector engine, on which all
of this would take twelve passes, has four. Only the order of the sums over channels and of the factors differs from `lower.rows`.
Rows come with all channels, once per slice of rows. rmsnorm has no m: 0 is added to x instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tx8fast.graph_table import Dim, OpRecord
from tx8fast.lower.access import Access
from tx8fast.lower.base import MEETING_BYTES, NotLowerable, Slice
from tx8fast.lower.contraction import Contraction, ResidentAccess
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.rows import WORK, Norm
from tx8fast.lower.transfer import Descriptor, Local, clip
from tx8fast.machine import Machine
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import block_size, padded_channels

BLOCK = 64  # channels that lie together in the work format
WORK_ELEMS = 1 << 13  # values that are worked on at a time, times the buffers for them,
MOST = 8 * BLOCK  # and of how many channels
CHUNK = MOST  # channels of shared rows that arrive together
FEW = 5  # fewer chunks arrive together, and those of less than MEETING_BYTES: tiles meet for each of them
PIECES = 4  # transfers of a slice of rows: statistics begin with the first one


class RowsInPieces(ResidentAccess):
    """The rows of a product's left operand, loaded by ranges of channels, one after the other also where tiles share them."""

    def __init__(self, left: ResidentAccess) -> None:
        self.__dict__.update(left.__dict__)

    def transfers(self, lo: Sequence[int], hi: Sequence[int]) -> list[Descriptor]:
        whole = super().transfers(lo, hi)
        return [c for a, b in self._ranges(lo, hi, PIECES) for d in whole for c in clip(d, a, b)]

    def chunks(self, lo: Sequence[int], hi: Sequence[int]) -> int:
        local = self.matrix(lo, hi)
        count = -(-local.cols // CHUNK)
        return count if count >= FEW and local.size_bytes >= count * MEETING_BYTES else 1

    def chunk(self, lo: Sequence[int], hi: Sequence[int], i: int) -> list[tuple[int, int]]:
        return [self._ranges(lo, hi, -(-self.matrix(lo, hi).cols // CHUNK))[i]]

    def _ranges(self, lo: Sequence[int], hi: Sequence[int], count: int) -> list[tuple[int, int]]:
        """Return the bytes of at most so many ranges of whole channel blocks, as equal as can be."""
        local = self.matrix(lo, hi)
        step = -(-local.cols // (count * BLOCK)) * BLOCK
        cuts = [local.offset(0, c) for c in range(0, local.cols, step)]
        return list(zip(cuts, [*cuts[1:], local.size_bytes], strict=True))


class RowLead(Norm):
    """layernorm or rmsnorm of the left operand of matrix products that keep its whole rows in scratchpad. Its factors are
    those of a product."""

    def __init__(self, record: OpRecord, machine: Machine, product: Contraction) -> None:
        super().__init__(record, machine)
        left = product.reads[0]
        if self.heads > 1:
            raise NotLowerable("a normalisation of heads leads no products")
        if (
            record.operands[0] != record.results[0]
            or not isinstance(left, ResidentAccess)
            or left.spec != record.results[0]
        ):
            raise NotLowerable("a normalisation leads products that read its rows as they came in")
        if block_size(self.dtype) != BLOCK:
            raise NotLowerable("channels of the operand and of its wide form lie in different blocks")
        self.left = RowsInPieces(left)
        last = Dim(self.channels, full=True)
        self.reads = [self.left, *(Access(a.spec, [*a.dims[:-1], last], True) for a in self.reads[1:])]
        self.writes = [Access(left.spec, [*left.dims[:-1], Dim(self.channels, ((left.depth[0], 1),))], True)]
        self.set_factors(product.sizes, product.units)

    def local(self, lo: Sequence[int], hi: Sequence[int]) -> Local:
        return self.left.matrix(lo, hi)

    def const_bytes(self) -> list[int]:
        """A row of what is added to rows, times their means; of ones, instead of a scale; four of them, to sum channels."""
        lanes = self._lanes(min(self.channels, MOST))
        row = lanes * ITEM_BYTES[WORK]
        return [row, *[row] * (not self.gamma), *[4 * lanes * ITEM_BYTES[self.dtype]] * self.centred]

    def prologue(self, em: Emitter, consts: Sequence[int]) -> None:
        lanes = self._lanes(min(self.channels, MOST))
        em.fill(consts[0], 1.0 if self.centred else 0.0, lanes, WORK)
        if not self.gamma:
            em.fill(consts[1], 1.0, lanes, WORK)
        if self.centred:
            em.fill(consts[-1], 1.0, 4 * lanes, self.dtype)

    @property
    def _copies(self) -> int:
        """Buffers of chunks: two of rows, the second one for factors later; with a mean that the matrix engine takes off, one more."""
        return 2 + self.centred

    @staticmethod
    def _lanes(channels: int) -> int:
        return padded_channels(channels, WORK)

    def scratch_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> list[int]:
        """Four values per row, a widened scale, and chunks."""
        local, e = self.local(lo, hi), ITEM_BYTES[WORK]
        most = local.rows * self._lanes(min(self.channels, MOST))
        chunk = min(max(WORK_ELEMS * self._copies, local.rows * BLOCK), most)
        scale = [self._lanes(self.channels) * e] * (self.wide * self.gamma)
        return [*[self.row_bytes(local)] * 4, *scale, *[chunk * e] * self._copies]

    def _chunks(self, local: Local) -> Iterator[tuple[int, int, Local]]:
        """Yield (number, first channel, form) of the channels that are worked on together."""
        step = min(max(WORK_ELEMS * self._copies // local.rows // BLOCK * BLOCK, BLOCK), MOST)
        for i, c in enumerate(range(0, local.cols, step)):
            yield i, c, Local(local.rows, min(step, local.cols - c), WORK, True)

    def emit(self, em: Emitter, s: Slice) -> None:
        local, lanes = self.local(s.lo, s.hi), self._lanes(self.channels)
        below, column, stat = s.scratch[:3]  # minus the mean of every row, what is added with the scale, the deviation
        if self.centred:
            for i, c, chunk in self._chunks(local):
                em.gemm(
                    left=s.reads[0] + local.offset(0, c),
                    right=s.consts[-1],
                    out=below,
                    m=local.rows,
                    k=chunk.cols,
                    n=4,
                    fmt=self.dtype,
                    out_fmt=WORK,
                    psum=below,
                    psum_en=int(i > 0),
                )
            em.vs("mul", below, -1.0 / self.channels, below, local.rows * 4, WORK)
        else:
            em.fill(column, 1.0, local.rows * 4, WORK)
        self._deviation(em, s, local)
        if self.centred:
            em.vv("mul", below, stat, column, local.rows * 4, WORK)
        scale = self.widened_vector(em, 0, s.reads[1], s.scratch[4] if self.wide else 0, lanes) if self.gamma else 0
        self._apply(em, s, local, scale)

    def _deviation(self, em: Emitter, s: Slice, local: Local) -> None:
        """1 / sqrt(mean of squares + eps) of every row."""
        column, stat, part, lanes = s.scratch[0 if self.centred else 1], *s.scratch[2:4], local.rows * 4
        for i, c, chunk in self._chunks(local):
            x = s.scratch[i % 2 - 2]
            self._add_row(em, column, s.consts[0], s.reads[0] + local.offset(0, c), self.dtype, x, WORK, chunk)
            em.v("square", x, x, chunk.elems, WORK)
            em.reduce("sum", x, part if i else stat, chunk, WORK)
            if i:
                em.vv("add", stat, part, stat, lanes, WORK)
        em.vs("mul", stat, 1.0 / self.channels, stat, lanes, WORK)
        em.vs("add", stat, self.eps, stat, lanes, WORK)
        em.v("rsqrt", stat, stat, lanes, WORK)

    def _apply(self, em: Emitter, s: Slice, local: Local, scale: int) -> None:
        """Multiply rows by their deviation and the scale, take off their means times both, add the shift. scale: in the work format, 0:
        there is none."""
        column, stat, *rows, factors = s.scratch[1], s.scratch[2], *s.scratch[-self._copies :]
        shift = s.reads[1 + self.gamma] if self.beta else 0
        for i, c, chunk in self._chunks(local):
            at, skip = s.reads[0] + local.offset(0, c), c * ITEM_BYTES[WORK]
            factor = scale + skip if self.gamma else s.consts[1]
            x = self.widen(em, at, rows[i % len(rows)], chunk.elems)
            em.gemm(left=stat, right=factor, out=factors, m=local.rows, k=1, n=chunk.cols, r_trs=1, fmt=WORK)
            if not self.centred and not self.beta:
                em.vv("mul", x, factors, x, chunk.elems, WORK)
                if self.wide:
                    em.cvt(x, at, chunk.elems, WORK, self.dtype)
                continue
            y = rows[i % len(rows)]
            em.vv("mul", x, factors, y, chunk.elems, WORK)
            row, own = factor if self.centred else s.consts[0], shift and shift + c * self._shift_bytes
            self._add_row(em, column, row, y, WORK, at, self.dtype, chunk, own)

    @property
    def _shift_bytes(self) -> int:
        return ITEM_BYTES[self.reads[-1].spec.dtype]

    def _add_row(
        self,
        em: Emitter,
        column: int,
        row: int,
        x: int,
        x_fmt: str,
        out: int,
        out_fmt: str,
        chunk: Local,
        bias: int = 0,
    ) -> None:
        """out = x + column [rows, 1] * row [1, columns] + bias: a product that is added to x. bias: of the shift, 0: none."""
        em.gemm(
            left=column,
            right=row,
            out=out,
            m=chunk.rows,
            k=1,
            n=chunk.cols,
            r_trs=1,
            fmt=WORK,
            out_fmt=out_fmt,
            psum=x,
            psum_fmt=x_fmt,
            psum_en=1,
            bias=bias,
            bias_en=int(bias > 0),
            bias_fmt=self.reads[-1].spec.dtype,
        )
