"""Views move up past ops that work on each number, so that they meet the products whose results they split."""

import numpy as np
import pytest
from passes.lift_check import RNG, constant, lifted
from support.small_graph import SmallGraph, ops_of

from tx8fast.passes.raise_views import RaiseViews


@pytest.mark.parametrize("addend", [(6, 5, 4), (6, 1, 4), (1, 5, 4), (5, 4), ()])
def test_items_and_heads_come_apart_at_the_product(addend):
    g = SmallGraph(a=((6, 5, 8), "f32"), b=((6, 8, 4), "f32"))
    other = g.array("c", RNG.standard_normal(addend).astype(np.float32)) if addend else constant(g, 0.5)
    y = g("tanh", g("add", g("gemm", g.args["a"], g.args["b"]), other))
    program = g.done(y=g("reshape", y, shape=(2, 3, 5, 4)))
    lifted(program, RaiseViews())
    (view,) = [
        op for op in ops_of(program, "reshape") if op.operands[0].op is not None and op.operands[0].op.kind == "gemm"
    ]
    assert view.result.shape == (2, 3, 5, 4) and ops_of(program, "tanh")[0].result.shape == (2, 3, 5, 4)


def test_lanes_of_heads_join_before_their_gains():
    g = SmallGraph(x=((2, 5, 32), "f32"))
    heads = g("layernorm", g("reshape", g.args["x"], shape=(2, 5, 4, 8)), axes=(-1,))
    y = g("mul", heads, g.array("gains", RNG.standard_normal((4, 8)).astype(np.float32)))
    program = g.done(y=g("reshape", y, shape=(2, 5, 32)))
    lifted(program, RaiseViews())
    assert ops_of(program, "mul")[0].result.shape == (2, 5, 32)


@pytest.mark.parametrize("case", ["read twice", "rows are mixed", "gains of lanes alone"])
def test_views_that_stay(case):
    g = SmallGraph(x=((6, 5, 4), "f32"))
    c = g.array("c", RNG.standard_normal((4,) if case == "gains of lanes alone" else (6, 5, 4)).astype(np.float32))
    y = g("add", g.args["x"], c)
    shape = {"rows are mixed": (2, 3, 4, 5), "gains of lanes alone": (6, 20)}.get(case, (2, 3, 5, 4))
    rest = {"z": y} if case == "read twice" else {}
    left = lifted(g.done(y=g("reshape", y, shape=shape), **rest), RaiseViews())
    assert left == ["add", "reshape"]
