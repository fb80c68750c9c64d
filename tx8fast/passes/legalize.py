"""Rewrites op forms the back end has no sequence for into forms it has.

May import: ir, passes.base, passes.canonicalize (constant look-up), passes.{legalize_choices, legalize_functions, legalize_images, legalize_moves, legalize_reductions, legalize_windows, lift_match, lift_quantised}. Must not: round differently from the original,
except where a reciprocal or root is exact by definition. Every rule leaves a form no rule applies to.
"""

from __future__ import annotations

import math
from typing import ClassVar

from tx8fast.ir.core import Op, Value
from tx8fast.ir.ops.base import engine_of
from tx8fast.ir.rewrite import Pattern, Rewriter, pattern
from tx8fast.ir.types import NoneType, TensorType
from tx8fast.passes.base import PatternPass
from tx8fast.passes.canonicalize import splat
from tx8fast.passes.legalize_choices import PATTERNS as CHOICES
from tx8fast.passes.legalize_functions import PATTERNS as FUNCTIONS
from tx8fast.passes.legalize_images import EARLY as IMAGES
from tx8fast.passes.legalize_images import LATE as WIDE_IMAGES
from tx8fast.passes.legalize_moves import PATTERNS as MOVES
from tx8fast.passes.legalize_reductions import PATTERNS as REDUCTIONS
from tx8fast.passes.legalize_windows import WINDOWS
from tx8fast.passes.lift_match import made_by, scalar
from tx8fast.passes.lift_quantised import LATE as QUANTISED
from tx8fast.records import dataclass

_FLOATS = ("bf16", "f16", "f32")
#: at or below this a sum with any score is the number itself, as half the distance to the next one is 1e22 or more
ABSORBS = -1e30


def _static(*values: Value) -> bool:
    return all(isinstance(v.type, TensorType) and v.type.is_static for v in values)


# ---------------------------------------------------------------- reductions


@pattern("reduce", benefit=3)
def _keep_dims(op: Op, rw: Rewriter) -> bool:
    """The vector engine keeps the reduced dimension; a reshape, which moves nothing, drops it."""
    if op.attrs["keepdims"] or not op.attrs["axes"] or not _static(op.result):
        return False
    kept = rw.insert("reduce", op.operands[0], before=op, op=op.attrs["op"], axes=op.attrs["axes"], keepdims=True)
    rw.replace_with(op, "reshape", kept.result, shape=op.result.shape)
    return True


@pattern("reduce", benefit=2)
def _merge_reduced_axes(op: Op, rw: Rewriter) -> bool:
    """Several trailing axes become one."""
    x = op.operands[0]
    if not op.attrs["keepdims"] or not _static(x):
        return False
    rank, n = len(x.shape), len(op.attrs["axes"])
    if n < 2 or {a % rank for a in op.attrs["axes"]} != set(range(rank - n, rank)):
        return False
    lead = x.shape[: rank - n]
    flat = rw.insert("reshape", x, before=op, shape=(*lead, math.prod(x.shape[rank - n :])))
    one = rw.insert("reduce", flat.result, before=op, op=op.attrs["op"], axes=(len(lead),), keepdims=True)
    rw.replace_with(op, "reshape", one.result, shape=op.result.shape)
    return True


# ---------------------------------------------------------------- arithmetic with constants


@pattern("pow", benefit=2)
def _known_power(op: Op, rw: Rewriter) -> bool:
    x, e = op.operands[0], splat(op.operands[1])
    if e is None or x.type is not op.result.type or x.dtype not in _FLOATS:
        return False
    unary = {2: "square", 0.5: "sqrt", -1: "recip", -0.5: "rsqrt"}.get(e)
    if unary is not None:
        rw.replace_with(op, unary, x)
    elif e == 3:
        rw.replace_with(op, "mul", rw.insert("square", x, before=op).result, x)
    elif e == 1:
        rw.replace(op, [x])
    elif e == 0 and _static(x):
        rw.replace_with(op, "broadcast", scalar(rw, 1.0, x.dtype, op), shape=x.shape)
    else:
        return False
    return True


@pattern("div")
def _exact_reciprocal(op: Op, rw: Rewriter) -> bool:
    """x / 2^k = x * 2^-k, without rounding as long as 2^-k is a normal number of the format."""
    x, d = op.operands[0], splat(op.operands[1])
    if d is None or not d or x.type is not op.result.type or x.dtype not in _FLOATS or not math.isfinite(d):
        return False
    mantissa, exponent = math.frexp(abs(d))
    if mantissa != 0.5 or abs(exponent) > (14 if x.dtype == "f16" else 126):
        return False
    rw.replace_with(op, "mul", x, scalar(rw, 1.0 / d, x.dtype, op))
    return True


