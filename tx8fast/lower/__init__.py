"""From op records to instructions: one family file per kind of op.

May import: graph_table, isa, machine, numerics. Must not: search, place buffers or read the IR.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tx8fast.collectives import KINDS
from tx8fast.errors import InfeasibleError
from tx8fast.graph_table import GroupRecord, OpRecord
from tx8fast.lower.attention import Attention
from tx8fast.lower.banded import Banded
from tx8fast.lower.base import Lowering, NotLowerable
from tx8fast.lower.batchnorm import BatchNorm
from tx8fast.lower.chain import WINDOWS, is_chain
from tx8fast.lower.channel_moves import ChannelMoves
from tx8fast.lower.collective import Collective
from tx8fast.lower.contraction import Contraction
from tx8fast.lower.conv_chain import ConvChain
from tx8fast.lower.convolution import as_product, convolution
from tx8fast.lower.dense_ops import as_rows
from tx8fast.lower.elementwise import Elementwise
from tx8fast.lower.fused import Fused
from tx8fast.lower.kernel_core import KernelCore
from tx8fast.lower.long_reduce import LongReduce
from tx8fast.lower.lookup import LOOKUPS, Lookup
from tx8fast.lower.members import NORMS
from tx8fast.lower.movement import ChannelNorm, Movement
from tx8fast.lower.planes import turning
from tx8fast.lower.pooling import Pool, PositionReduce
from tx8fast.lower.rotary import Rope
from tx8fast.lower.rows import Norm, Reduce, Softmax
from tx8fast.lower.score_ops import is_attention
from tx8fast.lower.sequence import SequenceStream
from tx8fast.lower.spread import SpreadStream
from tx8fast.lower.stream import ConvStream
from tx8fast.lower.windows import MAX_EXTENT
from tx8fast.machine import Machine

MAX_BANDED = 10  # convolutions and pools of a chain by bands of rows: each widens the bands of those before it
Family = Callable[[OpRecord, Machine], Lowering]


def _reduce(record: OpRecord, machine: Machine) -> Lowering:
    """A reduction over channels, else over positions: few, or many."""
    x = record.operands[0]
    rank = len(x.shape) if x is not None else 0
    axes = {a % rank for a in record.attr("axes")} if rank and record.kind in Reduce.takes else set()
    if rank - 1 in axes:
        return Reduce(record, machine)
    many = x is not None and math.prod([x.shape[a] for a in axes]) > MAX_EXTENT
    return (LongReduce if many else PositionReduce)(record, machine)


def _moved(record: OpRecord, machine: Machine) -> Lowering:
    """Movement of channels in blocks, or of anything else."""
    own, its = record.operands[0], record.results[0]
    channels = its.layout == "blocked" and own is not None and own.shape[-1:] != its.shape[-1:]
    return (ChannelMoves if channels else Movement)(record, machine)


_ALONE = (Contraction, Pool, BatchNorm, Softmax, Norm, Rope, ChannelNorm, Lookup, Movement, Elementwise)
#: op kind -> its family; every kind may end on the kernel core
FAMILIES: dict[str, Family] = {
    **{kind: family for family in _ALONE for kind in family.takes},
    **{kind: _moved for kind in ChannelMoves.takes},
    "conv": convolution,
    "reduce": _reduce,
}


def lower(record: OpRecord | GroupRecord, machine: Machine) -> tuple[Lowering, str]:
    """Return the lowering of a record and, when it falls to the kernel core, the reason why.

    Raises NotLowerable for a group whose ops cannot share one loop nest, InfeasibleError for a collective that no engine
    can do: there is no kernel core that could step in."""
    if isinstance(record, GroupRecord):
        if any(_has_nothing(op) for op in record.ops):
            raise NotLowerable("an operand has no elements")
        kinds = [op.kind for op in record.ops]
        if (turned := turning(record, machine)) is not None:
            return turned, ""
        if is_chain(record.ops):
            return _chain(record, machine), ""
        if is_attention(record.ops):
            return Attention(record, machine), ""
        return SequenceStream(record, machine) if "softmax" in kinds else Fused(as_rows(record), machine), ""
    if record.kind in KINDS:
        try:
            return Collective(record, machine), ""
        except NotLowerable as err:
            raise InfeasibleError(str(err)) from None
    family = FAMILIES.get(record.kind)
    reason = f"no engine performs {record.kind}"
    if _has_nothing(record):
        return KernelCore(record, machine), "an operand has no elements"
    if family is not None:
        try:
            return _with_room(family(record, machine)), ""
        except NotLowerable as err:
            reason = str(err)
    return KernelCore(record, machine), reason


def _with_room(low: Lowering) -> Lowering:
    """Raise NotLowerable if a tile has no room even for the smallest slices."""
    room = low.machine.spm_limit - low.machine.spm_base
    needed = low.least_bytes(tuple(map(min, low.units, low.sizes)))
    if needed > room:
        raise NotLowerable(f"the smallest slices need {needed:,} bytes of scratchpad, a tile has {room:,}")
    return low


def _has_nothing(record: OpRecord) -> bool:
    return any(s is not None and 0 in s.shape for s in record.operands)


def _chain(record: GroupRecord, machine: Machine) -> Lowering:
    """A chain by bands of rows if it is short enough for that, else with whole images."""
    if sum(op.kind in WINDOWS for op in record.ops) <= MAX_BANDED:
        try:
            return ConvChain(record, machine)
        except NotLowerable:
            pass
    return ConvStream(record, machine)


def variants(record: OpRecord | GroupRecord, machine: Machine) -> list[Lowering]:
    """Return further lowerings worth planning: products whose left operand stays while the reduction is cut, chains
    with whole images in scratchpad, and attention with rows from either end on a tile, or with the heads together that fill whole
    channel blocks. Their `variant` counts from 1."""
    found = _variants(record, machine)
    for i, low in enumerate(found):
        low.variant = i + 1
    return found


def _variants(record: OpRecord | GroupRecord, machine: Machine) -> list[Lowering]:
    try:
        if not isinstance(record, GroupRecord):
            if _has_nothing(record):
                return []
            if record.kind in LOOKUPS:
                Lookup(record, machine)  # raises where the kernel core is the only choice
                return [KernelCore(record, machine)]
            product = as_product(record) or record
            known = FAMILIES.get(product.kind) is Contraction
            return [Contraction(product, machine, resident=True)] if known else []
        windows = [op for op in record.ops if op.kind in WINDOWS]
        if is_chain(record.ops):
            families = (ConvStream, SpreadStream) if len(windows) <= MAX_BANDED else (SpreadStream,)
            return [low for family in families for low in _made(family, record, machine)]
        if record.ops[0].kind in NORMS:
            return []
        if is_attention(record.ops):
            ways = {"folded": True}, {"together": True}
            return [low for how in ways for low in _made(Attention, record, machine, **how)]
        if any(op.kind == "softmax" for op in record.ops):
            return []
        return [Fused(record, machine, resident=True)]
    except NotLowerable:
        return []


def _made(family: Callable[..., Lowering], record: GroupRecord, machine: Machine, **how: bool) -> list[Lowering]:
    try:
        return [family(record, machine, **how)]
    except NotLowerable:
        return []


def in_bands(record: OpRecord | GroupRecord, machine: Machine) -> Banded | None:
    """Return the lowering that finishes a group's sums in bands, None if it has none. Its `variant` is behind those of `variants`."""
    if not isinstance(record, GroupRecord) or not 1 < len(record.ops) or record.ops[0].kind not in Contraction.takes:
        return None
    try:
        low = Banded(record, machine)
    except NotLowerable:
        return None
    low.variant = 1 + len(variants(record, machine))
    return low


def may_deliver(low: Lowering, k: int) -> bool:
    """True if what a lowering reads as access k may be there before its first slice, a buffer for each: every slice needs its own, which is
    whole blocks of channels."""
    access = low.reads[k]
    blocked = bool(access.dims) and access.spec.layout == "blocked" and not access.staggered
    return blocked and access.loaded and k not in low.rare
