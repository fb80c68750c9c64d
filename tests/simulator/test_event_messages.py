"""Messages, partial barriers and handshakes in the event kernel: closed forms, and equality with its twin."""

from __future__ import annotations

import numpy as np
import pytest
from event_rows import (
    BARRIER,
    BARRIER_SUB,
    CORE,
    CT,
    DEPTH,
    HANDSHAKE,
    KCORE,
    MESH,
    NE,
    RDMA,
    RECV,
    SEND,
    SEND_WAIT,
    WAIT,
    WAIT_WORKER,
    row,
    run,
    same_as_twin,
    to_input,
)

from tx8fast._kernels import EventDeadlock
from tx8fast._kernels.reference.events import Stuck
from tx8fast._kernels.reference.events import simulate as twin
from tx8fast.errors import InternalError
from tx8fast.machine import topology
from tx8fast.machine.noc import all_links

SETUP, HOP, RATE = 100, 8, 128


def send(tiles, nbytes, issue=1320, monitor=0):
    return row(SEND, fixed=SETUP, issue=issue, bytes=nbytes, tiles=list(tiles), monitor=monitor)


def recv(nbytes, monitor=0):
    return row(RECV, issue=0, bytes=nbytes, monitor=monitor)


def chip(**rows):
    """Return 16 tiles; t3=[...] gives rows of tile 3."""
    return [rows.get(f"t{t}", []) for t in range(16)]


@pytest.mark.parametrize(
    ("dst", "nbytes", "cycles"),
    [(1, 2048, 1444), (1, 8192, 1492), (1, 65536, 1940), (15, 65536, 1980), (0, 2048, 1436)],
)
def test_one_message_on_an_idle_path(dst, nbytes, cycles):
    tiles = chip()
    tiles[0] = [send([dst], nbytes), row(SEND_WAIT, issue=0)]
    tiles[dst] = tiles[dst] + [recv(nbytes)]
    got = run(tiles, mesh=MESH)
    assert got.cycles == cycles
    assert got.tile_cycles[dst] == cycles
    hops = int(topology(4, 4).hops[0, dst])
    assert got.link_bytes.sum() == hops * nbytes
    assert not got.monitors.any()


def test_broadcast_uses_every_link_once():
    others = list(range(1, 16))
    tiles = [[send(others, 65536)]] + [[recv(65536)] for _ in others]
    got = run(tiles, mesh=MESH)
    hops = topology(4, 4).hops[0]
    assert got.end[1:].tolist() == [1320 + SETUP + 512 + HOP * int(hops[t]) for t in others]
    assert got.end[0] == 1980
    # a tree over 16 tiles has 15 links; each carries the payload once
    assert sorted(got.link_bytes.tolist()) == [0] * (48 - 15) + [65536] * 15


def test_scattered_parts_follow_each_other():
    """Part k of c cycles is at its tile k * c later than a message of its own would be; every part takes its own links."""
    part = send([0, 1, 2, 5], 1280) | {"scatter": True}
    tiles = [[part]] + [[recv(1280)] if t in (1, 2, 5) else [] for t in range(1, 16)]
    tiles[0].append(recv(1280))
    got = run(tiles, mesh=MESH)
    setup, c = int(got.start[0]) + part["fixed"], 1280 // 128
    arrivals = [setup + (k + 1) * c + hops * 8 for k, hops in enumerate((0, 1, 2, 2))]
    assert [int(e) for e in got.end[1:]] == arrivals
    assert got.end[0] == max(arrivals)
    assert got.link_bytes.sum() == 1280 * (1 + 2 + 2)


def test_the_core_itself_waits_for_nothing():
    got = run([[row(CT, fixed=1000, issue=5), row(CORE, fixed=20, issue=3), row(WAIT, fixed=7, issue=0)]])
    assert got.end.tolist() == [1005, 5 + 3 + 20, 1005 + 7]
    assert got.busy[0, KCORE] == 20


def test_messages_over_one_link_share_it_and_disjoint_ones_do_not():
    one = run(chip(t0=[send([1], 65536)], t1=[recv(65536)]), mesh=MESH).cycles
    # 0 -> 2 and 1 -> 2 both need link 1 -> 2; the head from tile 1 is there first
    shared = run(chip(t0=[send([2], 65536)], t1=[send([2], 65536)], t2=[recv(2 * 65536)]), mesh=MESH)
    assert shared.end.tolist() == [one + 512, one, one + 512]
    apart = run(
        chip(t0=[send([1], 65536)], t1=[recv(65536)], t4=[send([5], 65536)], t5=[recv(65536)]),
        mesh=MESH,
    )
    assert apart.end.tolist() == [one] * 4
    # both directions of a pair of tiles are two links
    both = run(chip(t0=[send([1], 65536), recv(65536)], t1=[send([0], 65536), recv(65536)]), mesh=MESH)
    assert set(both.end.tolist()) == {one}


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_k_messages_of_one_tile_over_one_link(k):
    """Setup is hidden behind a long message; engines are not the limit until there are more than three."""
    nbytes = 1 << 19
    got = run(chip(t0=[send([1], nbytes)] * k, t1=[recv(nbytes * k)]), mesh=MESH)
    assert got.cycles == 1320 + SETUP + HOP + k * nbytes // RATE
    assert got.blocked[0, 8] == max(0, got.start[k - 1] - 1320 * k)


