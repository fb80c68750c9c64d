"""Deep copies that copy back what is known go; so do copies that nobody writes or renames.

May import: ir, passes.base. Must not: remove a copy whose source or target may have been written in between.

A walk through each block keeps, per buffer, the value tensor that equals its present contents: `to_tensor` and
`to_vtensor` make one known, a possible write makes it unknown again.
"""

from __future__ import annotations

from typing import ClassVar

from tx8fast.ir.core import Block, Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.storage import Storage, is_aliasable
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.effects import state_effects
from tx8fast.records import dataclass


@dataclass(frozen=True)
class FoldCopies(CompilerPass):
    name: ClassVar[str] = "fold-copies"
    per_function: ClassVar[bool] = True

    def run(self, program: IRProgram) -> PassResult:
        removed = 0
        for parent in [op for op in program.module.walk() if op.regions]:
            for region in parent.regions:
                for block in region.blocks:
                    removed += _fold(block)
        return PassResult(removed > 0, {"removed": removed})


def _fold(block: Block) -> int:
    if not any(op.kind in ("to_vtensor", "to_tensor") for op in block):
        return 0
    storage = Storage(block)
    known: dict[Value, Value] = {}  # name of a buffer -> value tensor with its contents
    removed = 0
    for op in list(block):
        if op.kind == "to_tensor":
            known[op.results[0]] = op.operands[0]
            continue
        if op.kind == "to_vtensor":
            source = op.operands[0]
            value = known.get(source)
            if value is not None:
                op.results[0].replace_all_uses_with(value)
                op.erase()
                removed += 1
            else:
                known[source] = op.results[0]
            continue
        _, written = storage.reads_and_writes(op)
        if written:
            known = {name: v for name, v in known.items() if storage.root(name) not in written}
    for op in list(block):
        if op.kind == "to_tensor":
            removed += _bypass(op)
    return removed


def _bypass(op: Op) -> int:
    """If all users take either kind, give them the value and erase the copy."""
    copy = op.results[0]
    if all(_takes_either(user) for user, _ in copy.uses):
        for user, i in list(copy.uses):
            user.set_operand(i, op.operands[0])
        op.erase()
        return 1
    return 0


def _takes_either(user: Op) -> bool:
    """True for an op that only reads its operand, stores it away, and gives no aliasable result."""
    effects = state_effects(user)
    return (
        bool(effects) and all(verb == "write" for verb, _ in effects or ()) and not any(map(is_aliasable, user.results))
    )
