"""Guards of a softmax: where(isnan(p), 0, p) against rows without a visible key.

May import: ir, passes.canonicalize, passes.lift_{masks,match}, weights (mask value). Must not: drop a guard that may be
needed. A row without any visible key gives zeros before and after.
"""

from __future__ import annotations

import math

import numpy as np

from tx8fast.ir.core import Op, Value
from tx8fast.ir.rewrite import Pattern, Rewriter
from tx8fast.passes.canonicalize import splat
from tx8fast.passes.lift_masks import FLOATS, MAKES_MASKS, mask_of, never_hidden, on_rows
from tx8fast.passes.lift_match import Constants, made_by, scalar, sole_user, static
from tx8fast.weights import MASK_VALUE


def _never_empty(mask: Value | None, constants: Constants) -> bool:
    """True if every row has a position whose mask is above minus infinity."""
    if mask is None:
        return True
    known = constants.array(mask)
    if known is not None:
        seen = np.atleast_1d(known.astype(np.float64) > -math.inf)
        return bool(seen.any(axis=-1).all())
    chosen = made_by(mask, "select")
    while chosen is None and made_by(mask, "reshape", "broadcast", "convert") is not None:
        mask = mask.op.operands[0]  # type: ignore[union-attr]
        chosen = made_by(mask, "select")
    if chosen is not None:
        branches = [splat(b) for b in chosen.operands[1:]]
        return all(b is not None and math.isfinite(b) for b in branches)
    clamped = made_by(mask, "max")
    return clamped is not None and any((s := splat(b)) is not None and s > -math.inf for b in clamped.operands)


def is_guarded(soft: Op, scores: Value, constants: Constants) -> bool:
    """True if where(isnan(p), 0, p) alone reads the softmax p, which a mask alone leaves without a visible key."""
    if not never_hidden(scores, constants):
        return False
    tests = [u for u in soft.result.users if u.kind == "isnan"]
    guards = {u for t in tests for u in t.result.users if u.kind == "select" and splat(u.operands[1]) == 0}
    return len(tests) == len(guards) == 1 and set(soft.result.users) == {*tests, *guards}


def guard(constants: Constants) -> Pattern:
    def apply(op: Op, rw: Rewriter) -> bool:
        """where(isnan(p), 0, p) after a softmax: gone if no row is empty, else a factor per row."""
        test, zero, p = op.operands
        found = made_by(test, "isnan")
        soft = made_by(p, "softmax")
        if (
            found is None
            or soft is None
            or found.operands[0] is not p
            or splat(zero) != 0
            or p.type is not op.result.type
        ):
            return False
        if soft.attrs["log"] or not on_rows(soft) or soft.result.dtype not in FLOATS:
            return False
        if not never_hidden(soft.operands[0], constants):
            return False  # a mask that is not recognised or not the only one, or a row that somebody gave
        mask = mask_of(soft)
        if mask is not None and not _never_empty(mask, constants):
            return _factor_per_row(op, rw, soft, mask, constants)
        rw.replace(op, [p])
        return True

    return Pattern("guard", ("tx8be.select",), apply)


def _undefined(mask: Value, constants: Constants) -> bool:
    """True if a mask may be undefined where it hides nothing: what is multiplied by an infinite number may be 0."""
    known = constants.array(mask)
    if known is not None:
        return bool(np.isnan(known.astype(np.float64)).any())
    if (op := made_by(mask, *MAKES_MASKS)) is None:
        return False
    given = [constants.array(v) for v in op.operands]
    if op.kind == "mul" and any(a is not None and not np.isfinite(a.astype(np.float64)).all() for a in given):
        return True
    return any(_undefined(v, constants) for v, a in zip(op.operands, given) if a is None)


def _factor_per_row(op: Op, rw: Rewriter, soft: Op, mask: Value, constants: Constants) -> bool:
    """Empty rows see finite masks, so that nothing becomes NaN, and are multiplied by 0 afterwards."""
    test = op.operands[0].op
    assert test is not None
    if (
        not mask.shape
        or mask.dtype not in FLOATS
        or _undefined(mask, constants)
        or set(soft.result.users) != {test, op}
        or test.result.users != [op]
    ):
        return False
    low = scalar(rw, MASK_VALUE[mask.dtype], mask.dtype, soft)
    rw.set_operand(soft, 1, rw.insert("max", mask, low, before=soft).result)
    seen = rw.insert("gt", mask, scalar(rw, -math.inf, mask.dtype, op), before=op).result
    number = rw.insert("convert", seen, before=op, dtype=soft.result.dtype).result
    factor = rw.insert("reduce", number, before=op, op="max", axes=(len(mask.shape) - 1,), keepdims=True).result
    product = sole_user(op.result)
    if product is None or not _takes_rows(product, op.result):
        rw.replace_with(op, "mul", soft.result, factor)
        return True
    attrs = {n: product.attrs[n] for n in product.info.attrs if n in product.attrs}
    rows = rw.insert(product.kind, soft.result, *product.operands[1:], before=product, **attrs).result
    rw.replace_with(product, "mul", rows, factor)  # fewer numbers, and nothing stands between a softmax and its product
    return True


def _takes_rows(product: Op, rows: Value) -> bool:
    """True for a product that has a row of its result for each of `rows`, and adds nothing to it."""
    plain = product.kind == "gemm" and len(product.operands) == 2 and not product.attrs["trans_a"]
    if not plain or product.operands[0] is not rows or product.attrs["act"] != "none" or product.operands[1] is rows:
        return False
    return static(product.result) and product.result.shape[:-1] == rows.shape[:-1]


def always_seen(constants: Constants) -> Pattern:
    def apply(op: Op, rw: Rewriter) -> bool:
        """max over keys of (key <= position) is 1 if key 0 is among them and the position is that of a cache write."""
        number = made_by(op.operands[0], "convert")
        test = None if number is None else made_by(number.operands[0], "le")
        rank = len(op.operands[0].shape)
        if test is None or op.attrs["op"] != "max" or [a % rank for a in op.attrs["axes"]] != [rank - 1]:
            return False
        keys, place = constants.array(test.operands[0]), test.operands[1]
        if keys is None or not keys.ndim or not static(op.result) or not (keys <= 0).any(axis=-1).all():
            return False
        while made_by(place, "reshape", "broadcast") is not None:
            place = place.op.operands[0]  # type: ignore[union-attr]
        views = [place, *(u.result for u in place.users if u.kind == "reshape")]
        if not any(u.kind == "kv_update" and u.operands[2] is v for v in views for u in v.users):
            return False
        shape = op.result.shape
        rw.replace_with(op, "broadcast", scalar(rw, 1.0, op.result.dtype, op), shape=shape)
        return True

    return Pattern("always-seen", ("tx8be.reduce",), apply)
