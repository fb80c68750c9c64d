"""Recognises the parts of attention around its softmax: scale, mask, guard against empty rows, causal products.

May import: ir, passes.base, passes.canonicalize, passes.lift_{masks,match}, weights (mask value). Must not: change numbers beyond
rounding for finite activations. A row without any visible key gives zeros before and after.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from tx8fast.ir.attrs import DENSE_DTYPES
from tx8fast.ir.core import Op, Value
from tx8fast.ir.equation import bind
from tx8fast.ir.program import IRProgram
from tx8fast.ir.rewrite import Pattern, Rewriter, pattern, rewrite_greedily
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.canonicalize import splat
from tx8fast.passes.legalize import ABSORBS, items_fit, mask_fits
from tx8fast.passes.lift_masks import HIDDEN, chosen_mask, deep_mask, equal_items, mask_of
from tx8fast.passes.lift_match import (
    Constants,
    made_by,
    orders,
    scalar,
    scaled,
    sole_user,
    static,
    used_once,
)
from tx8fast.records import dataclass
from tx8fast.weights import MASK_VALUE

#: a mask at or below this may be rounded to a half format
_LOW = -1e4
_FLOATS = ("bf16", "f16", "f32")
_PRODUCTS = ("gemm", "contract")
#: what masks are computed of numbers with
_MAKES_MASKS = ("mul", "add", "sub", "neg", "select", "max", "min", "reshape", "broadcast", "convert", "transpose")


def _rebuild(op: Op, rw: Rewriter, x: Value, mask: Value | None, scale: float) -> None:
    operands = [x] if mask is None else [x, mask]
    visible = op.attrs["visible"] if mask is mask_of(op) else ()
    rw.replace_with(op, "softmax", *operands, axis=op.attrs["axis"], scale=scale, log=op.attrs["log"], visible=visible)


def _on_rows(op: Op) -> bool:
    return static(op.result) and op.attrs["axis"] % len(op.result.shape) == len(op.result.shape) - 1


def _score_product(v: Value) -> Op | None:
    """The product that `v` is, scaled or capped."""
    for _ in range(5):
        op = v.op
        if op is None or op.kind in _PRODUCTS:
            return op
        if op.kind not in ("mul", "div", "tanh", "reshape", "transpose", "convert"):
            return None
        v = op.operands[0]
    return None


def _is_score(v: Value) -> bool:
    return _score_product(v) is not None


@pattern("softmax", benefit=3)
def _mask(op: Op, rw: Rewriter) -> bool:
    """softmax(x + mask)."""
    total = made_by(op.operands[0], "add")
    if total is None or not used_once(total.result) or mask_of(op) is not None or op.attrs["scale"] != 1.0:
        return False
    if not _on_rows(op):
        return False
    least = ABSORBS if _is_guarded(op) else -math.inf  # a guard becomes a factor, and its mask finite
    for x, mask in orders(total):
        known = static(mask, x) and x.type is op.result.type and mask.dtype == x.dtype
        fits = known and (mask_fits(x.shape, mask.shape) or items_fit(x.shape, mask, least))
        if fits and _is_score(x) and not _is_score(mask):
            _rebuild(op, rw, x, mask, 1.0)
            return True
    return False


@pattern("softmax", benefit=2)
def _repeated_mask(op: Op, rw: Rewriter) -> bool:
    """A mask is repeated for the rows that share it by the softmax itself."""
    mask = mask_of(op)
    repeat = None if mask is None else made_by(mask, "broadcast")
    if repeat is None or not static(op.operands[0], *repeat.operands):
        return False
    scores, once = op.operands[0].shape, repeat.operands[0]
    if not mask_fits(scores, once.shape) and not items_fit(scores, once):
        return False
    rw.set_operand(op, 1, repeat.operands[0])
    return True


@pattern("softmax", benefit=2)
def _scale(op: Op, rw: Rewriter) -> bool:
    """softmax(x * c, mask)."""
    found = scaled(op.operands[0])
    if found is None or not used_once(op.operands[0]) or not _on_rows(op):
        return False
    _rebuild(op, rw, found[0], mask_of(op), op.attrs["scale"] * found[1])
    return True


@pattern("softmax", benefit=1)
def _scaled_operands(op: Op, rw: Rewriter) -> bool:
    """softmax((q * c) (k * c)^T): one factor on the scores instead of one on each operand."""
    product = made_by(op.operands[0], *_PRODUCTS)
    if product is None or not used_once(product.result) or len(product.operands) != 2 or not _on_rows(op):
        return False
    if product.attrs.get("act", "none") != "none":
        return False
    factor = 1.0
    for i in (0, 1):
        v = product.operands[i]
        while made_by(v, "reshape", "transpose", "broadcast") is not None and used_once(v):
            v = v.op.operands[0]  # type: ignore[union-attr]
        found = scaled(v)
        if found is None or not used_once(v):
            continue
        factor *= found[1]
        rw.replace(v.op, [found[0]])  # type: ignore[arg-type]
    if factor == 1.0:
        return False
    _rebuild(op, rw, op.operands[0], mask_of(op), op.attrs["scale"] * factor)
    return True


def _narrow(constants: Constants) -> Pattern:
    def apply(op: Op, rw: Rewriter) -> bool:
        """A softmax in f32 of scores in a half format, between two conversions: the engine computes in f32 anyhow."""
        soft, dtype = made_by(op.operands[0], "softmax"), op.result.dtype
        if soft is None or not used_once(soft.result) or dtype not in ("bf16", "f16") or soft.result.dtype != "f32":
            return False
        widened, mask = made_by(soft.operands[0], "convert"), mask_of(soft)
        if widened is None or widened.operands[0].dtype != dtype:
            return False
        operands = [widened.operands[0]]
        if mask is not None:
            if not _keeps_its_meaning(mask, dtype, constants):
                return False
            operands.append(rw.insert("convert", mask, before=op, dtype=dtype).result)
        rw.replace_with(op, "softmax", *operands, **{n: soft.attrs[n] for n in ("axis", "scale", "log", "visible")})
        return True

    return Pattern("narrow", ("tx8be.convert",), apply)


def _keeps_its_meaning(mask: Value, dtype: str, constants: Constants) -> bool:
    """True if a known mask has only numbers that `dtype` holds, and finite ones that hide in either format."""
    chosen = made_by(mask, "select")
    found = [splat(b) for b in chosen.operands[1:]] if chosen is not None else [constants.array(mask)]
    for known in found:
        if known is None:
            return False
        wide = np.asarray(known).astype(np.float32)
        with np.errstate(over="ignore"):
            narrow = wide.astype(DENSE_DTYPES[dtype][1]).astype(np.float32)
        if not ((narrow == wide) | ((wide <= _LOW) & np.isfinite(narrow))).all():
            return False
    return True


# ---------------------------------------------------------------- rows without a visible key


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


def _is_guarded(soft: Op) -> bool:
    """True if where(isnan(p), 0, p) alone reads the softmax p."""
    tests = [u for u in soft.result.users if u.kind == "isnan"]
    guards = {u for t in tests for u in t.result.users if u.kind == "select" and splat(u.operands[1]) == 0}
    return len(tests) == len(guards) == 1 and set(soft.result.users) == {*tests, *guards}


def _guard(constants: Constants) -> Pattern:
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
        if soft.attrs["log"] or not _on_rows(soft) or soft.result.dtype not in _FLOATS:
            return False
        mask = mask_of(soft)
        if mask is None:
            if not _is_score(soft.operands[0]):
                return False  # a mask that is not recognised, or a row that somebody gave
        elif not _never_empty(mask, constants):
            return _factor_per_row(op, rw, soft, mask, constants)
        rw.replace(op, [p])
        return True

    return Pattern("guard", ("tx8be.select",), apply)


def _undefined(mask: Value, constants: Constants) -> bool:
    """True if a mask may be undefined where it hides nothing: what is multiplied by an infinite number may be 0."""
    known = constants.array(mask)
    if known is not None:
        return bool(np.isnan(known.astype(np.float64)).any())
    if (op := made_by(mask, *_MAKES_MASKS)) is None:
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
        or mask.dtype not in _FLOATS
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


def _always_seen(constants: Constants) -> Pattern:
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


# ---------------------------------------------------------------- work of causal attention


def _macs(op: Op) -> int:
    """Multiplications of a product."""
    a, b = op.operands[0].shape, op.operands[1].shape
    if op.kind == "gemm":
        return math.prod(op.result.shape) * (a[-2] if op.attrs["trans_a"] else a[-1])
    return math.prod(bind(op.attrs["equation"], (a, b), op.attrs["sizes"], op).sizes.values())


def band_of(mask: np.ndarray, hidden: float) -> tuple[int, int] | None:
    """Return (offset, window) if row i of a mask [..., rows, columns] is 0 in columns (i + offset - window, i + offset]
    and `hidden` or less in all others, window 0 for no lower end; else None."""
    if mask.ndim < 2 or math.prod(mask.shape[:-2]) != 1:
        return None
    x = mask.reshape(mask.shape[-2:]).astype(np.float32)
    seen = x == 0
    if not np.array_equal(seen, x > hidden) or not seen[0].any():
        return None
    rows, columns = mask.shape[-2], mask.shape[-1]
    offset = columns - 1 - int(seen[0, ::-1].argmax())
    last = seen[min(rows - 1, columns - 1 - offset)]
    first = int(last.argmax())
    window = min(rows - 1, columns - 1 - offset) + offset + 1 - first if first else 0
    if offset + rows > columns:
        return None
    i, j = np.arange(rows)[:, None] + offset, np.arange(columns)[None, :]
    wanted = (j <= i) & (j > i - window) if window else j <= i
    return (offset, window) if np.array_equal(seen, wanted) else None


def _causal(constants: Constants) -> Pattern:
    def apply(op: Op, rw: Rewriter) -> bool:
        """A known mask that hides positions: the products around it are needed at the visible ones only, and a plain
        band of visible columns is noted at the softmax."""
        mask = mask_of(op)
        if mask is None or not static(op.result):
            return False
        v = op.result
        around = [_score_product(op.operands[0])]
        while (user := sole_user(v)) is not None and user.kind in ("convert", "mul") and user.result.shape == v.shape:
            v = user.result
        around += [u for u in v.users if u.kind in _PRODUCTS and u.operands[0] is v]
        products = [p for p in around if p is not None and p.attrs["useful_macs"] == -1 and static(*p.operands)]
        # large masks are not read without need
        known = constants.array(mask) if (products or not op.attrs["visible"]) and mask.shape[-1] != 1 else None
        if known is None or not known.size:
            return False
        hidden = HIDDEN["f16"] if mask.dtype == "f16" else ABSORBS
        visible = int((known.astype(np.float32) > hidden).sum())
        if visible == known.size:
            return False
        band = band_of(known, hidden) if _on_rows(op) and not op.attrs["visible"] else None
        if band is not None:
            op.attrs["visible"] = band
        elif not products:
            return False
        for product in products:
            product.attrs["useful_macs"] = _macs(product) * visible // known.size
        return True

    return Pattern("causal-work", ("tx8be.softmax",), apply)


@dataclass(frozen=True)
class LiftAttention(CompilerPass):
    """Gives softmax its scale and mask, drops guards. Masks up to `limit_bytes` are looked at."""

    name: ClassVar[str] = "lift-attention"
    limit_bytes: int = 1 << 26

    def run(self, program: IRProgram) -> PassResult:
        constants = Constants(program, self.limit_bytes)
        patterns = (
            _mask,
            _repeated_mask,
            chosen_mask(constants),
            deep_mask(constants),
            equal_items(constants),
            _scale,
            _scaled_operands,
            _narrow(constants),
            _guard(constants),
            _always_seen(constants),
        )
        result = rewrite_greedily(program.ctx, program.module, patterns)
        return PassResult(result.changed, {**result.applied, "dead": result.dead})


@dataclass(frozen=True)
class CountCausalWork(CompilerPass):
    """Tells products beside a known mask how much of them the model needs (`useful_macs`)."""

    name: ClassVar[str] = "count-causal-work"
    limit_bytes: int = 1 << 26

    def run(self, program: IRProgram) -> PassResult:
        result = rewrite_greedily(program.ctx, program.module, (_causal(Constants(program, self.limit_bytes)),))
        return PassResult(result.changed, dict(result.applied))
