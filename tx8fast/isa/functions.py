"""The scalar functions of the CT vector opcodes, on f32 arrays.

May import: numpy. Must not: know operand forms or memory.
Source: TX8 hardware manual 6.3, 9.2. Transcendental functions are computed in f64 and rounded to f32.
"""

from __future__ import annotations

import numpy as np

_LOG2_E = np.array([0x3FB8AA3B], np.uint32).view(np.float32)[0]
_ONE, _SIX, _LEAK = np.float32(1), np.float32(6), np.float32(0.01)


def _wide(f):
    """Return `f` computed in f64 and rounded once to f32."""

    def g(x):
        return f(x.astype(np.float64)).astype(np.float32)

    return g


def _softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def _recip(x):
    return _ONE / x


def _rsqrt(x):
    # one rounding: f32 division of an f32 square root would round twice
    return (1.0 / np.sqrt(x.astype(np.float64))).astype(np.float32)


def exp_lp(x):
    """Return the low-precision exponential: 2 to the f32 product of x and log2(e)."""
    return np.exp2((x * _LOG2_E).astype(np.float64)).astype(np.float32)


def add_down(x, y):
    """Return x + y for rounding toward minus infinity: operands that cancel give -0."""
    out = np.asarray(x + y)
    cancel = (out == 0) & (np.signbit(x) != np.signbit(y))
    return np.where(cancel, out.dtype.type(-0.0), out) if out.dtype.kind == "f" else out


def sub_down(x, y):
    """Return x - y in the same way."""
    return add_down(x, -y) if np.asarray(x).dtype.kind == "f" else x - y


#: (opcode, name, function, cost factor)
UNARY = (
    (0, "abs", np.abs, "arithmetic"),
    (1, "recip", _recip, "division"),
    (2, "square", lambda x: x * x, "arithmetic"),
    (3, "sqrt", np.sqrt, "division"),
    (4, "rsqrt", _rsqrt, "division"),
    (5, "neg", np.negative, "arithmetic"),
    (98, "log2", _wide(np.log2), "transcendental"),
    (99, "ln", _wide(np.log), "two_step"),
    (100, "pow2", _wide(np.exp2), "transcendental"),
    (101, "exp", _wide(np.exp), "two_step"),
    (102, "exp_lp", exp_lp, "transcendental"),
    (103, "sin", _wide(np.sin), "two_step"),
    (104, "cos", _wide(np.cos), "two_step"),
    (105, "tanh", _wide(np.tanh), "transcendental"),
    (106, "sigmoid", _wide(_sigmoid), "transcendental"),
    (107, "relu", lambda x: np.maximum(x, np.float32(0)), "arithmetic"),
    (108, "satrelu", lambda x: np.minimum(np.maximum(x, np.float32(0)), _SIX), "arithmetic"),
    (109, "leakyrelu", lambda x: np.where(x < 0, x * _LEAK, x), "arithmetic"),
    (110, "softplus", _wide(_softplus), "two_step"),
)

#: (first opcode, name, function, cost factor); forms VV, VS, VuV, VuV loop follow each other
BINARY = (
    (6, "max", np.maximum, "arithmetic"),
    (10, "min", np.minimum, "arithmetic"),
    (14, "add", np.add, "arithmetic"),
    (18, "sub", np.subtract, "arithmetic"),
    (22, "mul", np.multiply, "arithmetic"),
    (26, "div", np.divide, "division"),
)

#: (first opcode, name, function); eight forms follow each other
RELATION = (
    (30, "eq", np.equal),
    (38, "ne", np.not_equal),
    (46, "ge", np.greater_equal),
    (54, "gt", np.greater),
    (62, "le", np.less_equal),
    (70, "lt", np.less),
)

LOGIC = (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor))
