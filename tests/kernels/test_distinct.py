"""The numbering of rows: kernel against twin, and what its door refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tx8fast._kernels import distinct_rows
from tx8fast._kernels.reference.distinct import distinct
from tx8fast.errors import InternalError

#: few of them, some in their high bits alone
WORD = st.sampled_from([0, 1, 2, 1 << 31, 1 << 63, (1 << 64) - 1])
WIDE = st.integers(1, 4).flatmap(lambda w: st.lists(st.lists(WORD, min_size=w, max_size=w), min_size=1, max_size=60))


@settings(max_examples=150, deadline=None)
@given(WIDE, st.data())
def test_kernel_and_twin_agree(words, data):
    kept = data.draw(st.lists(st.integers(0, len(words[0]) - 1), max_size=4))
    salt = data.draw(st.lists(st.integers(-1, 1), min_size=len(words), max_size=len(words)))
    ids, first = distinct_rows(np.array(words, np.uint64), kept, np.array(salt))
    assert (ids.tolist(), first.tolist()) == distinct(words, kept, salt)


def test_many_rows_of_many_kinds():
    words = np.arange(50_000, dtype=np.uint64).reshape(-1, 1) // np.uint64(2)
    ids, first = distinct_rows(words, [0])
    assert (ids == np.arange(50_000) // 2).all() and (first == np.arange(0, 50_000, 2)).all()


def test_no_rows_have_no_numbers():
    ids, first = distinct_rows(np.zeros((0, 3), np.uint64), [0])
    assert len(ids) == len(first) == 0


@pytest.mark.parametrize(
    ("kept", "salt", "text"), [([2], [0, 0], "out of range"), ([-1], [0, 0], "out of range"), ([0], [0], "in length")]
)
def test_the_door_refuses(kept, salt, text):
    with pytest.raises(InternalError, match=text):
        distinct_rows(np.zeros((2, 2), np.uint64), kept, np.array(salt))
