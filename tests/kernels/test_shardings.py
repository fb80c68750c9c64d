"""Shardings and splits: published counts and orders, and kernel = twin."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tx8fast import _kernels
from tx8fast._kernels.reference import shard_enum as twin
from tx8fast.errors import InternalError
from tx8fast.search.space import alignment_base, next_split, shardings, split_states


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
    levels = shardings(shape, tiles)
    pairs = [
        (vector, eff) for level in levels for vector, eff in zip(level.shardings, level.effective_tiles, strict=True)
    ]
    assert pairs[0][0] == first
    cut = [(v, e) for v, e in pairs if math.prod(v) > 1]
    assert len(cut) == count
    assert len(pairs) == count + 1
    assert Counter(e for _, e in cut) == histogram
    assert [level.factor for level in levels] == sorted({int(math.log2(e)) for _, e in pairs})[::-1]


def test_limit_and_legality_drop_vectors() -> None:
    levels = shardings((8, 1024), 16, limit=(1, 16))
    assert [v for level in levels for v in level.shardings] == [(1, 16), (1, 1)]
    refused = shardings((8, 1024), 16, legal=lambda v: v[1] == 1)
    assert [v for level in refused for v in level.shardings] == [(16, 1), (1, 1)]
    assert shardings((8, 1024), 16, legal=lambda v: False) == ()


def test_ties_turn_round_with_n_first() -> None:
    ascending = shardings((16, 16, 16), 4, align_channels=False)[0].shardings
    assert shardings((16, 16, 16), 4, align_channels=False, n_first=True)[0].shardings == ascending[::-1]


@pytest.mark.parametrize(
    ("length", "block", "base"),
    [
        (1, 64, 4),
        (4, 64, 4),
        (5, 64, 8),
        (56, 64, 64),
        (64, 64, 64),
        (1000, 64, 64),
        (100, 128, 128),
    ],
)
def test_alignment_base(length: int, block: int, base: int) -> None:
    assert alignment_base(length, block) == base


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


def test_split_sequences_of_the_documented_shard() -> None:
    shard, minimum = (3, 4, 128, 256), (1, 1, 1, 64)
    forward = list(split_states(shard, minimum, n_first=True))
    assert forward == [
        (1, 1, 1, 1), (2, 1, 1, 1), (3, 1, 1, 1), (3, 2, 1, 1), (3, 4, 1, 1), (3, 4, 2, 1), (3, 4, 4, 1),
        (3, 4, 8, 1), (3, 4, 16, 1), (3, 4, 32, 1), (3, 4, 64, 1), (3, 4, 128, 1), (3, 4, 128, 2),
        (3, 4, 128, 4),
    ]  # fmt: skip
    backward = list(split_states(shard, minimum))
    assert backward[:5] == [(1, 1, 1, 1), (1, 1, 1, 2), (1, 1, 1, 4), (1, 1, 2, 4), (1, 1, 4, 4)]
    assert backward[-5:] == [
        (1, 1, 128, 4), (1, 2, 128, 4), (1, 4, 128, 4), (2, 4, 128, 4), (3, 4, 128, 4),
    ]  # fmt: skip
    assert len(backward) == 14


@given(
    st.lists(st.tuples(st.integers(1, 500), st.sampled_from([1, 8, 64])), min_size=1, max_size=4),
    st.booleans(),
)
def test_split_states_grow_and_their_number_is_known(dims, n_first: bool) -> None:
    shard, minimum = [d[0] for d in dims], [d[1] for d in dims]
    most = [-(-length // least) for length, least in dims]
    states = list(split_states(shard, minimum, n_first))
    assert len(states) == 1 + sum((m - 1).bit_length() for m in most)
    assert states[-1] == tuple(most)
    assert all(a != b and all(x <= y for x, y in zip(a, b)) for a, b in zip(states, states[1:]))


def test_forbidden_dimensions_stay_uncut() -> None:
    assert next_split((1, 1), (8, 256), (1, 64), allowed=(True, False)) == (2, 1)
    assert next_split((8, 1), (8, 256), (1, 64), allowed=(True, False)) is None
