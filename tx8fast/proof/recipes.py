"""Functions that are not arithmetic of the field, by name: what the rows of a program and the ops of a graph both mean.

May import: numpy, proof.field. Must not: know rows or ops.

FUNCTIONS holds what one row of the vector engine computes; what no identity connects to another expression is an atom: a keyed
hash, equal for equal operands. A recipe is a fixed expression of such steps: the graph's function is *defined* as the expression
in the table, element for element in the field, and the expression is proved to be the function by numbers, apart
(tests/proof/test_proof_recipes.py; docs/proof.md states the bounds). Recipes are written over `Steps`, so both read the same text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.proof.cells import INFINITE, UNDEFINED, Cells, Elements
from tx8fast.proof.compared import Comparisons
from tx8fast.proof.field import Field

Unary = Callable[[Field, Elements], Elements]


def _atom(name: str) -> Unary:
    return lambda field, x: field.atom(name, x)


def magnitude(field: Field, x: Elements) -> Elements:
    """Return |x|: an atom of the square, so that it is even."""
    return field.atom("abs", field.square(x))


def satrelu(field: Field, x: Elements) -> Elements:
    """Return min(max(x, 0), 6)."""
    return field.minimum(field.relu(x), field.constant(6.0))


def log2(field: Field, x: Elements) -> Elements:
    """Return ln(x) log2(e)."""
    return field.mul(field.atom("ln", x), field.residues_of(*field.constants.log2e))


#: what one row of the vector engine computes
FUNCTIONS: dict[str, Unary] = {
    "abs": magnitude,
    "recip": Field.inv,
    "square": Field.square,
    "sqrt": _atom("sqrt"),
    "rsqrt": Field.rsqrt,
    "neg": Field.neg,
    "log2": log2,
    "ln": _atom("ln"),
    "pow2": Field.pow2,
    "exp": Field.exp,
    "exp_lp": Field.exp,
    "sin": _atom("sin"),
    "cos": _atom("cos"),
    "tanh": _atom("tanh"),
    "sigmoid": _atom("sigmoid"),
    "relu": Field.relu,
    "satrelu": satrelu,
    "leakyrelu": _atom("leakyrelu"),
    "softplus": _atom("softplus"),
}


def function(name: str) -> Unary:
    """Return a function by name. Raises SimulationError if the proof has none."""
    found = FUNCTIONS.get(name)
    if found is None:
        raise SimulationError(f"function '{name}' has no meaning in the proof")
    return found


def relation(field: Field, name: str, a: Elements, b: Elements, noted: Comparisons) -> Elements:
    """Return 0 and 1: "eq", "ne" by the words modulo p, "ge", "gt", "le", "lt" by the keyed order; undefined where an operand is,
    unless it is infinite.
    The comparison is added to those `noted`."""
    noted.note(name, a, b, (field.p, field.q))
    if name in ("eq", "ne"):
        held = (a.values() == b.values()) == (name == "eq")
    else:
        test = {"ge": np.greater_equal, "gt": np.greater, "le": np.less_equal, "lt": np.less}[name]
        held = test(field.order(a), field.order(b))
    bad = _unknown(a.p) | _unknown(b.p)
    one = np.where(bad, np.uint32(UNDEFINED), held.astype(np.uint32))
    return Elements(one, np.where(bad, np.uint32(0), one))


def _unknown(p: Cells) -> np.ndarray:
    return (p & np.uint32(UNDEFINED) != 0) & (p != INFINITE)


# --- recipes -----------------------------------------------------------------------------------------------------


class Steps(Protocol):
    """What a recipe is made of: single rows, every result in the recipe's format. `name` is one of `FUNCTIONS`."""

    def function(self, name: str, x: Any) -> Any: ...
    def two(self, name: str, x: Any, y: Any) -> Any:
        """Return add, sub, mul, div, max, min, or a relation (ge, gt, le, lt) as 0 and 1; `y` may be a Python number."""


class FieldSteps:
    """The steps over the field, constants in format `fmt`; comparisons are noted."""

    def __init__(self, field: Field, fmt: str, noted: Comparisons) -> None:
        self.field, self.fmt, self.noted = field, fmt, noted

    def function(self, name: str, x: Elements) -> Elements:
        return function(name)(self.field, x)

    def two(self, name: str, x: Elements, y: Elements | float) -> Elements:
        if name == "min" and not isinstance(y, Elements):
            return self.field.at_most(x, y, self.fmt)
        other = y if isinstance(y, Elements) else self.field.constant(y, self.fmt)
        if name in ("ge", "gt", "le", "lt"):
            return relation(self.field, name, x, other, self.noted)
        f = {"max": self.field.maximum, "min": self.field.minimum}.get(name) or getattr(self.field, name)
        return f(x, other)


Recipe = Callable[[Steps, Any, Mapping[str, float]], Any]


def _leaky_relu(s: Steps, x: Any, a: Mapping[str, float]) -> Any:
    return s.two("add", s.two("max", x, 0.0), s.two("mul", s.two("min", x, 0.0), a.get("alpha", 0.01)))


