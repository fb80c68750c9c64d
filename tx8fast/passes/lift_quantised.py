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
    lo, hi = INT_LIMITS.get(op.operands[0].dtype, (0, MOST))
    there, back = _scale_and_zero(down), _scale_and_zero(op)
    if there is None or back is None or hi - lo >= MOST:
        return False
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
_F32 = "f32"


class _Floats:
    """Integers as f32, step by step from what they are made of; `products` counts those of matrices among them."""

    def __init__(self, make: Make) -> None:
        self.make, self.products = make, 0

    def bounds(self, v: Value) -> tuple[int, int]:
        """Return the least and largest number that a value may be, as its making says."""
        op = v.op
        if op is not None and op.kind == "constant":
            array = op.attrs["value"].array
            return (int(array.min()), int(array.max())) if array.size else (0, 0)
        if op is not None and op.kind == "convert" and op.operands[0].dtype in INT_LIMITS:
            return self.bounds(op.operands[0])
        if op is not None and op.kind in _MOVES:
            return self.bounds(op.operands[0])
        if op is not None and op.kind == "sub":
            (a, b), (c, d) = map(self.bounds, op.operands)
            return a - d, b - c
        return INT_LIMITS[v.dtype]

    def small(self, v: Value) -> bool:
        return v.dtype in INT_LIMITS and max(map(abs, self.bounds(v))) <= MOST_FACTOR

    def of(self, v: Value) -> Value | None:
        """Return `v` in f32, None if it is no tree of products and moves of small integers."""
        op = v.op
        if v.dtype not in INT_LIMITS or not static(v):
            return None
        if op is not None and op.kind in _PRODUCTS:
            return self._product(op)
        if op is not None and op.kind in ("add", "sub") and not self.small(v):
            return self._both(op.kind, *op.operands)
        if op is not None and op.kind in _MOVES:
            x = self.of(op.operands[0])
            return None if x is None else self.make(op.kind, x, **{a: op.attrs[a] for a in _MOVES[op.kind]})
        return self._factor(v) if self.small(v) else None

    def _both(self, kind: str, a: Value, b: Value) -> Value | None:
        x = self.of(a)
        y = None if x is None else self.of(b)
        return None if x is None or y is None else self.make(kind, x, y)

    def _product(self, op: Op) -> Value | None:
        bias = op.operands[2] if len(op.operands) > 2 and type(op.operands[2].type) is not NoneType else None
        if op.attrs.get("act", "none") != "none" or not all(self.small(v) for v in op.operands[:2]):
            return None
        factors = [self._factor(v) for v in op.operands[:2]]
        self.products += 1
        y = self.make(op.kind, *factors, **op.attrs)
        return y if bias is None else self.make("add", y, self.make.convert(bias, _F32))

    def _factor(self, v: Value) -> Value:
        """Return a small integer as f32."""
        op = v.op
        if op is not None and op.kind == "sub":
            return self.make("sub", *map(self._factor, op.operands))
        if op is not None and op.kind in _MOVES:
            return self.make(op.kind, self._factor(op.operands[0]), **{a: op.attrs[a] for a in _MOVES[op.kind]})
        if op is not None and op.kind == "convert":
            x = op.operands[0]
            if x.dtype in INT_LIMITS:
                return self._factor(x)
            whole = made_by(x, "clamp")
            if whole is not None and made_by(whole.operands[0], "round") is not None:
                return self.make.convert(x, _F32)
        if op is not None and op.kind == "quantize" and _has_steps(op):
            return _quantised(self.make, op)
        return self.make.convert(v, _F32)


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


@pattern("convert")
def _quantised_floats(op: Op, rw: Rewriter) -> bool:
    down = made_by(op.operands[0], "quantize")
    if down is None or not _has_steps(down) or op.result.dtype not in _FLOATS:
        return False
    make = Make(rw, op)
    rw.replace(op, [make.convert(_quantised(make, down), op.result.dtype)])
    return True


@pattern("convert")
def _sums_that_become_floats(op: Op, rw: Rewriter) -> bool:
    x = op.operands[0]
    if op.result.dtype not in _FLOATS or x.dtype not in INT_LIMITS or not static(x):
        return False
    make = Make(rw, op)
    if not _has_product(x):
        return False
    y = _Floats(make).of(x)
    if y is not None:
        rw.replace(op, [make.convert(y, op.result.dtype)])
    return y is not None


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
    if not _has_steps(op):
        return False
    make = Make(rw, op)
    rw.replace(op, [make.convert(_quantised(make, op), op.result.dtype)])
    return True


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
