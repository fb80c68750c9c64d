"""Products on means of images that gate images become convolutions of one position."""

from __future__ import annotations

import numpy as np
import pytest
from passes.lift_check import RNG, lifted
from support.small_graph import SmallGraph, ops_of

from tx8fast.passes.lift_gates import LiftGates


def weight(g, key: str, *shape: int):
    return g.array(key, RNG.standard_normal(shape).astype(np.float32))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_gates_of_products(last, trans_b, kept):
    g = SmallGraph(x=((3, 5, 4, 6) if last else (3, 6, 5, 4), "f32"))
    x = g.args["x"]
    axes = (1, 2) if last else (2, 3)
    m = g("reduce", x, op="mean", axes=axes, keepdims=kept)
    m = g("reshape", m, shape=(3, 6)) if kept else m
    for key, a, b in (("w", 6, 2), ("v", 2, 6)):
        w = weight(g, key, *((b, a) if trans_b else (a, b)))
        m = g("gemm", m, w, weight(g, key + "b", b), trans_b=trans_b)
        m = g("add", g("sigmoid", m), weight(g, key + "s", 1, b))
    gate = g("reshape", m, shape=(3, 1, 1, 6) if last else (3, 6, 1, 1))
    program = g.done(y=g("mul", gate, x))
    lifted(program, LiftGates(), tolerance=1e-5)
    assert len(ops_of(program, "conv")) == 2
    assert not ops_of(program, "gemm")


def test_two_means_that_share_a_product():
    g = SmallGraph(x=((2, 6, 5, 4), "f32"))
    x, w = g.args["x"], weight(g, "w", 6, 6)
    means = [g("reshape", g("reduce", x, op=op, axes=(2, 3), keepdims=True), shape=(2, 6)) for op in ("mean", "max")]
    both = g("add", *[g("gemm", m, w) for m in means])
    program = g.done(y=g("mul", x, g("reshape", g("sigmoid", both), shape=(2, 6, 1, 1))))
    lifted(program, LiftGates(), tolerance=1e-5)
    assert len(ops_of(program, "conv")) == 2


@pytest.mark.parametrize("what", ["no image", "computed weight", "other rows", "a bias of rows"])
def test_what_stays_a_product(what):
    g = SmallGraph(x=((3, 6, 5, 4), "f32"), z=((6, 6), "f32"), r=((3, 6), "f32"))
    x = g.args["x"]
    m = g("reduce", x, op="mean", axes=(2, 3), keepdims=False)
    if what == "other rows":
        m = g("add", m, g.args["r"])
    w = g.args["z"] if what == "computed weight" else weight(g, "w", 6, 6)
    bias = (weight(g, "b", 3, 6),) if what == "a bias of rows" else ()
    gate = g("reshape", g("gemm", m, w, *bias), shape=(3, 6, 1, 1))
    program = g.done(y=g("sigmoid", gate) if what == "no image" else g("mul", x, gate))
    lifted(program, LiftGates(), tolerance=1e-5)
    assert not ops_of(program, "conv")
