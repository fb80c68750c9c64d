"""Functions without a vector instruction become steps that give their numbers, special ones among them."""

import numpy as np
import pytest
from passes.lift_check import constant
from support.small_graph import SmallGraph, ops_of

from tx8fast.ir.ops.base import reference
from tx8fast.passes.legalize import LegalizeFormats
from tx8fast.passes.legalize_functions import FUNCTIONS

#: borders of the formulas, values where digits are lost or squares run over, and what is no number
PLACES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-30,
    -1e-8,
    1e-3,
    -1e-3,
    0.3,
    0.41,
    0.42,
    0.5,
    0.999999,
    1.0000001,
    2.41,
    2.42,
]
PLACES += [88.0, -88.0, 89.2, 1e6, 1.1e6, -1e7, 1e20, -1e20, 3e38]  # fmt: skip


def values() -> np.ndarray:
    rng = np.random.default_rng(5)
    sets = [PLACES, rng.standard_normal(300) * 2, rng.uniform(-1, 1, 300), np.exp(rng.uniform(-20, 20, 300))]
    return np.concatenate(sets).astype(np.float32)


def both(kind: str, x: np.ndarray, *more: np.ndarray, **attrs) -> tuple[np.ndarray, np.ndarray]:
    """Return what an op gives and what takes its place."""
    g = SmallGraph(x=(x.shape, "f32"))
    program = g.done(y=g(kind, g.args["x"], *(constant(g, a) for a in more), **attrs))
    (op,) = ops_of(program, kind)
    (wanted,) = reference(op, [x, *more])
    LegalizeFormats().run(program)
    (made,) = ops_of(program, "map")
    (got,) = reference(made, [x, *more][: len(made.operands)])
    return got, wanted


def check(got: np.ndarray, wanted: np.ndarray, relative: float, absolute: float = 0.0) -> None:
    sure = np.isfinite(wanted)
    assert np.array_equal(got[~sure], wanted[~sure], equal_nan=True)
    normal = np.maximum(np.abs(wanted[sure]), 2.0**-126)
    assert np.all(np.abs(got[sure] - wanted[sure]) <= relative * normal + absolute)


@pytest.mark.parametrize("kind", [k for k in FUNCTIONS if k != "prelu"])
def test_functions(kind: str) -> None:
    got, wanted = both(kind, values())
    check(got, wanted, 4e-7)
    zero = values() == 0
    assert np.array_equal(np.signbit(got[zero]), np.signbit(wanted[zero]))


@pytest.mark.parametrize("slope", [np.float32(0.25), np.float32(-1.5), np.float32(np.inf)])
def test_prelu(slope: np.float32) -> None:
    check(*both("prelu", values(), np.full(1, slope)), 0.0)


@pytest.mark.parametrize(
    "kind,attrs",
    [("selu", {}), ("selu", {"alpha": 0.7, "gamma": 2.0}), ("celu", {}), ("celu", {"alpha": 0.3}),
     ("thresholded_relu", {"alpha": 0.5}), ("thresholded_relu", {"alpha": -0.5})],
)  # fmt: skip
def test_activations(kind: str, attrs: dict) -> None:
    """Exponentials less one lose digits near zero, as those of every `elu` of the vector engine."""
    check(*both(kind, values(), **attrs), 3e-7, 3e-7)


@pytest.mark.parametrize(
    "e", [4.0, 5.0, 7.0, 16.0, 2.2, 0.75, 0.25, 1.25, 1.5, -2.0, -3.0, -2.5, -1.5, 1 / 3, 0.1, -0.3, 15.9]
)
def test_powers(e: float) -> None:
    e = float(np.float32(e))
    got, wanted = both("pow", values(), np.full(1, e, np.float32))
    check(got, wanted, 2e-6, 2.0**-126)


def test_what_has_no_steps_stays() -> None:
    for kind, attrs in (("celu", {"alpha": -1.0}), ("thresholded_relu", {"alpha": np.inf})):
        g = SmallGraph(x=((4, 4), "f32"))
        program = g.done(y=g(kind, g.args["x"], **attrs))
        LegalizeFormats().run(program)
        assert not ops_of(program, "map")
