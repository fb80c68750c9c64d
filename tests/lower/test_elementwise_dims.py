"""Dimensions that element-wise code walks as one."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tx8fast.lower.elementwise import merge_dims


@pytest.mark.parametrize("out, operand, wanted", [
    ((4, 1, 3, 5), (1, 1, 3, 5), [[0, 1], [2, 3]]),  # a dimension of one does not join what it stands between
    ((1, 4, 1, 3), (1, 4, 1, 1), [[0, 1, 2], [3]]),
    ((2, 3, 4), (2, 3, 4), [[0, 1, 2]]),
])  # fmt: skip
def test_dense_dimensions(out, operand, wanted):
    assert merge_dims(out, [out, operand], False) == wanted


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans(), st.booleans()), min_size=1, max_size=6), st.booleans())
def test_every_operand_has_a_group_whole_or_not_at_all(dims, blocked):
    out = tuple(n for n, _, _ in dims)
    operands = [out, *(tuple(n if d[i] else 1 for n, *d in dims) for i in (0, 1))]
    for group in merge_dims(out, operands, blocked):
        whole = math.prod(out[d] for d in group)
        assert all(math.prod(s[d] for d in group) in (1, whole) for s in operands)
