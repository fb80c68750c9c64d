"""Norms and activations spelt out in primitives become one op each; look-alikes stay."""

import numpy as np
import pytest
from ml_dtypes import bfloat16
from passes.lift_check import constant, lifted
from support.small_graph import SmallGraph, ops_of

from tx8fast.passes.lift_activation import LiftActivation
from tx8fast.passes.lift_norm import LiftNorm


def inverse_root(g, v, form):
    if form == "rsqrt":
        return g("rsqrt", v)
    if form == "pow":
        return g("pow", v, constant(g, -0.5))
    root = g("sqrt", v)
    return g("recip", root) if form == "recip" else g("div", constant(g, 1.0), root)


def mean(g, x, form="mean", axes=(-1,)):
    if form == "mean":
        return g("reduce", x, op="mean", axes=axes, keepdims=True)
    if form == "reshape":
        return g(
            "reshape",
            g("reduce", x, op="mean", axes=axes, keepdims=False),
            shape=(*x.shape[:-1], 1),
        )
    total = g("reduce", x, op="add", axes=axes, keepdims=True)
    n = float(x.shape[-1])
    return g("div", total, constant(g, n)) if form == "div" else g("mul", total, constant(g, 1 / n))


@pytest.mark.parametrize("root", ["rsqrt", "pow", "recip", "div", "divide by root"])
@pytest.mark.parametrize("average", ["mean", "reshape", "div", "mul"])
@pytest.mark.parametrize("gamma", [True, False])
def test_rmsnorm(root, average, gamma):
    g = SmallGraph(x=((2, 3, 8), "f32"))
    x = g.args["x"]
    v = g("add", mean(g, g("mul", x, x) if gamma else g("square", x), average), constant(g, 1e-6))
    y = g("div", x, g("sqrt", v)) if root == "divide by root" else g("mul", inverse_root(g, v, root), x)
    if gamma:
        y = g("mul", g.array("w", np.linspace(1, 2, 8, dtype=np.float32)), y)
    p = g.done(y=y)
    assert lifted(p, LiftNorm()) == ["rmsnorm"]
    (norm,) = ops_of(p, "rmsnorm")
    assert norm.attrs["eps"] == pytest.approx(1e-6) and len(norm.operands) == 1 + gamma


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("parameters", [0, 1, 2])
def test_layernorm(shared, parameters):
    g = SmallGraph(x=((2, 3, 8), "f32"))
    x = g.args["x"]
    centred = g("sub", x, mean(g, x))
    again = centred if shared else g("sub", x, mean(g, x))
    y = g("div", centred, g("sqrt", g("add", mean(g, g("square", again)), constant(g, 1e-5))))
    if parameters:
        y = g("mul", y, g.array("w", np.linspace(1, 2, 8, dtype=np.float32)))
    if parameters == 2:
        y = g("add", y, g.array("b", np.linspace(-1, 2, 8, dtype=np.float32)))
    p = g.done(y=y)
    assert lifted(p, LiftNorm()) == ["layernorm"]
    assert len(ops_of(p, "layernorm")[0].operands) == 1 + parameters


def test_norm_between_conversions():
    g = SmallGraph(x=((2, 16), "bf16"))
    x = g("convert", g.args["x"], dtype="f32")
    y = g("mul", x, g("rsqrt", g("add", mean(g, g("square", x)), constant(g, 1e-6))))
    p = g.done(y=g("convert", y, dtype="bf16"))
    assert lifted(p, LiftNorm(), tolerance=1e-2) == ["rmsnorm"]


@pytest.mark.parametrize("case", ["other square", "axis", "sum", "power", "no eps", "big eps"])
def test_not_a_norm(case):
    g = SmallGraph(x=((4, 4), "f32"), z=((4, 4), "f32"))
    x = g.args["x"]
    square = g("square", g.args["z"] if case == "other square" else x)
    average = g(
        "reduce",
        square,
        op="add" if case == "sum" else "mean",
        axes=(0 if case == "axis" else 1,),
        keepdims=True,
    )
    v = average if case == "no eps" else g("add", average, constant(g, 5.0 if case == "big eps" else 1e-6))
    y = g("mul", x, g("pow", v, constant(g, -0.4)) if case == "power" else g("rsqrt", v))
    assert "rmsnorm" not in lifted(g.done(y=y), LiftNorm())


