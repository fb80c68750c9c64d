"""From op records to instructions: one family file per kind of op.

May import: graph_table, isa, machine, numerics. Must not: search, place buffers or read the IR.
"""

from __future__ import annotations

from tx8fast.graph_table import GroupRecord, OpRecord
from tx8fast.lower.attention import ATTENTION, Attention
from tx8fast.lower.base import Lowering, NotLowerable
from tx8fast.lower.contraction import Contraction
from tx8fast.lower.convolution import Convolution
from tx8fast.lower.elementwise import Elementwise
from tx8fast.lower.fused import Fused
from tx8fast.lower.kernel_core import KernelCore
from tx8fast.lower.movement import ChannelNorm, Movement
from tx8fast.lower.rows import Norm, Reduce, Rope, Softmax
from tx8fast.lower.sequences import BINARY, COMPARE, UNARY
from tx8fast.machine import Machine

#: op kind -> families in order of preference; every kind may end on the kernel core
FAMILIES: dict[str, type[Lowering]] = {
    "gemm": Contraction,
    "contract": Contraction,
    "conv": Convolution,
    "softmax": Softmax,
    "layernorm": Norm,
    "rmsnorm": Norm,
    "reduce": Reduce,
    "rope": Rope,
    "channel_norm": ChannelNorm,
    **{k: Movement for k in ("transpose", "slice", "broadcast", "concat", "pad")},
    **{k: Elementwise for k in (*BINARY, *COMPARE, *UNARY, "select", "convert", "swiglu")},
}


def lower(record: OpRecord | GroupRecord, machine: Machine) -> tuple[Lowering, str]:
    """Return the lowering of a record and, when it falls to the kernel core, the reason why.

    Raises NotLowerable for a group whose ops cannot share one loop nest."""
    if isinstance(record, GroupRecord):
        kinds = tuple("contract" if op.kind == "gemm" else op.kind for op in record.ops)
        return (Attention if kinds == ATTENTION else Fused)(record, machine), ""
    family = FAMILIES.get(record.kind)
    reason = f"no engine performs {record.kind}"
    if family is not None:
        try:
            return family(record, machine), ""
        except NotLowerable as err:
            reason = str(err)
    return KernelCore(record, machine), reason


def variants(record: OpRecord | GroupRecord, machine: Machine) -> list[Lowering]:
    """Return further lowerings worth planning: products whose left operand stays while the reduction is cut."""
    build = None
    if isinstance(record, GroupRecord):
        build = None if any(op.kind == "softmax" for op in record.ops) else Fused
    elif FAMILIES.get(record.kind) is Contraction:
        build = Contraction
    if build is None:
        return []
    try:
        return [build(record, machine, resident=True)]  # type: ignore[arg-type]
    except NotLowerable:
        return []
