"""f16 stays in its range: factors meet the operands of products, powers are in f32 until their roots."""

import numpy as np
import pytest
from passes.lift_check import constant
from support.run_graph import run_graph
from support.small_graph import SmallGraph, kinds, ops_of

from tx8fast.passes.f16_range import F16Range

RNG = np.random.default_rng(3)
Q, K = (1, 2, 6, 32), (1, 2, 9, 32)
F16 = np.float16


def ranged(program, feeds):
    """Run the pass; return what it computes, the kinds of ops that are left and its statistics."""
    result = F16Range().run(program)
    program.verify()
    assert not F16Range().run(program).changed
    return run_graph(program, feeds)["y"].astype(np.float64), kinds(program), result


def signed(shape, low, high):
    return (RNG.choice([-1, 1], shape) * RNG.uniform(low, high, shape)).astype(F16)


def product(form):
    """y = softmax(q k^T / 8) whose product without the factor is far beyond 65504."""
    g = SmallGraph(q=((1, 6, 2, 32), "f16"), k=(K, "f16"))
    q = g("transpose", g("reshape", g.args["q"], shape=(1, 6, 2, 32)), perm=(0, 2, 1, 3))
    s = g("gemm", q, g.args["k"], trans_b=True)
    if form == "softmax":
        return g.done(y=g("softmax", s, axis=-1, scale=0.125))
    if form == "cap":
        capped = g("tanh", g("mul", s, constant(g, 0.0001, F16)))
        return g.done(y=g("softmax", capped, axis=-1))
    return g.done(y=g("softmax", g("div", s, constant(g, 8, F16)), axis=-1))


@pytest.mark.parametrize("form", ["softmax", "cap", "div"])
def test_factor_meets_an_operand(form):
    feeds = {"q": signed((1, 6, 2, 32), 60, 120), "k": signed(K, 60, 120)}
    p = product(form)
    y, left, _ = ranged(p, feeds)
    scores = feeds["q"].transpose(0, 2, 1, 3).astype(np.float64) @ feeds["k"].astype(np.float64).transpose(0, 1, 3, 2)
    assert np.abs(scores).max() > 1e5
    scores = np.tanh(scores * 0.0001) if form == "cap" else scores / 8
    want = np.exp(scores - scores.max(-1, keepdims=True))
    np.testing.assert_allclose(y, want / want.sum(-1, keepdims=True), atol=4e-3)
    (factor,) = ops_of(p, "mul")
    assert factor.operands[0] is p.main.body.args[0], "not in front of the views"
    assert "div" not in left and all(s.attrs["scale"] == 1 for s in ops_of(p, "softmax"))


@pytest.mark.parametrize("why", ["above one", "read twice", "of weights", "f32"])
def test_factor_stays(why):
    dtype = "f32" if why == "f32" else "f16"
    g = SmallGraph(q=(Q, dtype), k=(K, dtype))
    k = g.array("w", RNG.standard_normal(K).astype(F16)) if why == "of weights" else g.args["k"]
    s = g("gemm", g.args["q"], k, trans_b=True)
    y = g("softmax", s, axis=-1, scale=2.0 if why == "above one" else 0.5)
    p = g.done(y=y, **({"s": s} if why == "read twice" else {}))
    assert not F16Range().run(p).changed


def power(form):
    g = SmallGraph(x=((4, 8), "f16"))
    x = g.args["x"]
    if form == "norm":
        return g.done(y=g("sqrt", g("reduce", g("square", x), op="add", axes=(1,)))), lambda x: np.sqrt(
            (x * x).sum(1, keepdims=True)
        )
    if form == "quotient":
        root = g("sqrt", g("reduce", g("mul", x, x), op="mean", axes=(1,)))
        return g.done(
            y=g("div", x, g("add", root, constant(g, 1e-9, F16)))
        ), lambda x: x / np.sqrt((x * x).mean(1, keepdims=True))
    cube = g("mul", g("square", g("abs", x)), g("abs", x))
    third = g("pow", g("reduce", cube, op="add", axes=(1,)), constant(g, 1 / 3, F16))
    return g.done(y=third), lambda x: (np.abs(x) ** 3).sum(1, keepdims=True) ** (1 / 3)


@pytest.mark.parametrize("form", ["norm", "quotient", "cube"])
def test_powers_are_wide_until_their_roots(form):
    p, want = power(form)
    x = signed((4, 8), 300, 600)
    y, _, result = ranged(p, {"x": x})
    assert result.changed and ops_of(p, "return")[0].operands[0].dtype == "f16"
    np.testing.assert_allclose(y, want(x.astype(np.float64)), rtol=3e-3)


def test_powers_without_a_root_stay():
    g = SmallGraph(x=((4, 8), "f16"))
    p = g.done(y=g("add", g("square", g("relu", g.args["x"])), g.args["x"]))
    assert not F16Range().run(p).changed


@pytest.mark.parametrize("how", ["scale", "two scales", "bias"])
def test_sums_of_integers_are_scaled_in_f32(how):
    """A quantised layer's sums are beyond f16 before the scale of its inputs brings them down."""
    a, b = (RNG.integers(-127, 128, s).astype(np.int32) for s in ((4, 256), (256, 8)))
    b[:, 0] = np.sign(a[0]) * 127
    g = SmallGraph(a=(a.shape, "i32"), b=(b.shape, "i32"), x=((1,), "f16"))
    sums = g("gemm", g.args["a"], g.args["b"])
    if how == "bias":
        sums = g("add", sums, constant(g, 1000, np.int32))
    y = g("mul", g("convert", g("convert", sums, dtype="f32"), dtype="f16"), g.args["x"])
    if how == "two scales":
        y = g("mul", y, constant(g, 2.0**-6, F16))
    feeds = {"a": a, "b": b, "x": np.array([2.0 ** (-4 if how == "two scales" else -10)], F16)}
    found, left, _ = ranged(g.done(y=y), feeds)
    whole = a.astype(np.int64) @ b + (1000 if how == "bias" else 0)
    assert np.abs(whole).max() > 65504 * 16 and left.count("mul") == 1 + (how == "two scales")
    np.testing.assert_allclose(found, whole * 2.0**-10, rtol=2e-3, atol=1e-2)
