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

#: kinds whose result is made of numbers of their operands, or of their sums and products
_PASSES = frozenset("add sub mul neg transpose reshape broadcast slice concat convert select min max clamp".split())
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
    """Return ops, the last of which gives `v` with what hides, also what is subtracted, in the range of the narrower format `dtype`; what is
    infinite, which is larger than every number, stays so. In f32, since bf16 has no number as large as f16's largest: it would round it
    to one that f16 does not have."""
    loc, low = None if v.op is None else v.op.loc, lowest(dtype)
    wider = [ctx.create("convert", [v], loc=loc, dtype="f32")] if v.dtype == "bf16" else []
    x = wider[0].result if wider else v
    bounded = ctx.create("clamp", [x], loc=loc, lo=low, hi=-low)
    size = ctx.create("abs", [x], loc=loc)
    most = ctx.create("constant", loc=loc, value=DenseAttr(np.asarray(-lowest(x.dtype), np_dtype(x.dtype))))
    infinite = ctx.create("gt", [size.result, most.result], loc=loc)
    chosen = ctx.create("select", [infinite.result, x, bounded.result], loc=loc)
    return [*wider, bounded, size, most, infinite, chosen]


def whole(ctx: Context, op: Op, i: int) -> list[Op]:
    """Return ops, the last of which gives the sum or difference `op` of scores and a mask, its operand i, in f16: the lowest number wherever
    the mask hides with its own. A score below -16 would make it infinite, one above 16 another number."""
    low = lowest("f16")
    scalar = lambda x: ctx.create("constant", loc=op.loc, value=DenseAttr(np.asarray(x, np.float16)))  # noqa: E731
    hides, hidden = scalar(-low if op.kind == "sub" and i else low), scalar(low)
    where = ctx.create("eq", [op.operands[i], hides.result], loc=op.loc)
    return [hides, hidden, where, ctx.create("select", [where.result, hidden.result, op.result], loc=op.loc)]
