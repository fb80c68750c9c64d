"""Exact placement: feasible exactly from the twin's minimum height on, whatever the preference order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tx8fast import _kernels
from tx8fast._kernels.reference import pack as twin
from tx8fast.errors import InternalError

ITEMS = st.lists(
    st.tuples(st.integers(0, 8), st.integers(1, 6), st.integers(1, 9)), min_size=1, max_size=6
)


@given(ITEMS, st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_kernel_finds_the_minimum_height_and_proves_it(rows, random) -> None:
    start = [lo for lo, _, _ in rows]
    end = [lo + d for lo, d, _ in rows]
    size = [s for _, _, s in rows]
    order = list(range(len(rows)))
    random.shuffle(order)
    height = twin.minimum_height(start, end, size)
    offsets, proven, nodes = _kernels.pack_exact(start, end, size, order, height, 1_000_000)
    assert offsets is not None and proven and nodes <= 1_000_000
    assert max(o + s for o, s in zip(offsets, size)) <= height
    for i in range(len(rows)):
        for k in range(i):
            alive = start[i] < end[k] and start[k] < end[i]
            apart = offsets[i] + size[i] <= offsets[k] or offsets[k] + size[k] <= offsets[i]
            assert apart or not alive
    below = _kernels.pack_exact(start, end, size, order, height - 1, 1_000_000)
    assert below[0] is None and below[1]


def test_a_spent_budget_proves_nothing() -> None:
    columns = ([0, 0, 0], [1, 1, 1], [1, 2, 3], [0, 1, 2])
    assert _kernels.pack_exact(*columns, 6, 1)[:2] == (None, False)
    assert _kernels.pack_exact(*columns, 6, 0) == (None, False, 0)
    assert _kernels.pack_exact([], [], [], [], 0, 10)[1:] == (True, 0)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (([0], [0], [1], [0]), "empty or reversed"),
        (([0], [1], [0], [0]), "positive"),
        (([0], [1], [1], [1]), "permutation"),
        (([0, 0], [1, 1], [1, 1], [0, 0]), "permutation"),
        (([0], [1], [1], []), "differ in length"),
        (([0] * 2001, [1] * 2001, [1] * 2001, list(range(2001))), "at most 2000"),
    ],
)
def test_bad_arguments_are_refused(columns, text: str) -> None:
    with pytest.raises(InternalError, match=text):
        _kernels.pack_exact(*columns, 10, 10)
