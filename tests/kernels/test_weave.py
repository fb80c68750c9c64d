"""The order of instructions: kernel = twin on random ones, what it promises, refused arguments."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tx8fast import _kernels
from tx8fast._kernels.reference import weave as twin
from tx8fast.errors import InternalError


def csr(rows) -> tuple[np.ndarray, np.ndarray]:
    return np.cumsum([0, *map(len, rows)]), np.array([x for row in rows for x in row], np.int64)


def lists(pair) -> list[list[int]]:
    ptr, values = pair
    return [values[a:b].tolist() for a, b in zip(ptr[:-1], ptr[1:], strict=True)]


def drawn(rng: np.random.Generator) -> tuple:
    """Ranges of up to 25 instructions, and what the order needs besides."""
    n, buffers = int(rng.integers(0, 25)), int(rng.integers(1, 9))
    start = rng.integers(0, 30, (n, 3))
    spans = np.stack([start, start + rng.integers(0, 4, (n, 3))], 2)
    spans[spans[..., 0] == spans[..., 1]] = 0
    touches = [sorted(set(rng.integers(0, buffers, rng.integers(0, 4)).tolist())) for _ in range(n)]
    return (spans[:, :2], spans[:, 2:], int(rng.integers(1, 30)), rng.integers(0, 3, n), rng.integers(0, 9, n), touches,
            rng.integers(0, 50, buffers), int(rng.integers(0, 200)))  # fmt: skip


def agree(read, write, reach, engine, cycles, touches, size, budget) -> None:
    before = _kernels.depends(read, write, reach)
    want = twin.depends(read.tolist(), write.tolist(), reach)
    assert lists(before) == want
    order = _kernels.weave_rows(engine, cycles, before, csr(touches), size, reach, budget).tolist()
    assert order == twin.weave(engine.tolist(), cycles.tolist(), want, touches, size.tolist(), reach, budget)
    place = {row: at for at, row in enumerate(order)}
    assert sorted(order) == list(range(len(engine)))
    assert all(place[i] < place[j] for j, old in enumerate(want) for i in old)
    assert all(j - place[j] < reach for j in place)


@given(st.integers(0, 1 << 32))
def test_kernel_equals_twin(seed) -> None:
    agree(*drawn(np.random.default_rng(seed)))


def test_kernel_equals_twin_on_two_thousand_drawn_problems() -> None:
    rng = np.random.default_rng(6)
    for _ in range(2000):
        agree(*drawn(rng))


def test_one_comes_early_where_an_engine_would_wait() -> None:
    """Engine 1 gets its next instruction before engine 0's older one, but not where that would leave no room for the older."""
    before, touches = csr([[], [0], [], [1, 2]]), csr([[0], [0, 1], [2], [2]])

    def order(reach: int, budget: int) -> list[int]:
        return _kernels.weave_rows([0, 0, 1, 1], [10] * 4, before, touches, [100] * 3, reach, budget).tolist()

    assert order(8, 300) == [0, 2, 1, 3]
    assert order(8, 299) == order(1, 300) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cycles": [1]}, "1 cycles for 2 instructions"),
        ({"before": ([0, 1, 1], [1])}, "an instruction follows a later one"),
        ({"before": ([0, 0], [])}, "before: 2 entries of ptr, 3 required"),
        ({"touches": ([0, 1, 1], [5])}, "touches: entry out of range"),
        ({"size_bytes": [-1]}, "negative size"),
        ({"reach": 0}, "a reach below 1"),
        ({"engine": [0, -1]}, "negative engine or cycles"),
    ],
)
def test_broken_arguments_are_refused(change, message) -> None:
    good = {"engine": [0, 1], "cycles": [1, 1], "before": ([0, 0, 0], np.zeros(0, np.int64)),
            "touches": ([0, 1, 1], [0]), "size_bytes": [4], "reach": 1, "budget_bytes": 9}  # fmt: skip
    with pytest.raises(InternalError, match=message):
        _kernels.weave_rows(**{**good, **change})
