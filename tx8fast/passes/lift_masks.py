"""Masks of a softmax: a choice between scores and a low number, and known masks that do not hide well.

May import: ir, passes.canonicalize, passes.fold_constants (name of constants), passes.legalize, passes.lift_match, weights (mask value). Must not: take a number that a score may be for one
that hides, or change the shares of a row that sees nothing.
"""

from __future__ import annotations

import math

import numpy as np

from tx8fast.ir.attrs import alike
from tx8fast.ir.core import Op, Value
from tx8fast.ir.rewrite import Pattern, Rewriter
from tx8fast.ir.types import NoneType
from tx8fast.passes.canonicalize import splat
from tx8fast.passes.fold_constants import CONSTANT_PREFIX
from tx8fast.passes.legalize import ABSORBS
from tx8fast.passes.lift_match import Constants, made_by, scalar, scaled, static, used_once
from tx8fast.weights import MASK_VALUE

#: masks at or below this hide a position: its exponential is 0 beside any visible score. Scores near 1e9 stand 64 apart in
#: f32 and further in bf16, and none of f16 is below -65504; -1e4, which some models take, is a score that is really met
HIDDEN = {"f32": -1e9, "bf16": -1e9, "f16": -6e4}
#: what makes scores
PRODUCTS = ("gemm", "contract")
#: what masks are computed of numbers with
MAKES_MASKS = ("mul", "add", "sub", "neg", "select", "max", "min", "reshape", "broadcast", "convert", "transpose")
FLOATS = ("bf16", "f16", "f32")


def on_rows(op: Op) -> bool:
    return static(op.result) and op.attrs["axis"] % len(op.result.shape) == len(op.result.shape) - 1


def score_product(v: Value) -> Op | None:
    """The product that `v` is, scaled or capped."""
    for _ in range(5):
        op = v.op
        if op is None or op.kind in PRODUCTS:
            return op
        if op.kind not in ("mul", "div", "tanh", "reshape", "transpose", "convert"):
            return None
        v = op.operands[0]
    return None


def is_score(v: Value) -> bool:
    return score_product(v) is not None


def never_hidden(v: Value, constants: Constants, depth: int = 12) -> bool:
    """True if nothing hides scores already, so that a mask beside it may come to minus infinity: a product, whole numbers, known ones that
    do not, and what is computed of such."""
    known, hides = constants.array(v), HIDDEN.get(v.dtype, -math.inf)
    if known is not None or depth == 0:
        return known is not None and bool((np.abs(known.astype(np.float64)) < -hides).all())
    if v.dtype not in FLOATS or is_score(v):
        return True
    if (op := made_by(v, *MAKES_MASKS, "tanh", "slice", "concat", "reduce", "gather")) is None:
        return False
    if op.kind == "max" and any((s := splat(x)) is not None and s > hides for x in op.operands):
        return True
    return all(never_hidden(x, constants, depth - 1) for x in op.operands)


def _may_be_hidden(v: Value, constants: Constants) -> bool:
    """True for scores that something besides a product is part of, which may hide them."""
    while True:
        view, factor = made_by(v, "reshape", "transpose", "convert"), scaled(v)
        if view is None and factor is None:
            break
        v = view.operands[0] if view is not None else factor[0]  # type: ignore[index]
    return made_by(v, "add", "sub", "min", "max", "select", "log") is not None and not never_hidden(v, constants)


def mask_of(op: Op) -> Value | None:
    """Return the mask that a softmax adds, if any."""
    if len(op.operands) < 2 or type(op.operands[1].type) is NoneType:
        return None
    return op.operands[1]


def one_number(constants: Constants) -> Pattern:
    def apply(op: Op, rw: Rewriter) -> bool:
        """A choice of a large constant whose elements are all the same number is one of the number; weights, which may be others when the
        program runs, are not looked at."""
        for i in (1, 2):
            v = op.operands[i]
            stored = made_by(v, "get_param")
            if stored is None or v.dtype not in FLOATS or not static(v, op.result):
                continue
            if not stored.attrs["key"].startswith(CONSTANT_PREFIX):
                continue
            known = constants.array(v)
            others = [x for k, x in enumerate(op.operands) if k != i]
            if known is None or not alike(known) or not all(map(static, others)):
                continue
            if np.broadcast_shapes(*(x.shape for x in others)) == op.result.shape:
                rw.set_operand(op, i, scalar(rw, float(known.reshape(-1)[0]), v.dtype, op))
                return True
        return False

    return Pattern("one-number", ("tx8be.select",), apply, benefit=9)


