"""In-place ops become the functional kind they mirror, where no other name of the buffer can tell.

May import: ir, passes.base. Must not: touch a buffer that the caller sees, or one read through an older view.

`y = f_(x)` becomes `y = f(x)`, and what used x afterwards uses y. A view of x made before the write and used after it
would show the write, so such an op stays. A view of a buffer that nothing writes becomes its functional kind too.
"""

from __future__ import annotations

from typing import ClassVar

from tx8fast.ir.core import INPLACE, VIEW, Block, Context, Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.storage import Storage, is_aliasable
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.records import dataclass

VIEW_SUFFIX = "_view"


@dataclass(frozen=True)
class InplaceToFunctional(CompilerPass):
    name: ClassVar[str] = "inplace-to-functional"
    per_function: ClassVar[bool] = True

    def run(self, program: IRProgram) -> PassResult:
        converted = kept = views = 0
        for parent in [op for op in program.module.walk() if op.regions]:
            for block in (b for region in parent.regions for b in region.blocks):
                for op in list(block):
                    if op.has(INPLACE):
                        done = _convert(program.ctx, block, op)
                        converted += done
                        kept += not done
                views += _functional_views(program.ctx, block)
        return PassResult(converted + views > 0, {"converted": converted, "kept": kept, "views": views})


def at_level_of(op: Op, block: Block) -> Op | None:
    """Return the op of `block` that is or contains `op`, or None if there is none."""
    at: Op | None = op
    while at is not None and at.block is not block:
        at = at.parent
    return at


def later_uses(v: Value, op: Op) -> list[tuple[Op, int]]:
    """The uses of `v` behind `op` in op's block, nested ones included."""
    out = []
    for user, i in v.uses:
        at = at_level_of(user, op.block)  # type: ignore[arg-type]
        if at is not None and at is not op and op.is_before(at):
            out.append((user, i))
    return out


def _convert(ctx: Context, block: Block, op: Op) -> bool:
    base = ctx.infos.get(op.info.name[:-1])
    target = op.operands[0]
    storage = Storage(block)
    if base is None or storage.is_visible(target):
        return False
    for name in storage.names(target):
        older = name.op is None or (name.op is not op and name.op.is_before(op))
        if name is not target and older and later_uses(name, op):
            return False
    for user, i in later_uses(target, op):
        user.set_operand(i, op.results[0])
    values = list(op.operands)
    wrapped = not all(is_aliasable(v) for v in values if hasattr(v.type, "kind"))
    types = [r.type for r in op.results]
    if wrapped:  # one kind of operand per functional op: the buffer's contents go in as a value
        for i, v in enumerate(values):
            if is_aliasable(v):
                copy = ctx.create("to_vtensor", [v], [ctx.tensor(v.shape, v.dtype)], op.loc)
                values[i] = block.insert_before(op, copy).result
        types = [ctx.tensor(t.shape, t.dtype) for t in types]  # type: ignore[attr-defined]
    made = ctx.create(base.name, values, types, op.loc, **op.attrs)
    block.insert_before(op, made)
    for old, new in zip(op.results, made.results):
        if wrapped:
            new = block.insert_before(op, ctx.create("to_tensor", [new], [old.type], op.loc)).result
        old.replace_all_uses_with(new)
    op.erase()
    return True


def _functional_views(ctx: Context, block: Block) -> int:
    changed = 0
    views = [op for op in block if op.has(VIEW) and op.info.name.endswith(VIEW_SUFFIX)]
    if not views:
        return 0
    storage = Storage(block)
    written = {buffer for op in block for buffer in storage.reads_and_writes(op)[1]}
    for op in views:
        base = ctx.infos.get(op.info.name[: -len(VIEW_SUFFIX)])
        root = storage.root(op.operands[0])
        if base is None or root in written or (root is not None and storage.is_visible(op.operands[0])):
            continue
        made = ctx.create(base.name, op.operands, [r.type for r in op.results], op.loc, **op.attrs)
        block.insert_before(op, made)
        for old, new in zip(op.results, made.results):
            old.replace_all_uses_with(new)
        op.erase()
        changed += 1
    return changed
