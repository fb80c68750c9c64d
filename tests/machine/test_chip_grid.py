"""Grids of chips: routes, links and ring orders."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tx8fast.machine import ChipGrid, topology


def test_routes_go_on_over_the_side_of_a_chip():
    grid = ChipGrid(2, 2, topology(4, 4))
    assert grid.n_tiles == 64
    # tile 5 is (1, 1); on chip 1 the same place is four hops further along x
    assert grid.route(5, 16 + 5) == [5, 6, 7, 16 + 4, 16 + 5]
    assert grid.crossings(5, 16 + 5) == 1
    # to the chip below right: along x over chip 1, then down
    path = grid.route(0, 48)
    assert [t // 16 for t in path] == [0] * 4 + [1] * 4 + [3]
    assert grid.crossings(0, 48) == 2
    assert grid.links(0, 0) == []


def test_every_side_has_one_link_each_way():
    grid = ChipGrid(2, 1, topology(4, 4))
    assert grid.chip_links == [(0, 1), (1, 0)]
    assert grid.n_links == 2 * 48 + 2
    crossing = {grid.link_numbers[s] for s in grid.link_numbers if s[0] // 16 < s[1] // 16}
    assert crossing == {96}  # four rows of tiles, one link
    assert sorted(set(grid.link_numbers.values())) == list(range(grid.n_links))


@pytest.mark.parametrize(
    ("side", "chips", "longest"),
    [((4, 1), range(4), 2), ((4, 8), range(32), 1), ((2, 2), range(4), 1), ((3, 3), range(9), 2), ((8, 1), (1, 2, 3), 2),
     ((4, 2), (0, 1, 4, 5), 1), ((2, 1), (0, 1), 1), ((3, 1), (2,), 0)],
)  # fmt: skip
def test_rings_have_short_steps(side, chips, longest):
    grid = ChipGrid(*side, topology(4, 4))
    ring = grid.ring(chips)
    assert sorted(ring) == sorted(chips)
    n = grid.chip.n_tiles
    steps = [grid.crossings(a * n, b * n) for a, b in zip(ring, [*ring[1:], ring[0]])]
    assert max(steps) == longest


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.data())
def test_routes_are_shortest_ways_over_neighbours(cx, cy, tx, ty, data):
    grid = ChipGrid(cx, cy, topology(tx, ty))
    a, b = (data.draw(st.integers(0, grid.n_tiles - 1)) for _ in range(2))
    path = grid.route(a, b)

    def place(t):
        chip, own = divmod(t, tx * ty)
        return chip % cx * tx + own % tx, chip // cx * ty + own // tx

    (xa, ya), (xb, yb) = place(a), place(b)
    assert path[0] == a and path[-1] == b
    assert len(path) - 1 == abs(xa - xb) + abs(ya - yb)
    for s, t in grid.links(a, b):
        assert abs(place(s)[0] - place(t)[0]) + abs(place(s)[1] - place(t)[1]) == 1
        assert 0 <= grid.link_numbers[s, t] < grid.n_links
