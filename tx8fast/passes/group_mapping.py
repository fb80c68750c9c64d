"""Which tiles a group runs on: the whole grid.

May import: ir, passes.base. Must not: look inside groups. Smaller rectangles would be chosen here.
"""

from __future__ import annotations

from typing import ClassVar

from tx8fast.ir.attrs import RegionAttr
from tx8fast.ir.program import IRProgram
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.records import dataclass


@dataclass(frozen=True)
class GroupMapping(CompilerPass):
    name: ClassVar[str] = "group-mapping"
    requires: ClassVar[tuple[str, ...]] = ("groups",)

    def run(self, program: IRProgram) -> PassResult:
        module = program.module
        region = RegionAttr(0, 0, module.attrs["tile_dx"], module.attrs["tile_dy"])
        groups = [op for op in module.walk() if op.kind == "group"]
        for group in groups:
            group.attrs["dev_region"] = region
        return PassResult(bool(groups), {"groups": len(groups)})