# ---------------------------------------------------------------- conditions


@pattern("select")
def _one_condition_after_the_other(op: Op, rw: Rewriter) -> bool:
    """where(a and b, x, y) is where(a, where(b, x, y), y): engines choose, and no engine joins truth values."""
    p, x, y = op.operands
    both = p.op
    if both is None or both.kind not in ("and", "or") or engine_of(both) != "kcore":
        return False
    if not all(u.kind == "select" and u.operands[0] is p for u in p.users):
        return False  # it is joined for another reader, too
    a, b = both.operands
    if not _static(a, b, x, y):
        return False
    if math.prod(a.shape) < math.prod(b.shape):
        a, b = b, a
    inner = rw.insert("select", b, x, y, before=op).result
    rw.replace_with(op, "select", a, *((inner, y) if both.kind == "and" else (x, inner)))
    return True


# ---------------------------------------------------------------- softmax, gemm


def mask_fits(scores: tuple[int, ...], mask: tuple[int, ...]) -> bool:
    """True if the softmax sequence can add the mask itself: one row for all, or whole trailing dimensions."""
    wide = (1,) * (len(scores) - len(mask)) + mask
    if not scores or wide[-1] != scores[-1]:
        return False
    own = [d for d in range(len(wide) - 1) if wide[d] != 1]
    return not own or own == list(range(own[0], len(wide) - 1))


def items_fit(scores: tuple[int, ...], mask: Value, least: float = -math.inf) -> bool:
    """True if the softmax sequence can add a mask whose rows differ by any leading dimensions, as those of padded items do: a choice between
    nothing and what absorbs any score. Where another number hides, a row that sees nothing has shares by its scores, which a sum has.
    least: what lower numbers of the mask will be raised to."""
    shape = mask.shape
    if not shape or len(shape) > len(scores) or shape[-1] != scores[-1] or mask.dtype not in ("f32", "bf16"):
        return False
    return all(n in (1, m) for n, m in zip(shape, scores[len(scores) - len(shape) :], strict=True)) and _absorbs(
        mask, least
    )


def _absorbs(mask: Value, low: float) -> bool:
    bounded = made_by(mask, "max")
    if bounded is not None:
        low = max((s for s in map(splat, bounded.operands) if s is not None), default=low)
        mask = next((v for v in bounded.operands if splat(v) is None), mask)
    chosen = made_by(mask, "select")
    if chosen is None:
        return False
    found = [splat(v) for v in chosen.operands[1:]]
    return all(v is not None and (v == 0 or -math.inf < max(v, low) <= ABSORBS) for v in found)


@pattern("softmax")
def _split_mask(op: Op, rw: Rewriter) -> bool:
    return _mask_apart(op, rw, items=True)


@pattern("softmax")
def _split_items(op: Op, rw: Rewriter) -> bool:
    return _mask_apart(op, rw, items=False)


def _mask_apart(op: Op, rw: Rewriter, items: bool) -> bool:
    """Add a mask before the softmax that it cannot add itself. items: those that `items_fit` are not apart."""
    if len(op.operands) < 2 or type(op.operands[1].type) is NoneType or not _static(*op.operands):
        return False
    x, mask = op.operands
    fits = mask_fits(x.shape, mask.shape) or (items and items_fit(x.shape, mask))
    if engine_of(op) == "kcore" or (fits and mask.dtype == x.dtype):
        return False
    if op.attrs["scale"] != 1.0:
        x = rw.insert("mul", x, scalar(rw, op.attrs["scale"], x.dtype, op), before=op).result
    if mask.dtype != x.dtype:
        mask = rw.insert("convert", mask, before=op, dtype=x.dtype).result
    total = rw.insert("add", x, mask, before=op).result
    rw.replace_with(op, "softmax", total, axis=op.attrs["axis"], scale=1.0, log=op.attrs["log"])
    return True


@pattern("gemm", benefit=2)
def _split_bias(op: Op, rw: Rewriter) -> bool:
    """The matrix engine adds a vector along N; any other bias is added afterwards."""
    if len(op.operands) < 3 or type(op.operands[2].type) is NoneType or not _static(*op.operands):
        return False
    bias, n = op.operands[2], op.result.shape[-1]
    if bias.shape == (n,) or op.attrs["act"] not in ("none", "relu"):
        return False
    if math.prod(bias.shape) == n and bias.shape[-1:] == (n,):
        rw.set_operand(op, 2, rw.insert("reshape", bias, before=op, shape=(n,)).result)
        return True
    if bias.dtype != op.result.dtype:
        return False
    attrs = {**{k: op.attrs[k] for k in ("trans_a", "trans_b", "useful_macs")}, "act": "none"}
    product = rw.insert("gemm", *op.operands[:2], before=op, **attrs).result
    if op.attrs["act"] == "relu":
        rw.replace_with(op, "relu", rw.insert("add", product, bias, before=op).result)
    else:
        rw.replace_with(op, "add", product, bias)
    return True


