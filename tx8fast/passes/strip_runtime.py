"""Drops run-time attributes: they never change meaning, so an export leaves them out.

May import: ir, passes.base. Must not: touch listed attributes.
"""

from __future__ import annotations

from typing import ClassVar

from tx8fast.ir.program import IRProgram
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.records import dataclass


@dataclass(frozen=True)
class StripRuntime(CompilerPass):
    name: ClassVar[str] = "strip-runtime"
    per_function: ClassVar[bool] = True

    def run(self, program: IRProgram) -> PassResult:
        dropped = 0
        for op in program.module.walk():
            extra = [n for n in op.attrs if n not in op.info.attrs]
            for n in extra:
                del op.attrs[n]
            dropped += len(extra)
        return PassResult(dropped > 0, {"attributes": dropped})
