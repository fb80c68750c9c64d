"""The search for stretches of code that repeat themselves: kernel against twin, and what its door refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tx8fast._kernels import find_folds
from tx8fast._kernels.reference.folds import folds
from tx8fast.errors import InternalError

#: a stretch that is repeated, and where its rows move: most random rows repeat nothing
STRETCH = st.tuples(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0, 0, 64])), min_size=1, max_size=4), st.integers(1, 6)
)
CODES = st.lists(STRETCH, min_size=1, max_size=6)


def rows(stretches):
    ids, ddr = [], []
    for body, repeats in stretches:
        for turn in range(repeats):
            ids += [i for i, _ in body]
            ddr += [1000 * i + turn * step for i, step in body]
    return ids, ddr


@settings(max_examples=200, deadline=None)
@given(CODES, st.data(), st.lists(st.integers(1, 9), max_size=6), st.integers(2, 4), st.integers(0, 3))
def test_kernel_and_twin_agree(stretches, data, periods, repeats, saving):
    ids, ddr = rows(stretches)
    few = st.lists(st.integers(0, 9).map(lambda n: n == 0), min_size=len(ids), max_size=len(ids))
    level, taken = [int(x) for x in data.draw(few)], data.draw(few)
    free = [not x for x in taken]
    found = find_folds(
        np.array(ids, np.int32), np.array(ddr), np.array(level), np.array(free), periods, repeats, saving
    )
    assert found == folds(ids, ddr, level, free, periods, repeats, saving)


def test_rows_that_move_on_are_one_stretch():
    n = 12
    found = find_folds(np.zeros(n, np.int32), np.arange(n) * 64, np.zeros(n, int), np.ones(n, bool), [1, 2], 3, 3)
    assert found == [(0, 1, n)]


@pytest.mark.parametrize(("change", "text"), [({"ddr": [0]}, "differ in length"), ({"periods": [0]}, "out of range"), ({"least": 1}, "out of range")])  # fmt: skip
def test_the_door_refuses(change, text):
    of = {"ddr": [0, 0, 0], "periods": [1], "least": 3} | change
    with pytest.raises(InternalError, match=text):
        find_folds(
            np.zeros(3, np.int32),
            np.array(of["ddr"]),
            np.zeros(3, int),
            np.ones(3, bool),
            of["periods"],
            of["least"],
            0,
        )


def test_no_rows_have_no_folds():
    assert find_folds(np.zeros(0, np.int32), np.zeros(0, int), np.zeros(0, int), np.zeros(0, bool), [], 3, 3) == []
