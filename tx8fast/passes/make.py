"""Values that a rewrite puts before the op that it replaces.

May import: ir, passes.lift_match. Must not: decide what is rewritten.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tx8fast.ir.attrs import DenseAttr
from tx8fast.ir.core import Op, Value
from tx8fast.ir.rewrite import Rewriter
from tx8fast.passes.lift_match import scalar


class Make:
    """Inserts values before an op; steps that would do nothing are left out."""

    def __init__(self, rw: Rewriter, op: Op) -> None:
        self.rw, self.op = rw, op

    def __call__(self, kind: str, *operands: Value, **attrs) -> Value:
        return self.rw.insert(kind, *operands, before=self.op, **attrs).result

    def reshape(self, x: Value, *shape: int) -> Value:
        return x if x.shape == shape else self("reshape", x, shape=shape)

    def transpose(self, x: Value, *perm: int) -> Value:
        moved = [p for p in perm if x.shape[p] > 1]
        to = tuple([x.shape[p] for p in perm])
        return self.reshape(x, *to) if moved == sorted(moved) else self("transpose", x, perm=perm)

    def slice(self, x: Value, start: Sequence[int], size: Sequence[int], step: Sequence[int] = ()) -> Value:
        whole = not any(start) and tuple(size) == x.shape and set(step) <= {1}
        if whole:
            return x
        return self("slice", x, start=tuple(start), size=tuple(size), step=tuple(step) or (1,) * len(x.shape))

    def pad(self, x: Value, lo: Sequence[int], hi: Sequence[int]) -> Value:
        return self("pad", x, lo=tuple(lo), hi=tuple(hi)) if any((*lo, *hi)) else x

    def scalar(self, value: float, dtype: str) -> Value:
        return scalar(self.rw, value, dtype, self.op)

    def number(self, value: int) -> Value:
        return self("constant", value=DenseAttr(np.asarray(value, np.int64)))

    def convert(self, x: Value, dtype: str) -> Value:
        return x if x.dtype == dtype else self("convert", x, dtype=dtype)
