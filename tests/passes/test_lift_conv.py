"""A known scale and shift per channel become part of the convolution before them."""

import numpy as np
import pytest
from passes.lift_check import lifted
from support.small_graph import SmallGraph, ops_of

from tx8fast.passes.lift_conv import LiftConv
from tx8fast.passes.pipeline import lifting_passes, run_pipeline


def graph():
    g = SmallGraph(x=((1, 5, 5, 3), "f32"), r=((4,), "f32"))
    w = g.array("w", np.random.default_rng(0).standard_normal((3, 3, 4, 3)).astype(np.float32))
    return g, g("conv", g.args["x"], w), g.array("s", np.linspace(1, 2, 4, dtype=np.float32))


def test_scale_and_shift():
    g, y, s = graph()
    b = g.array("b", np.linspace(-1, 2, 4, dtype=np.float32).reshape(1, 1, 1, 4))
    p = g.done(y=g("add", b, g("mul", y, s)))
    left = lifted(p, LiftConv(), tolerance=1e-5)
    assert left.count("conv") == 1 and left[-1] == "conv" and len(ops_of(p, "conv")[0].operands) == 3


@pytest.mark.parametrize("case", ["value", "two users", "large weight", "along rows"])
def test_left_alone(case):
    g, y, s = graph()
    if case == "along rows":
        s = g.array("t", np.linspace(1, 2, 3, dtype=np.float32).reshape(3, 1))
    z = g("mul", y, g.args["r"] if case == "value" else s)
    p = g.done(y=z, **({"c": y} if case == "two users" else {}))
    assert "mul" in lifted(p, LiftConv(100 if case == "large weight" else 1 << 20))
    assert ops_of(p, "conv")[0].operands[1].op.kind == "get_param"


@pytest.mark.parametrize("kind", ["conv", "gemm", "two users", "twice"])
def test_relu(kind):
    g, y, s = graph()
    if kind == "gemm":
        y = g("gemm", g.array("a", np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)),
              g.array("b", np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)))  # fmt: skip
    z = g("relu", y)
    if kind == "twice":
        z = g("relu", g("add", z, s))
    left = lifted(g.done(z=z, **({"y": y} if kind == "two users" else {})), LiftConv(), tolerance=1e-5)
    assert left.count("relu") == (1 if kind in ("two users", "twice") else 0)


def test_relu_behind_a_bias():
    """The bias joins its product first, so that the product is what the ReLU finds."""
    g = SmallGraph(x=((2, 3), "f32"))
    w = g.array("w", np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4))
    y = g("add", g("gemm", g.args["x"], w), g.array("b", np.linspace(-1, 1, 4, dtype=np.float32)))
    p = g.done(y=g("relu", y))
    run_pipeline(p, lifting_passes())
    (gemm,) = ops_of(p, "gemm")
    assert gemm.attrs["act"] == "relu" and len(gemm.operands) == 3
    assert not ops_of(p, "relu") and not ops_of(p, "add")
