"""Every rule of legalization: it applies, keeps the numbers, and leaves forms the engines have."""

import math

import numpy as np
import pytest
from passes.lift_check import lifted
from support.run_graph import run_graph
from support.small_graph import SmallGraph, kinds, ops_of

from tx8fast.ir.attrs import DenseAttr
from tx8fast.ir.ops.base import engine_of
from tx8fast.passes.legalize import MAX_OPERANDS, Legalize, mask_fits

RNG = np.random.default_rng(7)


def scalar(g, x, dtype=np.float32):
    return g("constant", value=DenseAttr(np.array(x, dtype)))


def check(program, wanted_kinds, exact=False, positive=False):
    """Legalize, compare the kinds of ops and, on random inputs, the results."""
    inputs = {}
    for name, v in zip(program.main.attrs["arg_names"], program.main.body.args):
        x = RNG.standard_normal(v.shape)
        inputs[name] = np.abs(x) + 0.5 if positive else x
    wanted = run_graph(program, inputs)
    Legalize().run(program)
    program.verify()
    assert [k for k in kinds(program) if k not in ("constant", "return", "get_param")] == wanted_kinds
    for name, w in wanted.items():
        found = run_graph(program, inputs)[name]
        if exact:
            assert np.array_equal(found, w)
        else:
            np.testing.assert_allclose(found.astype(np.float64), w.astype(np.float64), rtol=2e-6, atol=2e-6)
    assert not Legalize().run(program).changed


@pytest.mark.parametrize("axes, keep, shape, wanted", [
    ((-1,), False, (3, 4, 5), ["reduce", "reshape"]),
    ((1, 2), True, (3, 4, 5), ["reshape", "reduce", "reshape"]),
    ((-1, 1), False, (3, 4, 5), ["reshape", "reduce", "reshape", "reshape"]),
    ((0,), True, (3, 4, 5), ["reduce"]),
    ((0, 2), False, (3, 4, 5), ["reduce", "reshape"]),
])  # fmt: skip
@pytest.mark.parametrize("op", ["add", "mean", "max"])
def test_reduce(op, axes, keep, shape, wanted):
    g = SmallGraph(x=(shape, "f32"))
    p = g.done(y=g("reduce", g.args["x"], op=op, axes=axes, keepdims=keep))
    check(p, wanted)
    (r,) = ops_of(p, "reduce")
    assert r.attrs["keepdims"] and (engine_of(r) == "ct") == (0 not in [a % 3 for a in axes])


@pytest.mark.parametrize("e, wanted", [
    (2, ["square"]), (3, ["square", "mul"]), (0.5, ["sqrt"]), (-1, ["recip"]), (-0.5, ["rsqrt"]), (1, []),
    (0, ["broadcast"]), (1.5, ["pow"]),
])  # fmt: skip
def test_pow_by_a_known_exponent(e, wanted):
    g = SmallGraph(x=((3, 4), "f32"))
    check(g.done(y=g("pow", g.args["x"], scalar(g, e))), wanted, positive=True)


@pytest.mark.parametrize(
    "d, wanted", [(8, "mul"), (-0.25, "mul"), (3, "div"), (0, "div"), (math.inf, "div"), (2.0**127, "div")]
)
def test_div_by_a_power_of_two(d, wanted):
    g = SmallGraph(x=((3, 4), "f32"))
    with np.errstate(all="ignore"):
        check(g.done(y=g("div", g.args["x"], scalar(g, d))), [wanted], exact=True)


@pytest.mark.parametrize("kind", ["and", "or"])
@pytest.mark.parametrize("shapes", [((4, 1), (3, 4, 5)), ((3, 4, 5), (5,)), ((3, 4, 5), (3, 4, 5)), ((), (4, 5))])
def test_joined_conditions(kind, shapes):
    g = SmallGraph(x=((3, 4, 5), "f32"), a=(shapes[0], "f32"), b=(shapes[1], "f32"))
    zero = scalar(g, 0.0)
    both = g(kind, g("gt", g.args["a"], zero), g("gt", g.args["b"], zero))
    check(g.done(y=g("select", both, g.args["x"], scalar(g, -1.0))), ["gt", "gt", "select", "select"], exact=True)


def test_joined_conditions_that_others_read_stay():
    g = SmallGraph(x=((4, 5), "f32"), a=((4, 5), "f32"), b=((4, 5), "f32"))
    both = g("and", *(g("gt", g.args[n], scalar(g, 0.0)) for n in "ab"))
    p = g.done(y=g("select", both, g.args["x"], scalar(g, -1.0)), z=g("not", both))
    check(p, ["gt", "gt", "and", "select", "not"], exact=True)


