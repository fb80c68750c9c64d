"""Recognises the parts of attention around its softmax: scale, mask, causal products.

May import: ir, passes.base, passes.canonicalize, passes.lift_{guards,masks,match}, passes.legalize. Must not: change numbers beyond
rounding for finite activations.
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
from tx8fast.passes.lift_guards import always_seen, guard, is_guarded
from tx8fast.passes.lift_masks import (
    HIDDEN,
    PRODUCTS,
    chosen_mask,
    deep_mask,
    equal_items,
    is_score,
    mask_of,
    on_rows,
    one_number,
    score_product,
    two_masks,
)
from tx8fast.passes.lift_match import (
    Constants,
    made_by,
    may_replace,
    orders,
    scaled,
    sole_user,
    static,
    used_once,
)
from tx8fast.records import dataclass

#: a mask at or below this may be rounded to a half format
_LOW = -1e4
_FLOATS = ("bf16", "f16", "f32")


def _rebuild(op: Op, rw: Rewriter, x: Value, mask: Value | None, scale: float) -> None:
    operands = [x] if mask is None else [x, mask]
    visible = op.attrs["visible"] if mask is mask_of(op) else ()
    rw.replace_with(op, "softmax", *operands, axis=op.attrs["axis"], scale=scale, log=op.attrs["log"], visible=visible)


def _holds_score(v: Value, depth: int = 3) -> bool:
    """True for a score, for one that something is added to, like slopes, and for one that is hidden here and there."""
    chosen = made_by(v, "select")
    if chosen is not None and splat(chosen.operands[2]) is not None:
        v = chosen.operands[1]
    if is_score(v):
        return True
    while (view := made_by(v, "reshape")) is not None:
        v = view.operands[0]
    total = made_by(v, "add") if depth else None
    return total is not None and any(_holds_score(x, depth - 1) for x in total.operands)


def _mask(constants: Constants) -> Pattern:
    def apply(op: Op, rw: Rewriter) -> bool:
        """softmax(x + mask)."""
        total = made_by(op.operands[0], "add")
        if total is None or not used_once(total.result) or mask_of(op) is not None or op.attrs["scale"] != 1.0:
            return False
        if not on_rows(op):
            return False
        for x, mask in orders(total):
            if not static(mask, x) or x.type is not op.result.type or mask.dtype != x.dtype:
                continue
            if not _holds_score(x) or _holds_score(mask):
                continue
            # a guard becomes a factor, and its mask finite
            least = ABSORBS if is_guarded(op, x, constants) else -math.inf
            if mask_fits(x.shape, mask.shape) or items_fit(x.shape, mask, least):
                _rebuild(op, rw, x, mask, 1.0)
                return True
        return False

    return Pattern("mask", ("tx8be.softmax",), apply, benefit=3)


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


@pattern("softmax", benefit=4)
def _less_the_greatest(op: Op, rw: Rewriter) -> bool:
    """softmax(x - max(x)): it takes the maximum away itself."""
    less = made_by(op.operands[0], "sub")
    greatest = made_by(less.operands[1], "reduce") if less is not None else None
    if (
        less is None
        or greatest is None
        or greatest.operands[0] is not less.operands[0]
        or greatest.attrs["op"] != "max"
    ):
        return False
    rank = len(op.result.shape)
    axes = [a % rank for a in greatest.attrs["axes"]]
    if mask_of(op) is not None or axes != [op.attrs["axis"] % rank] or not greatest.attrs["keepdims"]:
        return False
    rw.set_operand(op, 0, less.operands[0])
    return True


@pattern("softmax", benefit=2)
def _scale(op: Op, rw: Rewriter) -> bool:
    """softmax(x * c, mask)."""
    found = scaled(op.operands[0])
    if found is None or not used_once(op.operands[0]) or not on_rows(op):
        return False
    _rebuild(op, rw, found[0], mask_of(op), op.attrs["scale"] * found[1])
    return True


@pattern("softmax", benefit=1)
def _scaled_operands(op: Op, rw: Rewriter) -> bool:
    """softmax((q * c) (k * c)^T): one factor on the scores instead of one on each operand."""
    product = made_by(op.operands[0], *PRODUCTS)
    if product is None or not used_once(product.result) or len(product.operands) != 2 or not on_rows(op):
        return False
    if product.attrs.get("act", "none") != "none":
        return False
    found: list[tuple[Op, Value, float]] = []
    for v in product.operands[:2]:
        while made_by(v, "reshape", "transpose", "broadcast") is not None and used_once(v):
            v = v.op.operands[0]  # type: ignore[union-attr]
        if (own := scaled(v)) is not None and used_once(v):
            found.append((v.op, *own))  # type: ignore[arg-type]
    factors = [op.attrs["scale"], *[factor for _, _, factor in found]]
    scale = math.prod(factors)
    if scale == op.attrs["scale"] or not may_replace(scale, factors, product.result.dtype):
        return False
    for times, x, _ in found:
        rw.replace(times, [x])
    _rebuild(op, rw, op.operands[0], mask_of(op), scale)
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
        around = [score_product(op.operands[0])]
        while (user := sole_user(v)) is not None and user.kind in ("convert", "mul") and user.result.shape == v.shape:
            v = user.result
        around += [u for u in v.users if u.kind in PRODUCTS and u.operands[0] is v]
        products = [p for p in around if p is not None and p.attrs["useful_macs"] == -1 and static(*p.operands)]
        # large masks are not read without need
        known = constants.array(mask) if (products or not op.attrs["visible"]) and mask.shape[-1] != 1 else None
        if known is None or not known.size:
            return False
        hidden = HIDDEN["f16"] if mask.dtype == "f16" else ABSORBS
        visible = int((known.astype(np.float32) > hidden).sum())
        if visible == known.size:
            return False
        band = band_of(known, hidden) if on_rows(op) and not op.attrs["visible"] else None
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
            _less_the_greatest,
            _mask(constants),
            _repeated_mask,
            one_number(constants),
            chosen_mask(constants),
            two_masks(constants),
            deep_mask(constants),
            equal_items(constants),
            _scale,
            _scaled_operands,
            _narrow(constants),
            guard(constants),
            always_seen(constants),
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
