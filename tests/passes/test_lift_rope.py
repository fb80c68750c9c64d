"""Rotary embedding and cache writes spelt out in primitives."""

import numpy as np
import pytest
from passes.lift_check import constant, lifted
from support.small_graph import SmallGraph, ops_of

from tx8fast.passes.canonicalize import Canonicalize
from tx8fast.passes.lift_cache import LiftCache
from tx8fast.passes.lift_rope import LiftRope


def cut(g, x, start, size, step=1):
    lead = len(x.shape) - 1
    return g("slice", x, start=(*[0] * lead, start), size=(*x.shape[:-1], size), step=(*[1] * lead, step))


def rotated(g, x, cos, sin, negate="second", style="half"):
    d = x.shape[-1]
    if style == "half":
        lo, hi = cut(g, x, 0, d // 2), cut(g, x, d // 2, d // 2)
        parts = (g("neg", hi), lo) if negate == "second" else (hi, g("neg", lo))
        turned = g("concat", *parts, axis=len(x.shape) - 1)
    else:
        even, odd = cut(g, x, 0, d // 2, 2), cut(g, x, 1, d // 2, 2)
        shape = (*even.shape, 1)
        pair = g(
            "concat",
            g("reshape", g("neg", odd), shape=shape),
            g("reshape", even, shape=shape),
            axis=len(x.shape),
        )
        turned = g("reshape", pair, shape=x.shape)
    return g("add", g("mul", x, cos), g("mul", turned, sin))


@pytest.mark.parametrize("style", ["half", "interleaved"])
@pytest.mark.parametrize("table", [(6, 8), (1, 1, 6, 8), (1, 8), (6, 1, 8)])
def test_rope(table, style):
    g = SmallGraph(x=((2, 6, 6, 8), "f32"), c=(table, "f32"), s=(table, "f32"))
    p = g.done(y=rotated(g, g.args["x"], g.args["c"], g.args["s"], style=style))
    left = lifted(p, LiftRope())
    assert left.count("rope") == 1 and "concat" not in left and "slice" not in left
    (rope,) = ops_of(p, "rope")
    assert rope.attrs["heads"] == (6 if table == (6, 1, 8) else 1) and rope.attrs["style"] == style


def test_heads_side_by_side():
    """[B, S, H, D] is rotated before it is transposed to heads first."""
    g = SmallGraph(x=((1, 6, 32), "f32"), c=((6, 8), "f32"), s=((6, 8), "f32"))
    heads = g("transpose", g("reshape", g.args["x"], shape=(1, 6, 4, 8)), perm=(0, 2, 1, 3))
    y = g("relu", rotated(g, heads, g.args["c"], g.args["s"]))
    p = g.done(y=y)
    assert lifted(p, LiftRope(), Canonicalize()) == ["mul", "rope", "reshape", "transpose", "relu"]
    assert ops_of(p, "rope")[0].attrs["heads"] == 4


def test_part_of_the_lanes():
    g = SmallGraph(x=((1, 2, 6, 16), "f32"), c=((6, 4), "f32"), s=((6, 4), "f32"))
    x = g.args["x"]
    y = g("concat", rotated(g, cut(g, x, 0, 4), g.args["c"], g.args["s"]), cut(g, x, 4, 12), axis=3)
    p = g.done(y=y)
    assert lifted(p, LiftRope()) == ["mul", "pad", "pad", "rope"]
    assert ops_of(p, "rope")[0].attrs["rotary_dim"] == 4


@pytest.mark.parametrize("case", ["sign", "other value", "table per head and position", "uneven"])
def test_not_a_rope(case):
    table = (6, 6, 8) if case.startswith("table") else (6, 8)
    g = SmallGraph(x=((2, 6, 6, 8), "f32"), z=((2, 6, 6, 8), "f32"), c=(table, "f32"), s=(table, "f32"))
    x, z, c, s = (g.args[n] for n in "xzcs")
    if case == "other value":
        y = g(
            "add",
            g("mul", z, c),
            g("mul", g("concat", g("neg", cut(g, x, 4, 4)), cut(g, x, 0, 4), axis=3), s),
        )
    elif case == "uneven":
        y = g(
            "add",
            g("mul", x, c),
            g("mul", g("concat", g("neg", cut(g, x, 2, 6)), cut(g, x, 0, 2), axis=3), s),
        )
    else:
        y = rotated(g, x, c, s, "first" if case == "sign" else "second")
    assert "rope" not in lifted(g.done(y=y), LiftRope())


# ---------------------------------------------------------------- cache writes


def scatter(g, positions, rows=1, shape=(1, 2, 16, 8), perm=(2, 0, 1, 3), back=(1, 2, 0, 3)):
    cache = g("transpose", g.args["cache"], perm=perm)
    new = g("reshape", g.args["new"], shape=(rows, 1, 2, 8))
    written = g("scatter_nd", cache, g("reshape", positions, shape=(rows, 1)), new)
    return g("transpose", written, perm=back)


def graph(rows=1):
    return SmallGraph(cache=((1, 2, 16, 8), "f32"), new=((1, 2, rows, 8), "f32"), at=((1,), "i64"))


def test_one_position():
    g = graph()
    p = g.done(y=scatter(g, g("add", g.args["at"], constant(g, [0], np.int64))))
    left = lifted(p, LiftCache(), Canonicalize(), LiftCache(), inputs={"at": np.array([5])})
    assert left.count("kv_update") == 1 and "scatter_nd" not in left
    assert ops_of(p, "kv_update")[0].attrs["axis"] == 2 and ops_of(p, "kv_update")[0].operands[0].op is None


def test_a_run_of_positions():
    g = graph(3)
    p = g.done(y=scatter(g, g("add", g.args["at"], constant(g, [2, 3, 4], np.int64)), 3))
    left = lifted(p, LiftCache(), inputs={"at": np.array([5])})
    assert "kv_update" in left and "scatter_nd" not in left


@pytest.mark.parametrize("case", ["gap", "unknown", "other back", "shared", "combine"])
def test_not_a_cache_write_in_place(case):
    g = graph(2)
    at = g.args["at"]
    steps = constant(g, [0, 2] if case == "gap" else [0, 1], np.int64)
    if case == "unknown":
        steps = g("mul", steps, at)
    places = g("add", at, steps)
    if case == "combine":
        y = g("scatter_nd", g.args["cache"], constant(g, [[0]], np.int64), g("reshape", g.args["cache"], shape=(1, 2, 16, 8)),
              combine="add")  # fmt: skip
        results = {"y": y}
    else:
        y = scatter(g, places, 2, back=(2, 1, 0, 3) if case == "other back" else (1, 2, 0, 3))
        results = {"y": y, "raw": y.op.operands[0]} if case == "shared" else {"y": y}
    left = lifted(g.done(**results), LiftCache(), inputs={"at": np.array([1])})
    if case in ("gap", "unknown", "combine"):
        assert "kv_update" not in left
    else:
        assert left.count("transpose") >= 2


@pytest.mark.parametrize(("places", "written"), [([-2], True), ([2], True), ([-2, 1], False)])
def test_known_rows_may_count_from_the_end(places, written):
    g = SmallGraph(cache=((6, 8), "f32"), new=((len(places), 8), "f32"))
    at = constant(g, np.reshape(places, (-1, 1)), np.int64)
    left = lifted(g.done(y=g("scatter_nd", g.args["cache"], at, g.args["new"])), LiftCache())
    assert ("kv_update" in left, "scatter_nd" in left) == (written, not written)


@pytest.mark.parametrize("style", ["half", "interleaved"])
def test_part_of_the_lanes_of_heads_side_by_side(style):
    """[B, S, H, D], the first lanes of each head rotated before the heads are turned."""
    g = SmallGraph(x=((2, 6, 48), "f32"), c=((6, 1, 8), "f32"), s=((6, 1, 8), "f32"))
    x = g("reshape", g.args["x"], shape=(2, 6, 4, 12))
    turned = rotated(g, cut(g, x, 0, 8), g.args["c"], g.args["s"], style=style)
    p = g.done(y=g("concat", turned, cut(g, x, 8, 4), axis=3))
    left = lifted(p, LiftRope())
    assert left.count("rope") == 1 and "concat" not in left and "slice" not in left
    (rope,) = ops_of(p, "rope")
    assert (rope.attrs["heads"], rope.attrs["rotary_dim"], rope.attrs["style"]) == (4, 8, style)


@pytest.mark.parametrize("turned", [True, False])
def test_a_single_head_is_rotated_as_it_lies(turned):
    g = SmallGraph(x=((1, 6, 8), "f32"), c=((6, 8), "f32"), s=((6, 8), "f32"))
    x = g("reshape", g.args["x"], shape=(1, 6, 1, 8) if turned else (1, 1, 6, 8))
    x = g("transpose", x, perm=(2, 0, 1, 3)) if turned else x
    p = g.done(y=rotated(g, x, g.args["c"], g.args["s"]))
    lifted(p, LiftRope())
    assert ops_of(p, "rope")[0].result.shape == (1, 6, 8)


def test_heads_that_others_share_are_rotated_once():
    g = SmallGraph(x=((2, 6, 16), "f32"), c=((6, 8), "f32"), s=((6, 8), "f32"))
    once = g("reshape", g.args["x"], shape=(2, 6, 2, 1, 8))
    many = g("reshape", g("broadcast", once, shape=(2, 6, 2, 3, 8)), shape=(2, 6, 6, 8))
    y = rotated(g, g("transpose", many, perm=(0, 2, 1, 3)), g.args["c"], g.args["s"])
    p = g.done(y=g("relu", y))
    left = lifted(p, LiftRope())
    assert left.index("rope") < left.index("broadcast")
    assert ops_of(p, "rope")[0].attrs["heads"] == 2


@pytest.mark.parametrize("pairs", [False, True])
def test_halves_that_are_computed_apart(pairs):
    """Tables of half the lanes; lanes that lie in pairs give halves, too."""
    g = SmallGraph(x=((1, 2, 6, 16), "f32"), c=((1, 1, 6, 8), "f32"), s=((1, 1, 6, 8), "f32"))
    x, c, s = (g.args[n] for n in "xcs")
    a, b = (cut(g, x, 0, 8, 2), cut(g, x, 1, 8, 2)) if pairs else (cut(g, x, 0, 8), cut(g, x, 8, 8))
    first = g("sub", g("mul", a, c), g("mul", b, s))
    p = g.done(y=g("concat", first, g("add", g("mul", b, c), g("mul", s, a)), axis=3))
    left = lifted(p, LiftRope())
    assert left.count("rope") == 1 and "sub" not in left and left.count("slice") == 2 * pairs


@pytest.mark.parametrize("case", ["another table", "the same half twice", "added"])
def test_halves_that_do_not_turn_each_other(case):
    g = SmallGraph(x=((2, 6, 16), "f32"), c=((6, 8), "f32"), s=((6, 8), "f32"), t=((6, 8), "f32"))
    x, c, s = (g.args[n] for n in "xcs")
    a, b = cut(g, x, 0, 8), cut(g, x, 0 if case == "the same half twice" else 8, 8)
    first = g("add" if case == "added" else "sub", g("mul", a, c), g("mul", b, s))
    last = g("mul", a, g.args["t"] if case == "another table" else s)
    assert "rope" not in lifted(g.done(y=g("concat", first, g("add", g("mul", b, c), last), axis=2)), LiftRope())
