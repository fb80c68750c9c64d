"""Gives a program's float inputs, outputs and caches another format than the model's own.

May import: ir, passes.base, passes.canonicalize, passes.compute_dtype. Must not: choose what is computed in.
"""

from __future__ import annotations

from typing import ClassVar

from tx8fast.errors import ConfigError
from tx8fast.ir.core import Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.types import TensorType
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.canonicalize import is_widening
from tx8fast.passes.compute_dtype import FLOATS, TARGETS
from tx8fast.records import dataclass


@dataclass(frozen=True)
class InterfaceDtype(CompilerPass):
    """`dtype`: bf16, f16 or f32, or keep to leave every type as it was imported. `late`: of values in a format that has all numbers of
    `dtype`, else of all others: the former are converted after the computation's format is chosen, in which they enter and leave, the
    latter before, so that nothing is rounded to the model's own format in between.

    Conversions stand where main begins and ends. `compute-dtype` comes next: where it computes in the same format, none
    of them stays, and a cache that is given in place is updated in place.
    """

    name: ClassVar[str] = "interface-dtype"
    dtype: str = "keep"
    late: bool = False

    def run(self, program: IRProgram) -> PassResult:
        if self.dtype not in TARGETS:
            raise ConfigError(
                f"pass '{self.name}': option 'dtype': expected one of {', '.join(TARGETS)}, found '{self.dtype}'"
            )
        if self.dtype == "keep":
            return PassResult()
        ctx, body = program.ctx, program.main.body
        ret, first, converts = body.last, body.first, 0
        assert ret is not None and first is not None, "a function without a return"
        for v in body.args:
            own = self._other_format(v)
            if own is not None:
                v.type = ctx.tensor(v.shape, self.dtype)
                back = ctx.create("convert", [v], loc=None, dtype=own)
                body.insert_before(first, back)
                for op, i in list(v.uses):
                    if op is not back:
                        op.set_operand(i, back.result)
                converts += 1
        made: dict[Value, Value] = {}
        for i, v in enumerate(ret.operands):
            if v not in made and self._other_format(v) is not None:
                new = ctx.create("convert", [v], loc=None if v.op is None else v.op.loc, dtype=self.dtype)
                body.insert_before(ret, new)
                made[v] = new.result
                converts += 1
            if v in made:
                ret.set_operand(i, made[v])
        return PassResult(converts > 0, {"converts": converts})

    def _other_format(self, v: Value) -> str | None:
        """Return the format of a float value that has another one than wanted, else None."""
        dtype = v.type.dtype if type(v.type) is TensorType else ""
        return (
            dtype if dtype in FLOATS and dtype != self.dtype and is_widening(self.dtype, dtype) == self.late else None
        )
