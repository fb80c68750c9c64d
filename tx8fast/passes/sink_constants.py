"""Gives every user of an inline constant its own copy, beside the user.

May import: ir, passes.base. Must not: look at op names.
Run it before outlining: a constant shared by all layers, but made in the first one, hides that the layers
are equal. Merging common subexpressions undoes it inside each body.
"""

from __future__ import annotations

from typing import ClassVar

from tx8fast.ir.clone import clone_op
from tx8fast.ir.core import CONSTANT_LIKE
from tx8fast.ir.program import IRProgram
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.records import dataclass


@dataclass(frozen=True)
class SinkConstants(CompilerPass):
    name: ClassVar[str] = "sink-constants"
    per_function: ClassVar[bool] = True

    def run(self, program: IRProgram) -> PassResult:
        made = 0
        for op in list(program.module.walk()):
            if not op.has(CONSTANT_LIKE) or len(op.results) != 1 or op.block is None:
                continue
            users = op.result.users
            if len(users) < 2:
                continue
            for user in users:
                copy = clone_op(op)
                user.block.insert_before(user, copy)  # type: ignore[union-attr]
                for i, v in enumerate(user.operands):
                    if v is op.result:
                        user.set_operand(i, copy.result)
                made += 1
            op.erase()
        return PassResult(made > 0, {"copies": made})
