"""Every compute op gets a group of its own.

May import: ir, passes.base, passes.layout_forms. Must not: choose loads or tiles.

A group is isolated: its values come in as block arguments. Absent operands and load_const ops it needs move
in as copies. Reshapes move no bytes and stay outside, as do parameter reads and calls.
"""

from __future__ import annotations

from typing import ClassVar

from tx8fast.ir.clone import clone_op
from tx8fast.ir.core import REAL, Context, Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.types import NoneType
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.layout_forms import is_alias
from tx8fast.records import dataclass


def needs_group(op: Op) -> bool:
    return op.has(REAL) and not is_alias(op) and bool(op.results)


@dataclass(frozen=True)
class GroupSingle(CompilerPass):
    name: ClassVar[str] = "group-single"
    ensures: ClassVar[tuple[str, ...]] = ("groups",)

    def run(self, program: IRProgram) -> PassResult:
        groups = 0
        for symbol in program.functions:
            for block in symbol.regions[0].blocks:
                for op in list(block):
                    if needs_group(op):
                        make_group(program.ctx, op)
                        groups += 1
                _drop_unused(list(block))
        return PassResult(groups > 0, {"groups": groups})


def make_group(ctx: Context, *ops: Op, group_id: int = -1) -> Op:
    """Wrap ops, producers first, in a group at the place of the first one; return the group.

    Results that are used outside become results of the group. Several ops may leave the block unsorted.
    """
    block = ops[0].block
    assert block is not None
    made = {r for op in ops for r in op.results}
    outer: dict[Value, None] = {}
    inner: dict[Value, Op] = {}
    for v in (v for op in ops for v in op.operands):
        if v in made:
            continue
        if type(v.type) is NoneType or (v.op is not None and v.op.kind == "load_const"):
            inner.setdefault(v, clone_op(v.op))  # type: ignore[arg-type]
        else:
            outer[v] = None
    leaving = [r for op in ops for r in op.results if len(ops) == 1 or any(u not in ops for u in r.users)]
    loc = ops[0].loc if len(ops) == 1 else "+".join(str(op.loc) for op in ops if op.loc) or None
    group = ctx.create("group", list(outer), [r.type for r in leaving], loc=loc, n_regions=1, group_id=group_id)
    body = group.regions[0].add_block([v.type for v in outer])
    block.insert_before(ops[0], group)
    for r, new in zip(leaving, group.results):
        new.name = r.name
        for user, i in list(r.uses):
            if user not in ops:
                user.set_operand(i, new)
    mapping = dict(zip(outer, body.args))
    for v, copy in inner.items():
        mapping[v] = body.append(copy).results[0]
    for op in ops:
        op.detach()
        for i, v in enumerate(op.operands):
            op.set_operand(i, mapping.get(v, v))
        body.append(op)
    body.append(ctx.create("group_return", leaving, ()))
    return group


def _drop_unused(ops: list[Op]) -> None:
    for op in reversed(ops):
        if op.kind in ("none", "load_const") and not op.results[0].uses:
            op.erase()