def test_a_fourth_message_waits_for_the_first_engine():
    nbytes = 1 << 20
    rows = [send([t], nbytes) for t in (1, 4, 1, 4)]
    tiles = chip(t0=rows, t1=[recv(2 * nbytes)], t4=[recv(2 * nbytes)])
    got = run(tiles, mesh=MESH)
    assert got.start[:3].tolist() == [1320, 2640, 3960]
    assert got.start[3] == got.end[0] == 1320 + SETUP + HOP + nbytes // RATE
    assert got.blocked[0, 8] == got.start[3] - 4 * 1320


def test_monitors_count_and_are_consumed():
    tiles = chip(
        t0=[send([1], 1000), send([1], 1000, monitor=2), send([1], 500)],
        t1=[recv(700), recv(1000, monitor=2), recv(800)],
    )
    got = run(tiles, mesh=MESH)
    assert got.end[3:].tolist() == [got.end[0], got.end[1], got.end[2]]
    assert got.monitors.sum() == 0
    left = run(chip(t0=[send([1, 2], 100, monitor=3)], t1=[recv(100, monitor=3)]), mesh=MESH)
    assert left.monitors[2].tolist() == [0, 0, 0, 100]


def test_partial_barrier_and_handshake_times():
    group = [1, 4, 6]
    meet = row(BARRIER_SUB, fixed=448, issue=0, tiles=group)
    tiles = chip(**{f"t{t}": [row(KCORE, fixed=100 * t), meet, meet] for t in group})
    got = run(tiles, mesh=MESH)
    arrive = 1 + 600
    assert got.end[2::3].tolist() == [arrive + 2 * 448] * 3
    assert got.blocked[1, WAIT] == 500
    shake = [[row(KCORE, fixed=50 * t), row(HANDSHAKE, fixed=128, issue=0, peer=1 - t)] for t in (0, 1)]
    assert run(shake, mesh=(2, *MESH[1:])).end.tolist() == [1, 129 + 50, 51, 129 + 50]


def test_disjoint_groups_do_not_wait_for_each_other():
    fast, slow = [0, 1], [2, 3]
    tiles = [
        [row(KCORE, fixed=10 if t in fast else 9000), row(BARRIER_SUB, fixed=400, issue=0, tiles=g)]
        for t, g in zip(range(4), (fast, fast, slow, slow))
    ]
    got = run(tiles, mesh=(4, *MESH[1:]))
    assert got.tile_cycles.tolist() == [411, 411, 9401, 9401]


DEADLOCKS = {
    "recv without a send": ([[recv(8)], []], {0: 0}),
    "too few bytes": ([[send([1], 8)], [recv(9)]], {1: 0}),
    "crossed receives": ([[recv(8), send([1], 8)], [recv(8), send([0], 8)]], {0: 0, 1: 0}),
    "handshake with a tile that does none": ([[row(HANDSHAKE, peer=1)], []], {0: 0}),
    "half of a group": ([[row(BARRIER_SUB, tiles=[0, 1])], [row(CT, fixed=3)]], {0: 0}),
    "barrier behind a receive": ([[row(BARRIER)], [recv(1), row(BARRIER)]], {0: 0, 1: 0}),
}


@pytest.mark.parametrize("name", DEADLOCKS)
def test_deadlocks_are_found(name):
    tiles, where = DEADLOCKS[name]
    mesh = (2, *MESH[1:])
    with pytest.raises(EventDeadlock) as found:
        run(tiles, mesh=mesh)
    assert found.value.stuck == where
    with pytest.raises(Stuck) as slow:
        twin(tiles, DEPTH, 32, 150, False, mesh)
    assert slow.value.rows == where and slow.value.monitors == found.value.monitors.tolist()


def test_crossed_handshakes():
    """0 waits for 1, 1 for 2, 2 for 0."""
    tiles = [[row(HANDSHAKE, peer=(t + 1) % 3)] for t in range(3)]
    with pytest.raises(EventDeadlock) as found:
        run(tiles, mesh=(3, *MESH[1:]))
    assert found.value.stuck == {0: 0, 1: 0, 2: 0}


