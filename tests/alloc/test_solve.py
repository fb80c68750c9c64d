"""Placement: documented peaks, merging, messages, corpus files, independent validation."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

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

FIVE = Problem(
    tuple(
        Buffer(label, ((first, last + 1),), size, 256)
        for label, size, first, last in [
            ("a", 1024, 0, 2), ("b", 512, 1, 3), ("c", 1024, 3, 5), ("d", 256, 2, 4), ("e", 768, 4, 5),
        ]
    )
)  # fmt: skip


def test_overlapping_intervals_join() -> None:
    spans = [(0, 3), (0, 5), (2, 4), (6, 9), (6, 7), (8, 12)]
    assert merge_intervals(spans) == ((0, 5), (6, 12))
    assert merge_intervals([(2, 4), (0, 2)]) == ((0, 2), (2, 4))
    assert merge_intervals([]) == ()


def test_the_two_orders_of_the_documented_example(monkeypatch) -> None:
    module = sys.modules["tx8fast.alloc.solve"]  # the package exports the function of that name
    seen = []
    real = module.first_fit
    monkeypatch.setattr(module, "first_fit", lambda *a: seen.append(real(*a)) or seen[-1])
    placement = solve(FIVE)
    (by_start, start_peak), (by_size, size_peak) = seen
    assert (by_start.tolist(), start_peak) == ([0, 1024, 0, 1536, 1792], 2560)
    assert (by_size.tolist(), size_peak) == ([0, 1024, 0, 1792, 1024], 2048)
    assert placement.peak_bytes == 2048 == placement.lower_bound_bytes
    assert placement.optimal and placement.offsets == (0, 1024, 0, 1792, 1024)
    assert find_violations(FIVE, placement.offsets) == []


def test_a_gap_between_two_lives_is_used_by_others() -> None:
    problem = Problem((Buffer("x", ((0, 2), (4, 6)), 512, 256), Buffer("y", ((2, 4),), 512, 256)))
    assert solve(problem).peak_bytes == 512


def test_fixed_buffers_keep_their_place() -> None:
    problem = Problem((Buffer("x", ((0, 4),), 256), Buffer("y", ((2, 6),), 128, fixed=0)))
    assert solve(problem).offsets == (128, 0)
    clash = Problem((Buffer("x", ((0, 4),), 256, fixed=64), Buffer("y", ((2, 6),), 128, fixed=0)))
    with pytest.raises(AllocationError, match=r"'x' \[64, 320\) and 'y' \[0, 128\) share bytes"):
        solve(clash)


def test_overflow_says_how_much_and_who() -> None:
    with pytest.raises(AllocationError) as info:
        solve(Problem(FIVE.buffers, 1500))
    text = str(info.value)
    assert "2,048 bytes needed, 1,500 bytes available (548 too many)" in text
    assert "no placement can fit" in text
    rows = [line.split() for line in text.splitlines()[2:5]]
    assert [row[0] for row in rows] == ["1,024", "768", "256"]
    assert [row[2] for row in rows] == ["c", "e", "d"]


def test_ill_formed_buffers_are_listed_together() -> None:
    bad = (Buffer("p", ((3, 3),), 1), Buffer("q", ((0, 1),), -1), Buffer("r", ((0, 1),), 1, 0))
    with pytest.raises(AllocationError, match="3 problems") as info:
        solve(Problem(bad))
    assert all(f"'{label}'" in str(info.value) for label in "pqr")


@pytest.mark.parametrize("name", ["A.1048576.csv", "G.1048576.csv"])
def test_corpus_files(data_dir, name: str) -> None:
    problem = read_csv(data_dir / name)
    placement = solve(problem)
    assert find_violations(problem, placement.offsets) == []
    assert placement.lower_bound_bytes == 1048576  # these files are tight by design
    assert placement.peak_bytes <= 1.3 * placement.lower_bound_bytes


@pytest.mark.parametrize("name", ["A.1048576.csv", "G.1048576.csv"])
def test_search_reaches_the_lower_bound_of_corpus_files(data_dir, name: str) -> None:
    problem = read_csv(data_dir / name, 1048576)
    placement = solve(problem, effort=1_000_000)
    assert find_violations(problem, placement.offsets) == []
    assert placement.peak_bytes == 1048576 and placement.optimal
    assert solve(problem, effort=1_000_000) == placement
    assert solve(read_csv(data_dir / name), effort=1_000_000).optimal


def test_a_proof_that_nothing_fits_is_told() -> None:
    # Overlapping buffers in a row; one byte below the optimum, the search must know that it has seen everything.
    rows = [(0, 2, 1), (1, 4, 2), (3, 6, 1), (5, 8, 2), (0, 3, 1), (2, 7, 1), (6, 8, 1)]
    buffers = tuple(Buffer(str(i), ((lo, hi),), s) for i, (lo, hi, s) in enumerate(rows))
    height = solve(Problem(buffers), effort=100_000).peak_bytes
    with pytest.raises(AllocationError, match="no placement can fit"):
        solve(Problem(buffers, height - 1), effort=100_000)


@st.composite
def random_problems(draw):
    buffers = []
    for i in range(draw(st.integers(0, 30))):
        spans = draw(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), max_size=3))
        lives = merge_intervals((lo, lo + d) for lo, d in spans)
        align = draw(st.sampled_from([1, 256]))
        buffers.append(Buffer(f"b{i}", lives, draw(st.integers(0, 5000)), align))
    return Problem(tuple(buffers))


@given(random_problems())
def test_every_placement_is_legal(problem: Problem) -> None:
    placement = solve(problem)
    assert find_violations(problem, placement.offsets) == []
    assert lower_bound_bytes(problem) == placement.lower_bound_bytes <= placement.peak_bytes
    assert solve(problem) == placement
    searched = solve(problem, effort=2000)
    assert find_violations(problem, searched.offsets) == []
    assert searched.peak_bytes <= placement.peak_bytes


def test_the_validator_names_each_broken_rule() -> None:
    two = Problem((Buffer("x", ((0, 4),), 512, 256), Buffer("y", ((3, 6),), 512, 256, fixed=512)), 1024)
    assert find_violations(two, (0, 512)) == []
    assert "2 buffers" in find_violations(two, (0,))[0]
    assert any("overlap at time 3" in v for v in find_violations(two, (256, 512)))
    assert any("multiple of 256" in v for v in find_violations(two, (8, 1024)))
    assert any("ends above 1024" in v for v in find_violations(two, (0, 1024)))
    assert any("fixed at 512" in v for v in find_violations(two, (0, 768)))
    assert any("negative" in v for v in find_violations(two, (-256, 512)))
    assert any("straddles" in v for v in find_violations(two, (768, 512), bank_bytes=1024))
