"""Norms of heads work on rows of all heads where heads are whole blocks."""

import numpy as np
import pytest
from passes.lift_check import lifted
from support.small_graph import SmallGraph, ops_of

from tx8fast.passes.canonicalize import Canonicalize
from tx8fast.passes.lift_norm import LiftNorm
from tx8fast.passes.norm_heads import NormHeads


def graph(
    kind: str, rows: tuple[int, ...], heads: int, channels: int, weights: tuple[int, ...] | None, merged: bool = True
):
    g = SmallGraph(x=((*rows, heads * channels), "f32"))
    y = g("reshape", g.args["x"], shape=(*rows, heads, channels))
    vectors = (
        []
        if weights is None
        else [g.array("w", np.linspace(1, 2, int(np.prod(weights)), dtype=np.float32).reshape(weights))]
    )
    y = g(kind, y, *vectors, eps=1e-3)
    return g.done(
        y=g("reshape", y, shape=(*rows, heads * channels)) if merged else g("transpose", y, perm=(0, 2, 1, 3))
    )


@pytest.mark.parametrize("kind", ["rmsnorm", "layernorm"])
@pytest.mark.parametrize("weights", [None, (64,)])
def test_views_around_a_norm_of_heads_go(kind, weights) -> None:
    p = graph(kind, (2, 5), 3, 64, weights)
    assert lifted(p, NormHeads(), Canonicalize()) == [kind]
    assert ops_of(p, kind)[0].attrs["heads"] == 3


def test_a_view_that_is_needed_stands_behind_the_norm() -> None:
    p = graph("rmsnorm", (2, 5), 3, 64, (64,), merged=False)
    assert lifted(p, NormHeads(), Canonicalize()) == ["rmsnorm", "reshape", "transpose"]


@pytest.mark.parametrize(("heads", "channels", "weights"), [(3, 48, (48,)), (1, 64, (64,))])
def test_other_norms_stay(heads, channels, weights) -> None:
    """Parts of blocks, and a single head."""
    p = graph("rmsnorm", (2, 5), heads, channels, weights)
    assert not NormHeads().run(p).changed


def test_views_that_split_rows_are_no_heads() -> None:
    g = SmallGraph(x=((2, 128), "f32"))
    p = g.done(y=g("rmsnorm", g("reshape", g.args["x"], shape=(4, 64))))
    assert lifted(p, NormHeads()) == ["reshape", "rmsnorm"], "[2, 128] is [2, 2 heads, 64] in another form"


@pytest.mark.parametrize("around", ["vector", "conversions", "transpose"])
def test_what_lifts_norms_knows_of_heads(around) -> None:
    """`lifted` compares the values before and after."""
    g = SmallGraph(x=((2, 5, 128), "bf16" if around == "conversions" else "f32"))
    x = g.args["x"]
    if around == "conversions":
        y = g("convert", g("rmsnorm", g("convert", x, dtype="f32"), heads=2), dtype="bf16")
    elif around == "transpose":
        y = g("rmsnorm", g("transpose", x, perm=(1, 0, 2)), heads=2)
    else:
        y = g("mul", g("rmsnorm", x, heads=2), g.array("v", np.linspace(1, 2, 128, dtype=np.float32)))
    p = g.done(y=y)
    lifted(p, LiftNorm(), Canonicalize())
    assert [op.attrs["heads"] for op in ops_of(p, "rmsnorm")] == [2]
