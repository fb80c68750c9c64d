"""Masks on their way to a softmax: numbers that hide, which a narrower format than theirs does not have.

May import: ir, numerics.formats. Must not: read weights.

Of f32 the lowest number is what exporters hide with, or -1e9, which f16 does not have. The conversion of the chip rounds them to minus infinity
in a narrower format, and a row of which every position is hidden is a row of NaN then, where the model has equal shares. So they become
the narrower format's lowest number, all of them the same one; what is infinite stays so.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tx8fast.ir.attrs import DenseAttr
from tx8fast.ir.core import Block, Context, Op, Value
from tx8fast.numerics.formats import np_dtype

#: kinds whose result is made of numbers of their operands, or of their sums
_PASSES = frozenset({"add", "transpose", "reshape", "broadcast", "slice", "concat", "convert", "select", "min", "max"})
_PRODUCTS = frozenset({"gemm", "contract", "conv"})
_WIDTH = {"f16": 0, "bf16": 1, "tf32": 2, "f32": 2}  # by range


def hiding(block: Block) -> dict[Op, tuple[frozenset[int], bool]]:
    """Return, of every op between masks and a softmax, the operands that no matrix product is part of, and whether one is part of another
    operand: there masks meet scores."""
    scored: set[Value] = set()
    for op in block:
        if op.kind in _PRODUCTS or not scored.isdisjoint(op.operands):
            scored.update(op.results)
    found: dict[Op, tuple[frozenset[int], bool]] = {}
    todo = [op for op in block if op.kind == "softmax"]
    while todo:
        op = todo.pop()
        if op in found:
            continue
        first = int(op.kind == "softmax")  # what it takes alone is no mask
        masks = frozenset([i for i, v in enumerate(op.operands) if i >= first and v not in scored])
        found[op] = masks, not scored.isdisjoint(op.operands)
        todo += [v.op for v in op.operands if v.op is not None and v.op.kind in _PASSES]
    return found


def may_leave_range(dtype: str, narrower: str) -> bool:
    """True if finite numbers of a float format are infinite in another one."""
    return _WIDTH.get(dtype, 0) > _WIDTH.get(narrower, 2)


def lowest(dtype: str) -> float:
    """Return the lowest finite number of a float format."""
    return float(ml_dtypes.finfo(np_dtype(dtype)).min)


def in_range(ctx: Context, v: Value, dtype: str) -> list[Op]:
    """Return ops, the last of which gives `v` with what hides in the range of the narrower format `dtype`; what is infinite stays so."""
    loc = None if v.op is None else v.op.loc
    scalar = lambda x: ctx.create("constant", loc=loc, value=DenseAttr(np.asarray(x, np_dtype(v.dtype))))  # noqa: E731
    low, infinite = scalar(lowest(dtype)), scalar(-np.inf)
    raised = ctx.create("max", [v, low.result], loc=loc)
    hidden = ctx.create("eq", [v, infinite.result], loc=loc)
    return [low, infinite, raised, hidden, ctx.create("select", [hidden.result, v, raised.result], loc=loc)]
