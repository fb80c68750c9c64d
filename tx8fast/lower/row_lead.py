"""A normalisation that leads a group: the rows that matrix products read are normalised in scratchpad, where they lie.

May import: lower.base, lower.emitter, lower.contraction, lower.rows, lower.transfer, graph_table. Must not: place buffers.

    m = x 1 / C                           matrix engine, some channels at a time: while the next ones are still being loaded
    d = 1 / sqrt((x - m)^2 1 / C + eps)   x - m 1' is a product that is added to x; the vector engine squares and sums
    y = (x - m) * (d scale') + 1 shift'   in place; products of the first channels need not wait for the last ones

What repeats a value over channels or rows, or adds such a thing, is a product of depth 1 on the matrix engine, which has nothing else
to do before the rows are normalised; it widens to f32 and narrows on the way. The vector engine, on which all of this would take
twelve passes, has three. Only the order of the sums over channels and of the factors differs from `lower.rows`.
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
        """A row of what a centre is multiplied by; of ones, instead of a scale; four of them, to sum channels."""
        lanes = self._lanes(min(self.channels, MOST))
        row = lanes * ITEM_BYTES[WORK]
        return [row, *[row] * (not self.gamma), *[4 * lanes * ITEM_BYTES[self.dtype]] * self.centred]

    def prologue(self, em: Emitter, consts: Sequence[int]) -> None:
        lanes = self._lanes(min(self.channels, MOST))
        em.fill(consts[0], -1.0 if self.centred else 0.0, lanes, WORK)
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
        """Four values per row, widened vectors, and chunks."""
        local, e = self.local(lo, hi), ITEM_BYTES[WORK]
        most = local.rows * self._lanes(min(self.channels, MOST))
        chunk = min(max(WORK_ELEMS * self._copies, local.rows * BLOCK), most)
        vectors = [self._lanes(self.channels) * e] * (self.wide * (self.gamma + self.beta))
        return [*[self.row_bytes(local)] * 4, *vectors, *[chunk * e] * self._copies]

    def _chunks(self, local: Local) -> Iterator[tuple[int, int, Local]]:
        """Yield (number, first channel, form) of the channels that are worked on together."""
        step = min(max(WORK_ELEMS * self._copies // local.rows // BLOCK * BLOCK, BLOCK), MOST)
        for i, c in enumerate(range(0, local.cols, step)):
            yield i, c, Local(local.rows, min(step, local.cols - c), WORK, True)

    def emit(self, em: Emitter, s: Slice) -> None:
        local, n = self.local(s.lo, s.hi), self._lanes(self.channels)
        mean, column = s.scratch[:2]
        if self.beta or not self.centred:
            em.fill(column, 1.0, local.rows * 4, WORK)
        if self.centred:
            for i, c, chunk in self._chunks(local):
                em.gemm(
                    left=s.reads[0] + local.offset(0, c),
                    right=s.consts[-1],
                    out=mean,
                    m=local.rows,
                    k=chunk.cols,
                    n=4,
                    fmt=self.dtype,
                    out_fmt=WORK,
                    psum=mean,
                    psum_en=int(i > 0),
                )
            em.vs("mul", mean, 1.0 / self.channels, mean, local.rows * 4, WORK)
        self._deviation(em, s, local)
        vectors = [
            self.widened_vector(em, j, v, s.scratch[4 + j] if self.wide else 0, n) for j, v in enumerate(s.reads[1:])
        ]
        self._apply(em, s, local, vectors)

    def _centre(self, em: Emitter, s: Slice, local: Local, channel: int, out: int, chunk: Local) -> None:
        """out = the rows' values from this channel on, widened, less their mean."""
        column = s.scratch[0 if self.centred else 1]
        self._add_row(em, column, s.consts[0], s.reads[0] + local.offset(0, channel), self.dtype, out, WORK, chunk)

    def _deviation(self, em: Emitter, s: Slice, local: Local) -> None:
        """1 / sqrt(mean of squares + eps) of every row."""
        stat, part, lanes = s.scratch[2], s.scratch[3], local.rows * 4
        for i, c, chunk in self._chunks(local):
            x = s.scratch[i % 2 - 2]
            self._centre(em, s, local, c, x, chunk)
            em.v("square", x, x, chunk.elems, WORK)
            em.reduce("sum", x, part if i else stat, chunk, WORK)
            if i:
                em.vv("add", stat, part, stat, lanes, WORK)
        em.vs("mul", stat, 1.0 / self.channels, stat, lanes, WORK)
        em.vs("add", stat, self.eps, stat, lanes, WORK)
        em.v("rsqrt", stat, stat, lanes, WORK)

    def _apply(self, em: Emitter, s: Slice, local: Local, vectors: Sequence[int]) -> None:
        """Multiply centred rows by their deviation and the scale, add the shift. vectors: in the work format."""
        column, stat, *rows, factors = s.scratch[1], s.scratch[2], *s.scratch[-self._copies :]
        for i, c, chunk in self._chunks(local):
            x, at, skip = rows[i % len(rows)], s.reads[0] + local.offset(0, c), c * ITEM_BYTES[WORK]
            if self.centred:
                self._centre(em, s, local, c, x, chunk)
            else:
                x = self.widen(em, at, x, chunk.elems)
            scale = vectors[0] + skip if self.gamma else s.consts[1]
            em.gemm(left=stat, right=scale, out=factors, m=local.rows, k=1, n=chunk.cols, r_trs=1, fmt=WORK)
            y = x if self.beta or self.wide else at
            em.vv("mul", x, factors, y, chunk.elems, WORK)
            if self.beta:
                self._add_row(em, column, vectors[-1] + skip, y, WORK, at, self.dtype, chunk)
            elif self.wide:
                em.cvt(y, at, chunk.elems, WORK, self.dtype)

    def _add_row(
        self, em: Emitter, column: int, row: int, x: int, x_fmt: str, out: int, out_fmt: str, chunk: Local
    ) -> None:
        """out = x + column [rows, 1] * row [1, columns]: a product that is added to x."""
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
        )
