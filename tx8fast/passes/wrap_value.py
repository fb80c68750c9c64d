"""Value-semantic ops on aliasable tensors move to value tensors, between deep copies.

May import: ir, passes.base. Must not: remove a copy (see `passes/fold_copies.py`).
"""

from __future__ import annotations

from typing import ClassVar

from tx8fast.ir.core import VALUE_SEMANTICS, Context, Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.storage import is_aliasable
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.records import dataclass


@dataclass(frozen=True)
class WrapValue(CompilerPass):
    """Every operand goes through `to_vtensor`, every result through `to_tensor`. Right at any point of a pipeline."""

    name: ClassVar[str] = "wrap-value"
    per_function: ClassVar[bool] = True

    def run(self, program: IRProgram) -> PassResult:
        wrapped = 0
        for op in list(program.module.walk()):
            if op.has(VALUE_SEMANTICS) and any(map(is_aliasable, op.operands)):
                _wrap(program.ctx, op)
                wrapped += 1
        return PassResult(wrapped > 0, {"wrapped": wrapped})


def _wrap(ctx: Context, op: Op) -> None:
    block = op.block
    assert block is not None
    copies: dict[Value, Value] = {}
    for i, v in enumerate(op.operands):
        if is_aliasable(v):
            if v not in copies:
                copy = ctx.create("to_vtensor", [v], [ctx.tensor(v.shape, v.dtype)], op.loc)
                copies[v] = block.insert_before(op, copy).result
            op.set_operand(i, copies[v])
    anchor = op
    for r in op.results:
        if not is_aliasable(r):
            continue
        old_type, uses = r.type, list(r.uses)
        r.type = ctx.tensor(r.shape, r.dtype)
        copy = ctx.create("to_tensor", [r], [old_type], op.loc)
        copy.results[0].name, r.name = r.name, None
        anchor = block.insert_after(anchor, copy)
        for user, i in uses:
            user.set_operand(i, copy.results[0])
