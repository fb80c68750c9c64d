"""Functions that the field's algebra cannot reach, written out: what the graph's op is defined as in a proof.

May import: math, numpy, proof.field, proof.recipes. Must not: know rows.

A recipe is a fixed expression of its operand, so both sides of a proof take it as the function itself; that it is the function, up to
a stated error, is shown apart, on every number of a 16-bit format and on a grid of f32 (tests/proof/test_op_recipes.py).
Sources: erf by Abramowitz and Stegun 7.1.26 (error at most 1.5e-7); gelu as x sigmoid(x (a x^2 + b)), whose coefficients are
2 sqrt(2 / pi) (0.044715, 1) for the form with tanh, and fitted to 16-bit formats for the one with erf.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tx8fast.proof.cells import Elements
from tx8fast.proof.field import Field
from tx8fast.proof.recipes import magnitude

#: erf(|x|) = 1 - (a1 t + .. + a5 t^5) exp(-x^2), t = 1 / (1 + ERF_P |x|)
ERF_P = 0.3275911
ERF_A = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
ROOT_HALF = math.sqrt(0.5)
#: (a, b) of x sigmoid(x (a x^2 + b))
GELU_TANH = (2 * math.sqrt(2 / math.pi) * 0.044715, 2 * math.sqrt(2 / math.pi))
GELU_SHORT = {"bf16": (0.07080078125, 1.59375), "f16": (0.070556640625, 1.59765625)}

#: field, operand, format of the op's result, the op's attributes
Recipe = Callable[[Field, Elements, str, dict[str, Any]], Elements]


def _holds(field: Field, x: Elements, compare: Callable) -> Elements:
    """Return 1 where x compares with zero, else 0."""
    return field.numbers(compare(field.order(x), field.order(field.numbers(np.zeros((), np.int64)))).astype(np.int64))


def erf(field: Field, x: Elements, fmt: str = "f32", attrs: dict[str, Any] | None = None) -> Elements:
    """Return erf(x), sign and magnitude apart."""
    c = field.constant
    sign = field.sub(field.mul(_holds(field, x, np.greater_equal), c(2.0)), c(1.0))
    t = field.inv(field.add(field.mul(magnitude(field, x), c(ERF_P)), c(1.0)))
    poly = field.mul(t, c(ERF_A[-1]))
    for a in reversed(ERF_A[:-1]):
        poly = field.mul(field.add(poly, c(a)), t)
    tail = field.mul(poly, field.exp(field.neg(field.square(x))))
    return field.mul(field.sub(c(1.0), tail), sign)


def _by_sigmoid(field: Field, x: Elements, fmt: str, coefficients: tuple[float, float]) -> Elements:
    a, b = (field.constant(v, fmt) for v in coefficients)
    inner = field.mul(field.add(field.mul(field.square(x), a), b), x)
    return field.mul(x, field.atom("sigmoid", inner))


def gelu(field: Field, x: Elements, fmt: str = "f32", attrs: dict[str, Any] | None = None) -> Elements:
    """Return x / 2 (1 + erf(x / sqrt 2)); in a 16-bit format its short form."""
    if fmt in GELU_SHORT:
        return _by_sigmoid(field, x, fmt, GELU_SHORT[fmt])
    inner = erf(field, field.mul(x, field.constant(ROOT_HALF)))
    return field.mul(field.mul(x, field.constant(0.5)), field.add(inner, field.constant(1.0)))


def gelu_tanh(field: Field, x: Elements, fmt: str = "f32", attrs: dict[str, Any] | None = None) -> Elements:
    """Return x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), which is x sigmoid of twice the argument."""
    return _by_sigmoid(field, x, fmt if fmt in GELU_SHORT else "f32", GELU_TANH)


def sign(field: Field, x: Elements, fmt: str = "f32", attrs: dict[str, Any] | None = None) -> Elements:
    """Return 1, 0 or -1; NaN stays NaN: x between 0 and 0 is added."""
    zero = field.numbers(np.zeros((), np.int64))
    apart = field.sub(_holds(field, x, np.greater), _holds(field, x, np.less))
    return field.add(apart, field.maximum(field.minimum(x, zero), zero))


def elu(field: Field, x: Elements, fmt: str = "f32", attrs: dict[str, Any] | None = None) -> Elements:
    """Return max(x, 0) + alpha (exp(min(x, 0)) - 1)."""
    zero = field.numbers(np.zeros((), np.int64))
    below = field.sub(field.exp(field.minimum(x, zero)), field.constant(1.0))
    alpha = field.constant((attrs or {}).get("alpha", 1.0))
    return field.add(field.maximum(x, zero), field.mul(below, alpha))


#: op kind -> recipe
RECIPES: dict[str, Recipe] = {"erf": erf, "gelu": gelu, "gelu_tanh": gelu_tanh, "sign": sign, "elu": elu}
