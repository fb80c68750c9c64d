"""Matrix products of f32: kernel = one sum after the other, whatever the width, and refused arguments."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tx8fast import _kernels
from tx8fast._kernels.reference import product as twin
from tx8fast.errors import InternalError

WIDTHS = sorted({2, _kernels.MOST_LANES})


def bits(x) -> list:
    """Patterns of an array, every NaN alike."""
    x = np.asarray(x, np.float32)
    return np.where(np.isnan(x), np.float32(np.nan), x).view(np.uint32).tolist()


@st.composite
def operands(draw):
    m, k, n = draw(st.integers(0, 9)), draw(st.integers(0, 12)), draw(st.integers(0, 19))
    number = st.one_of(st.sampled_from([0.0, -0.0, 1.0, 2.0**24, -(2.0**24), 1e-45, 3e38, np.inf, np.nan]),
                       st.floats(width=32))  # fmt: skip
    flat = [draw(st.lists(number, min_size=size, max_size=size)) for size in (m * k, k * n)]
    a, b = (np.array(x, np.float32).reshape(s) for x, s in zip(flat, ((m, k), (k, n))))
    # as instructions have them: views that lie transposed
    return np.ascontiguousarray(a.T).T if draw(st.booleans()) else a, b


@pytest.mark.parametrize("lanes", WIDTHS)
@given(operands())
def test_product_equals_the_sums_one_after_the_other(lanes, given_) -> None:
    a, b = given_
    want = twin.product(a.tolist(), b.tolist(), b.shape[1])
    assert bits(_kernels.single_product(a, b, lanes)) == bits(np.reshape(want, (len(a), b.shape[1])))


@pytest.mark.parametrize("lanes", WIDTHS)
def test_equal_columns_give_equal_sums(lanes) -> None:
    rng = np.random.default_rng(0)
    a, column = (rng.standard_normal(s).astype(np.float32) for s in ((7, 1000), (1000, 1)))
    got = _kernels.single_product(a, np.repeat(column, 43, axis=1), lanes)
    assert (got == got[:, :1]).all()
    exact = a.astype(np.float64) @ column.astype(np.float64)
    assert np.array_equal(got[:, :1], exact.astype(np.float32))


@pytest.mark.parametrize(
    "a, b, lanes",
    [(np.zeros((2, 3)), np.zeros((3, 2)), 2), (np.zeros((2, 3), "f4"), np.zeros((2, 3), "f4"), 2),
     (np.zeros((2, 3), "f4"), np.zeros((3, 2), "f4"), 3), (np.zeros(3, "f4"), np.zeros((3, 2), "f4"), 2)],
)  # fmt: skip
def test_bad_arguments_are_refused(a, b, lanes) -> None:
    with pytest.raises(InternalError, match="product"):
        _kernels.single_product(a, b, lanes)
