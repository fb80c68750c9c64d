"""Softmax, choice masks and the short form of layer norm become one op each; look-alikes stay."""

import numpy as np
import pytest
from passes.lift_check import constant, lifted
from support.small_graph import SmallGraph, ops_of

from tx8fast.passes.lift_norm import LiftNorm
from tx8fast.passes.lift_stablehlo import LiftStablehlo


def shifted_exp(g, x, axis=-1, of=None):
    return g("exp", g("sub", x, g("reduce", x if of is None else of, op="max", axes=(axis,), keepdims=True)))


def total(g, e, axis=-1, op="add"):
    return g("reduce", e, op=op, axes=(axis,), keepdims=True)


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("form", ["div", "recip"])
def test_softmax(axis, form):
    g = SmallGraph(x=((2, 3, 8), "f32"))
    e = shifted_exp(g, g.args["x"], axis)
    s = total(g, e, axis)
    p = g.done(y=g("div", e, s) if form == "div" else g("mul", e, g("recip", s)))
    assert lifted(p, LiftStablehlo()) == ["softmax"]
    assert ops_of(p, "softmax")[0].attrs["axis"] % 3 == axis % 3


def test_softmax_summed_in_a_wider_format():
    g = SmallGraph(x=((4, 8), "bf16"))
    e = shifted_exp(g, g.args["x"])
    s = g("convert", total(g, g("convert", e, dtype="f32")), dtype="bf16")
    assert lifted(g.done(y=g("div", e, s)), LiftStablehlo(), tolerance=1e-2) == ["softmax"]


def test_log_softmax():
    g = SmallGraph(x=((4, 8), "f32"))
    d = g("sub", g.args["x"], total(g, g.args["x"], op="max"))
    p = g.done(y=g("sub", d, g("log", total(g, g("exp", d)))))
    assert lifted(p, LiftStablehlo()) == ["softmax"] and ops_of(p, "softmax")[0].attrs["log"]


@pytest.mark.parametrize("wrong", ["maximum of another", "sum of another", "other axis", "product"])
def test_no_softmax(wrong):
    g = SmallGraph(x=((4, 8), "f32"), z=((4, 8), "f32"))
    x, z = g.args["x"], g.args["z"]
    e = shifted_exp(g, x, of=z if wrong == "maximum of another" else None)
    f = shifted_exp(g, z) if wrong == "sum of another" else e
    s = total(g, f, 0 if wrong == "other axis" else -1, "mul" if wrong == "product" else "add")
    assert "softmax" not in lifted(g.done(y=g("div", e, s)), LiftStablehlo())


@pytest.mark.parametrize("one, found", [(1.0, True), (2.0, False)])
def test_sigmoid(one, found):
    g = SmallGraph(x=((4, 8), "f32"))
    d = g("add", g("exp", g("neg", g.args["x"])), constant(g, one))
    kinds = lifted(g.done(y=g("div", constant(g, 1.0), d)), LiftStablehlo())
    assert kinds == (["sigmoid"] if found else ["neg", "exp", "add", "div"])


def short_norm(g, x, cut=True, wrong=""):
    mean = g("mul", total(g, x), constant(g, 1 / 8))
    squares = g("mul", total(g, g("square", x)), constant(g, 1 / 8))
    v = g("sub", squares, g("square", squares if wrong == "mean" else mean))
    v = g("relu", v) if cut else v
    r = g("rsqrt", g("add", v, constant(g, 1e-6)))
    return g("sub", x, mean), r


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("gained", [True, False])
def test_layernorm_by_mean_of_squares(cut, gained):
    g = SmallGraph(x=((2, 3, 8), "f32"))
    centred, r = short_norm(g, g.args["x"], cut)
    y = g("mul", centred, g("mul", r, g.array("w", np.linspace(1, 2, 8, dtype=np.float32))) if gained else r)
    p = g.done(y=y)
    assert lifted(p, LiftStablehlo(), LiftNorm(), tolerance=2e-5) == ["layernorm"]
    assert len(ops_of(p, "layernorm")[0].operands) == 1 + gained


def test_no_layernorm():
    g = SmallGraph(x=((2, 3, 8), "f32"))
    centred, r = short_norm(g, g.args["x"], wrong="mean")
    assert "layernorm" not in lifted(g.done(y=g("mul", centred, r)), LiftStablehlo())


def test_rmsnorm_with_the_gain_on_the_root():
    g = SmallGraph(x=((2, 3, 8), "f32"))
    x = g.args["x"]
    r = g("rsqrt", g("add", g("mul", total(g, g("square", x)), constant(g, 1 / 8)), constant(g, 1e-6)))
    p = g.done(y=g("mul", x, g("mul", r, g.array("w", np.linspace(1, 2, 8, dtype=np.float32)))))
    assert lifted(p, LiftStablehlo(), LiftNorm()) == ["rmsnorm"]
