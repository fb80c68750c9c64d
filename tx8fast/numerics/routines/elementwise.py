"""Unary and binary arithmetic, comparison, logic, selection and number conversion.

May import: numpy, the routine helpers. Must not: know layouts or instructions.
Binary operations broadcast as numpy does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tx8fast.numerics import formats
from tx8fast.numerics.routines.special import erf, sigmoid
from tx8fast.numerics.routines.support import (
    Arrays,
    Attrs,
    OutTypes,
    Routine,
    cast,
    done,
    double,
    is_float,
    maximum,
    minimum,
    operand,
    optional,
    wide,
)
from tx8fast.numerics.steps import COMPARISONS, parse_steps

#: evaluated in f64, rounded once
_TRANSCENDENTAL: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp,
    "log": np.log,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "erf": erf,
    "sqrt": np.sqrt,
    "recip": lambda x: 1.0 / x,
}


def _same_int(fn: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """Apply `fn` to floats only: integers are their own floor, ceiling and nearest integer."""
    return lambda x: fn(x) if is_float(x) else x


#: exact in the operand's own (widened) format
_EXACT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "neg": np.negative,
    "abs": np.abs,
    "square": np.square,
    "sign": np.sign,
    "floor": _same_int(np.floor),
    "ceil": _same_int(np.ceil),
    "round": _same_int(np.rint),
    "not": np.invert,
    "isnan": lambda x: np.isnan(x) if is_float(x) else np.zeros(x.shape, bool),
    "isinf": lambda x: np.isinf(x) if is_float(x) else np.zeros(x.shape, bool),
}


def _unary(fn: Callable[[np.ndarray], np.ndarray], widen: Callable) -> Routine:
    def run(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
        return [done(fn(widen(operand(arrays, 0))), out_types)]

    return run


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Quotient; of integers it is cut toward zero, and division by zero gives 0."""
    if is_float(a) or is_float(b):
        return np.divide(a, b)
    quotient = np.floor_divide(a, b)
    inexact = (quotient * b != a) & (b != 0) & ((a < 0) != (b < 0))
    return quotient + inexact.astype(quotient.dtype)


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if is_float(a) or is_float(b) or (b < 0).any():
        return np.power(double(a), double(b))
    return np.power(a, b.astype(a.dtype))


def _shift_left(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    bits = a.dtype.itemsize * 8
    return np.where(b >= bits, a.dtype.type(0), np.left_shift(a, np.minimum(b, bits - 1)))


def _shift_right(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    bits = a.dtype.itemsize * 8
    moved = np.right_shift(a, np.minimum(b, bits - 1))
    # a signed value shifted out completely leaves its sign, which the clamped shift already does
    return np.where(b >= bits, a.dtype.type(0), moved) if a.dtype.kind == "u" else moved


_BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "max": maximum,
    "min": minimum,
    "pow": _power,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": _shift_left,
    "shr": _shift_right,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _binary(fn: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Routine:
    def run(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
        return [done(fn(wide(operand(arrays, 0)), wide(operand(arrays, 1))), out_types)]

    return run


def mod(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Remainder with the divisor's sign, or the dividend's if `fmod`."""
    a, b = wide(operand(arrays, 0)), wide(operand(arrays, 1))
    return [done(np.fmod(a, b) if attrs.get("fmod") else np.mod(a, b), out_types)]


def select(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """a where pred holds, else b; all three broadcast."""
    pred = operand(arrays, 0) != 0
    return [done(np.where(pred, wide(operand(arrays, 1)), wide(operand(arrays, 2))), out_types)]


def mapped(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """A function in steps of f32 (numerics.steps); operands broadcast."""
    values = [wide(operand(arrays, k)) for k in range(len(arrays))]
    kind = "f64" if any(v.dtype == np.float64 for v in values) else "f32"
    shape = np.broadcast_shapes(*(v.shape for v in values))
    for step in parse_steps(str(attrs["steps"]), len(arrays)):
        given = [values[o] if type(o) is int else np.asarray(o, formats.np_dtype(kind)) for o in step.operands]
        dtype = "pred" if step.kind in COMPARISONS else kind
        (made,) = ROUTINES[step.kind](given, {}, [(shape, dtype)])
        values.append(made.astype(formats.np_dtype(kind)))
    return [done(np.broadcast_to(values[-1], shape), out_types)]


def convert(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Format conversion: float to float nearest even, float to integer cut and saturated."""
    return [done(operand(arrays, 0), out_types)]


def _along(v: np.ndarray, x: np.ndarray, axis: int) -> np.ndarray:
    """Shape a scale or zero point for `x`: scalar, per `axis`, or per block along `axis`."""
    if v.size == 1:
        return v.reshape(())
    axis %= x.ndim
    if v.ndim == 1:
        return v.reshape([-1 if d == axis else 1 for d in range(x.ndim)])
    if v.shape[axis] != x.shape[axis]:
        block = -(-x.shape[axis] // v.shape[axis])
        return np.repeat(v, block, axis).take(np.arange(x.shape[axis]), axis)
    return v


def quantize(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """saturate(round_half_even(x / scale) + zero) for integer results, x / scale for floats."""
    x, zero = operand(arrays, 0), optional(arrays, 2)
    axis, dtype = int(attrs.get("axis", 1)), out_types[0][1]
    scaled = wide(x) / _along(wide(operand(arrays, 1)), x, axis)
    if dtype not in formats.INTS:
        return [cast(scaled, dtype)]
    y = np.rint(scaled).astype(np.float64)
    if zero is not None:
        y = y + _along(double(zero), x, axis)
    return [formats.float_to_int(y, dtype)]


def dequantize(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """(x - zero) * scale, the difference exact."""
    x, zero = operand(arrays, 0), optional(arrays, 2)
    axis = int(attrs.get("axis", 1))
    y = double(x)
    if zero is not None:
        y = y - _along(double(zero), x, axis)
    scale = wide(operand(arrays, 1))
    return [done(y.astype(scale.dtype) * _along(scale, x, axis), out_types)]


ROUTINES: dict[str, Routine] = (
    {name: _unary(fn, double) for name, fn in _TRANSCENDENTAL.items()}
    | {name: _unary(fn, wide) for name, fn in _EXACT.items()}
    | {name: _binary(fn) for name, fn in _BINARY.items()}
    | {
        "mod": mod,
        "select": select,
        "map": mapped,
        "convert": convert,
        "quantize": quantize,
        "dequantize": dequantize,
    }
)
