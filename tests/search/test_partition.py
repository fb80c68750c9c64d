"""The integer program of opt 3 against trying every choice; its limits; its order."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from tx8fast.search.partition import Limits, Problem, choose, closure, in_line, mask_of


@st.composite
def problems(draw):
    """Up to 9 items under a random order; random convex and other columns beside the single ones."""
    n = draw(st.integers(1, 9))
    pairs = [(a, b) for a in range(n) for b in range(a + 1, n)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    sets = st.lists(st.integers(0, n - 1), min_size=1, max_size=4, unique=True).map(lambda x: tuple(sorted(x)))
    more = [c for c in draw(st.lists(sets, unique=True, max_size=14)) if len(c) > 1]
    columns = [*((i,) for i in range(n)), *more]
    costs = [draw(st.integers(0, 60 * len(c))) for c in columns]
    return Problem(n, columns, costs, sorted(edges), range(n))


def cheapest(p: Problem) -> int:
    """The least cost of all valid choices, by trying them."""
    best = sum(p.costs[j] for j in p.start)

    def extend(covered: int, chosen: list[int], cost: int) -> None:
        nonlocal best
        i = next((i for i in range(p.n_items) if not covered >> i & 1), None)
        if i is None:
            if cost < best and in_line([p.columns[j] for j in chosen], p.edges)[0]:
                best = cost
            return
        for j, items in enumerate(p.columns):
            if i in items and not mask_of(items) & covered:
                extend(covered | mask_of(items), [*chosen, j], cost + p.costs[j])

    extend(0, [], 0)
    return best


@settings(max_examples=150)
@given(problems())
def test_the_choice_is_the_cheapest_there_is(p: Problem) -> None:
    found = choose(p)
    assert (found.status, found.gap) == ("optimal", 0.0)
    assert found.cost == sum(p.costs[j] for j in found.columns) == cheapest(p)
    chosen = [p.columns[j] for j in found.columns]
    assert sorted(i for items in chosen for i in items) == list(range(p.n_items))
    order, ring = in_line(chosen, p.edges)
    place = {i: n for n, k in enumerate(order) for i in chosen[k]}
    assert not ring and all(place[a] <= place[b] for a, b in p.edges)
    again = choose(p)
    assert again.columns == found.columns and again.nodes == found.nodes


def test_a_ring_of_three_columns_is_not_chosen() -> None:
    """a0 -> b1, b0 -> c1, c0 -> a1: any two of the columns a, b, c can run, all three wait for each other."""
    columns = [(i,) for i in range(6)] + [(0, 3), (1, 4), (2, 5)]
    costs = [10] * 6 + [1, 2, 3]
    found = choose(Problem(6, columns, costs, [(0, 4), (1, 5), (2, 3)], range(6)))
    assert found.cost == 1 + 2 + 20 and found.solves > 1


def test_closure_and_line() -> None:
    assert closure(4, [(0, 1), (1, 3), (0, 2)]) == [0b1110, 0b1000, 0, 0]
    assert in_line([(0, 3), (1,), (2,)], [(0, 1), (1, 2)]) == ([0, 1, 2], [])
    assert in_line([(0, 3), (1,), (2,)], [(0, 1), (1, 3)])[1] == [0, 1] or in_line(
        [(0, 3), (1,), (2,)], [(0, 1), (1, 3)])[1] == [1, 0]  # fmt: skip


def hard(n: int) -> Problem:
    """Every triple of n items at nearly one cost: the relaxation is weak."""
    triples = [(a, b, c) for a in range(n) for b in range(a + 1, n) for c in range(b + 1, n)]
    columns = [*((i,) for i in range(n)), *triples]
    costs = [1000] * n + [2000 + (a * 7919 + b * 104729 + c * 1299709) % 997 for a, b, c in triples]
    return Problem(n, columns, costs, [], range(n))


def test_a_time_limit_is_kept_and_told() -> None:
    problem = hard(23)
    began = time.monotonic()
    found = choose(problem, Limits(nodes=10**6, seconds=2.0))
    assert time.monotonic() - began < 2.2, "within a tenth"
    assert found.solved and found.status == "time limit" and found.bound <= found.cost and found.gap > 0
    assert sorted(i for j in found.columns for i in problem.columns[j]) == list(range(23))


def test_a_node_limit_is_told_and_ends_alike_every_time() -> None:
    first, second = (choose(hard(14), Limits(nodes=1, seconds=100.0)) for _ in range(2))
    assert first == second and first.status == "node limit" and 0 < first.gap < 0.1


def test_no_time_means_no_choice() -> None:
    found = choose(hard(6), Limits(seconds=0.0))
    assert not found.solved and found.status == "time limit" and found.columns == []


def test_equal_problems_are_solved_once() -> None:
    """Ten copies of one block of three items: the solver runs once."""
    block = [(0,), (1,), (2,), (0, 1), (1, 2)]
    columns = [tuple(3 * k + i for i in c) for k in range(10) for c in block]
    edges = [(i, i + 1) for i in range(29)]
    found = choose(
        Problem(30, columns, [10, 10, 10, 15, 14] * 10, edges, [j for j, c in enumerate(columns) if len(c) == 1])
    )
    assert found.cost == 240 and found.solves == 1
