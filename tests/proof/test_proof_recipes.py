"""Each recipe is the function it stands for: all 16-bit operands, dense samples of f32, within a stated error.

The same recipe text that the proof runs over the field runs here on numbers, every step rounded to the recipe's format as the
vector engine rounds its results.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from tx8fast.proof import recipes
from tx8fast.proof.compared import Comparisons
from tx8fast.proof.field import Field

DTYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
#: distance of neighbours in [1, 2)
ULP = {"bf16": 2.0**-7, "f16": 2.0**-10, "f32": 2.0**-23}
_erf = np.vectorize(math.erf, otypes=[float])


def _sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def _softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


EXACT = {
    "abs": np.abs, "recip": lambda x: 1 / x, "square": np.square, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "neg": np.negative,
    "ln": np.log, "exp": np.exp, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "sigmoid": _sigmoid, "relu": lambda x: np.maximum(x, 0),
    "softplus": _softplus,
}  # fmt: skip
#: what each function is, in float64
MEANT = {
    **{name: f for name, f in EXACT.items() if name != "ln"},
    "log": np.log,
    "silu": lambda x: x * _sigmoid(x),
    "leaky_relu": lambda x: np.where(x < 0, 0.01 * x, x),
    "elu": lambda x: np.where(x < 0, np.expm1(np.minimum(x, 0)), x),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "erf": _erf,
    "hsigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "hswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "sign": np.sign,
    "clamp": lambda x: np.clip(x, -1.5, 2.5),
}
#: error allowed: ulps of the result, and beside them an absolute part in ulps at 1 (sums that cancel, approximations)
BOUND = {"gelu": (3, 4), "gelu_tanh": (6, 2), "erf": (1, 6), "elu": (1, 1), "silu": (2, 0), "mish": (2, 0), "softsign": (1, 0),
         "hsigmoid": (1, 1), "hswish": (3, 1), "leaky_relu": (1, 0)}  # fmt: skip


class Numbers:
    """The steps on f32 arrays, rounded to a format after every one."""

    def __init__(self, fmt: str) -> None:
        self.dtype = DTYPES[fmt]

    def _round(self, x):
        return np.asarray(x).astype(np.float32).astype(self.dtype).astype(np.float32)

    def function(self, name, x):
        return self._round(EXACT[name](x.astype(np.float64)))

    def two(self, name, x, y):
        y = y if isinstance(y, np.ndarray) else self._round(np.float64(y))
        f = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum,
             "ge": np.greater_equal, "gt": np.greater, "le": np.less_equal, "lt": np.less}[name]  # fmt: skip
        return self._round(f(x, y))


def operands(fmt: str) -> np.ndarray:
    """All finite operands of a 16-bit format; of f32 all exponents that matter with 64 fractions each, both signs."""
    if fmt != "f32":
        x = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[fmt]).astype(np.float32)
        return x[np.isfinite(x)]
    size = np.ldexp(1 + np.arange(64)[:, None] / 64 + 1e-3, np.arange(-30, 30)).reshape(-1).astype(np.float32)
    return np.concatenate([size, -size, np.linspace(-12, 12, 40001, dtype=np.float32), np.zeros(1, np.float32)])


@pytest.mark.parametrize("fmt", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("name", sorted(recipes.RECIPES))
def test_a_recipe_is_its_function(name, fmt):
    recipe, steps = recipes.recipe_of(name, fmt)
    x = operands(fmt)
    with np.errstate(all="ignore"):
        attrs = {"lo": -1.5, "hi": 2.5} if name == "clamp" else {}
        made = recipe(Numbers(steps), x, attrs).astype(np.float32).astype(DTYPES[fmt]).astype(np.float64)
        meant = MEANT[name](x.astype(np.float64))
    # squares and cubes of the outermost operands leave the format; the functions are flat or linear there
    inside = (
        np.isfinite(meant)
        & (np.abs(x) < (16 if fmt == "f16" else 1e4))
        & (np.abs(meant) < np.float64(ml_dtypes.finfo(DTYPES[fmt]).max))
    )
    tiny = float(ml_dtypes.finfo(DTYPES[fmt]).tiny)
    relative, absolute = BOUND.get(name, (1, 0))
    allowed = ULP[fmt] * (relative * np.abs(meant) + absolute) + tiny
    error = np.abs(made[inside] - meant[inside])
    worst = np.argmax(error - allowed[inside])
    assert (error <= allowed[inside]).all(), (
        f"{name} of {x[inside][worst]}: {made[inside][worst]}, not {meant[inside][worst]}"
    )
    assert inside.sum() > 1000


@pytest.mark.parametrize("name", sorted(recipes.RECIPES))
def test_a_recipe_is_a_function_of_its_operand_in_the_field(name):
    field = Field(5)
    x = field.random("x", (50,))
    attrs = {"lo": -1.5, "hi": 2.5} if name == "clamp" else {}
    for fmt in ("bf16", "f32"):
        once, again = (recipes.apply(field, name, fmt, x, attrs) for _ in range(2))
        assert (once.p == again.p).all() and once.shape == (50,)
        assert not (once.p >> 31).any()
        # other operands, other results; comparisons have few
        if name not in ("sign",):
            assert len(np.unique(once.values())) > 25


def test_a_constant_one_ulp_off_is_another_recipe():
    field = Field(6)
    x = field.random("x", (8,))
    right = recipes.apply(field, "gelu", "bf16", x)
    wrong = recipes._gate(1.5976 + 2.0**-7, 0.07056)(recipes.FieldSteps(field, "bf16", Comparisons()), x, {})
    assert (right.p != wrong.p).all()
