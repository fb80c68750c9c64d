"""The search against brute force, on a corpus of generated problems, and on public files with a tight capacity."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.alloc.problems import KINDS, fits, make
from tx8fast.alloc import (
    Buffer,
    Problem,
    find_violations,
    lower_bound_bytes,
    merge_intervals,
    solve,
)
from tx8fast.alloc.problem import read_csv
from tx8fast.errors import AllocationError

CAPACITY = 1048576


@st.composite
def tiny_problems(draw):
    buffers = []
    for i in range(draw(st.integers(1, 7))):
        spans = draw(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 4)), min_size=1, max_size=2))
        lives = merge_intervals((lo, lo + d) for lo, d in spans)
        align = draw(st.sampled_from([1, 1, 2, 3]))
        fixed = None
        if i == 0 and draw(st.booleans()):
            fixed = draw(st.integers(0, 3)) * align
        buffers.append(Buffer(f"b{i}", lives, draw(st.integers(1, 4)), align, fixed))
    return Problem(tuple(buffers))


@given(tiny_problems())
def test_the_minimum_is_the_one_of_brute_force(problem: Problem) -> None:
    placement = solve(problem, effort=100_000)
    assert find_violations(problem, placement.offsets) == []
    assert placement.optimal  # so few buffers are always decided
    assert not fits(problem, placement.peak_bytes - 1)
    tight = Problem(problem.buffers, placement.peak_bytes)
    assert solve(tight, effort=100_000).peak_bytes == placement.peak_bytes
    with pytest.raises(AllocationError, match="no placement can fit"):
        solve(Problem(problem.buffers, placement.peak_bytes - 1), effort=100_000)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("seed", "n"), [(0, 30), (1, 80), (2, 200)])
def test_generated_problems(kind: str, seed: int, n: int) -> None:
    problem = make(kind, seed, n)
    quick = solve(problem)
    placement = solve(problem, effort=20_000)
    assert find_violations(problem, placement.offsets) == []
    assert lower_bound_bytes(problem) <= placement.lower_bound_bytes <= placement.peak_bytes
    assert placement.peak_bytes <= quick.peak_bytes
    assert placement == solve(problem, effort=20_000)
    if kind == "equal_sizes":
        assert placement.optimal


def test_most_generated_problems_are_proven_optimal() -> None:
    proven = [solve(make(kind, 3, 60), effort=20_000).optimal for kind in KINDS if kind != "aligned"]
    assert all(proven)


@pytest.mark.parametrize("name", "ACEGIK")
def test_tight_public_files_are_placed(repo_root, name: str) -> None:
    problem = read_csv(repo_root / f"benchmarks/problems/{name}.1048576.csv", CAPACITY)
    placement = solve(problem, effort=200_000)
    assert find_violations(problem, placement.offsets) == []
    assert placement.peak_bytes <= CAPACITY
    lowest = solve(Problem(problem.buffers), effort=200_000)
    assert lowest.optimal and find_violations(problem, lowest.offsets) == []


def test_a_proof_raises_the_lower_bound() -> None:
    # Two at a time, but each meets both others, so that three different places are needed.
    lives = (((0, 1), (4, 5)), ((0, 1), (2, 3)), ((2, 3), (4, 5)))
    circle = Problem(tuple(Buffer(f"b{i}", spans, 64) for i, spans in enumerate(lives)))
    placement = solve(circle, effort=100)
    assert lower_bound_bytes(circle) == 128
    assert placement.lower_bound_bytes == placement.peak_bytes == 192
    # 3 + 3 bytes, the upper one at the next multiple of 4.
    steps = Problem(tuple(Buffer(f"b{i}", ((0, 1),), 3, 4) for i in range(2)))
    assert solve(steps, effort=100).lower_bound_bytes == 7


def test_independent_stretches_may_add_up_to_more_than_one_search_takes() -> None:
    problem = make("short_stretches", 0, 6000)
    placement = solve(problem, effort=50_000)
    assert find_violations(problem, placement.offsets) == []
    assert placement.optimal


def test_without_effort_nothing_is_searched(monkeypatch) -> None:
    monkeypatch.setattr("tx8fast.alloc.exact.ExactSearch.__init__", None)
    assert solve(make("pipeline", 0, 200)).peak_bytes > 0