def random_exchange(rng, n_tiles):
    """Append rows in one global order that respects every message, so that nothing can block for ever."""
    tiles = [[] for _ in range(n_tiles)]
    due = np.zeros((n_tiles, 4), np.int64)
    own = lambda: int(rng.integers(1, 60))  # noqa: E731
    some = lambda least: sorted(  # noqa: E731
        rng.choice(n_tiles, int(rng.integers(least, n_tiles + 1)), replace=False).tolist()
    )

    def take(t, m, n):
        tiles[t].append(row(RECV, issue=int(rng.integers(0, 3)), bytes=n, monitor=m))
        due[t, m] -= n

    for _ in range(int(rng.integers(5, 90))):
        what = rng.random()
        t = int(rng.integers(0, n_tiles))
        if what < 0.35:
            to, m, n = some(1), int(rng.integers(0, 4)), int(rng.integers(1, 3000))
            parts = bool(rng.random() < 0.3)
            tiles[t].append(row(SEND, fixed=own(), issue=own(), bytes=n, tiles=to, monitor=m, scatter=parts))
            due[to, m] += n
        elif what < 0.6:
            m = int(rng.integers(0, 4))
            if due[t, m]:
                take(t, m, int(rng.integers(1, due[t, m] + 1)))
        elif what < 0.66 and n_tiles > 1:
            group = some(2)
            for g in group:
                tiles[g].append(row(BARRIER_SUB, fixed=7, issue=1, tiles=group))
        elif what < 0.72 and n_tiles > 1:
            a, b = rng.choice(n_tiles, 2, replace=False).tolist()
            tiles[a].append(row(HANDSHAKE, fixed=9, issue=1, peer=b))
            tiles[b].append(row(HANDSHAKE, fixed=9, issue=1, peer=a))
        elif what < 0.75:
            for rows in tiles:
                rows.append(row(BARRIER, fixed=30, issue=2))
        elif what < 0.8:
            tiles[t].append(row(SEND_WAIT, issue=0))
        else:
            kind = int(rng.choice([CT, NE, RDMA, KCORE, WAIT, WAIT_WORKER, CORE]))
            lo = int(rng.integers(0, 60))
            tiles[t].append(
                row(
                    kind, fixed=int(rng.integers(0, 300)), issue=int(rng.integers(0, 8)),
                    ddr_bytes=int(rng.integers(1, 3000)) if kind == RDMA else 0,
                    write=[(lo, lo + 20)] if kind < KCORE else (),
                    workers=[w for w in range(3) if rng.random() < 0.5],
                    worker=int(rng.integers(0, 3)),
                )
            )  # fmt: skip
    if rng.random() < 0.7:
        for t, m in np.argwhere(due).tolist():
            take(t, m, int(due[t, m]))
    return tiles, due


@pytest.mark.parametrize("seed", range(40))
def test_kernel_equals_twin(seed):
    rng = np.random.default_rng(seed)
    for _ in range(3):
        tiles_x, tiles_y = [(1, 2), (2, 2), (4, 1), (3, 2), (4, 4), (2, 3)][int(rng.integers(0, 6))]
        tiles, due = random_exchange(rng, tiles_x * tiles_y)
        rate, hop, engines = [(128, 8, 3), (7, 1, 1), (40, 3, 2)][int(rng.integers(0, 3))]
        serial = bool(rng.random() < 0.3)
        port, total = [(32, 150), (7, 12)][int(rng.integers(0, 2))]
        got = same_as_twin(tiles, serial, port, total, mesh=(tiles_x, rate, hop, engines))
        assert got.monitors.tolist() == due.tolist()


def test_random_exchanges_do_share_links():
    """Some message takes longer than any could on idle links, else the test above shows nothing."""
    crowded = 0
    for seed in range(20):
        tiles, _ = random_exchange(np.random.default_rng(seed), 16)
        got = run(tiles, mesh=(4, 7, 8, 3))
        sends = np.array([r["kind"] == SEND for t in tiles for r in t])
        crowded += (got.end - got.start)[sends].max(initial=0) > 60 + 6 * 8 + 3000 // 7 + 1
    assert crowded > 5


def test_link_bytes_are_conserved():
    rng = np.random.default_rng(3)
    tiles, _ = random_exchange(rng, 16)
    got = run(tiles, mesh=MESH)
    grid = topology(4, 4)
    want = dict.fromkeys(all_links(grid), 0)
    for t, rows in enumerate(tiles):
        for r in rows:
            if r["kind"] == SEND:
                links = [link for dst in r["tiles"] for link in grid.links(t, dst)]
                for link in links if r["scatter"] else set(links):
                    want[link] += r["bytes"]
    assert sum(want.values()) > 0
    assert got.link_bytes.tolist() == list(want.values())


def test_facade_refuses_broken_trees():
    tiles = [[send([1], 8)], [recv(8)]]
    good = to_input(tiles, (2, *MESH[1:]))
    from dataclasses import replace

    from tx8fast._kernels import simulate_events

    for bad in (
        {"hop_link": np.array([2])},
        {"hop_parent": np.array([0])},
        {"leaf_tile": np.array([2])},
        {"leaf_hop": np.array([1])},
        {"tree_begin": np.array([0, 2])},
        {"tree_of": np.array([[-1], [-1]])},
        {"tree_of": np.array([[1], [-1]])},
        {"engines": 0},
        {"link_rate": 0},
    ):
        with pytest.raises(InternalError):
            simulate_events(replace(good, routes=replace(good.routes, **bad)), DEPTH, 32.0, 150.0)
