"""One spelling for equal layers: what the pass makes of other spellings, and what it leaves alone."""

import numpy as np
import pytest
from passes.lift_check import constant, lifted
from support.small_graph import SmallGraph, kinds, ops_of

from tx8fast.passes.canonical_form import CanonicalForm
from tx8fast.passes.fold_constants import FoldConstants
from tx8fast.passes.raise_views import RaiseViews

RNG = np.random.default_rng(3)


def random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def test_axes_and_numbers():
    g = SmallGraph(x=((1, 4, 8), "f32"), m=((4, 8), "f32"))
    h = g("rmsnorm", g.args["x"], g.array("w", random(8)), axes=(2,), eps=float(np.float32(1e-5)))
    y = g("softmax", h, g.args["m"], axis=2, scale=float(np.sqrt(np.float32(64**-0.5))) ** 2)
    program = g.done(y=y)
    assert lifted(program, CanonicalForm()) == ["rmsnorm", "softmax"]
    (norm,), (soft,) = ops_of(program, "rmsnorm"), ops_of(program, "softmax")
    assert (norm.attrs["axes"], norm.attrs["eps"], soft.attrs["axis"], soft.attrs["scale"]) == ((-1,), 1e-5, -1, 0.125)


def test_numbers_that_are_no_root_stay():
    g = SmallGraph(x=((4, 8), "f32"))
    program = g.done(y=g("softmax", g.args["x"], axis=-1, scale=0.3))
    lifted(program, CanonicalForm())
    assert ops_of(program, "softmax")[0].attrs["scale"] == 0.3


def test_weights_are_stored_out_in_and_biases_join():
    g = SmallGraph(x=((2, 4, 8), "f32"))
    y = g("add", g.array("b", random(1, 1, 6)), g("gemm", g.args["x"], g.array("w", random(8, 6))))
    program = g.done(y=y)
    assert lifted(program, CanonicalForm(), FoldConstants()) == ["gemm"]
    (gemm,) = ops_of(program, "gemm")
    assert gemm.attrs["trans_b"] and gemm.operands[1].shape == (6, 8) and gemm.operands[2].shape == (6,)
    assert program.weights["%transposed/w"].source.inputs == ("w",), "nothing was read"


def test_a_weight_that_others_read_stays_as_it_is():
    g = SmallGraph(x=((4, 8), "f32"), i=((2,), "i64"))
    w = g.array("w", random(8, 8))
    program = g.done(y=g("gemm", g.args["x"], w), z=g("embedding", w, g.args["i"]))
    lifted(program, CanonicalForm())
    assert not ops_of(program, "gemm")[0].attrs["trans_b"]


def parts(g, y, *widths):
    at, out = 0, []
    for n in widths:
        out.append(g("slice", y, start=(0, at), size=(4, n), step=(1, 1)))
        at += n
    return out


def test_query_key_and_value_in_one_matrix():
    g = SmallGraph(x=((4, 8), "f32"))
    y = g("gemm", g.args["x"], g.array("w", random(12, 8)), g.array("b", random(12)), trans_b=True)
    q, k, v = parts(g, y, 6, 3, 3)
    program = g.done(q=q, k=k, v=v)
    assert lifted(program, CanonicalForm()) == ["gemm"] * 3
    assert program.weights["%part/6:9/w"].shape == (3, 8) and program.weights["%part/6:9/b"].shape == (3,)


@pytest.mark.parametrize("reason", ["all is read too", "parts overlap", "the matrix serves twice"])
def test_products_that_stay_whole(reason):
    g = SmallGraph(x=((4, 8), "f32"))
    w = g.array("w", random(12, 8))
    y = g("gemm", g.args["x"], w, trans_b=True)
    a = g("slice", y, start=(0, 0), size=(4, 6), step=(1, 1))
    b = g("slice", y, start=(0, 5 if reason == "parts overlap" else 6), size=(4, 6), step=(1, 1))
    more = {"c": y} if reason == "all is read too" else {}
    if reason == "the matrix serves twice":
        more["c"] = g("gemm", b, g("reshape", w, shape=(6, 16)))
    program = g.done(a=a, b=b, **more)
    lifted(program, CanonicalForm())
    assert kinds(program).count("slice") == 2


def test_masks():
    g = SmallGraph(x=((1, 2, 4, 40), "f32"))
    first = g(
        "softmax", g.args["x"], g.array("m", np.where(random(1, 1, 4, 40) > 1, -1e9, 0).astype(np.float32)), axis=-1
    )
    program = g.done(y=g("softmax", first, g.array("n", np.zeros((1, 1, 4, 40), np.float32)), axis=-1))
    assert lifted(program, CanonicalForm(), FoldConstants()) == ["softmax", "softmax"]
    first, second = ops_of(program, "softmax")
    assert first.operands[1].shape == (4, 40) and len(second.operands) == 1


def test_factors_of_a_number():
    g = SmallGraph(x=((4, 8), "f32"))
    program = g.done(y=g("div", g("mul", g.args["x"], constant(g, 0.3)), constant(g, 5.0)))
    assert lifted(program, CanonicalForm()) == ["mul"]


@pytest.mark.parametrize("rows", [1, 5])
def test_equations_name_roles(rows):
    """A step on one row and one on many differ in nothing but sizes; names of another author do not matter."""
    g = SmallGraph(q=((1, rows, 32), "f32"), k=((1, 7, 16), "f32"))
    y = g("contract", g.args["q"], g.args["k"], equation="b s (h g d), b t (h d) -> b (h g) s t",
          sizes=("h", 2, "g", 2, "d", 8))  # fmt: skip
    program = g.done(y=y)
    lifted(program, CanonicalForm())
    assert ops_of(program, "contract")[0].attrs["equation"] == "b0 m1 (b1 m0 k0), b0 n0 (b1 k0) -> b0 (b1 m0) m1 n0"


def test_operands_and_views_have_one_order():
    g = SmallGraph(x=((4, 8), "f32"))
    view = g("reshape", g.args["x"], shape=(8, 4))
    a = g("tanh", g.args["x"])
    b = g("relu", g.args["x"])
    program = g.done(y=g("add", b, a), z=g("neg", view))
    assert lifted(program, CanonicalForm()) == ["tanh", "relu", "add", "reshape", "neg"]
    (add,) = ops_of(program, "add")
    assert add.operands[0].op.kind == "tanh"


def test_rows_keep_their_batch():
    g = SmallGraph(x=((2, 4, 8), "f32"))
    rows = g("reshape", g.args["x"], shape=(8, 8))
    y = g("gemm", g("layernorm", rows, g.array("s", random(8)), g.array("t", random(8)), axes=(1,)),
          g.array("w", random(6, 8)), g.array("b", random(6)), trans_b=True)  # fmt: skip
    y = g("add", g("relu", y), g.array("c", random(6)))
    program = g.done(y=g("reshape", y, shape=(2, 4, 6)))
    assert lifted(program, RaiseViews()) == ["layernorm", "gemm", "relu", "add"]


def test_rows_that_something_mixes_stay_flat():
    g = SmallGraph(x=((2, 4, 8), "f32"))
    rows = g("reshape", g.args["x"], shape=(8, 8))
    program = g.done(y=g("reshape", g("softmax", rows, axis=0), shape=(2, 4, 8)))
    assert lifted(program, RaiseViews()) == ["reshape", "softmax", "reshape"]
