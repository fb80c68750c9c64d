"""Gathers at known places become slices where the places lie in order, and stay what they are elsewhere."""

import numpy as np
import pytest
from passes.lift_check import RNG, constant, lifted
from support.small_graph import SmallGraph

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
