"""Seeds the logical layout names: matrix and convolution ops are known, everything else is "Unknown".

May import: ir, passes.base. Must not: choose forms in memory (see passes.layout_align).
"""

from __future__ import annotations

from typing import ClassVar

from tx8fast.ir.core import Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.types import NoneType, TensorType
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.records import dataclass

UNKNOWN = "Unknown"
MATRIX = frozenset({"gemm", "contract"})
CONVOLUTION = frozenset({"conv", "conv_transpose"})


def default_name(v: Value) -> str:
    """Return "Tensor" for rank 0 and 1 or a first dimension of 1, else "NTensor"."""
    shape = v.type.shape if isinstance(v.type, TensorType) else None
    return "Tensor" if not shape or len(shape) < 2 or shape[0] == 1 else "NTensor"


def seed(op: Op) -> str:
    """Return the names of the op's operands and results joined by "-", or "Unknown"."""
    given = [v for v in op.operands if type(v.type) is not NoneType]
    if op.kind in MATRIX:
        return "-".join(default_name(v) for v in (*given, *op.results))
    if op.kind in CONVOLUTION:
        return "-".join(["NHWC", "HWOI", *("Tensor" for _ in given[2:]), "NHWC"])
    return UNKNOWN


@dataclass(frozen=True)
class LayoutInit(CompilerPass):
    name: ClassVar[str] = "layout-init"
    ensures: ClassVar[tuple[str, ...]] = ("layout-seeds",)

    def run(self, program: IRProgram) -> PassResult:
        changed = seeds = 0
        for op in program.module.walk():
            if "layout_str" not in op.attrs:
                continue
            name = seed(op)
            seeds += name != UNKNOWN
            changed += op.attrs["layout_str"] != name
            op.attrs["layout_str"] = name
        return PassResult(changed > 0, {"seeds": seeds})
