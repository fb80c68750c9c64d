"""Exact placement: feasible exactly from the twin's minimum height on, whatever the preference order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tx8fast import _kernels
from tx8fast._kernels.reference import pack as twin
from tx8fast.errors import InternalError

ITEMS = st.lists(st.tuples(st.integers(0, 8), st.integers(1, 6), st.integers(1, 9)), min_size=1, max_size=6)


@given(ITEMS, st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_kernel_finds_the_minimum_height_and_proves_it(rows, random) -> None:
    start = [lo for lo, _, _ in rows]
    end = [lo + d for lo, d, _ in rows]
    size = [s for _, _, s in rows]
    order = list(range(len(rows)))
    random.shuffle(order)
    height = twin.minimum_height(start, end, size)
    offsets, proven, nodes = _kernels.pack_exact(start, end, size, order, height, 1_000_000)
    assert offsets is not None and proven and nodes <= 1_000_000
    assert max(o + s for o, s in zip(offsets, size)) <= height
    for i in range(len(rows)):
        for k in range(i):
            alive = start[i] < end[k] and start[k] < end[i]
            apart = offsets[i] + size[i] <= offsets[k] or offsets[k] + size[k] <= offsets[i]
            assert apart or not alive
    below = _kernels.pack_exact(start, end, size, order, height - 1, 1_000_000)
    assert below[0] is None and below[1]


@given(ITEMS, st.integers(0, 2), st.integers(0, 2), st.sampled_from([2, 9, 300]), st.data())
@settings(max_examples=150)
def test_kernel_equals_twin(rows, rule: int, spare: int, budget: int, data) -> None:
    n = len(rows)
    start = [lo for lo, _, _ in rows]
    end = [lo + d for lo, d, _ in rows]
    size = [s for _, _, s in rows]
    align = data.draw(st.lists(st.sampled_from([1, 1, 2, 4]), min_size=n, max_size=n))
    fixed = data.draw(st.lists(st.sampled_from([-1, -1, -1, 0, 4]), min_size=n, max_size=n))
    order = data.draw(st.permutations(range(n)))
    rank = [order.index(i) for i in range(n)]
    live = max(sum(s for lo, d, s in rows if lo <= t < lo + d) for t in start)
    search = _kernels.PackSearch(range(n + 1), start, end, size, align, fixed)
    columns = [c.tolist() for c in search.columns()]
    status, nodes, offsets = twin.search(*columns, rank, rule, live + spare, budget)
    found, proven, visited = search.run(order, live + spare, budget, rule)
    assert (found is not None, proven, visited) == (status == 0, status != 5, nodes)
    assert found is None or found.tolist() == offsets


def test_kernel_equals_twin_on_a_tight_file(repo_root) -> None:
    text = (repo_root / "benchmarks/problems/A.1048576.csv").read_text().split()[1:]
    rows = [[int(field) for field in line.split(",")] for line in text]
    _, start, end, size = map(list, zip(*rows))
    order = sorted(range(len(rows)), key=lambda i: (start[i] - end[i], -size[i], i))
    search = _kernels.PackSearch(range(len(rows) + 1), start, end, size)
    rank = [0] * len(order)
    for place, item in enumerate(order):
        rank[item] = place
    columns = [c.tolist() for c in search.columns()]
    for rule, budget in enumerate((250, 60, 60)):
        fresh = _kernels.PackSearch(range(len(rows) + 1), start, end, size)
        status, nodes, offsets = twin.search(*columns, rank, rule, 1048576, budget)
        found, proven, visited = fresh.run(order, 1048576, budget, rule)
        assert (found is not None, proven, visited) == (status == 0, status != 5, nodes)
        assert found is None or found.tolist() == offsets


def test_failures_are_remembered_until_the_capacity_changes() -> None:
    size = [5, 4, 7, 3, 6, 2, 5, 4]
    start = [0, 1, 2, 3, 4, 5, 6, 7]
    end = [3, 5, 6, 5, 9, 8, 9, 9]
    fixed = [-1, -1, -1, -1, -1, -1, -1, 1]
    search = _kernels.PackSearch(range(9), start, end, size, None, fixed)
    height = next(h for h in range(40) if search.run(range(8), h, 10_000)[0] is not None)
    assert search.run(range(8), height - 1, 10_000)[:2] == (None, True)
    assert search.run(range(8), height, 10_000)[0] is not None
    again = search.run(range(8), height - 1, 10_000)
    assert again[:2] == (None, True)
    assert search.run(range(8), height - 1, 10_000)[2] <= again[2]


def test_a_spent_budget_proves_nothing() -> None:
    columns = ([0, 0, 0], [1, 1, 1], [1, 2, 3], [0, 1, 2])
    assert _kernels.pack_exact(*columns, 6, 1)[:2] == (None, False)
    assert _kernels.pack_exact(*columns, 6, 0) == (None, False, 0)
    assert _kernels.pack_exact([], [], [], [], 0, 10)[1:] == (True, 0)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (([0], [0], [1], [0]), "empty or reversed"),
        (([0], [1], [0], [0]), "positive"),
        (([0], [1], [1], [1]), "permutation"),
        (([0, 0], [1, 1], [1, 1], [0, 0]), "permutation"),
        (([0], [1], [1], []), "differ in length"),
        (([0], [1], [2**61], [0]), "2\\*\\*61"),
        (([0] * 2001, [1] * 2001, [1] * 2001, list(range(2001))), "at most 2000"),
    ],
)
def test_bad_arguments_are_refused(columns, text: str) -> None:
    with pytest.raises(InternalError, match=text):
        _kernels.pack_exact(*columns, 10, 10)