def test_norm_with_other_users_keeps_its_parameter_apart():
    g = SmallGraph(x=((2, 3, 8), "f32"), z=((1, 1, 8), "f32"))
    n = g("rmsnorm", g.args["x"])
    y = g("mul", n, g.array("w", np.ones(8, np.float32)))
    assert lifted(g.done(y=y, n=n), LiftNorm()) == ["rmsnorm", "mul"]
    g = SmallGraph(x=((1, 1, 8), "f32"), z=((1, 1, 8), "f32"))
    y = g("mul", g("rmsnorm", g.args["x"]), g.args["z"])  # a value, not a parameter
    assert lifted(g.done(y=y), LiftNorm()) == ["rmsnorm", "mul"]


@pytest.mark.parametrize("known", [True, False])
def test_batch_norm_with_known_statistics(known):
    g = SmallGraph(x=((1, 4, 4, 8), "f32"), v=((8,), "f32"))
    rows = [g.array(f"w{i}", np.linspace(1, 2 + i, 8, dtype=np.float32)) for i in range(3)]
    last = g.array("w3", np.linspace(1, 2, 8, dtype=np.float32)) if known else g.args["v"]
    y = g("batchnorm_inference", g.args["x"], *rows, last, eps=1e-3)
    left = lifted(g.done(y=y), LiftNorm(), inputs={"v": np.ones(8, np.float32)})
    assert ("batchnorm_inference" in left) is not known


@pytest.mark.parametrize("case", ["its own mean", "of another", "another axis"])
def test_a_norm_of_what_lost_its_mean(case):
    g = SmallGraph(x=((2, 8, 8), "f32"), z=((2, 8, 8), "f32"))
    x = g.args["x"]
    of, axis = (g.args["z"] if case == "of another" else x), 1 if case == "another axis" else 2
    less = g("sub", x, g("reduce", of, op="mean", axes=(axis,), keepdims=True))
    y = g("rmsnorm", less, g.array("w", np.linspace(1, 2, 8, dtype=np.float32)), axes=(2,), eps=1e-5)
    assert (lifted(g.done(y=y), LiftNorm()) == ["layernorm"]) is (case == "its own mean")


# ---------------------------------------------------------------- activations


@pytest.mark.parametrize("other", ["view", "sum", "turned"])
def test_a_norm_of_a_difference_is_centred_by_a_mean_alone(other):
    g = SmallGraph(x=((4, 8), "f32"), z=((2, 16), "f32"))
    z = g("reshape", g.args["z"], shape=(4, 8))
    if other == "sum":
        z = g("reshape", g("reduce", z, op="add", axes=(-1,), keepdims=False), shape=(4, 1))
    elif other == "turned":  # means of other rows
        z = g(
            "reduce",
            g("transpose", g("reshape", g.args["x"], shape=(8, 4)), perm=(1, 0)),
            op="mean",
            axes=(-1,),
            keepdims=False,
        )
        z = g("reshape", z, shape=(4, 1))
    x = g("sub", g.args["x"], z)
    p = g.done(y=g("div", x, g("sqrt", g("add", mean(g, g("mul", x, x)), constant(g, 1e-5)))))
    left = lifted(p, LiftNorm())
    assert "rmsnorm" in left and "layernorm" not in left


def erf_gelu(g, x, order, root=2**0.5):
    gate = g("add", g("erf", g("div", x, constant(g, root))), constant(g, 1.0))
    if order == 0:
        return g("mul", g("mul", x, gate), constant(g, 0.5))
    return g("mul", g("mul", x, constant(g, 0.5)), gate)


def tanh_gelu(g, x, order):
    cube = g("pow", x, constant(g, 3.0)) if order else g("mul", g("square", x), x)
    inner = g("add", x, g("mul", cube, constant(g, 0.044715)))
    gate = g("add", g("tanh", g("mul", inner, constant(g, 0.7978845608))), constant(g, 1.0))
    return g("mul", g("mul", x, constant(g, 0.5)), gate)