@pytest.mark.parametrize("mask, fits", [
    ((5,), True), ((4, 5), True), ((1, 1, 4, 5), True), ((3, 4, 5), True), ((2, 3, 4, 5), True), ((1, 1, 1, 5), True),
    ((2, 1, 1, 5), False), ((2, 1, 4, 5), False), ((3, 1, 5), False), ((4, 1), False), ((2, 3, 4, 1), False), ((), False),
])  # fmt: skip
def test_softmax_mask(mask, fits):
    g = SmallGraph(x=((2, 3, 4, 5), "f32"), m=(mask, "f32"))
    p = g.done(y=g("softmax", g.args["x"], g.args["m"], scale=0.5))
    assert mask_fits((2, 3, 4, 5), mask) is fits
    check(p, ["softmax"] if fits else ["mul", "add", "softmax"])
    assert len(ops_of(p, "softmax")[0].operands) == (2 if fits else 1)


@pytest.mark.parametrize("bias, act, wanted", [
    ((6,), "relu", ["gemm"]), ((1, 6), "none", ["reshape", "gemm"]), ((4, 6), "none", ["gemm", "add"]),
    ((), "relu", ["gemm", "add", "relu"]), ((4, 1), "none", ["gemm", "add"]),
])  # fmt: skip
def test_gemm_bias(bias, act, wanted):
    g = SmallGraph(x=((4, 5), "f32"), w=((6, 5), "f32"), b=(bias, "f32"))
    check(g.done(y=g("gemm", g.args["x"], g.args["w"], g.args["b"], trans_b=True, act=act)), wanted)


@pytest.mark.parametrize("a, b, ta, tb, wanted", [
    ((2, 4, 1), (1, 5), False, False, ["mul"]),
    ((2, 1, 4), (5, 1), True, True, ["reshape", "reshape", "mul"]),
    ((2, 4, 3), (3, 5), False, False, ["gemm"]),
])  # fmt: skip
def test_outer_product(a, b, ta, tb, wanted):
    g = SmallGraph(a=(a, "f32"), b=(b, "f32"))
    check(g.done(y=g("gemm", g.args["a"], g.args["b"], trans_a=ta, trans_b=tb)), wanted)


def test_integers_are_left_alone():
    g = SmallGraph(a=((2, 1), "i8"), b=((1, 3), "i8"), i=((3,), "i64"))
    e = scalar(g, 2, np.int64)
    p = g.done(y=g("gemm", g.args["a"], g.args["b"]), d=g("div", g.args["i"], e), p=g("pow", g.args["i"], e))
    assert not Legalize().run(p).changed


@pytest.mark.parametrize("n", [2, MAX_OPERANDS, MAX_OPERANDS + 1, 3 * MAX_OPERANDS + 1])
def test_many_operands_are_put_together_in_steps(n):
    g = SmallGraph(x=((3, n + 2), "f32"))
    parts = [g("slice", g.args["x"], start=(0, i % 7), size=(3, 1 + i % 2), step=(1, 1)) for i in range(n)]
    p = g.done(y=g("concat", *parts, axis=-1))
    steps = -(-n // MAX_OPERANDS)
    check(p, ["slice"] * n + ["concat"] * (1 if steps == 1 else steps + 1), exact=True)
    assert all(len(op.operands) <= MAX_OPERANDS for op in ops_of(p, "concat"))


PADDED = [((1, 1), (0, 0), (2, 0)), ((3, 2), (4, 1), (0, 3)), ((1, 5), (2, 6), (1, 1)), ((3, 3), (2, 2), (3, 2))]


@pytest.mark.parametrize("dilation", [(1, 1), (2, 1)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 1), (2, 3)])
@pytest.mark.parametrize(("kernel", "lo", "hi"), PADDED)
def test_padding_that_windows_lie_in_becomes_a_part_of_the_image(kernel, lo, hi, stride, dilation):
    g = SmallGraph(x=((2, 5, 7, 3), "f32"))
    w = g.array("w", np.random.default_rng(0).standard_normal((*kernel, 4, 3)).astype(np.float32))
    y = g("conv", g.args["x"], w, pad_lo=lo, pad_hi=hi, stride=stride, dilation=dilation)
    p = g.done(y=g("conv", y, g.array("v", np.ones((1, 1, 2, 4), np.float32)), pad_lo=(1, 0)))
    lifted(p, Legalize(), tolerance=1e-5)
    for op in ops_of(p, "conv"):
        reach = [(k - 1) * d for k, d in zip(op.operands[1].shape[:2], op.attrs["dilation"], strict=True)]
        assert all(n <= r for name in ("pad_lo", "pad_hi") for n, r in zip(op.attrs[name], reach, strict=True))
