"""Movement around matrix products disappears into the equation; transpositions of neighbours cancel."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from passes.lift_check import constant, lifted
from support.small_graph import SmallGraph, ops_of

from tx8fast.passes.canonicalize import Canonicalize
from tx8fast.passes.lift_contract import LiftContract
from tx8fast.passes.sink_transposes import SinkTransposes


def heads_first(g, x, heads):
    b, s, width = x.shape
    return g("transpose", g("reshape", x, shape=(b, s, heads, width // heads)), perm=(0, 2, 1, 3))


def repeated(g, t, group):
    b, h, s, d = t.shape
    wide = g("broadcast", g("reshape", t, shape=(b, h, 1, s, d)), shape=(b, h, group, s, d))
    return g("reshape", wide, shape=(b, h * group, s, d))


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("group", [1, 2])
def test_attention_without_moves(batch, group):
    g = SmallGraph(q=((batch, 6, 8 * group), "f32"), k=((batch, 5, 8), "f32"), v=((batch, 5, 8), "f32"))
    q, k, v = (
        heads_first(g, g.args["q"], 2 * group),
        heads_first(g, g.args["k"], 2),
        heads_first(g, g.args["v"], 2),
    )
    if group > 1:
        k, v = repeated(g, k, group), repeated(g, v, group)
    p = g("softmax", g("gemm", q, k, trans_b=True))
    y = g("reshape", g("transpose", g("gemm", p, v), perm=(0, 2, 1, 3)), shape=(batch, 6, 8 * group))
    program = g.done(y=y)
    assert lifted(program, LiftContract()) == ["contract", "softmax", "contract"]
    first, last = ops_of(program, "contract")
    assert first.operands[0].op is None and first.operands[1].op is None and last.operands[1].op is None


def test_transposed_key_as_exporters_write_it():
    """reshape, transpose, reshape before the product, as three-dimensional matrices."""
    g = SmallGraph(q=((1, 4, 6, 8), "f32"), k=((1, 2, 6, 8), "f32"))
    k = g("reshape", repeated(g, g.args["k"], 2), shape=(4, 6, 8))
    k = g("reshape", g("transpose", k, perm=(0, 2, 1)), shape=(1, 4, 8, 6))
    assert lifted(g.done(y=g("gemm", g.args["q"], k)), LiftContract()) == ["contract"]


def test_result_that_is_returned_split_into_heads():
    g = SmallGraph(x=((1, 6, 16), "f32"))
    y = heads_first(g, g("gemm", g.args["x"], g.array("w", np.ones((16, 32), np.float32))), 4)
    assert lifted(g.done(y=y), LiftContract()) == ["contract"]


@pytest.mark.parametrize("case", ["plain", "view only", "bias", "relu", "two users", "last dimension 1", "uneven"])
def test_left_alone(case):
    g = SmallGraph(x=((2, 6, 8), "f32"), w=((8, 12), "f32"), b=((12,), "f32"))
    x, w, b = g.args["x"], g.args["w"], g.args["b"]
    if case == "view only":
        y = g("gemm", g("reshape", x, shape=(12, 8)), w)
    elif case in ("bias", "relu"):
        y = g(
            "transpose",
            g(
                "gemm",
                x,
                w,
                b if case == "bias" else None,
                act="relu" if case == "relu" else "none",
            ),
            perm=(1, 0, 2),
        )
    elif case == "two users":
        m = g("gemm", x, w)
        y = g(
            "add",
            g("transpose", g("reshape", m, shape=(2, 6, 3, 4)), perm=(0, 2, 1, 3)),
            constant(g, 1.0),
        )
        assert "transpose" in lifted(g.done(y=y, m=m), LiftContract())
        return
    elif case == "last dimension 1":
        y = g(
            "gemm",
            g("transpose", x, perm=(1, 0, 2)),
            g("slice", w, start=(0, 0), size=(8, 1), step=(1, 1)),
        )
    elif case == "uneven":
        flat = g("reshape", g("transpose", g.args["x"], perm=(0, 2, 1)), shape=(2, 48))
        y = g(
            "gemm",
            g("reshape", flat, shape=(2, 12, 4)),
            g("slice", w, start=(0, 0), size=(4, 12), step=(1, 1)),
        )
    else:
        y = g("gemm", x, w)
    assert "contract" not in lifted(g.done(y=y), LiftContract())


@given(st.permutations(range(4)), st.permutations(range(4)), st.integers(0, 3), st.booleans())
def test_any_order_of_dimensions_computes_the_same(left, right, out, grouped):
    sizes = (2, 3, 4, 5)
    g = SmallGraph(a=(tuple(sizes[i] for i in left), "f32"), b=(tuple(sizes[i] for i in right), "f32"))
    a = g("transpose", g.args["a"], perm=tuple(list(left).index(i) for i in range(4)))
    b = g("transpose", g.args["b"], perm=tuple(list(right).index(i) for i in range(4)))
    if grouped:
        a, b = g("reshape", a, shape=(6, 4, 5)), g("reshape", b, shape=(6, 4, 5))
    y = g("gemm", a, b, trans_b=True)
    rank = len(y.shape)
    perm = tuple((i + out) % rank for i in range(rank))
    y = g("transpose", y, perm=perm)
    lifted(g.done(y=g("neg", y)), LiftContract(), tolerance=1e-5)


# ---------------------------------------------------------------- transpositions

LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def test_channel_first_chain_becomes_channel_last():
    g = SmallGraph(x=((1, 6, 6, 4), "f32"), r=((1, 6, 6, 4), "f32"))
    scale = g.array("s", np.linspace(1, 2, 4, dtype=np.float32).reshape(4, 1, 1))
    y = g("relu", g("mul", g("transpose", g.args["x"], perm=FIRST), scale))
    y = g("add", y, g("transpose", g.args["r"], perm=FIRST))
    y = g("pad", y, lo=(0, 0, 1, 1), hi=(0, 0, 1, 0))
    y = g("reduce", y, op="mean", axes=(2, 3), keepdims=True)
    p = g.done(y=g("exp", g("transpose", y, perm=LAST)))
    assert "transpose" not in lifted(p, SinkTransposes())


def test_concat_and_slice_along_the_moved_axis():
    g = SmallGraph(x=((1, 6, 6, 4), "f32"), r=((1, 6, 6, 2), "f32"))
    y = g("concat", *(g("transpose", g.args[n], perm=FIRST) for n in "xr"), axis=1)
    y = g("slice", y, start=(0, 1, 0, 2), size=(1, 4, 6, 4), step=(1, 1, 1, 1))
    p = g.done(y=g("transpose", y, perm=LAST))
    assert lifted(p, SinkTransposes()) == ["concat", "slice"]
    assert ops_of(p, "concat")[0].attrs["axis"] == 3


def test_patches_of_an_image_are_a_view():
    g = SmallGraph(x=((1, 4, 4, 8), "f32"))
    y = g("reshape", g("transpose", g.args["x"], perm=FIRST), shape=(1, 8, 16))
    assert lifted(g.done(y=g("neg", g("transpose", y, perm=(0, 2, 1)))), SinkTransposes()) == [
        "reshape",
        "neg",
    ]


@pytest.mark.parametrize("case", ["shared", "two orders", "value of another shape"])
def test_transpositions_that_stay(case):
    g = SmallGraph(x=((1, 6, 6, 6), "f32"), r=((1, 6, 6, 6), "f32"), v=((6, 1, 1), "f32"))
    t = g("transpose", g.args["x"], perm=FIRST)
    other = g("transpose", g.args["r"], perm=LAST) if case == "two orders" else g.args["v"]
    y = g("relu", t) if case == "shared" else g("add", t, other)
    p = g.done(y=y, **({"t": t} if case == "shared" else {}))
    left = lifted(p, Canonicalize(), SinkTransposes())
    assert left.index("transpose") < left.index("relu" if case == "shared" else "add")


def test_a_product_that_is_stored_transposed_has_its_operands_the_other_way_round():
    """As einsum writes scores: keys first, queries of a group side by side."""
    g = SmallGraph(q=((1, 6, 4, 8), "f32"), k=((1, 6, 2, 8), "f32"))
    k = g("transpose", g.args["k"], perm=(0, 2, 1, 3))
    q = g("transpose", g("reshape", g.args["q"], shape=(1, 6, 2, 2, 8)), perm=(0, 2, 1, 3, 4))
    s = g("gemm", k, g("reshape", q, shape=(1, 2, 12, 8)), trans_b=True)
    s = g("transpose", g("reshape", s, shape=(1, 2, 6, 6, 2)), perm=(0, 1, 4, 3, 2))
    program = g.done(y=s)
    lifted(program, LiftContract())
    (product,) = ops_of(program, "contract")
    assert [v.index for v in product.operands] == [0, 1]  # queries, keys
