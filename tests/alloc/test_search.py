"""The search against brute force, on a corpus of generated problems, and on public files with a tight capacity."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.alloc.problems import KINDS, fits, make
from tx8fast.alloc import Buffer, Problem, find_violations, lower_bound_bytes, merge_intervals, solve
from tx8fast.alloc.problem import read_csv
from tx8fast.errors import AllocationError

CAPACITY = 1048576


@st.composite
def tiny_problems(draw):
    buffers = []
    for i in range(draw(st.integers(1, 7))):
        spans = draw(
            st.lists(st.tuples(st.integers(0, 7), st.integers(1, 4)), min_size=1, max_size=2)
        )
        lives = merge_intervals((lo, lo + d) for lo, d in spans)
        align = draw(st.sampled_from([1, 1, 2, 3]))
        fixed = None
        if i == 0 and draw(st.booleans()):
            fixed = draw(st.integers(0, 3)) * align
        buffers.append(Buffer(f"b{i}", lives, draw(st.integers(1, 4)), align, fixed))
    return Problem(tuple(buffers))


@pytest.mark.feature("B73")
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


@pytest.mark.feature("B73")
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
    proven = [solve(make(kind, 3, 60), effort=20_000).optimal for kind in KINDS for _ in range(1)]
    assert sum(proven) >= len(proven) - 2


@pytest.mark.parametrize("name", "ACEGIK")
def test_tight_public_files_are_placed(repo_root, name: str) -> None:
    problem = read_csv(repo_root / f"benchmarks/problems/{name}.1048576.csv", CAPACITY)
    placement = solve(problem, effort=200_000)
    assert find_violations(problem, placement.offsets) == []
    assert placement.peak_bytes <= CAPACITY
    lowest = solve(Problem(problem.buffers), effort=200_000)
    assert lowest.optimal and find_violations(problem, lowest.offsets) == []


def test_a_proof_raises_the_lower_bound() -> None:
    # At most 5 bytes are alive at a time, but no placement of these seven is that low.
    rows = [(0, 2, 1), (1, 4, 2), (3, 6, 1), (5, 8, 2), (0, 3, 1), (2, 7, 1), (6, 8, 1)]
    raised = 0
    for shift in range(40):
        buffers = tuple(
            Buffer(str(i), ((lo, hi + (i * shift) % 5),), s + (i * shift) % 3)
            for i, (lo, hi, s) in enumerate(rows)
        )
        problem = Problem(buffers)
        placement = solve(problem, effort=100_000)
        assert placement.optimal
        raised += placement.lower_bound_bytes > lower_bound_bytes(problem)
    assert raised


def test_independent_stretches_may_add_up_to_more_than_one_search_takes() -> None:
    problem = make("short_stretches", 0, 6000)
    placement = solve(problem, effort=50_000)
    assert find_violations(problem, placement.offsets) == []
    assert placement.optimal


def test_without_effort_nothing_is_searched(monkeypatch) -> None:
    monkeypatch.setattr("tx8fast.alloc.exact.ExactSearch.__init__", None)
    assert solve(make("pipeline", 0, 200)).peak_bytes > 0