def factored_gelu(g, x, order):
    bracket = [g("mul", g("mul", x, constant(g, 0.044715)), x), constant(g, 1.0)]
    inner = g("mul", g("mul", x, constant(g, 0.79788456)), g("add", *bracket[:: 1 - 2 * order]))
    return g("mul", g("mul", x, constant(g, 0.5)), g("add", g("tanh", inner), constant(g, 1.0)))


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("form, kind", [(erf_gelu, "gelu"), (tanh_gelu, "gelu_tanh"), (factored_gelu, "gelu_tanh")])
def test_gelu(form, kind, order):
    g = SmallGraph(x=((3, 8), "f32"))
    assert lifted(g.done(y=form(g, g.args["x"], order)), LiftActivation(), tolerance=1e-5) == [kind]


def test_another_constant_is_no_gelu():
    g = SmallGraph(x=((3, 8), "f32"))
    assert "gelu" not in lifted(g.done(y=erf_gelu(g, g.args["x"], 0, 1.5)), LiftActivation())


def _halves(g, x, dtype, erf_of):
    """0.5 x (1 + erf(x / root)) with constants of one format."""
    gate = g("add", g("erf", g("div", x, constant(g, erf_of, dtype))), constant(g, 1.0, dtype))
    return g("mul", g("mul", x, gate), constant(g, 0.5, dtype))


def _steps(value, dtype, count):
    """The number `count` steps of its format above the one nearest to `value`."""
    near = np.array(value, dtype)
    bits = near.view(np.uint32 if near.itemsize == 4 else np.uint16)
    return np.array(int(bits) + count, bits.dtype).view(near.dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, bfloat16])
def test_constants_of_an_activation_are_right_in_their_own_format(dtype):
    name = {4: "f32", 2: "f16" if dtype is np.float16 else "bf16"}[np.dtype(dtype).itemsize]
    off = 16 if name == "f32" else 1
    for steps, kinds in ((0, ["gelu"]), (off, None), (-off, None)):
        g = SmallGraph(x=((3, 8), name))
        y = _halves(g, g.args["x"], dtype, _steps(2**0.5, dtype, steps))
        feed = {"x": np.linspace(-3, 3, 24).reshape(3, 8).astype(dtype)}
        left = lifted(g.done(y=y), LiftActivation(), inputs=feed, tolerance=5e-2)
        assert left == kinds if kinds else "gelu" not in left, (name, steps)


def test_a_narrow_constant_among_wide_values_is_what_it_says():
    g = SmallGraph(x=((3, 8), "f32"))
    y = _halves(g, g.args["x"], np.float32, float(bfloat16(2**0.5)))
    assert "gelu" not in lifted(g.done(y=y), LiftActivation())


@pytest.mark.parametrize("form", ["div", "mul"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, bfloat16])
def test_the_count_of_a_mean_is_right_in_its_own_format(dtype, form):
    name = {4: "f32", 2: "f16" if dtype is np.float16 else "bf16"}[np.dtype(dtype).itemsize]
    for steps in (0, 16 if name == "f32" else 1):
        g = SmallGraph(x=((2, 3, 12), name))
        x = g.args["x"]
        total = g("reduce", g("square", x), op="add", axes=(-1,), keepdims=True)
        average = g(form, total, constant(g, _steps(12 if form == "div" else 1 / 12, dtype, steps), dtype))
        y = g("mul", x, g("rsqrt", g("add", average, constant(g, 1e-3, dtype))))
        feed = {"x": np.linspace(-3, 3, 72).reshape(2, 3, 12).astype(dtype)}
        left = lifted(g.done(y=y), LiftNorm(), inputs=feed, tolerance=5e-2)
        assert ("rmsnorm" in left) is (steps == 0), (name, steps)


def test_gated_product():
    g = SmallGraph(x=((3, 8), "f32"), u=((3, 8), "f32"))
    x = g.args["x"]
    p = g.done(y=g("mul", g("mul", x, g("sigmoid", x)), g.args["u"]))
    assert lifted(p, LiftActivation()) == ["swiglu"]


@pytest.mark.parametrize("case", ["shared", "broadcast", "other gate"])
def test_not_a_gated_product(case):
    g = SmallGraph(x=((3, 8), "f32"), u=((3, 8), "f32"), r=((1, 8), "f32"))
    x = g.args["x"]
    s = g("mul", x, g("sigmoid", g.args["u"] if case == "other gate" else x))
    y = g("mul", s, g.args["r"] if case == "broadcast" else g.args["u"])
    results = {"y": y, "s": s} if case == "shared" else {"y": y}
    assert "swiglu" not in lifted(g.done(**results), LiftActivation())