@pattern("gemm")
def _outer_product(op: Op, rw: Rewriter) -> bool:
    """K = 1 needs no matrix engine, and must not be rounded to its format: positions times frequencies, say."""
    a, b = op.operands[:2]
    if len(op.operands) > 2 or op.attrs["act"] != "none" or not _static(a, b) or a.dtype not in _FLOATS:
        return False
    if a.shape[-2 if op.attrs["trans_a"] else -1] != 1 or a.dtype != b.dtype:
        return False
    column = (*a.shape[:-2], op.result.shape[-2], 1)
    row = (*b.shape[:-2], 1, op.result.shape[-1])
    if a.shape != column:
        a = rw.insert("reshape", a, before=op, shape=column).result
    if b.shape != row:
        b = rw.insert("reshape", b, before=op, shape=row).result
    rw.replace_with(op, "mul", a, b)
    return True


# ---------------------------------------------------------------- many operands

#: operands of one op: each has buffers of its own in a trial's address space of 2 GiB (`search/trial.py`)
MAX_OPERANDS = 120


@pattern("concat")
def _put_together_in_steps(op: Op, rw: Rewriter) -> bool:
    """More operands than one launch works with: some of them first, then the parts; every element is moved once more."""
    n = len(op.operands)
    if n <= MAX_OPERANDS:
        return False
    count = min(-(-n // MAX_OPERANDS), MAX_OPERANDS)
    ends = [i * n // count for i in range(count + 1)]
    axis = op.attrs["axis"]
    parts = [rw.insert("concat", *op.operands[a:b], before=op, axis=axis).result for a, b in zip(ends, ends[1:])]
    rw.replace_with(op, "concat", *parts, axis=axis)
    return True


@pattern("conv")
def _windows_in_padding(op: Op, rw: Rewriter) -> bool:
    """Where a window lies in the padding altogether, its row needs no band of the image: padding beyond a window's reach becomes a part of
    the image."""
    x, w = op.operands[:2]
    if not _static(x, w):
        return False
    reach = [(k - 1) * d for k, d in zip(w.shape[:2], op.attrs["dilation"], strict=True)]
    within = {n: tuple(map(min, op.attrs[n], reach)) for n in ("pad_lo", "pad_hi")}
    lo, hi = ((0, *(p - r for p, r in zip(op.attrs[n], own, strict=True)), 0) for n, own in within.items())
    if not any(lo + hi):
        return False
    padded = rw.insert("pad", x, before=op, lo=lo, hi=hi).result
    kept = {n: op.attrs[n] for n in ("stride", "dilation", "groups", "act")}
    rw.replace_with(op, "conv", padded, *op.operands[1:], **kept, **within)
    return True


PATTERNS: tuple[Pattern, ...] = (
    *CHOICES,
    *MOVES,
    *WINDOWS,
    *IMAGES,
    _windows_in_padding,
    _keep_dims,
    _merge_reduced_axes,
    _known_power,
    _exact_reciprocal,
    _one_condition_after_the_other,
    _split_mask,
    _split_bias,
    _outer_product,
    _put_together_in_steps,
)


@dataclass(frozen=True)
class Legalize(PatternPass):
    """Applies `PATTERNS` greedily."""

    name: ClassVar[str] = "legalize"
    rounds: ClassVar[tuple[tuple[Pattern, ...], ...]] = (PATTERNS,)


@dataclass(frozen=True)
class LegalizeFormats(PatternPass):
    """Rewrites what has to know the formats that were chosen: sums, powers and integers on the way of which more is held than at the ends."""

    name: ClassVar[str] = "legalize-formats"
    rounds: ClassVar[tuple[tuple[Pattern, ...], ...]] = ((*FUNCTIONS, *REDUCTIONS, *QUANTISED, *WIDE_IMAGES),)


@dataclass(frozen=True)
class MasksApart(PatternPass):
    """Adds masks of items before the softmax: in f16, which is chosen next, nothing absorbs every score."""

    name: ClassVar[str] = "masks-apart"
    rounds: ClassVar[tuple[tuple[Pattern, ...], ...]] = ((_split_items,),)
