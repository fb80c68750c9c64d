"""Gathers at known places become slices where the places lie in order, and stay what they are elsewhere."""

import numpy as np
import pytest
from passes.lift_check import RNG, constant, lifted
from support.small_graph import SmallGraph

from tx8fast.passes.canonical_form import CanonicalForm
from tx8fast.passes.lift_views import LiftViews

SHAPE = (3, 4, 2)
I64 = np.int64


def grid(*columns):
    return np.stack(np.meshgrid(*columns, indexing="ij"), -1)


CASES = {
    "all": (grid(range(3), range(4)), True),
    "all of more dimensions": (grid(range(3), range(4))[:, None, None], True),
    "every other": (grid(range(1, 3), range(0, 4, 2)), True),
    "from the end": (grid([-1], [-4, -3]), True),
    "repeated": (np.broadcast_to(grid(range(3), range(4))[:, None], (3, 3, 4, 2)), True),
    "one, twice": (np.array([[2], [2]]), True),
    "elements": (grid(range(3), range(4), range(2)), True),
    "backwards": (grid(range(2, -1, -1), range(4)), False),
    "a diagonal": (np.array([[0, 0], [1, 1]]), False),
    "unequal steps": (np.array([[0, 0], [0, 1], [0, 3]]), False),
    "turned": (grid(range(3), range(4)).transpose(1, 0, 2), False),
    "one is missing": (grid(range(2), range(3)).reshape(-1, 2)[:-1], False),
}


@pytest.mark.parametrize("case", CASES)
def test_known_places_of_leading_dimensions(case):
    places, slices = CASES[case]
    g = SmallGraph(x=(SHAPE, "f32"))
    kinds = lifted(g.done(y=g("gather_nd", g.args["x"], constant(g, places, I64))), LiftViews())
    assert ("gather_nd" not in kinds) is slices


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize(("places", "slices"), [
    ([0], True), (1, True), ([0, 1], True), ([[0, 1]], True), ([-1], True), ([[1, 1], [1, 1]], True), ([1, 0], False), ([0, 1, 1], False),
    ([[0, 1], [0, 1]], True), ([[0, 0], [1, 1]], True), ([[0, 1], [1, 0]], False),
])  # fmt: skip
def test_known_places_of_an_axis(axis, places, slices):
    g = SmallGraph(x=(SHAPE, "f32"))
    kinds = lifted(g.done(y=g("gather", g.args["x"], constant(g, places, I64), axis=axis)), LiftViews())
    assert ("gather" not in kinds) is slices


def test_random_places():
    for _ in range(60):
        g = SmallGraph(x=(SHAPE, "f32"))
        axis = int(RNG.integers(3))
        n = SHAPE[axis]
        start, step = int(RNG.integers(n)), int(RNG.integers(1, 3))
        places = np.arange(start, n, step) - n * RNG.integers(2)
        if RNG.integers(2):
            places = np.broadcast_to(places[:, None], (len(places), 2))
        lifted(g.done(y=g("gather", g.args["x"], constant(g, places, I64), axis=axis)), LiftViews())


@pytest.mark.parametrize("place", [4, -5])
def test_places_that_are_not_there_are_left_to_who_refuses_them(place):
    g = SmallGraph(x=(SHAPE, "f32"))
    program = g.done(y=g("gather", g.args["x"], constant(g, [place], I64), axis=1))
    assert not LiftViews().run(program).changed


def weight(g, name, *shape):
    return g.array(name, RNG.standard_normal(shape).astype(np.float32))


@pytest.mark.parametrize("bias", [False, True])
def test_heads_of_one_product_go_separate_ways_turned_or_not(bias):
    """Queries, one key and one value of every group: of the product as it lies, and of it with the heads in front."""
    g = SmallGraph(x=((2, 5, 16), "f32"))
    y = g("gemm", g.args["x"], weight(g, "w", 16, 64))
    y = g("reshape", g("add", y, weight(g, "b", 64)) if bias else y, shape=(2, 5, 2, 4, 8))
    queries = g("slice", y, start=(0, 0, 0, 0, 0), size=(2, 5, 2, 2, 8), step=(1,) * 5)
    turned = g("transpose", y, perm=(3, 0, 1, 2, 4))
    rest = [g("gather_nd", turned, constant(g, [[place]], I64)) for place in (-2, -1)]
    program = g.done(q=queries, k=rest[0], v=rest[1])
    left = lifted(program, LiftViews())
    assert left.count("gemm") == 3 and not {"slice", "gather_nd"} & set(left)


