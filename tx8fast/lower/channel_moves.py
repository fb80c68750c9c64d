"""Channels of blocked tensors put one behind the other, and taken out of them.

May import: lower.base, lower.emitter, lower.transfer, graph_table, numerics. Must not: place buffers.

Positions are cut, channels come whole: where one operand's channels begin within a block, they are moved by lanes, else block by block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tx8fast.graph_table import OpRecord
from tx8fast.lower.base import UNLIMITED, Lowering, NotLowerable, Slice
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.transfer import Local, Move, moves
from tx8fast.machine import Machine
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import block_size

LINES = 4  # of operands and results together, that must have room where slices are whole lines


class ChannelMoves(Lowering):
    """`concat` along channels, and `slice` of nothing but channels. Factors: image, position, channel."""

    kind = "channel moves"
    takes = frozenset({"concat", "slice"})

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        out = record.results[0]
        rank = len(out.shape)
        specs = [*record.operands, out]
        if rank < 2 or any(s is None or s.layout != "blocked" or s.dtype != out.dtype for s in specs):
            raise NotLowerable("channels are moved among blocked tensors of one format")
        if any(s.shape[:-1] != out.shape[:-1] for s in specs if s is not None):
            raise NotLowerable("tensors whose channels are moved are alike in all other dimensions")
        #: (operand, its first channel, the result's first channel, how many)
        self.runs: list[tuple[int, int, int, int]] = []
        if record.kind == "slice":
            if record.attr("step")[-1] != 1:
                raise NotLowerable("channels are taken one after the other")
            self.runs.append((0, record.attr("start")[-1], 0, out.shape[-1]))
        else:
            if record.attr("axis") % rank != rank - 1:
                raise NotLowerable("channels are put behind channels")
            at = 0
            for j, spec in enumerate(record.operands):
                assert spec is not None
                self.runs.append((j, 0, at, spec.shape[-1]))
                at += spec.shape[-1]
        if rank > 2:  # an image at a time, in whole lines where tiles have several, as its neighbours have them
            line = out.shape[-2] if rank == 4 and out.shape[1] >= machine.n_tiles else 1
            moved = sum([s.shape[-1] for s in specs if s is not None]) * ITEM_BYTES[out.dtype]
            if LINES * line * moved > machine.spm_limit - machine.spm_base:
                line = 1
            self.loop_over(
                [(0,), range(1, rank - 1), (rank - 1,)], [1, line, out.shape[-1]], [1, UNLIMITED, UNLIMITED], whole=[2]
            )
        else:
            self.loop_over([(0,), (1,)], whole=[1])
        self.reads = [self.operand_access(j, merged=True) for j in range(len(record.operands))]
        self.writes = [self.result_access(merged=True)]

    @property
    def chains(self) -> bool:
        """What takes some channels reads them from DDR: of what another nest leaves in scratchpad it would lose the others."""
        return self.record.kind == "concat"

    def emit(self, em: Emitter, s: Slice) -> None:
        dst = self.writes[0].local(self.writes[0].box(s.lo, s.hi))
        for j, a, b, n in self.runs:
            src = self.reads[j].local(self.reads[j].box(s.lo, s.hi))
            em.gather(s.reads[j], s.writes[0], shifted(src, a, dst, b, n, (0, src.rows)))

    def emit_within(self, em: Emitter, images: Sequence[int], out: int, rows: tuple[int, int]) -> None:
        """Emit a range of positions, where operands and result are there whole."""
        local = lambda x: Local(x.spec.shape[1], x.spec.shape[2], x.spec.dtype, True)  # noqa: E731
        for j, a, b, n in self.runs:
            em.gather(images[j], out, shifted(local(self.reads[j]), a, local(self.writes[0]), b, n, rows))

    def ops_per_point(self) -> float:
        return ITEM_BYTES[self.writes[0].spec.dtype] / self.machine.tdma.bytes_per_cycle


def shifted(src: Local, a: int, dst: Local, b: int, n: int, rows: tuple[int, int]) -> list[Move]:
    """Return the moves of channels [a, a + n) of one blocked matrix to [b, b + n) of another one of as many rows, in a range of these."""
    e, block = ITEM_BYTES[src.dtype], block_size(src.dtype)
    out: list[Move] = []
    for at, width in _pieces(a, b, n, block):
        begin, end = src.offset(rows[0], a + at), dst.offset(rows[0], b + at)
        own, its = src.offset(rows[0] + 1, a + at) - begin, dst.offset(rows[0] + 1, b + at) - end
        n_rows = rows[1] - rows[0]
        if own == its == width * e:
            out += moves([], n_rows * width * e, begin, end)
        else:
            out += moves([(n_rows, own, its)], width * e, begin, end)
    return out


def _pieces(a: int, b: int, n: int, block: int) -> Iterator[tuple[int, int]]:
    """Yield (begin, length) of runs of channels that lie within one block on both sides."""
    at = 0
    while at < n:
        width = min(n - at, block - (a + at) % block, block - (b + at) % block)
        yield at, width
        at += width
