"""Makes floats of the integers of quantised models: what is quantised and read back at once, and products whose sums become floats.

May import: ir, numerics, passes.{canonicalize, lift_match, make}. Must not: touch what is quantised for another reader.

The integers are of 8 bits, less a zero point at most 256 in size, which every float format holds: the matrix engine multiplies them without
rounding, and adds them in f32, in which their sums end up anyway. No engine multiplies integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tx8fast.ir.core import Op, Value
from tx8fast.ir.rewrite import Pattern, Rewriter, pattern
from tx8fast.ir.types import NoneType
from tx8fast.numerics.formats import INT_LIMITS
from tx8fast.passes.canonicalize import splat
from tx8fast.passes.lift_match import is_parameter, made_by, static
from tx8fast.passes.make import Make

_FLOATS = ("bf16", "f16", "f32")
#: 1.5 * 2^23: a sum with it in f32 has no digits behind the point, rounded to even; of numbers below 2^22
ROUND = 12582912.0
MOST = 2**16  # elements of the largest format that is rounded so


def _scale_and_zero(op: Op) -> tuple[float, int] | None:
    """Return the one scale and zero of all elements."""
    zero = op.operands[2] if len(op.operands) > 2 and type(op.operands[2].type) is not NoneType else None
    s, z = splat(op.operands[1]), 0 if zero is None else splat(zero)
    if s is None or z is None or not math.isfinite(s) or s <= 0:
        return None
    return float(s), int(z)


@pattern("dequantize")
def _there_and_back(op: Op, rw: Rewriter) -> bool:
    """(clamp(round(x / scale) + zero) - zero) * scale, rounding between the bounds, which are whole."""
    down = made_by(op.operands[0], "quantize")
    if down is None or down.operands[0].type is not op.result.type or op.result.dtype not in _FLOATS:
        return False
    there, back = _scale_and_zero(down), _scale_and_zero(op)
    if there is None or back is None or not _fits_16_bits(down.result.dtype):
        return False
    lo, hi = INT_LIMITS[down.result.dtype]
    (s, z), (s2, z2) = there, back
    steps = [("div", s), ("max", lo - z), ("min", hi - z), ("add", ROUND), ("sub", ROUND), ("add", z - z2), ("mul", s2)]
    rw.replace_with(op, "map", down.operands[0], steps=_text(1, [s for s in steps if s != ("add", 0)]))
    return True


def _per_channel(op: Op) -> bool:
    """True unless a scale belongs to a block of places."""
    x = op.operands[0]
    return (
        all(math.prod(v.shape) == 1 or len(v.shape) == 1 for v in op.operands[1:] if type(v.type) is not NoneType)
        or len(x.shape) == 1
    )


def _fits_16_bits(dtype: str) -> bool:
    lo, hi = INT_LIMITS.get(dtype, (0, MOST))
    return hi - lo < MOST


def _has_steps(op: Op) -> bool:
    """True if a `quantize` can be written in steps."""
    x = op.operands[0]
    return (
        static(*op.operands[:2], op.result)
        and x.dtype in _FLOATS
        and _fits_16_bits(op.result.dtype)
        and _per_channel(op)
    )


# ---------------------------------------------------------------- products of integers

#: largest size of a factor, which bf16 still holds
MOST_FACTOR = 256
#: kinds that move integers: operands that are integers, and attributes
_MOVES = {"reshape": ("shape",), "transpose": ("perm",), "slice": ("start", "size", "step"), "broadcast": ("shape",)}
_PRODUCTS = ("gemm", "conv", "conv_nd")
#: formats in which sums of products do not wrap
_SUMS = ("i32", "i64")
_F32 = "f32"


def _made(v: Value) -> tuple[int, int] | None:
    """Return the least and largest number that an op makes of what its operands may be, before it wraps; None of what it does not say."""
    op = v.op
    if op is None:
        return None
    if op.kind == "constant":
        array = op.attrs["value"].array
        return (int(array.min()), int(array.max())) if array.size else (0, 0)
    x = op.operands[0] if op.operands else None
    if x is not None and op.kind in (*_MOVES, "convert") and x.dtype in INT_LIMITS:
        return _range(x)
    if x is not None and op.kind == "convert" and (whole := made_by(x, "clamp")) is not None:
        lo, hi = whole.attrs["lo"], whole.attrs["hi"]
        rounded = made_by(whole.operands[0], "round") is not None and lo.is_integer() and hi.is_integer()
        return (int(lo), int(hi)) if rounded else None
    if op.kind == "sub":
        (a, b), (c, d) = map(_range, op.operands)
        return a - d, b - c
    return None


def _known(v: Value) -> bool:
    """True if what an op makes fits its format: then it is the same of integers and of floats."""
    found, (lo, hi) = _made(v), INT_LIMITS[v.dtype]
    return found is not None and lo <= found[0] and found[1] <= hi


def _range(v: Value) -> tuple[int, int]:
    found = _made(v)
    return found if found is not None and _known(v) else INT_LIMITS[v.dtype]


def _small(v: Value) -> bool:
    return v.dtype in INT_LIMITS and max(map(abs, _range(v))) <= MOST_FACTOR


def _factor(make: Make, v: Value) -> Value:
    """Return a small integer as f32."""
    op = v.op
    if op is not None and op.kind == "quantize" and _has_steps(op):
        return _quantised(make, op)
    if op is None or not _known(v) or op.kind == "constant":
        return make.convert(v, _F32)
    x, *more = op.operands
    if op.kind == "sub":
        return make("sub", _factor(make, x), _factor(make, more[0]))
    if op.kind in _MOVES:
        return make(op.kind, _factor(make, x), **{a: op.attrs[a] for a in _MOVES[op.kind]})
    return _factor(make, x) if x.dtype in INT_LIMITS else make.convert(x, _F32)


def _are_sums(v: Value) -> bool:
    """True of products of small integers, their sums and what moves them."""
    op = v.op
    if _small(v):
        return True
    if op is None or v.dtype not in _SUMS or not static(v):
        return False
    if op.kind in _PRODUCTS:
        return op.attrs.get("act", "none") == "none" and all(_small(f) for f in op.operands[:2])
    return op.kind in (*_MOVES, "add", "sub") and all(map(_are_sums, op.operands))


def _sums(make: Make, v: Value) -> Value:
    """Return such sums in f32."""
    op = v.op
    if op is None or _small(v):
        return _factor(make, v)
    if op.kind not in _PRODUCTS:
        return make(
            op.kind, *(_sums(make, o) for o in op.operands), **{a: op.attrs[a] for a in _MOVES.get(op.kind, ())}
        )
    y = make(op.kind, *(_factor(make, f) for f in op.operands[:2]), **op.attrs)
    bias = [b for b in op.operands[2:] if type(b.type) is not NoneType]
    return make("add", y, make.convert(bias[0], _F32)) if bias else y


def _quantised(make: Make, op: Op) -> Value:
    """Return clamp(round(x / scale) + zero) as f32, for one scale of all elements or one per place along a dimension."""
    x, scale, *zero = op.operands
    lo, hi = INT_LIMITS[op.result.dtype]
    known = _scale_and_zero(op)
    if known is not None:
        s, z = known
        return _mapped(
            make, [x], [("div", s), ("max", lo - z), ("min", hi - z), ("add", ROUND), ("sub", ROUND), ("add", z)]
        )
    given = [x, *(_along(make, op, v) for v in (scale, *(z for z in zero if type(z.type) is not NoneType)))]
    # first within bounds in which sums with the zero are exact, then in those of the format
    steps = [("div", "%1"), ("max", -2 * MOST), ("min", 2 * MOST), ("add", ROUND), ("sub", ROUND)]
    return _mapped(make, given, [*steps, *[("add", "%2")] * (len(given) > 2), ("max", lo), ("min", hi)])


def _along(make: Make, op: Op, v: Value) -> Value:
    """Return a scale or zero as f32 that broadcasts to what is quantised."""
    v, rank = make.convert(v, _F32), len(op.result.shape)
    axis = op.attrs["axis"] % max(1, rank)
    return v if math.prod(v.shape) == 1 else make.reshape(v, *v.shape, *[1] * (rank - 1 - axis))


def _text(given: int, steps: Sequence[tuple[str, float | str]]) -> str:
    """Return steps on so many values that each take the value before them, and a number or the value at a place."""
    places = [0, *range(given, given + len(steps))]
    return "; ".join([f"{kind} %{at} {n if type(n) is str else float(n)}" for at, (kind, n) in zip(places, steps)])


def _mapped(make: Make, given: Sequence[Value], steps: Sequence[tuple[str, float | str]]) -> Value:
    return make("map", make.convert(given[0], _F32), *given[1:], steps=_text(len(given), steps))


def _computed(op: Op, down: Op, rw: Rewriter) -> bool:
    make = Make(rw, op)
    rw.replace(op, [make.convert(_quantised(make, down), op.result.dtype)])
    return True


@pattern("convert")
def _quantised_floats(op: Op, rw: Rewriter) -> bool:
    down = made_by(op.operands[0], "quantize")
    if down is None or not _has_steps(down) or op.result.dtype not in _FLOATS:
        return False
    return _computed(op, down, rw)


@pattern("convert")
def _sums_that_become_floats(op: Op, rw: Rewriter) -> bool:
    x = op.operands[0]
    if op.result.dtype not in _FLOATS or not _has_product(x) or not _are_sums(x):
        return False
    make = Make(rw, op)
    rw.replace(op, [make.convert(_sums(make, x), op.result.dtype)])
    return True


def _has_product(v: Value) -> bool:
    op = v.op
    if op is None or op.kind in _PRODUCTS:
        return op is not None
    return op.kind in (*_MOVES, "add", "sub") and any(_has_product(o) for o in op.operands)


PATTERNS: tuple[Pattern, ...] = (_there_and_back, _quantised_floats, _sums_that_become_floats)


# ---------------------------------------------------------------- integers that stay


@pattern("quantize")
def _rounded_first(op: Op, rw: Rewriter) -> bool:
    """The vector engine computes the integers as floats, which are converted as they are."""
    return _has_steps(op) and _computed(op, op, rw)


@pattern("dequantize")
def _scaled_behind(op: Op, rw: Rewriter) -> bool:
    """(x - zero) * scale of converted integers."""
    x, scale, *zero = op.operands
    if not static(x, scale, op.result) or is_parameter(x) or op.result.dtype not in _FLOATS:
        return False
    if not _fits_16_bits(x.dtype) or not _per_channel(op):
        return False
    make = Make(rw, op)
    given = [x, *(_along(make, op, v) for v in (scale, *(z for z in zero if type(z.type) is not NoneType)))]
    y = _mapped(make, given, [*[("sub", "%2")] * (len(given) > 2), ("mul", "%1")])
    rw.replace(op, [make.convert(y, op.result.dtype)])
    return True


#: for what stays, behind the choice of formats
LATE: tuple[Pattern, ...] = (_rounded_first, _scaled_behind)
