"""Which chains are taken in the place of groups."""

from __future__ import annotations

from tx8fast.search.chained import saving_most
from tx8fast.search.partition import Edge


def edges(n: int) -> list[Edge]:
    """Every step needs the one before."""
    return [(i, i + 1) for i in range(n - 1)]


def test_a_chain_of_the_parts_of_one_group_is_taken_for_it() -> None:
    cost = {(0,): 50.0, (1, 2): 100.0, (1,): 60.0, (2,): 60.0}
    assert saving_most([(0,), (1, 2)], cost, {(1, 2): 90.0}, edges(3)) == ([(0,), (1, 2)], {(1, 2)})
    assert saving_most([(0,), (1, 2)], cost, {(1, 2): 110.0}, edges(3)) == ([(0,), (1, 2)], set())


def test_of_chains_that_overlap_the_one_that_saves_most_with_another_is_taken() -> None:
    cost = {(0,): 50.0, (1,): 50.0, (2,): 50.0, (3,): 50.0}
    for middle, chosen in ((50.0, {(1, 2)}), (70.0, {(0, 1), (2, 3)})):
        chains = {(0, 1): 80.0, (1, 2): middle, (2, 3): 80.0}
        groups, taken = saving_most([*cost], cost, chains, edges(4))
        assert taken == chosen and sorted(i for k in groups for i in k) == [0, 1, 2, 3]


def test_of_chains_that_save_nearly_the_same_the_one_of_most_steps_is_taken() -> None:
    cost = {(0,): 50.0, (1,): 50.0, (2,): 50.0}
    for saved, longest in ((29.5, True), (29.0, False)):
        chains = {(1, 2): 70.0, (0, 1, 2): 150.0 - saved}
        assert (saving_most([*cost], cost, chains, edges(3))[1] == {(0, 1, 2)}) == longest


def test_what_a_chain_leaves_over_may_join_another_one() -> None:
    """A part of a group saves nothing by itself, but with its neighbour once the rest of the group is a chain."""
    cost = {(0,): 50.0, (1, 2, 3): 150.0, (1,): 20.0, (2,): 70.0, (3,): 70.0}
    chains = {(0, 1): 60.0, (2, 3): 100.0}
    chosen, taken = saving_most([(0,), (1, 2, 3)], cost, chains, edges(4))
    assert (sorted(chosen), taken) == ([(0, 1), (2, 3)], {(0, 1), (2, 3)})


def test_steps_that_cannot_stand_alone_keep_their_group() -> None:
    cost = {(0,): 50.0, (1, 2): 100.0, (2,): 60.0}
    assert saving_most([(0,), (1, 2)], cost, {(0, 2): 10.0}, edges(3)) == ([(0,), (1, 2)], set())
