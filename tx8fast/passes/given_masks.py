"""Masks that a model is given: numbers that hide, which a narrower format than theirs does not have.

May import: ir, weights (mask value). Must not: read weights.

Of f32 the lowest number is what exporters hide with. The conversion of the chip rounds it to minus infinity in a narrower format, and a
row of which every position is hidden is a row of NaN then, where the model has equal shares.
"""

from __future__ import annotations

import numpy as np

from tx8fast.ir.attrs import DenseAttr
from tx8fast.ir.core import Block, Context, Op, Value
from tx8fast.numerics.formats import np_dtype
from tx8fast.weights import MASK_VALUE

#: kinds whose result is made of numbers of their operands
_PASSES = frozenset({"transpose", "reshape", "broadcast", "slice", "convert", "select", "min", "max"})
_WIDTH = {"f16": 0, "bf16": 1, "tf32": 2, "f32": 2}  # by range


def given_masks(block: Block) -> set[Value]:
    """Return the arguments that a softmax takes as a mask, or that are added to what it takes."""
    found: set[Value] = set()
    for op in block:
        if op.kind == "softmax":
            seen: set[tuple[Value, bool]] = set()
            _look(op.operands[0], False, found, seen)
            if len(op.operands) > 1:
                _look(op.operands[1], True, found, seen)
    return found


def _look(v: Value, added: bool, found: set[Value], seen: set[tuple[Value, bool]]) -> None:
    """Add the arguments from which `v` takes numbers. added: it is added to others on the way to the softmax."""
    todo = [(v, added)]
    while todo:
        v, added = at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        op = v.op
        if op is None:
            found |= {v} if added else set()
        elif op.kind == "add":
            todo += [(x, True) for x in op.operands]
        elif op.kind in _PASSES:
            todo += [(x, added) for x in op.operands]


def may_leave_range(dtype: str, narrower: str) -> bool:
    """True if finite numbers of a float format are infinite in another one."""
    return _WIDTH.get(dtype, 0) > _WIDTH.get(narrower, 2)


def in_range(ctx: Context, v: Value, dtype: str) -> list[Op]:
    """Return ops, the last of which gives `v` with what hides in the range of the narrower format `dtype`; what is infinite stays so."""
    loc = None if v.op is None else v.op.loc
    scalar = lambda x: ctx.create("constant", loc=loc, value=DenseAttr(np.asarray(x, np_dtype(v.dtype))))  # noqa: E731
    low, infinite = scalar(MASK_VALUE[dtype]), scalar(-np.inf)
    raised = ctx.create("max", [v, low.result], loc=loc)
    hidden = ctx.create("eq", [v, infinite.result], loc=loc)
    return [low, infinite, raised, hidden, ctx.create("select", [hidden.result, v, raised.result], loc=loc)]
