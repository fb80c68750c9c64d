"""The images of a model's input, rows of one channel after the other, as the convolutions want them.

May import: lower.base, lower.emitter, lower.transfer, graph_table, numerics. Must not: place buffers.

A range of positions of all channels is loaded, converted to the working format and turned round: the planes become the
lanes of the blocked form, together with planes of zeros where lanes are padded (hardware manual 7.2, 11.4).
"""

from __future__ import annotations

from collections.abc import Sequence

from tx8fast.graph_table import Dim, GroupRecord, OpRecord, TensorSpec
from tx8fast.lower.access import Access
from tx8fast.lower.base import FLOATS, Lowering, NotLowerable, Slice
from tx8fast.lower.emitter import Emitter
from tx8fast.machine import Machine
from tx8fast.numerics.formats import FORMAT_CODES, ITEM_BYTES
from tx8fast.numerics.layout import block_size, padded_channels

MAX_POSITIONS = 4096  # field range of tensor instructions


class Intake(Lowering):
    """(convert,) transpose (0, 2, 3, 1), channel_norm. Factors: image, position, channel (whole)."""

    kind = "intake"

    def __init__(self, record: GroupRecord | OpRecord, src: TensorSpec, dst: TensorSpec, machine: Machine) -> None:
        super().__init__(record, machine)
        n, h, w, c = dst.shape
        if {src.dtype, dst.dtype} - set(FLOATS) or src.layout != "dense" or dst.layout != "blocked":
            raise NotLowerable("an intake makes blocked images of dense planes of floats")
        if src.shape != (n, c, h, w) or c > block_size(dst.dtype):
            raise NotLowerable("an intake takes images with one block of channels, rows of one channel after the other")
        self.src, self.dst = src, dst
        self.set_factors((n, h * w, c), (1, block_size(dst.dtype), c), max_len=(1, MAX_POSITIONS, c))
        lead, at, chans = Dim(n, ((0, 1),)), Dim(h * w, ((1, 1),)), Dim(c, full=True)
        self.reads = [Access(TensorSpec((n, c, h * w), src.dtype, "dense"), [lead, chans, at], False)]
        self.writes = [Access(TensorSpec((n, h * w, c), dst.dtype, "blocked"), [lead, at, chans], True)]

    def arguments(self) -> list[int]:
        return [0]

    def _planes(self) -> int:
        return padded_channels(self.sizes[2], self.dst.dtype)

    def scratch_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> list[int]:
        return [self._planes() * (hi[1] - lo[1]) * ITEM_BYTES[self.dst.dtype]]

    def emit(self, em: Emitter, s: Slice) -> None:
        m, c = s.hi[1] - s.lo[1], self.sizes[2]
        fmt, planes = self.dst.dtype, self._planes()
        e = ITEM_BYTES[fmt]
        if self.src.dtype == fmt:
            em.copy(s.reads[0], s.scratch[0], c * m * e)
        else:
            em.cvt(s.reads[0], s.scratch[0], c * m, self.src.dtype, fmt)
        if planes > c:
            em.fill(s.scratch[0] + c * m * e, 0.0, (planes - c) * m, fmt)
        em.add("nhwc2nchw", src0=s.scratch[0], dst=s.writes[0], n=1, h=planes, w=1, c=m, fmt=FORMAT_CODES[fmt])


def takes_in(ops: Sequence[OpRecord]) -> bool:
    """Say whether the ops, each on the result of the one before, are an intake."""
    kinds = [op.kind for op in ops]
    if kinds[-2:] != ["transpose", "channel_norm"] or kinds[:-2] not in ([], ["convert"]):
        return False
    return tuple(ops[-2].attr("perm")) == (0, 2, 3, 1)
