"""Every compute op gets a group of its own.

May import: ir, passes.base, passes.layout_forms. Must not: choose loads or tiles.

A group is isolated: its values come in as block arguments. Absent operands and load_const ops it needs move
in as copies. Reshapes move no bytes and stay outside, as do parameter reads and calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tx8fast.ir.clone import clone_op
from tx8fast.ir.core import REAL, Context, Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.types import NoneType
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.layout_forms import is_alias


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


def make_group(ctx: Context, op: Op, group_id: int = -1) -> Op:
    """Wrap `op` in a group at its place; return the group. Its results take over the op's uses."""
    block = op.block
    assert block is not None
    outer: dict[Value, None] = {}
    inner: dict[Value, Op] = {}
    for v in op.operands:
        if type(v.type) is NoneType or (v.op is not None and v.op.kind == "load_const"):
            inner.setdefault(v, clone_op(v.op))  # type: ignore[arg-type]
        else:
            outer[v] = None
    types = [r.type for r in op.results]
    group = ctx.create("group", list(outer), types, loc=op.loc, n_regions=1, group_id=group_id)
    body = group.regions[0].add_block([v.type for v in outer])
    block.insert_before(op, group)
    for r, new in zip(op.results, group.results):
        new.name = r.name
        r.replace_all_uses_with(new)
    mapping = dict(zip(outer, body.args))
    for v, copy in inner.items():
        mapping[v] = body.append(copy).results[0]
    op.detach()
    for i, v in enumerate(op.operands):
        op.set_operand(i, mapping[v])
    body.append(op)
    body.append(ctx.create("group_return", op.results, ()))
    return group


def _drop_unused(ops: list[Op]) -> None:
    for op in reversed(ops):
        if op.kind in ("none", "load_const") and not op.results[0].uses:
            op.erase()
