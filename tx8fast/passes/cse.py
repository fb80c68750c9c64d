"""Common subexpressions: equal pure ops become one; so do reads of one parameter with no write between.

May import: ir, passes.base, passes.effects. Must not: look at op names.
Run it after outlining: sharing values between layers destroys the repetition outlining looks for.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tx8fast.ir.core import COMMUTATIVE, CONSTANT_LIKE, ISOLATED, PURE, Block, Op
from tx8fast.ir.program import IRProgram
from tx8fast.ir.storage import touches_storage
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.effects import AttrKeys, reads_only_state, states_written_by
from tx8fast.records import dataclass

Key = tuple[Any, ...]
_PURE_BITS = PURE | CONSTANT_LIKE


@dataclass(frozen=True)
class Cse(CompilerPass):
    """Keeps the first of equal ops. Scoped by isolated regions; run-time attributes do not count."""

    name: ClassVar[str] = "cse"
    per_function: ClassVar[bool] = True

    def run(self, program: IRProgram) -> PassResult:
        sweep = _Sweep(states_written_by(program))
        sweep.inside(program.module, [{}])
        return PassResult(sweep.merged > 0, {"merged": sweep.merged})


class _Sweep:
    def __init__(self, written: set[Any]) -> None:
        self.written = written
        self.attr_key = AttrKeys()
        self.merged = 0

    def inside(self, op: Op, scopes: list[dict[Key, Op]]) -> None:
        for region in op.regions:
            outer = [] if op.has(ISOLATED) else scopes
            for block in region.blocks:
                self.block(block, [*outer, {}])

    def block(self, block: Block, scopes: list[dict[Key, Op]]) -> None:
        table = scopes[-1]
        mutable: dict[Key, Op] = {}  # reads of states that something writes; valid up to the next op with effects
        for op in block:
            if op.regions:
                self.inside(op, scopes)
                mutable.clear()
                continue
            if op.info.traits & _PURE_BITS:
                states = ()
            else:
                found = reads_only_state(op)
                if found is None:
                    mutable.clear()
                    continue
                states = tuple(found)
            key = (*self.key(op), *states)
            if not self.written.isdisjoint(states):
                first = mutable.setdefault(key, op)
            else:
                for scope in scopes:
                    if (first := scope.get(key)) is not None:
                        break
                else:
                    table[key] = first = op
            if first is not op and not touches_storage(op):
                self.merge(op, first)  # buffers are told apart by who writes them: never merged

    def key(self, op: Op) -> Key:
        operands = [id(v) for v in op.operands]
        if op.info.traits & COMMUTATIVE:
            operands.sort()
        return (op.info, *operands, self.attr_key(op), *[id(r.type) for r in op.results])

    def merge(self, op: Op, first: Op) -> None:
        for old, new in zip(op.results, first.results):
            old.replace_all_uses_with(new)
        op.erase()
        self.merged += 1