def chosen_mask(constants: Constants) -> Pattern:
    def apply(op: Op, rw: Rewriter) -> bool:
        """softmax(where(visible, x, low)), or of where(hidden, low, x), for a low that hides: an additive mask, which depends on `visible` alone. A row that sees
        nothing has equal shares of all positions, which the mask must give, too: it absorbs what it is added to, or there is none."""
        choice = made_by(op.operands[0], "select")
        if choice is None or mask_of(op) is not None or op.attrs["scale"] != 1.0:
            return False
        condition, x, other = choice.operands
        inverse = splat(x) is not None
        x, other = (other, x) if inverse else (x, other)
        low = splat(other)
        if low is None or x.type is not choice.result.type or made_by(x, "select") is not None:
            return False
        if low != -math.inf and _may_be_hidden(x, constants):
            return False  # a row that sees nothing has equal shares, and lower numbers where both hide would not
        if low > ABSORBS:
            # the logarithm of a share of nothing shows the number itself
            if op.attrs["log"] or low > HIDDEN.get(x.dtype, -math.inf):
                return False
            if x.dtype != "f16":
                low = MASK_VALUE[x.dtype]
            else:
                known = constants.array(condition)
                if not _sees_some(np.logical_not(known) if inverse and known is not None else known, op):
                    return False
        choices = [scalar(rw, 0.0, x.dtype, op), scalar(rw, float(low), x.dtype, op)]
        mask = rw.insert("select", condition, *(choices[::-1] if inverse else choices), before=op).result
        total = rw.insert("add", x, mask, before=op).result
        rw.replace_with(op, "softmax", total, axis=op.attrs["axis"], scale=1.0, log=op.attrs["log"])
        return True

    return Pattern("chosen-mask", ("tx8be.softmax",), apply, benefit=4)


def two_masks(constants: Constants) -> Pattern:
    def apply(op: Op, rw: Rewriter) -> bool:
        """softmax(where(visible, x, low), mask) of known masks that leave something to see in every row: one mask."""
        choice, mask = made_by(op.operands[0], "select"), mask_of(op)
        if (
            choice is None
            or mask is None
            or op.attrs["log"]
            or op.attrs["scale"] != 1.0
            or not used_once(choice.result)
        ):
            return False
        visible, x, other = choice.operands
        low, hides = splat(other), HIDDEN.get(x.dtype, -math.inf)
        known = constants.array(visible), constants.array(mask)
        if low is None or low > hides or x.type is not choice.result.type or x.dtype not in ("f32", "bf16"):
            return False
        if known[0] is None or known[1] is None or not _sees_some(known[0] & (known[1] > hides), op):
            return False
        both = rw.insert("select", visible, mask, scalar(rw, MASK_VALUE[x.dtype], x.dtype, op), before=op).result
        rw.replace_with(op, "softmax", x, both, axis=op.attrs["axis"], scale=1.0, log=False)
        return True

    return Pattern("two-masks", ("tx8be.softmax",), apply, benefit=4)


def deep_mask(constants: Constants) -> Pattern:
    def apply(op: Op, rw: Rewriter) -> bool:
        """A known mask whose rows all see something hides with what absorbs, instead of with numbers that could be scores."""
        mask = mask_of(op)
        known = None if mask is None or op.attrs["log"] or op.attrs["visible"] else constants.array(mask)
        if mask is None or known is None or mask.dtype not in ("f32", "bf16"):
            return False
        hides, wide = HIDDEN[mask.dtype], known.astype(np.float32)
        if not ((wide <= hides) & (wide > ABSORBS)).any() or not _sees_some(wide > hides, op):
            return False
        if _may_be_hidden(op.operands[0], constants):
            return False  # two masks together may leave a row nothing to see
        seen = rw.insert("gt", mask, scalar(rw, hides, mask.dtype, op), before=op).result
        low = scalar(rw, MASK_VALUE[mask.dtype], mask.dtype, op)
        rw.set_operand(op, 1, rw.insert("select", seen, mask, low, before=op).result)
        return True

    return Pattern("deep-mask", ("tx8be.softmax",), apply)


def equal_items(constants: Constants) -> Pattern:
    def apply(op: Op, rw: Rewriter) -> bool:
        """A known mask that is the same for all items, or heads, is known once."""
        mask = mask_of(op)
        wide = mask is not None and static(mask) and any(n > 1 for n in mask.shape[:-2])
        known = constants.array(mask) if mask is not None and wide else None
        if mask is None or known is None or known.shape != mask.shape:
            return False
        size = list(known.shape)
        for axis in range(known.ndim - 2):
            once = known.take([0], axis)
            if size[axis] > 1 and (once == known).all():
                known, size[axis] = once, 1
        if known.shape == mask.shape:
            return False
        part = rw.insert("slice", mask, before=op, start=[0] * len(size), size=size, step=[1] * len(size)).result
        rw.set_operand(op, 1, part)
        return True

    return Pattern("equal-items", ("tx8be.softmax",), apply)


def deepened(mask: np.ndarray, dtype: str) -> np.ndarray | None:
    """Return a mask of f16 in another format, in which it hides with what absorbs; None if it hides nothing, or all that a row has."""
    from tx8fast.numerics.formats import np_dtype

    wide = mask.astype(np.float32)
    hides = wide <= HIDDEN["f16"]
    if not hides.any() or not wide.ndim or hides.all(-1).any():
        return None
    return np.where(hides, np.float32(MASK_VALUE[dtype]), wide).astype(np_dtype(dtype))


def _sees_some(visible: np.ndarray | None, op: Op) -> bool:
    """Say whether known truth values have a true one along the axis of the softmax `op` everywhere."""
    rank = len(op.result.shape)
    axis = op.attrs["axis"] % rank - rank
    return visible is not None and bool(visible.any(axis).all() if visible.ndim >= -axis else visible.all())
