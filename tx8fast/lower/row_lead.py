"""A normalisation that leads a group: the rows that matrix products read are normalised in scratchpad, where they lie.

May import: lower.base, lower.emitter, lower.contraction, lower.rows, lower.transfer, graph_table. Must not: place buffers.

    statistics  of every row, some channels at a time: while the next channels are still being loaded
    application to the same channels, in place; products of the first channels need not wait for the last ones

Rows come with all channels, once per slice of rows. In 16-bit formats a chunk of channels is widened to f32, as in
`lower.rows`; only the order of the sums over channels differs from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tx8fast.graph_table import Dim, OpRecord
from tx8fast.lower.base import Access, NotLowerable, Slice
from tx8fast.lower.contraction import Contraction, ResidentAccess
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.rows import WORK, Norm
from tx8fast.lower.transfer import Descriptor, Local, clip
from tx8fast.machine import Machine
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import block_size

BLOCK = 64  # channels that lie together in the work format
CHUNK = 4 * BLOCK  # channels that are worked on at a time
PIECES = 4  # transfers of a slice of rows: statistics begin with the first one


class RowsInPieces(ResidentAccess):
    """The rows of a product's left operand, loaded by ranges of channels."""

    def __init__(self, left: ResidentAccess) -> None:
        self.__dict__.update(left.__dict__)

    def transfers(self, lo: Sequence[int], hi: Sequence[int]) -> list[Descriptor]:
        local = self.matrix(lo, hi)
        step = -(-local.cols // (PIECES * BLOCK)) * BLOCK
        cuts = [local.offset(0, c) for c in range(0, local.cols, step)]
        whole = super().transfers(lo, hi)
        return [
            c for a, b in zip(cuts, [*cuts[1:], local.size_bytes], strict=True) for d in whole for c in clip(d, a, b)
        ]


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

    def scratch_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> list[int]:
        local = self.local(lo, hi)
        chunk = Local(local.rows, min(CHUNK, self.channels), WORK, True)
        vectors = [CHUNK * ITEM_BYTES[WORK]] * (self.wide and self.gamma + self.beta > 0)
        stats = [
            self.row_bytes(local),
            self.block_bytes(local),
        ]  # of a statistic: a value per row, and spread over lanes
        return [self.work_bytes(chunk), self.row_bytes(local), *stats, *(stats if self.centred else []), *vectors]

    def _chunks(self, local: Local) -> Iterator[tuple[int, Local]]:
        """Yield (first channel, form) of the channels that are worked on together."""
        for c in range(0, local.cols, CHUNK):
            yield c, Local(local.rows, min(CHUNK, local.cols - c), WORK, True)

    def emit(self, em: Emitter, s: Slice) -> None:
        local, ones, rows = self.local(s.lo, s.hi), s.consts[0], s.reads[0]
        work, part, stat, spread, *more = s.scratch
        mean, mean_spread = more[:2] if self.centred else (0, 0)
        if self.centred:
            self._sum(em, local, rows, work, part, mean, None)
        self._sum(em, local, rows, work, part, stat, (mean, mean_spread, ones))
        lanes = local.rows * 4
        em.vs("add", stat, self.eps, stat, lanes, WORK)
        em.v("rsqrt", stat, stat, lanes, WORK)
        for c, chunk in self._chunks(local):
            at = rows + local.offset(0, c)
            x = self.widen(em, at, work, chunk.elems)
            if self.centred:
                self._apply(em, "sub", x, mean, work, mean_spread, ones, chunk, c)
                x = work
            y = work if self.wide else at
            self._apply(em, "mul", x, stat, y, spread, ones, chunk, c)
            lanes = chunk.elems // chunk.rows
            for fn, vector in zip(["mul"] * self.gamma + ["add"] * self.beta, s.reads[1:], strict=True):
                own = self.widen(em, vector + c * ITEM_BYTES[self.dtype], more[-1] if more else 0, lanes)
                em.vector(fn, y, own, y, chunk, WORK)
            if self.wide:
                em.cvt(y, at, chunk.elems, WORK, self.dtype)

    def _sum(self, em: Emitter, local: Local, rows: int, work: int, part: int, total: int,
             centre: tuple[int, int, int] | None) -> None:  # fmt: skip
        """total [rows, 1] = the mean over channels, of squares if `centre` (mean, its spread, ones) is given."""
        lanes = local.rows * 4
        for c, chunk in self._chunks(local):
            x = self.widen(em, rows + local.offset(0, c), work, chunk.elems)
            if centre is not None:
                if self.centred:
                    self._apply(em, "sub", x, centre[0], work, centre[1], centre[2], chunk, c)
                    x = work
                em.v("square", x, work, chunk.elems, WORK)
                x = work
            em.reduce("sum", x, part if c else total, chunk, WORK)
            if c:
                em.vv("add", total, part, total, lanes, WORK)
        em.vs("mul", total, 1.0 / self.channels, total, lanes, WORK)

    def _apply(self, em: Emitter, fn: str, x: int, stat: int, y: int, spread: int, ones: int, chunk: Local,
               channel: int) -> None:  # fmt: skip
        """y = fn(x, stat); whole blocks find the statistic spread by the first chunk."""
        blocks, rest = divmod(chunk.elems // chunk.rows, BLOCK)
        size = self.block_bytes(chunk)
        if blocks and not channel:
            em.broadcast_rows(stat, ones, spread, chunk.rows, BLOCK, WORK)
        em.vv_each(fn, [(x + j * size, spread, y + j * size) for j in range(blocks)], chunk.rows * BLOCK, WORK)
        if rest:
            em.broadcast_rows(stat, ones, spread, chunk.rows, chunk.cols % BLOCK, WORK)
            em.vv(fn, x + blocks * size, spread, y + blocks * size, chunk.rows * rest, WORK)
