"""Shardings: published counts and orders, and kernel = twin."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tx8fast import _kernels
from tx8fast._kernels.reference import shard_enum as twin
from tx8fast.errors import InternalError


def run_kernel(*args, **options):
    vectors, eff, factor = _kernels.enumerate_shardings(*args, **options)
    return [tuple(row) for row in vectors.tolist()], eff.tolist(), factor.tolist()


@pytest.mark.parametrize("enumerate_", [run_kernel, twin.enumerate_shardings])
def test_levels_of_the_documented_shape(enumerate_) -> None:
    vectors, eff, factor = enumerate_((3, 4, 128, 4096), (1, 1, 1, 64), 16)
    assert len(vectors) == 36
    assert Counter(factor) == {4: 21, 3: 9, 2: 4, 1: 1, 0: 1}
    assert Counter(eff) == {16: 21, 12: 6, 8: 3, 6: 3, 4: 1, 3: 1, 1: 1}
    assert vectors[:3] == [(1, 1, 1, 16), (1, 1, 2, 8), (1, 1, 4, 4)]
    assert vectors[20] == (2, 4, 2, 1)
    twelve = [(4, 1, 1, 4), (4, 1, 2, 2), (4, 1, 4, 1), (4, 2, 1, 2), (4, 2, 2, 1), (4, 4, 1, 1)]
    assert vectors[21:27] == twelve
    assert vectors[27:30] == [(1, 8, 1, 2), (1, 8, 2, 1), (2, 8, 1, 1)]
    assert vectors[30:] == [
        (8, 1, 1, 2), (8, 1, 2, 1), (8, 2, 1, 1), (1, 16, 1, 1), (16, 1, 1, 1), (1, 1, 1, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "tiles", "count", "histogram", "first"),
    [
        ((4, 112, 2, 129), 16, 35, {16: 12, 12: 5, 8: 8, 6: 4, 4: 4, 3: 1, 2: 1}, (1, 4, 2, 2)),
        ((1, 1, 1, 1000), 16, 35, {16: 1, 8: 3, 4: 6, 2: 10, 1: 15}, (1, 1, 1, 16)),
        ((1, 64, 56, 56), 16, 35, {16: 5, 8: 8, 4: 9, 2: 8, 1: 5}, (1, 1, 16, 1)),
        ((2, 1024, 1024), 16, 15, {16: 9, 8: 3, 4: 2, 2: 1}, (1, 1, 16)),
        ((1, 1024, 1024), 16, 15, {16: 5, 8: 4, 4: 3, 2: 2, 1: 1}, (1, 1, 16)),
        ((5, 7), 6, 4, {5: 1, 3: 1, 2: 1, 1: 1}, (6, 1)),
    ],
)
def test_six_more_shapes(shape, tiles, count, histogram, first) -> None:
    channels = 64 if shape[-1] >= 64 else 1 << (max(4, shape[-1]) - 1).bit_length()
    pairs = list(zip(*run_kernel(shape, (*(1,) * (len(shape) - 1), channels), tiles), strict=True))
    assert pairs[0][0] == first
    cut = [e for v, e, _ in pairs if math.prod(v) > 1]
    assert len(cut) == count
    assert len(pairs) == count + 1
    assert Counter(cut) == histogram
    factors = [factor for *_, factor in pairs]
    assert factors == sorted(factors, reverse=True) and {*factors} == {int(math.log2(e)) for _, e, _ in pairs}


def test_a_limit_drops_vectors() -> None:
    assert run_kernel((8, 1024), (1, 64), 16, (1, 16))[0] == [(1, 16), (1, 1)]


def test_ties_turn_round_with_n_first() -> None:
    (ascending, _, factor), turned = (
        run_kernel((16, 16, 16), (1, 1, 1), 4, n_first=n_first) for n_first in (False, True)
    )
    first = factor.count(factor[0])
    assert turned[0][:first] == ascending[:first][::-1]


@given(
    st.lists(st.tuples(st.integers(0, 300), st.sampled_from([1, 4, 64]), st.integers(1, 64)), max_size=4),
    st.sampled_from([1, 2, 4, 6, 12, 16, 36, 64]),
    st.booleans(),
)
def test_kernel_equals_twin(dims, n_parts: int, n_first: bool) -> None:
    shape, base, limit = ([d[i] for d in dims] for i in range(3))
    for bound in (None, limit):
        expected = twin.enumerate_shardings(shape, base, n_parts, bound, n_first)
        assert run_kernel(shape, base, n_parts, bound, n_first) == expected


def test_kernel_equals_twin_on_a_thousand_drawn_shapes() -> None:
    rng = np.random.default_rng(5)
    for _ in range(1000):
        rank = int(rng.integers(0, 6))
        shape, limit = rng.integers(0, 300, rank).tolist(), rng.integers(1, 65, rank).tolist()
        base = rng.choice([1, 4, 64], rank).tolist()
        n_parts, n_first = int(rng.choice([1, 2, 4, 6, 12, 16, 36])), bool(rng.integers(2))
        expected = twin.enumerate_shardings(shape, base, n_parts, limit, n_first)
        assert run_kernel(shape, base, n_parts, limit, n_first) == expected


def test_more_vectors_than_the_first_guess() -> None:
    vectors, _, _ = _kernels.enumerate_shardings((1 << 20,) * 5, (1,) * 5, 256)
    assert len(vectors) == math.comb(8 + 4, 4) + 1
    assert len(np.unique(vectors, axis=0)) == len(vectors)


@pytest.mark.parametrize(
    ("shape", "base", "parts", "text"),
    [
        ((4,), (1, 1), 4, "differ in length"),
        ((4,), (0,), 4, "base and limit"),
        ((4,), (1,), 0, "n_parts is 0"),
        ((-4,), (1,), 4, "negative length"),
        ((4.5,), (1,), 4, "integers required"),
        ((1,) * 17, (1,) * 17, 2, "rank 17"),
    ],
)
def test_bad_arguments_are_refused(shape, base, parts: int, text: str) -> None:
    with pytest.raises(InternalError, match=text):
        _kernels.enumerate_shardings(shape, base, parts)
