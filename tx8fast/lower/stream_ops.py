"""Ops that work on whole images in scratchpad, and on nothing less.

May import: the family files, graph_table, machine. Must not: know how a stream is cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tx8fast.graph_table import OpRecord
from tx8fast.lower.base import Lowering, NotLowerable
from tx8fast.lower.chain import Stage
from tx8fast.lower.channel_moves import ChannelMoves
from tx8fast.lower.convolution import GroupedConvolution
from tx8fast.lower.planes import MAX_POSITIONS, Intake, Outlet, gives_out, takes_in
from tx8fast.lower.pooling import WORK, PositionReduce
from tx8fast.lower.thin import THIN, Thin
from tx8fast.lower.windows import MAX_EXTENT
from tx8fast.machine import Machine


def makes_means(kind: str) -> bool:
    """True for what makes one position of all of an image."""
    return kind == "reduce"


def moves_channels(kind: str) -> bool:
    """True for what puts images together and takes them apart."""
    return kind in ChannelMoves.takes


def on_whole_images(op: OpRecord, before: Sequence[OpRecord], machine: Machine) -> Lowering | None:
    """Return the kernel of an op for which an image has to be whole, None of any other. before: what it absorbed, ops on its image.
    Raises NotLowerable."""
    if before:
        src = before[0].operands[0]
        family = Intake if takes_in([*before, op]) else Outlet if gives_out([*before, op]) else None
        if src is None or family is None:
            raise NotLowerable("images in another layout")
        turned = family(op, src, op.results[0], machine)
        if turned.sizes[2] > turned.units[2] and turned.sizes[1] > MAX_POSITIONS:
            raise NotLowerable(
                "several blocks of channels come and leave in whole planes, as long as one instruction takes"
            )
        return turned
    if op.kind == THIN:
        return Thin(op, machine)
    if moves_channels(op.kind):
        return ChannelMoves(op, machine)
    if makes_means(op.kind):
        low = PositionReduce(op, machine)
        if low.sizes[1] != 1 or low.dtype == WORK and math.prod(low.summed) > MAX_EXTENT:
            raise NotLowerable(
                "a reduction in a stream is over all positions, in f32 as many as one sum keeps the digits of"
            )
        return low
    if op.kind == "conv" and op.attr("groups") > 1 and op.operands[1].shape[3] > 1:  # type: ignore[union-attr]
        return GroupedConvolution(op, machine)
    return None


def lost_channels(stages: Sequence[Stage]) -> None:
    """Raise NotLowerable if no member reads some channels of a result: what is made of whole images should not make more than is needed."""
    read = [np.zeros(stage.shape[3], bool) for stage in stages]
    read[-1][:] = True
    for stage in stages:
        taken = {j: (a, a + n) for j, a, _, n in stage.low.runs} if isinstance(stage.low, ChannelMoves) else {}
        for j, (kind, k) in stage.images.items():
            if kind == "op":
                read[k][slice(*taken.get(j, (0, None)))] = True
    if not all(own.all() for own in read):
        raise NotLowerable("channels of an image in a stream that nothing reads")
