"""Slack bubbling: kernel = twin on random steps, what it promises, refused arguments."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tx8fast import _kernels
from tx8fast._kernels.reference import time_steps as twin
from tx8fast.errors import InternalError


def drawn(rng: np.random.Generator, n: int, steps: int, most: int = 30) -> tuple[np.ndarray, ...]:
    step = rng.integers(0, steps, n)
    limit = np.clip(step + rng.integers(-4, 5, n), 0, steps - 1)
    return rng.integers(0, most, n), limit, step, rng.integers(0, 3 * most, steps)


def length(cycles: np.ndarray, step: np.ndarray, computed: np.ndarray) -> int:
    moved = np.bincount(step, cycles, len(computed)) if len(step) else np.zeros(len(computed))
    return int(np.maximum(moved, computed).sum())


@given(st.integers(0, 1 << 32))
def test_kernel_is_its_twin_and_steps_get_no_longer(seed) -> None:
    rng = np.random.default_rng(seed)
    steps = int(rng.integers(1, 9))
    cycles, limit, step, computed = drawn(rng, int(rng.integers(0, 20)), steps, int(rng.choice([2, 30])))
    found = _kernels.bubble(cycles, limit, step, computed)
    assert found.tolist() == twin.bubble(cycles.tolist(), limit.tolist(), step.tolist(), computed.tolist())
    assert (np.minimum(step, limit) <= found).all() and (found <= np.maximum(step, limit)).all()
    assert length(cycles, found, computed) <= length(cycles, step, computed)
    assert length(cycles, found, computed) < length(cycles, step, computed) or (found == step).all()


def test_loads_go_to_the_step_with_room_before_theirs() -> None:
    """Step 2 computes 10 cycles and loads 30; step 0 has room for 20 of them, step 1 for none."""
    assert _kernels.bubble([10, 10, 10], [0, 0, 2], [2, 2, 2], [20, 0, 10]).tolist() == [0, 0, 2]


def test_what_is_met_on_the_way_goes_on() -> None:
    """A store on its way to step 2 stays in step 1, where another one takes over."""
    assert _kernels.bubble([10, 10], [2, 2], [0, 1], [0, 10, 10]).tolist() == [1, 2]


def test_arguments_are_checked() -> None:
    with pytest.raises(InternalError, match="out of range"):
        _kernels.bubble([1], [2], [0], [5, 5])
    with pytest.raises(InternalError, match="negative cycles"):
        _kernels.bubble([-1], [0], [0], [5])
    with pytest.raises(InternalError, match="2 limits"):
        _kernels.bubble([1], [0, 0], [0], [5])
