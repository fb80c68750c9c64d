"""Makes steps of floats of what is quantised, and of what is read back.

May import: ir, numerics, passes.{canonicalize, lift_match, make}. Must not: touch what is quantised for another reader.
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

FLOATS, F32 = ("bf16", "f16", "f32"), "f32"
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
    if down is None or down.operands[0].type is not op.result.type or op.result.dtype not in FLOATS:
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


def has_steps(op: Op) -> bool:
    """True if a `quantize` can be written in steps."""
    x = op.operands[0]
    return (
        static(*op.operands[:2], op.result)
        and x.dtype in FLOATS
        and _fits_16_bits(op.result.dtype)
        and _per_channel(op)
    )


def quantised(make: Make, op: Op) -> Value:
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
    v, rank = make.convert(v, F32), len(op.result.shape)
    axis = op.attrs["axis"] % max(1, rank)
    return v if math.prod(v.shape) == 1 else make.reshape(v, *v.shape, *[1] * (rank - 1 - axis))


def _text(given: int, steps: Sequence[tuple[str, float | str]]) -> str:
    """Return steps on so many values that each take the value before them, and a number or the value at a place."""
    places = [0, *range(given, given + len(steps))]
    return "; ".join([f"{kind} %{at} {n if type(n) is str else float(n)}" for at, (kind, n) in zip(places, steps)])


def _mapped(make: Make, given: Sequence[Value], steps: Sequence[tuple[str, float | str]]) -> Value:
    return make("map", make.convert(given[0], F32), *given[1:], steps=_text(len(given), steps))


def _computed(op: Op, down: Op, rw: Rewriter) -> bool:
    make = Make(rw, op)
    rw.replace(op, [make.convert(quantised(make, down), op.result.dtype)])
    return True


@pattern("convert")
def _quantised_floats(op: Op, rw: Rewriter) -> bool:
    down = made_by(op.operands[0], "quantize")
    if down is None or not has_steps(down) or op.result.dtype not in FLOATS:
        return False
    return _computed(op, down, rw)


PATTERNS: tuple[Pattern, ...] = (_there_and_back, _quantised_floats)


# ---------------------------------------------------------------- integers that stay


@pattern("quantize")
def _rounded_first(op: Op, rw: Rewriter) -> bool:
    """The vector engine computes the integers as floats, which are converted as they are."""
    return has_steps(op) and _computed(op, op, rw)


@pattern("dequantize")
def _scaled_behind(op: Op, rw: Rewriter) -> bool:
    """(x - zero) * scale of converted integers."""
    x, scale, *zero = op.operands
    if not static(x, scale, op.result) or is_parameter(x) or op.result.dtype not in FLOATS:
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
