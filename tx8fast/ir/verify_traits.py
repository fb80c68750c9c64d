"""What each trait promises, as checks of one op.

May import: ir.core, ir.types. Must not: look beyond the op.
"""

from __future__ import annotations

from collections.abc import Callable

from tx8fast.ir import core
from tx8fast.ir.core import SYMBOL, TERMINATOR, Op
from tx8fast.ir.types import TensorType


def one_kind(op: Op) -> str | None:
    """Value semantics: all operands are value tensors, or all may change behind the reader."""
    first = None
    for i, v in enumerate(op.operands):
        t = v.type
        if t.__class__ is not TensorType:
            continue
        if first is None:
            first = t
        elif t.kind != first.kind:  # type: ignore[attr-defined]
            want = "a value tensor" if first.kind == "vtensor" else "an aliasable tensor"  # type: ignore[attr-defined]
            return f"operand {i}: expected {want} as the first operand {first}, found {t}"
    return None


def _in_place(op: Op) -> str | None:
    """The target of a write is an aliasable tensor, and result 0 is that tensor."""
    if not op.operands or not op.results or op.results[0].type is not op.operands[0].type:
        return "expected result 0 to have the type of operand 0"
    target = op.operands[0].type
    if isinstance(target, TensorType) and target.kind != "tensor":
        return f"operand 0: expected an aliasable tensor to write to, found {target}"
    return None


#: trait bit -> check; the message states expectation and finding
TRAIT_CHECKS: dict[int, Callable[[Op], str | None]] = {
    core.CONSTANT_LIKE: lambda op: (
        f"expected no operands, found {len(op.operands)}"
        if op.operands
        else None
        if len(op.results) == 1
        else f"expected 1 result, found {len(op.results)}"
    ),
    TERMINATOR: lambda op: f"expected no results, found {len(op.results)}" if op.results else None,
    SYMBOL: lambda op: (
        None if type(op.attrs.get("sym_name")) is str else "expected an attribute 'sym_name', found none"
    ),
    core.COMMUTATIVE: lambda op: (
        None if len(op.operands) >= 2 else f"expected at least 2 operands, found {len(op.operands)}"
    ),
    core.INPLACE: _in_place,
    core.VALUE_SEMANTICS: one_kind,
}
