"""The mesh: coordinates, routes and rings."""

import pytest

from tx8fast.machine import Topology, topology


def test_ids_and_coordinates():
    t = topology(4, 4)
    assert t.coords(6) == (2, 1) and t.tile_at(2, 1) == 6
    assert t.hardware_id(6) == (1 << 16) | 2
    assert t.diameter == 6 and t.hops.max() == 6 and t.hops[0, 15] == 6


def test_routes_go_along_x_first():
    t = topology(4, 4)
    assert t.route(0, 10) == [0, 1, 2, 6, 10]
    assert t.route(10, 0) == [10, 9, 8, 4, 0]
    assert t.links(3, 1) == [(3, 2), (2, 1)]
    assert t.route(5, 5) == [5] and t.links(5, 5) == []


def test_every_route_is_as_long_as_its_hops():
    t = topology(4, 4)
    for a in range(16):
        for b in range(16):
            route = t.route(a, b)
            assert len(route) == t.hops[a, b] + 1
            assert all(t.hops[p, q] == 1 for p, q in zip(route, route[1:], strict=False))


def test_published_orders():
    t = topology(4, 4)
    assert t.ring == (0, 1, 2, 3, 7, 11, 15, 14, 13, 12, 8, 9, 10, 6, 5, 4)
    assert t.snake == (0, 1, 2, 3, 7, 6, 5, 4, 8, 9, 10, 11, 15, 14, 13, 12)


@pytest.mark.parametrize("grid", [(4, 4), (2, 2), (4, 2), (3, 4), (4, 3), (5, 6), (1, 2)])
def test_ring_steps_are_single_hops_closing_step_included(grid):
    t = Topology(*grid)
    assert sorted(t.ring) == list(range(t.n_tiles))
    assert all(t.hops[a, b] == 1 for a, b in zip(t.ring, t.ring[1:] + t.ring[:1], strict=True))


@pytest.mark.parametrize("grid", [(3, 3), (1, 4), (1, 1)])
def test_grids_without_a_closed_ring_use_the_snake(grid):
    t = Topology(*grid)
    assert t.ring == t.snake and sorted(t.ring) == list(range(t.n_tiles))
