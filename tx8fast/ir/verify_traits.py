"""What each trait promises, as checks of one op.

May import: ir.core, ir.types. Must not: look beyond the op.
"""

from __future__ import annotations

from collections.abc import Callable

from tx8fast.ir import core
from tx8fast.ir.core import SYMBOL, TERMINATOR, Op
from tx8fast.ir.types import TensorType


def values_only(op: Op) -> str | None:
    """Value semantics: no operand may change behind the reader."""
    for i, v in enumerate(op.operands):
        if isinstance(v.type, TensorType) and v.type.kind != "vtensor":
            return f"operand {i}: expected a value tensor, found {v.type}"
    return None


#: trait bit -> check; the message states expectation and finding
TRAIT_CHECKS: dict[int, Callable[[Op], str | None]] = {
    core.CONSTANT_LIKE: lambda op: (
        f"expected no operands, found {len(op.operands)}" if op.operands else
        None if len(op.results) == 1 else f"expected 1 result, found {len(op.results)}"),
    TERMINATOR: lambda op: f"expected no results, found {len(op.results)}" if op.results else None,
    SYMBOL: lambda op: None if type(op.attrs.get("sym_name")) is str else "expected an attribute 'sym_name', found none",
    core.COMMUTATIVE: lambda op: (
        None if len(op.operands) >= 2 else f"expected at least 2 operands, found {len(op.operands)}"),
    core.INPLACE: lambda op: (
        None if op.operands and op.results and op.results[0].type is op.operands[0].type
        else "expected result 0 to have the type of operand 0"),
    core.VALUE_SEMANTICS: values_only,
}  # fmt: skip
