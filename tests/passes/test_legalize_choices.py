"""Choices among many elements of few rows, in parts: the same places, also of equal and of undefined elements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from passes.lift_check import lifted
from support.small_graph import SmallGraph

from tx8fast.passes import legalize_choices
from tx8fast.passes.dce import Dce
from tx8fast.passes.fold_constants import FoldConstants
from tx8fast.passes.legalize import Legalize


@pytest.fixture(autouse=True)
def small(monkeypatch) -> None:
    """Whatever the size."""
    for name, n in (("LEAST", legalize_choices.TILES + 1), ("LEAST_SORTED", 1), ("FEWER", 1)):
        monkeypatch.setattr(legalize_choices, name, n)


shapes = st.tuples(st.lists(st.integers(1, 4), max_size=2), st.integers(17, 90)).map(lambda t: (*t[0], t[1]))


def elements(data, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Few different ones, of floats also those that are infinite or undefined."""
    few = [-3, -1, 0, 1, 2] if dtype == "i32" else [-np.inf, -1.5, 0.0, 1.5, np.inf, np.nan]
    seed = data.draw(st.integers(0, 1 << 20))
    which = data.draw(st.lists(st.sampled_from(few), min_size=1, max_size=4))
    return np.random.default_rng(seed).choice(np.array(which), shape).astype(np.int32 if dtype == "i32" else np.float32)


def in_parts(data, g: SmallGraph, shape: tuple[int, ...], dtype: str, **results) -> list[str]:
    """Return the kinds of ops left of a graph that gives the same before and after."""
    passes, x = (Legalize(), FoldConstants(), Dce()), elements(data, shape, dtype)
    return lifted(g.done(**results), *passes, inputs={"x": x}, tolerance=0)


@given(st.data(), shapes, st.sampled_from(["f32", "i32"]), st.booleans(), st.booleans(), st.booleans())
def test_extremes(data, shape, dtype: str, least: bool, keepdims: bool, last: bool) -> None:
    g = SmallGraph(x=(shape, dtype))
    how = {
        "op": "min" if least else "max",
        "keepdims": keepdims,
        "select_last": last,
        "axis": data.draw(st.sampled_from([-1, len(shape) - 1])),
    }
    made = in_parts(data, g, shape, dtype, y=g("arg_reduce", g.args["x"], **how))
    rows = int(np.prod(shape[:-1]))
    cut = rows <= 8 and not (last and shape[-1] % 16) and (dtype == "f32" or shape[-1] % (16 // rows) == 0)
    assert made.count("arg_reduce") == 1 + cut


@given(st.data(), shapes, st.sampled_from(["f32", "i32"]), st.booleans())
def test_first_ones(data, shape, dtype: str, largest: bool) -> None:
    k = data.draw(st.integers(1, (shape[-1] - 1) // 16))
    g = SmallGraph(x=(shape, dtype))
    best, places = g.op("topk", g.args["x"], k=k, largest=largest).results
    made = in_parts(data, g, shape, dtype, y=best, z=places)
    rows = int(np.prod(shape[:-1]))
    assert made.count("topk") == 1 + (rows <= 8 and (dtype == "f32" or shape[-1] % (16 // rows) == 0))


def test_other_dimensions_and_many_rows_stay() -> None:
    for shape, axis in (((64, 3), 0), ((9, 64), 1)):
        g = SmallGraph(x=(shape, "f32"))
        made = lifted(g.done(y=g("arg_reduce", g.args["x"], op="max", axis=axis)), Legalize(), tolerance=0)
        assert made == ["arg_reduce"]
