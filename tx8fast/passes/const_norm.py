"""Constants take the form their users want: conversions behind them vanish, packing does the work once.

May import: ir, passes.base, passes.effects, passes.layout_forms. Must not: convert state that the program writes.

The users of a constant are split by the form they need; if both are needed, the payload exists twice, as
two reads of one key with different mem_layout.
"""

from __future__ import annotations

from typing import ClassVar

from tx8fast.ir.clone import clone_op
from tx8fast.ir.core import Op
from tx8fast.ir.program import IRProgram
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.const_container import form_bytes
from tx8fast.passes.effects import written_states
from tx8fast.passes.layout_forms import BLOCKED, CONSTANTS, DENSE
from tx8fast.records import dataclass


@dataclass(frozen=True)
class ConstNorm(CompilerPass):
    """`duplicate_limit_bytes`: largest payload kept in both forms; a larger one keeps its conversion. -1: no limit,
    which is right as long as DDR holds it, for the conversion costs twice the bytes in every run."""

    name: ClassVar[str] = "const-norm"
    requires: ClassVar[tuple[str, ...]] = ("layouts",)
    ensures: ClassVar[tuple[str, ...]] = ("constant-forms",)
    duplicate_limit_bytes: int = -1

    def run(self, program: IRProgram) -> PassResult:
        written = written_states(program.module)
        erased = duplicated = 0
        for op in list(program.module.walk()):
            if op.kind not in CONSTANTS or op.block is None:
                continue
            if ("state", op.attrs.get("key")) not in written:
                norms = [u for u in op.result.users if u.kind == "channel_norm" and _form(u) != _own(op)]
                if norms and len(norms) == len(op.result.users):
                    op.attrs["mem_layout"] = _form(norms[0])
                    erased += _absorb(norms, op)
                elif norms and self._may_duplicate(op):
                    copy = clone_op(op)
                    copy.attrs["mem_layout"] = _form(norms[0])
                    op.block.insert_after(op, copy)
                    erased += _absorb(norms, copy)
                    duplicated += 1
            if not op.attrs.get("mem_layout"):
                op.attrs["mem_layout"] = DENSE
        return PassResult(True, {"erased": erased, "duplicated": duplicated})

    def _may_duplicate(self, op: Op) -> bool:
        v = op.result
        size = form_bytes(v.shape, v.dtype, BLOCKED)
        return self.duplicate_limit_bytes < 0 or size <= self.duplicate_limit_bytes


def _form(norm: Op) -> str:
    return BLOCKED if norm.attrs["to"] == "align" else DENSE


def _own(op: Op) -> str:
    return op.attrs.get("mem_layout") or DENSE


def _absorb(norms: list[Op], source: Op) -> int:
    for norm in norms:
        norm.result.replace_all_uses_with(source.result)
        norm.erase()
    return len(norms)