def test_heads_that_overlap_stay_in_one_product():
    g = SmallGraph(x=((2, 5, 16), "f32"))
    y = g("reshape", g("gemm", g.args["x"], weight(g, "w", 16, 32)), shape=(2, 5, 4, 8))
    a = g("slice", y, start=(0, 0, 0, 0), size=(2, 5, 3, 8), step=(1,) * 4)
    b = g("slice", g("transpose", y, perm=(2, 0, 1, 3)), start=(2, 0, 0, 0), size=(2, 2, 5, 8), step=(1,) * 4)
    assert lifted(g.done(a=a, b=b), LiftViews()).count("gemm") == 1


@pytest.mark.parametrize("between", ["clamp", "reshape", "both"])
def test_columns_are_taken_of_the_product_itself(between):
    g = SmallGraph(x=((3, 5, 16), "f32"))
    y = g("gemm", g.args["x"], weight(g, "w", 16, 24))
    y = y if between == "reshape" else g("clamp", y, lo=-0.5, hi=0.5)
    y = y if between == "clamp" else g("reshape", y, shape=(1, 3, 5, 24))
    lead = y.shape[:-1]
    parts = {n: g("slice", y, start=(*[0] * len(lead), a), size=(*lead, b - a), step=(1,) * (len(lead) + 1))
             for n, a, b in (("q", 0, 16), ("k", 16, 20), ("v", 20, 24))}  # fmt: skip
    left = lifted(g.done(**parts), LiftViews(), CanonicalForm())
    assert left.count("gemm") == 3 and "slice" not in left


@pytest.mark.parametrize("reason", ["they overlap", "all is read too"])
def test_columns_that_stay_behind(reason):
    g = SmallGraph(x=((3, 5, 16), "f32"))
    y = g("clamp", g("gemm", g.args["x"], weight(g, "w", 16, 24)), lo=-0.5, hi=0.5)
    a, b = (g("slice", y, start=(0, 0, s), size=(3, 5, 13), step=(1,) * 3) for s in (0, 11))
    rest = {"z": g("relu", y)} if reason == "all is read too" else {}
    assert lifted(g.done(a=a, b=b, **rest), LiftViews()).count("clamp") == 1


WRITTEN = {
    "all": ([range(3), range(3, 5)], True),
    "the last first": ([range(3, 5), range(3)], True),
    "from the end": ([range(3), range(-2, 0)], True),
    "some twice": ([range(4), range(3, 5)], False),
    "one is missing": ([range(3), range(4, 5)], False),
    "not in order": ([(1, 0, 2), range(3, 5)], False),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_rows_that_are_all_written(case):
    ranges, whole = WRITTEN[case]
    g = SmallGraph(x=((5, 2, 3), "f32"), a=((len(ranges[0]), 2, 3), "f32"), b=((len(ranges[1]), 2, 3), "f32"))
    y = g.args["x"]
    for name, places in zip("ab", ranges):
        y = g("scatter_nd", y, constant(g, np.array(places)[:, None], I64), g.args[name], combine="set")
    assert ("concat" in lifted(g.done(y=y), LiftViews())) is whole


def test_rows_that_are_added_are_no_parts():
    g = SmallGraph(x=((4, 3), "f32"), a=((2, 3), "f32"))
    y = g.args["x"]
    for places in ([[0], [1]], [[2], [3]]):
        y = g("scatter_nd", y, constant(g, places, I64), g.args["a"], combine="add")
    assert lifted(g.done(y=y), LiftViews()).count("scatter_nd") == 2


def test_halves_that_turn_each_other_stay_in_one_product():
    g = SmallGraph(x=((2, 5, 16), "f32"), c=((5, 1, 4), "f32"))
    y = g("reshape", g("gemm", g.args["x"], weight(g, "w", 16, 32)), shape=(2, 5, 4, 8))
    a, b = (g("slice", y, start=(0, 0, 0, s), size=(2, 5, 4, 4), step=(1,) * 4) for s in (0, 4))
    turned = [g("mul", v, g.args["c"]) for v in (a, b, a, b)]
    program = g.done(y=g("sub", *turned[:2]), z=g("add", *turned[2:]))
    assert lifted(program, LiftViews()).count("gemm") == 1
