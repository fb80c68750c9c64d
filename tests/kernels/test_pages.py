"""DDR pages of strided transfers: kernel = run by run, and bad arguments."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tx8fast import _kernels
from tx8fast._kernels.reference import pages as twin
from tx8fast.errors import InternalError

STRIDES = st.one_of(st.sampled_from([0, 6, 128, 262, 4096, 5000, 9000, 40000]), st.integers(0, 20000))
SIZES = st.one_of(st.sampled_from([1, 6, 128, 4000, 4096, 9000]), st.integers(1, 10000))
LEVEL = st.tuples(STRIDES, st.integers(0, 7))
TRANSFERS = st.lists(st.tuples(st.integers(0, 1 << 36), SIZES, LEVEL, LEVEL, LEVEL), max_size=8)


@given(TRANSFERS, st.sampled_from([1, 64, 4096, 5000]))
def test_pages_equal_run_by_run_count(transfers, page) -> None:
    start = [t[0] for t in transfers]
    runs = [[t[1], *t[2], *t[3], *t[4]] for t in transfers]
    got = _kernels.extra_pages(start, np.array(runs, np.int64).reshape(-1, 7), page)
    assert got.tolist() == twin.extra_pages(start, runs, page)


def test_runs_of_the_longest_level_cost_nothing() -> None:
    # 2 bytes every 6: three million runs in rows of a thousand, each row three bytes behind the one before
    row = [2, 6, 1_000_000, 3, 3, 0, 1]
    assert _kernels.extra_pages([0], [row], 4096).tolist() == twin.extra_pages([0], [row], 4096)


@pytest.mark.parametrize("row", [[64, 0, -1, 0, 1, 0, 1], [64, 0, 1 << 26, 0, 1, 0, 1], [64, *[1, 1 << 17] * 3]])
def test_counts_out_of_range_are_refused(row) -> None:
    with pytest.raises(InternalError, match="pages"):
        _kernels.extra_pages([0], [row], 4096)


def test_shapes_are_checked() -> None:
    with pytest.raises(InternalError, match=r"\(n, 7\)"):
        _kernels.extra_pages([0], [[64, 0, 1]], 4096)
    with pytest.raises(InternalError, match="page"):
        _kernels.extra_pages([0], [[64, 0, 1, 0, 1, 0, 1]], 0)
