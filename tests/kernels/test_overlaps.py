"""Rows that run at the same time: kernel against twin, and what its door refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tx8fast._kernels import number_pairs, overlapping, stretched
from tx8fast._kernels._facade_overlaps import FEW
from tx8fast._kernels.reference import overlaps as twin
from tx8fast.errors import InternalError

LANES = 3
SMALL = st.integers(0, 5)
#: of a lane: cycles of rest, cycles of a row, its form
LANE = st.lists(st.tuples(SMALL, SMALL, st.integers(0, 3)), max_size=8)


def columns(lanes):
    """Return start, end, lane and form of the rows of some lanes, which are mixed as a program mixes them; every lane has a row
    of no lane beside it."""
    rows = []
    for k, own in enumerate(lanes):
        at = 0
        for number, (rest, cycles, form) in enumerate(own):
            rows.append((number, at + rest, at + rest + cycles, k, form))
            at += rest + cycles
        rows.append((len(own), at, at + 7, -1, 0))
    return np.array([r[1:] for r in sorted(rows)], np.int64).T


def compare(lanes, shares):
    start, end, lane, form = columns(lanes)
    found = overlapping(start, end, lane.astype(np.int32), form.astype(np.int32), len(lanes))
    expected = twin.overlapping(start.tolist(), end.tolist(), lane.tolist(), form.tolist(), len(lanes))
    assert (found.knots.tolist(), found.state.tolist(), [tuple(s) for s in found.sets.tolist()]) == expected
    speed = np.array([[shares[(7 * i + k) % len(shares)] for k in range(len(lanes))] for i in range(len(found.sets))])
    speed = speed.reshape(-1, len(lanes))
    counts = np.where(end > start, lane, -1).astype(np.int32)
    work = end - start
    cycles = stretched(start, counts, work, found, speed)
    given = (start.tolist(), counts.tolist(), work.tolist(), found.knots.tolist(), found.state.tolist())
    assert cycles.tolist() == twin.stretched(*given, speed.tolist())


@settings(max_examples=150, deadline=None)
@given(
    st.lists(LANE, min_size=LANES, max_size=LANES),
    st.lists(st.sampled_from([1.0, 0.5, 1 / 3, 0.8, 0.01]), min_size=1, max_size=9),
)
def test_kernel_and_twin_agree(lanes, shares):
    compare(lanes, shares)


def test_more_sets_than_there_is_room_for_at_first():
    compare([[(0, 1, k) for k in range(FEW + 5)], [(3, 2000, 1)]], [0.5, 1.0])


def test_a_row_at_half_speed_takes_twice_as_long_and_goes_on_at_full_speed_behind_the_others():
    start, end, lane = np.array([0, 0]), np.array([10, 6]), np.array([0, 1], np.int32)
    found = overlapping(start, end, lane, lane, 2)
    assert found.knots.tolist() == [0, 6, 10] and found.sets.tolist() == [[0, 1], [0, -1]]
    assert stretched(start, lane, end, found, np.array([[0.5, 0.5], [1.0, 1.0]])).tolist() == [13, 9]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.sampled_from([-(1 << 40), 0, 1, 1 << 60]))))
def test_pairs_are_numbered_as_they_turn_up(pairs):
    a, b = np.array(pairs, np.int64).reshape(-1, 2).T
    first, which = number_pairs(a, b)
    assert (first.tolist(), which.tolist()) == twin.number_pairs(a.tolist(), b.tolist())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"lane": [0, 2]}, "lane out of range"),
        ({"end": [1]}, "differ in length"),
        ({"start": [-1, 0]}, "time out of range"),
        ({"form": [-1, 0]}, "form out of range"),
    ],
)
def test_bad_rows_are_refused(change, text):
    given = {"start": [0, 0], "end": [4, 5], "lane": [0, 1], "form": [0, 0]} | change
    start, end, lane, form = (np.array(given[k], np.int64) for k in ("start", "end", "lane", "form"))
    with pytest.raises(InternalError, match=text):
        overlapping(start, end, lane.astype(np.int32), form.astype(np.int32), 2)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"speed": [[1.0]]}, "speed is not"),
        ({"speed": [[-1.0, 1.0]]}, "below 0"),
        ({"start": [0, 9]}, "or behind the last one"),
        ({"lane": [0]}, "differ in length"),
    ],
)
def test_bad_speeds_are_refused(change, text):
    found = overlapping(np.array([0]), np.array([4]), np.zeros(1, np.int32), np.zeros(1, np.int32), 2)
    given = {"start": [0, 0], "lane": [0, 1], "work": [4, 4], "speed": [[1.0, 1.0]]} | change
    with pytest.raises(InternalError, match=text):
        stretched(np.array(given["start"]), np.array(given["lane"], np.int32), np.array(given["work"]), found,
                  np.array(given["speed"]))  # fmt: skip


def test_columns_of_pairs_have_one_length():
    with pytest.raises(InternalError, match="differ in length"):
        number_pairs(np.zeros(2, np.int64), np.zeros(1, np.int64))
