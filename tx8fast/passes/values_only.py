"""After it every tensor is a value: what is left of buffers where nobody writes goes, and what writes to one is refused.

May import: ir, passes.base, errors. Must not: change what is computed.

`inplace-to-functional`, `wrap-value` and `fold-copies` come before it and leave buffers at the borders of functions, and those
of writes that the caller or an older view would see. Where nothing writes, a copy is its operand and a view a reshape.
"""

from __future__ import annotations

from typing import ClassVar

from tx8fast.errors import VerifyError, raise_all
from tx8fast.ir.core import INPLACE, VIEW, Op
from tx8fast.ir.program import IRProgram
from tx8fast.ir.storage import is_aliasable, touches_storage
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.inplace_to_functional import VIEW_SUFFIX
from tx8fast.records import dataclass

_COPIES = frozenset({"to_tensor", "to_vtensor"})


@dataclass(frozen=True)
class ValuesOnly(CompilerPass):
    """Raises VerifyError naming every op that still writes to a buffer."""

    name: ClassVar[str] = "values-only"

    def run(self, program: IRProgram) -> PassResult:
        ops = [op for op in program.module.walk() if touches_storage(op) or op.regions]
        raise_all(VerifyError, "making values of buffers", [_refusal(op) for op in ops if op.has(INPLACE)])
        retyped = 0
        for op in ops:
            for v in (*op.results, *(a for region in op.regions for block in region.blocks for a in block.args)):
                if is_aliasable(v):
                    v.type = program.ctx.tensor(v.shape, v.dtype)
                    retyped += 1
        for op in ops:
            if op.kind in _COPIES:
                op.results[0].replace_all_uses_with(op.operands[0])
                op.erase()
            elif op.has(VIEW):
                base = op.info.name.removesuffix(VIEW_SUFFIX)
                made = program.ctx.create(base, op.operands, [r.type for r in op.results], op.loc, **op.attrs)
                op.block.insert_before(op, made)  # type: ignore[union-attr]
                for old, new in zip(op.results, made.results, strict=True):
                    old.replace_all_uses_with(new)
                op.erase()
        return PassResult(retyped > 0, {"retyped": retyped})


def _refusal(op: Op) -> str:
    return (
        f"{op.name} '{op.loc or op.kind}' writes to a buffer that the caller of its function or an older view of it sees; "
        f"{op.name[:-1]}, which makes a new value, would help"
    )