def _elu(s: Steps, x: Any, a: Mapping[str, float]) -> Any:
    low = s.two("sub", s.function("exp", s.two("min", x, 0.0)), 1.0)
    return s.two("add", s.two("max", x, 0.0), s.two("mul", low, a.get("alpha", 1.0)))


def _gate(linear: float, cubic: float) -> Recipe:
    """x sigmoid(x (linear + cubic x^2))."""

    def f(s: Steps, x: Any, a: Mapping[str, float]) -> Any:
        inner = s.two("add", s.two("mul", s.function("square", x), cubic), linear)
        return s.two("mul", x, s.function("sigmoid", s.two("mul", inner, x)))

    return f


#: tanh form: 0.5 (1 + tanh z) = sigmoid(2 z) with z = sqrt(2 / pi) (x + 0.044715 x^3)
_gelu_tanh = _gate(2.0 * math.sqrt(2.0 / math.pi), 2.0 * math.sqrt(2.0 / math.pi) * 0.044715)
#: the normal distribution as a logistic one (Bowling et al. 2009, cubic form)
_gelu_short = _gate(1.5976, 0.07056)
#: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26
_P, _A = 0.3275911, (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


def _erf(s: Steps, x: Any, a: Mapping[str, float]) -> Any:
    sign = s.two("sub", s.two("mul", s.two("ge", x, 0.0), 2.0), 1.0)
    t = s.function("recip", s.two("add", s.two("mul", s.function("abs", x), _P), 1.0))
    poly = s.two("mul", t, _A[0])
    for c in _A[1:]:
        poly = s.two("mul", s.two("add", poly, c), t)
    tail = s.two("mul", poly, s.function("exp", s.function("neg", s.function("square", x))))
    return s.two("mul", s.two("add", s.function("neg", tail), 1.0), sign)


def _gelu(s: Steps, x: Any, a: Mapping[str, float]) -> Any:
    half = s.two("mul", s.two("add", _erf(s, s.two("mul", x, math.sqrt(0.5)), a), 1.0), 0.5)
    return s.two("mul", x, half)


def _hsigmoid(s: Steps, x: Any, a: Mapping[str, float]) -> Any:
    y = s.two("add", s.two("mul", x, a.get("alpha", 0.2)), a.get("beta", 0.5))
    return s.two("min", s.two("max", y, 0.0), 1.0)


def _sign(s: Steps, x: Any, a: Mapping[str, float]) -> Any:
    """The last term is zero, or NaN where x is: comparisons lose NaN."""
    signs = s.two("sub", s.two("gt", x, 0.0), s.two("lt", x, 0.0))
    return s.two("add", signs, s.two("max", s.two("min", x, 0.0), 0.0))


def _clamp(s: Steps, x: Any, a: Mapping[str, float]) -> Any:
    y = s.two("max", x, a["lo"]) if "lo" in a else x
    return s.two("min", y, a["hi"]) if "hi" in a else y


def _single(name: str) -> Recipe:
    return lambda s, x, a: s.function(name, x)


#: function -> (recipe, whether the steps of 16-bit operands are in f32)
RECIPES: dict[str, tuple[Recipe, bool]] = {
    **{
        name: (_single(name), False)
        for name in (
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
    "log": (_single("ln"), False),
    "silu": (lambda s, x, a: s.two("mul", x, s.function("sigmoid", x)), False),
    "leaky_relu": (_leaky_relu, False),
    "elu": (_elu, True),
    "gelu_tanh": (_gelu_tanh, True),
    "gelu": (_gelu, True),
    "erf": (_erf, True),
    "hsigmoid": (_hsigmoid, True),
    "hswish": (lambda s, x, a: s.two("mul", x, _hsigmoid(s, x, {"alpha": 1.0 / 6.0, "beta": 0.5})), True),
    "mish": (lambda s, x, a: s.two("mul", x, s.function("tanh", s.function("softplus", x))), True),
    "softsign": (lambda s, x, a: s.two("div", x, s.two("add", s.function("abs", x), 1.0)), True),
    "sign": (_sign, False),
    "clamp": (_clamp, False),
}
#: recipes of 16-bit operands that differ; their steps are in the format itself
SHORT: dict[str, Recipe] = {"gelu": _gelu_short, "gelu_tanh": _gelu_tanh}


def recipe_of(name: str, fmt: str) -> tuple[Recipe, str]:
    """Return the recipe of a function of operands in `fmt`, and the format its steps are in. Raises SimulationError by name."""
    narrow = fmt in ("bf16", "f16")
    if narrow and name in SHORT:
        return SHORT[name], fmt
    if name not in RECIPES:
        raise SimulationError(f"function '{name}' has no recipe in the proof")
    recipe, wide = RECIPES[name]
    return recipe, "f32" if wide and narrow else fmt


def apply(
    field: Field,
    name: str,
    fmt: str,
    x: Elements,
    attrs: Mapping[str, float] | None = None,
    noted: Comparisons | None = None,
) -> Elements:
    """Return a function of elements whose operand has format `fmt`, by its recipe."""
    recipe, steps = recipe_of(name, fmt)
    return recipe(FieldSteps(field, steps, Comparisons() if noted is None else noted), x, attrs or {})
