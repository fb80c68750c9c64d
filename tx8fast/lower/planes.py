"""Images as rows of one channel after the other, as models have them, and in blocks of channels, as the convolutions want them.

May import: lower.base, lower.emitter, lower.transfer, graph_table, numerics. Must not: place buffers.

Some positions of a block of channels are turned round by one instruction, which reads rows (hardware manual 11.4, 16.5): planes become
the lanes of the blocked form, together with planes of zeros where lanes are padded (7.2), or lanes become planes.
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


class Planes(Lowering):
    """Factors: image, position, channel (one block at a time). inward: planes become an image."""

    inward: bool

    def __init__(self, record: GroupRecord | OpRecord, src: TensorSpec, dst: TensorSpec, machine: Machine) -> None:
        super().__init__(record, machine)
        planes, image = (src, dst) if self.inward else (dst, src)
        n, h, w, c = image.shape
        if {planes.dtype, image.dtype} - set(FLOATS) or planes.layout != "dense" or image.layout != "blocked":
            raise NotLowerable("dense planes of floats, and images of floats in blocks")
        if planes.shape != (n, c, h, w):
            raise NotLowerable("planes of the image's channels")
        self.planes, self.image = planes, image
        block = block_size(image.dtype)
        channels = min(c, block)
        self.set_factors((n, h * w, c), (1, block, channels), max_len=(1, MAX_POSITIONS, channels))
        lead, at, chans = Dim(n, ((0, 1),)), Dim(h * w, ((1, 1),)), Dim(c, ((2, 1),))
        as_planes = Access(TensorSpec((n, c, h * w), planes.dtype, "dense"), [lead, chans, at], False)
        as_image = Access(TensorSpec((n, h * w, c), image.dtype, "blocked"), [lead, at, chans], True)
        self.reads, self.writes = ([as_planes], [as_image]) if self.inward else ([as_image], [as_planes])
        #: planes are turned where they are: in the same format, and lanes have no padding
        self.as_it_is = planes.dtype == image.dtype and padded_channels(c, image.dtype) == c

    def arguments(self) -> list[int]:
        return [0]

    def lanes(self, lo: Sequence[int], hi: Sequence[int]) -> int:
        """Return the lanes of a block that channels of it take, with padding."""
        return padded_channels(hi[2] - lo[2], self.image.dtype)

    def scratch_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> list[int]:
        return [] if self.as_it_is else [self.lanes(lo, hi) * (hi[1] - lo[1]) * ITEM_BYTES[self.image.dtype]]

    def ops_per_point(self) -> float:
        return ITEM_BYTES[self.image.dtype] / self.machine.tdma.bytes_per_cycle


class Intake(Planes):
    """(convert,) transpose (0, 2, 3, 1), channel_norm."""

    kind = "intake"
    inward = True

    def emit(self, em: Emitter, s: Slice) -> None:
        m, c = s.hi[1] - s.lo[1], s.hi[2] - s.lo[2]
        fmt, lanes, src = self.image.dtype, self.lanes(s.lo, s.hi), s.reads[0]
        if not self.as_it_is:
            src = s.scratch[0]
            _converted(em, s.reads[0], src, c * m, self.planes.dtype, fmt)
            if lanes > c:
                em.fill(src + c * m * ITEM_BYTES[fmt], 0.0, (lanes - c) * m, fmt)
        em.add("nhwc2nchw", src0=src, dst=s.writes[0], n=1, h=lanes, w=1, c=m, fmt=FORMAT_CODES[fmt])


class Outlet(Planes):
    """channel_norm, transpose (0, 3, 1, 2) (, convert)."""

    kind = "outlet"
    inward = False

    def emit(self, em: Emitter, s: Slice) -> None:
        m, c = s.hi[1] - s.lo[1], s.hi[2] - s.lo[2]
        fmt, dst = self.image.dtype, s.writes[0] if self.as_it_is else s.scratch[0]
        em.add("nhwc2nchw", src0=s.reads[0], dst=dst, n=1, h=m, w=1, c=self.lanes(s.lo, s.hi), fmt=FORMAT_CODES[fmt])
        if not self.as_it_is:
            _converted(em, dst, s.writes[0], c * m, fmt, self.planes.dtype)


def _converted(em: Emitter, src: int, dst: int, n: int, fmt: str, to: str) -> None:
    if fmt == to:
        em.copy(src, dst, n * ITEM_BYTES[fmt])
    else:
        em.cvt(src, dst, n, fmt, to)


def takes_in(ops: Sequence[OpRecord]) -> bool:
    """Say whether the ops, each on the result of the one before, make an image of planes."""
    kinds = [op.kind for op in ops]
    if kinds[-2:] != ["transpose", "channel_norm"] or kinds[:-2] not in ([], ["convert"]):
        return False
    return tuple(ops[-2].attr("perm")) == (0, 2, 3, 1)


def gives_out(ops: Sequence[OpRecord]) -> bool:
    """Say whether the ops, each on the result of the one before, make planes of an image."""
    kinds = [op.kind for op in ops]
    if kinds[:2] != ["channel_norm", "transpose"] or kinds[2:] not in ([], ["convert"]):
        return False
    return tuple(ops[1].attr("perm")) == (0, 3, 1, 2)


TURN = "transpose"
#: the ops before one that turn an image with it
ABSORBED = {TURN: ("convert", "channel_norm"), "channel_norm": (TURN,), "convert": (TURN,)}


def turning(record: GroupRecord, machine: Machine) -> Planes | None:
    """Return the lowering of a group that only turns images, None if it is another one. Raises NotLowerable."""
    family = Intake if takes_in(record.ops) else Outlet if gives_out(record.ops) else None
    if family is None or (src := record.operands[0]) is None:
        return None
    linked = all(wires[0] == ("op", i) for i, wires in enumerate(record.wires[1:]))
    if not linked or record.outputs != (len(record.ops) - 1,):
        raise NotLowerable("an image is turned by ops on each other's results, of which nobody else reads one")
    return family(record, src, record.ops[-1].results[0], machine)
