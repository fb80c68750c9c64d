"""Activation functions, clamping and gated units.

May import: numpy, the routine helpers. Must not: know layouts or instructions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.numerics.formats import INTS, int_limits
from tx8fast.numerics.routines.special import erfc, sigmoid, softplus
from tx8fast.numerics.routines.support import (
    Arrays,
    Attrs,
    OutTypes,
    Routine,
    done,
    double,
    is_float,
    maximum,
    minimum,
    operand,
    wide,
)

_SELU_ALPHA = 1.67326319217681884765625
_SELU_GAMMA = 1.05070102214813232421875


def _relu(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    return np.where((x > 0) | (x != x), x, x.dtype.type(0))


def _leaky(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    return np.where(x < 0, x * x.dtype.type(attrs.get("alpha", 0.01)), x)


def _gelu(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    return 0.5 * x * erfc(-x / math.sqrt(2.0))


def _gelu_tanh(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    return x * sigmoid(2.0 * (math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


def _silu(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    return x * sigmoid(x)


def _hswish(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    return x * minimum(maximum(x / 6.0 + 0.5, 0.0), 1.0)


def _hsigmoid(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    return minimum(maximum(attrs.get("alpha", 0.2) * x + attrs.get("beta", 0.5), 0.0), 1.0)


def _softsign(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    return x / (1.0 + np.abs(x))


def _mish(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    return x * np.tanh(softplus(x))


def _elu(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    return np.where(x < 0, attrs.get("alpha", 1.0) * np.expm1(np.minimum(x, 0.0)), x)


def _selu(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    alpha, gamma = attrs.get("alpha", _SELU_ALPHA), attrs.get("gamma", _SELU_GAMMA)
    return gamma * np.where(x < 0, alpha * np.expm1(np.minimum(x, 0.0)), x)


def _celu(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    alpha = attrs.get("alpha", 1.0)
    return maximum(x, 0.0) + minimum(alpha * np.expm1(minimum(x, 0.0) / alpha), 0.0)


def _thresholded(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    return np.where(x > attrs.get("alpha", 1.0), x, 0.0)


#: functions that are exact in the operand's own (widened) format
_DIRECT: dict[str, Callable[[np.ndarray, Attrs], np.ndarray]] = {
    "relu": _relu,
    "leaky_relu": _leaky,
}
#: functions evaluated in f64 and rounded once
_DOUBLE: dict[str, Callable[[np.ndarray, Attrs], np.ndarray]] = {
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "hswish": _hswish,
    "hsigmoid": _hsigmoid,
    "softplus": lambda x, attrs: softplus(x),
    "softsign": _softsign,
    "mish": _mish,
    "elu": _elu,
    "selu": _selu,
    "celu": _celu,
    "thresholded_relu": _thresholded,
}
_GATES = {"sigmoid": lambda x, attrs: sigmoid(x), "tanh": lambda x, attrs: np.tanh(x)}


def apply(name: str, x: np.ndarray, attrs: Attrs) -> np.ndarray:
    """Return activation `name` of `x`; "none" and "" return `x`. The result is not yet rounded.

    Raises SimulationError on an unknown name.
    """
    if name in ("none", ""):
        return x
    if name in ("leaky", "leaky_relu"):
        return _leaky(wide(x), attrs)
    if name in _DIRECT:
        return _DIRECT[name](wide(x), attrs)
    fn = _DOUBLE.get(name) or _GATES.get(name)
    if fn is None:
        known = ", ".join(["none", *_DIRECT, *_DOUBLE, *_GATES])
        raise SimulationError(f"unknown activation '{name}', expected one of {known}")
    return fn(double(x), attrs)


def _routine(name: str) -> Routine:
    def run(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
        return [done(apply(name, operand(arrays, 0), attrs), out_types)]

    return run


def prelu(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """x where x >= 0, else x * slope; slope broadcasts to x."""
    x, slope = wide(operand(arrays, 0)), wide(operand(arrays, 1))
    return [done(np.where(x < 0, x * slope, x), out_types)]


def clamp(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """x limited to [lo, hi]; NaN stays NaN, and hi wins if the bounds cross."""
    x = wide(operand(arrays, 0))
    lo, hi = float(attrs.get("lo", -math.inf)), float(attrs.get("hi", math.inf))
    if is_float(x):
        return [done(minimum(maximum(x, x.dtype.type(lo)), x.dtype.type(hi)), out_types)]
    name = out_types[0][1]
    low, high = int_limits(name) if name in INTS else (0, 1)
    # bounds between two integers tighten inward; infinite ones become the format's limits
    lo_int = low if lo <= low else high if lo > high else math.ceil(lo)
    hi_int = high if hi >= high else low if hi < low else math.floor(hi)
    return [done(np.clip(x, x.dtype.type(lo_int), x.dtype.type(hi_int)), out_types)]


def swiglu(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """act(gate) * up, with the product in f32 or wider."""
    gate, up = operand(arrays, 0), operand(arrays, 1)
    return [done(apply(str(attrs.get("act", "silu")), gate, attrs) * wide(up), out_types)]


ROUTINES: dict[str, Routine] = {name: _routine(name) for name in (*_DIRECT, *_DOUBLE)} | {
    "prelu": prelu,
    "clamp": clamp,
    "swiglu": swiglu,
}
