"""List scheduling: kernel = twin on random rows, what it promises, refused arguments."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.test_weave import csr, lists
from tx8fast import _kernels
from tx8fast._kernels.reference import list_schedule as twin
from tx8fast.errors import InternalError

DEPTH = (6, 6, 6, 6, 4)


def drawn_ranges(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    start = rng.integers(0, 40, (n, 4))
    spans = np.stack([start, start + rng.integers(0, 6, (n, 4))], 2)
    return spans[:, :2], spans[:, 2:]


def must_follow(read: np.ndarray, write: np.ndarray) -> list[set[int]]:
    """All rows with which a row has a byte in common that one of them writes."""
    bytes_of = [[{b for s, e in row for b in range(s, e)} for row in x.tolist()] for x in (read, write)]
    own = list(zip(*bytes_of, strict=True))
    return [
        {i for i in range(j) if own[i][1] & (own[j][0] | own[j][1]) or own[i][0] & own[j][1]} for j in range(len(own))
    ]


def agree(rng: np.random.Generator) -> None:
    n = int(rng.integers(0, 25))
    read, write = drawn_ranges(rng, n)
    before = _kernels.byte_dependences(read, write)
    want = twin.byte_dependences(read.tolist(), write.tolist())
    assert [sorted(row) for row in lists(before)] == want
    engine, issue, cycles = rng.integers(0, 5, n), rng.integers(0, 4, n), rng.integers(0, 30, n)
    depth = rng.integers(1, 7, 5).tolist()
    order, begin = _kernels.list_order(engine, issue, cycles, before, depth)
    assert (order.tolist(), begin.tolist()) == twin.list_order(
        engine.tolist(), issue.tolist(), cycles.tolist(), want, depth
    )
    place = {row: at for at, row in enumerate(order.tolist())}
    assert sorted(place) == list(range(n))
    assert all(place[i] < place[j] for j, old in enumerate(must_follow(read, write)) for i in old)


@given(st.integers(0, 1 << 32))
def test_kernel_equals_twin(seed) -> None:
    agree(np.random.default_rng(seed))


def test_kernel_equals_twin_on_many_drawn_problems() -> None:
    rng = np.random.default_rng(7)
    for _ in range(500):
        agree(rng)


def test_an_engine_gets_what_it_can_start() -> None:
    """Engine 1 waits for engine 0; the row behind its own waiting one does not, and goes first."""
    order, begin = _kernels.list_order([0, 1, 1], [1, 1, 1], [50, 10, 10], csr([[], [0], []]), DEPTH)
    assert order.tolist() == [0, 2, 1] and begin.tolist() == [1, 2, 51]


def test_a_full_queue_holds_up_the_core() -> None:
    order, begin = _kernels.list_order([0] * 4, [1] * 4, [10] * 4, csr([[]] * 4), (1, 1, 1, 1, 1))
    assert order.tolist() == [0, 1, 2, 3] and begin.tolist() == [1, 11, 21, 31]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cycles": [1]}, "2 issues and 1 cycles for 2 rows"),
        ({"before": ([0, 1, 1], [1])}, "a row follows a later one"),
        ({"before": ([0, 0], [])}, "ptr does not partition"),
        ({"engine": [0, 5]}, "engines must be below 5"),
        ({"issue": [0, -1]}, "negative cycles"),
        ({"depth": (6, 6, 6, 6, 16)}, "queue depths out of range"),
    ],
)
def test_broken_arguments_are_refused(change, message) -> None:
    good = {"engine": [0, 1], "issue": [1, 1], "cycles": [1, 1], "before": csr([[], [0]]), "depth": DEPTH}
    with pytest.raises(InternalError, match=message):
        _kernels.list_order(**{**good, **change})


def test_ranges_must_be_pairs() -> None:
    with pytest.raises(InternalError, match="ranges must be"):
        _kernels.byte_dependences(np.zeros((2, 1, 3), int), np.zeros((2, 1, 2), int))
