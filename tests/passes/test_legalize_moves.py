"""Borders of copies, tensors turned round, and choices along any dimension are slices and rows of tables, with the same elements."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from passes.lift_check import constant, lifted
from support.small_graph import SmallGraph

from tx8fast.passes import legalize_moves
from tx8fast.passes.dce import Dce
from tx8fast.passes.fold_constants import FoldConstants
from tx8fast.passes.legalize import Legalize


@pytest.fixture(autouse=True)
def small(monkeypatch) -> None:
    """Whatever the size, and looked up beyond three pieces."""
    for name, n in (("FEW", 1), ("MOST_PIECES", 3), ("LEAST_ROW", 4)):
        monkeypatch.setattr(legalize_moves, name, n)


shapes = st.lists(st.integers(1, 7), min_size=1, max_size=4).map(tuple)


@given(st.data(), shapes, st.sampled_from(["reflect", "edge", "wrap"]))
def test_borders(data, shape: tuple[int, ...], mode: str) -> None:
    most = [n - 1 if mode == "reflect" else 9 for n in shape]
    lo, hi = (tuple(data.draw(st.integers(0, m)) for m in most) for _ in range(2))
    g = SmallGraph(x=(shape, "f32"))
    made = lifted(
        g.done(y=g("pad", g.args["x"], lo=lo, hi=hi, mode=mode)), Legalize(), FoldConstants(), Dce(), tolerance=0
    )
    assert "pad" not in made and "iota" not in made


@given(st.data(), shapes)
def test_turned_round(data, shape: tuple[int, ...]) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    start, size, step = [], [], []
    for i, n in enumerate(shape):
        by = data.draw(st.integers(1, 3)) * (-1 if i == axis else 1)
        first = data.draw(st.integers(0, n - 1))
        start.append(first)
        size.append(data.draw(st.integers(1, 1 + (first if by < 0 else n - 1 - first) // abs(by))))
        step.append(by)
    g = SmallGraph(x=(shape, "f32"))
    y = g("slice", g.args["x"], start=tuple(start), size=tuple(size), step=tuple(step))
    lifted(g.done(y=y), Legalize(), FoldConstants(), Dce(), tolerance=0)


@given(st.data(), shapes, st.booleans())
def test_choices_along_any_dimension(data, shape: tuple[int, ...], known: bool) -> None:
    """Negative places count from the end."""
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    n = shape[axis]
    many = data.draw(st.sampled_from([(), (1,), (5,), (2, 3)]))
    ids = np.array(
        data.draw(st.lists(st.integers(-n, n - 1), min_size=6, max_size=6))[: int(np.prod(many))], np.int64
    ).reshape(many)
    g = SmallGraph(x=(shape, "f32"), i=(many, "i64"))
    if known:
        g = SmallGraph(x=(shape, "f32"))
    y = g("gather", g.args["x"], constant(g, ids, np.int64) if known else g.args["i"], axis=axis)
    lifted(g.done(y=y), Legalize(), FoldConstants(), Dce(), inputs={} if known else {"i": ids}, tolerance=0)


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("k", [-2, 0, 1, 9])
def test_triangles(upper: bool, k: int) -> None:
    g = SmallGraph(x=((2, 4, 6), "f32"))
    made = lifted(g.done(y=g("trilu", g.args["x"], k=k, upper=upper)), Legalize(), FoldConstants(), Dce(), tolerance=0)
    assert made == ["select"]


def test_few_elements_stay_with_the_kernel_core(monkeypatch) -> None:
    monkeypatch.undo()
    g = SmallGraph(x=((4, 6), "f32"))
    assert lifted(g.done(y=g("pad", g.args["x"], lo=(1, 1), hi=(1, 1), mode="edge")), Legalize()) == ["pad"]
