"""How each element-wise function is built from vector instructions.

May import: lower.base, lower.emitter, numerics. Must not: know slices or layouts; everything here works on `n` elements at addresses.

Every entry: (number of scratch vectors, whether 16-bit formats are widened to f32 first, emitter). Widening
pays where several roundings would add up (erf, gelu).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tx8fast.lower.emitter import Emitter
from tx8fast.numerics.routines.special import ERF_A, ERF_P
from tx8fast.records import dataclass

Unary = Callable[[Emitter, int, int, int, str, Sequence[int], dict], None]


@dataclass(frozen=True)
class Recipe:
    scratch: int
    wide: bool
    emit: Unary
    in_place: bool = True  # it reads nothing of its operand when something else of the result is written


def _single(fn: str) -> Recipe:
    return Recipe(0, False, lambda em, x, y, n, f, t, a: em.v(fn, x, y, n, f))


def _silu(em: Emitter, x: int, y: int, n: int, f: str, t: Sequence[int], a: dict) -> None:
    em.v("sigmoid", x, t[0], n, f)
    em.vv("mul", x, t[0], y, n, f)


def _scaled_leak(em: Emitter, x: int, y: int, n: int, f: str, t: Sequence[int], alpha: float) -> None:
    em.vs("min", x, 0.0, t[0], n, f)
    em.vs("mul", t[0], alpha, t[0], n, f)
    em.vs("max", x, 0.0, y, n, f)
    em.vv("add", y, t[0], y, n, f)


def _leaky_relu(em: Emitter, x: int, y: int, n: int, f: str, t: Sequence[int], a: dict) -> None:
    _scaled_leak(em, x, y, n, f, t, a.get("alpha", 0.01))


def _elu(em: Emitter, x: int, y: int, n: int, f: str, t: Sequence[int], a: dict) -> None:
    em.vs("min", x, 0.0, t[0], n, f)
    em.v("exp", t[0], t[0], n, f)
    em.vs("sub", t[0], 1.0, t[0], n, f)
    em.vs("mul", t[0], a.get("alpha", 1.0), t[0], n, f)
    em.vs("max", x, 0.0, y, n, f)
    em.vv("add", y, t[0], y, n, f)


def _sigmoid_gate(linear: float, cubic: float) -> Unary:
    """x * sigmoid(linear * x + cubic * x^3)."""

    def emit(em: Emitter, x: int, y: int, n: int, f: str, t: Sequence[int], a: dict) -> None:
        em.v("square", x, t[0], n, f)
        em.vs("mul", t[0], cubic, t[0], n, f)
        em.vs("add", t[0], linear, t[0], n, f)
        em.vv("mul", t[0], x, t[0], n, f)
        em.v("sigmoid", t[0], t[0], n, f)
        em.vv("mul", x, t[0], y, n, f)

    return emit


#: tanh form: 0.5 (1 + tanh z) = sigmoid(2 z) with z = sqrt(2/pi) (x + 0.044715 x^3)
_gelu_tanh = _sigmoid_gate(2.0 * math.sqrt(2.0 / math.pi), 2.0 * math.sqrt(2.0 / math.pi) * 0.044715)


def _erf(em: Emitter, x: int, y: int, n: int, f: str, t: Sequence[int], a: dict) -> None:
    """sign(x) * (1 - poly(t) * exp(-x^2)), t = 1 / (1 + p |x|); may run in place."""
    scale, poly, sign = t[0], t[1], t[2]
    em.vs("ge", x, 0.0, sign, n, f)
    em.vs("mul", sign, 2.0, sign, n, f)
    em.vs("sub", sign, 1.0, sign, n, f)
    em.v("abs", x, scale, n, f)
    em.vs("mul", scale, ERF_P, scale, n, f)
    em.vs("add", scale, 1.0, scale, n, f)
    em.v("recip", scale, scale, n, f)
    em.vs("mul", scale, ERF_A[4], poly, n, f)
    for c in (ERF_A[3], ERF_A[2], ERF_A[1], ERF_A[0]):
        em.vs("add", poly, c, poly, n, f)
        em.vv("mul", poly, scale, poly, n, f)
    em.v("square", x, scale, n, f)
    em.v("neg", scale, scale, n, f)
    em.v("exp", scale, scale, n, f)
    em.vv("mul", poly, scale, poly, n, f)
    em.v("neg", poly, poly, n, f)
    em.vs("add", poly, 1.0, poly, n, f)
    em.vv("mul", poly, sign, y, n, f)


def _gelu(em: Emitter, x: int, y: int, n: int, f: str, t: Sequence[int], a: dict) -> None:
    em.vs("mul", x, math.sqrt(0.5), t[3], n, f)
    _erf(em, t[3], t[3], n, f, t, a)
    em.vs("add", t[3], 1.0, t[3], n, f)
    em.vs("mul", t[3], 0.5, t[3], n, f)
    em.vv("mul", x, t[3], y, n, f)


def _hsigmoid(em: Emitter, x: int, y: int, n: int, f: str, t: Sequence[int], a: dict) -> None:
    em.vs("mul", x, a.get("alpha", 0.2), y, n, f)
    em.vs("add", y, a.get("beta", 0.5), y, n, f)
    em.vs("max", y, 0.0, y, n, f)
    em.vs("min", y, 1.0, y, n, f)


def _hswish(em: Emitter, x: int, y: int, n: int, f: str, t: Sequence[int], a: dict) -> None:
    _hsigmoid(em, x, t[0], n, f, t, {"alpha": 1.0 / 6.0, "beta": 0.5})
    em.vv("mul", x, t[0], y, n, f)


def _mish(em: Emitter, x: int, y: int, n: int, f: str, t: Sequence[int], a: dict) -> None:
    em.v("softplus", x, t[0], n, f)
    em.v("tanh", t[0], t[0], n, f)
    em.vv("mul", x, t[0], y, n, f)


def _softsign(em: Emitter, x: int, y: int, n: int, f: str, t: Sequence[int], a: dict) -> None:
    em.v("abs", x, t[0], n, f)
    em.vs("add", t[0], 1.0, t[0], n, f)
    em.vv("div", x, t[0], y, n, f)


def _sign(em: Emitter, x: int, y: int, n: int, f: str, t: Sequence[int], a: dict) -> None:
    em.vs("gt", x, 0.0, t[0], n, f)
    em.vs("lt", x, 0.0, y, n, f)
    em.vv("sub", t[0], y, y, n, f)
    em.vs("min", x, 0.0, t[0], n, f)  # comparisons lose NaN: add max(min(x, 0), 0), which is 0 or NaN
    em.vs("max", t[0], 0.0, t[0], n, f)
    em.vv("add", y, t[0], y, n, f)


def _clamp(em: Emitter, x: int, y: int, n: int, f: str, t: Sequence[int], a: dict) -> None:
    em.vs("max", x, a.get("lo", -math.inf), y, n, f)
    em.vs("min", y, a.get("hi", math.inf), y, n, f)


UNARY: dict[str, Recipe] = {
    **{
        k: _single(k)
        for k in (
            "abs",
            "neg",
            "sqrt",
            "rsqrt",
            "recip",
            "square",
            "exp",
            "sin",
            "cos",
            "tanh",
            "sigmoid",
            "relu",
            "softplus",
        )
    },
    "log": _single("ln"),
    "silu": Recipe(1, False, _silu),
    "leaky_relu": Recipe(1, False, _leaky_relu),
    "elu": Recipe(1, True, _elu),
    "gelu_tanh": Recipe(1, True, _gelu_tanh),
    "gelu": Recipe(4, True, _gelu),
    "hsigmoid": Recipe(0, True, _hsigmoid),
    "hswish": Recipe(1, True, _hswish),
    "mish": Recipe(1, True, _mish),
    "softsign": Recipe(1, True, _softsign),
    "sign": Recipe(1, False, _sign, in_place=False),
    "clamp": Recipe(0, False, _clamp),
}

#: shorter forms whose error is below the rounding of a 16-bit result; computed in the format itself
NARROW: dict[str, Recipe] = {
    # the normal distribution as a logistic one, |error| < 2e-4 (Bowling et al. 2009, cubic form)
    "gelu": Recipe(1, False, _sigmoid_gate(1.5976, 0.07056)),
    "gelu_tanh": Recipe(1, False, _gelu_tanh),
}


def recipe_of(kind: str, dtype: str) -> Recipe | None:
    """Return how a function is built for operands of a format, None if it is not an element-wise function."""
    return (NARROW.get(kind) if dtype in ("bf16", "f16") else None) or UNARY.get(kind)


#: f(a, b) == swapped(b, a): lets the complete operand come first when the other one is a vector or scalar
SWAPPED = {
    "add": "add",
    "mul": "mul",
    "max": "max",
    "min": "min",
    "eq": "eq",
    "ne": "ne",
    "lt": "gt",
    "gt": "lt",
    "le": "ge",
    "ge": "le",
}
BINARY = ("add", "sub", "mul", "div", "max", "min")
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
