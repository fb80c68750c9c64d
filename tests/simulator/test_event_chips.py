"""Several chips in the event kernel: closed forms of messages between chips, and equality with its twin."""

from __future__ import annotations

import pytest
from event_rows import BARRIER, HANDSHAKE, RDMA, RECV, SEND, SEND_WAIT, WAIT, WDMA, row, run, same_as_twin
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SETUP, HOP, RATE, SLOW, LATENCY = 100, 8, 128, 25, 1000
ROW = (2, RATE, HOP, 3, 1, 2, SLOW, LATENCY)  # chips of 2 x 1 tiles, two in a row


def send(tiles, nbytes, issue=1320, monitor=0):
    return row(SEND, fixed=SETUP, issue=issue, bytes=nbytes, tiles=list(tiles), monitor=monitor)


def recv(nbytes, monitor=0):
    return row(RECV, issue=0, bytes=nbytes, monitor=monitor)


@pytest.mark.parametrize("nbytes", [25, 4096, 65536])
def test_one_message_to_the_next_chip(nbytes):
    """Tile 0 of chip 0 to tile 0 of chip 1: a hop in the mesh, the link between the chips at its rate."""
    got = run([[send([2], nbytes), row(SEND_WAIT, issue=0)], [], [recv(nbytes)], []], mesh=ROW)
    assert got.cycles == 1320 + SETUP + HOP + LATENCY + -(-nbytes // SLOW)
    assert sorted(got.link_bytes.tolist()) == [0] * 4 + [nbytes] * 2
    assert got.link_bytes[-2:].tolist() == [nbytes, 0]


def test_all_rows_of_a_chip_share_the_link_of_their_side():
    """Chips of 1 x 2 tiles: both tiles send to their counterparts, one message after the other over the link."""
    mesh = (1, RATE, HOP, 3, 2, 2, SLOW, LATENCY)
    nbytes = 50_000
    got = run([[send([2], nbytes)], [send([3], nbytes)], [recv(nbytes)], [recv(nbytes)]], mesh=mesh)
    first = 1320 + SETUP + LATENCY + nbytes // SLOW
    assert sorted(got.end[2:].tolist()) == [first, first + nbytes // SLOW]
    back = run([[send([2], nbytes)], [recv(nbytes)], [recv(nbytes)], [send([1], nbytes)]], mesh=mesh)
    assert back.end[[1, 2]].tolist() == [first, first]


def test_every_chip_has_its_own_ddr_and_barrier():
    load = row(RDMA, issue=0, ddr_bytes=16_000)
    tiles = [[load, row(WAIT, issue=0), row(BARRIER, issue=0, fixed=7)] for _ in range(4)]
    together = run(tiles, port=100.0, total=100.0)
    apart = run(tiles, port=100.0, total=100.0, mesh=ROW)
    assert together.cycles == 640 + 7
    assert apart.cycles == 320 + 7
    tiles[0].insert(0, row(WAIT, issue=5000))
    late = run(tiles, port=100.0, total=100.0, mesh=ROW)
    assert late.tile_cycles.tolist() == [5000 + 160 + 7] * 2 + [320 + 7] * 2


@st.composite
def programs(draw):
    """Chips of 2 x 1, 1 x 2 or 1 x 1 tiles with transfers, barriers, messages within and between chips, in matching order."""
    w, h = draw(st.sampled_from([(2, 1), (1, 2), (1, 1), (2, 2)]))
    cx, cy = draw(st.sampled_from([(2, 1), (1, 2), (3, 1), (2, 2)]))
    n, chips = w * h, cx * cy
    tiles = [[] for _ in range(n * chips)]
    for _ in range(draw(st.integers(1, 8))):
        what = draw(st.sampled_from(["message", "message", "ddr", "handshake", "barrier", "wait"]))
        a = draw(st.integers(0, n * chips - 1))
        b = draw(st.integers(0, n * chips - 1))
        if what == "message":
            size = draw(st.integers(1, 3000))
            tiles[a].append(send([b], size, issue=draw(st.integers(0, 50))))
            tiles[b].append(recv(size))
        elif what == "ddr":
            kind = draw(st.sampled_from([RDMA, WDMA]))
            tiles[a].append(row(kind, fixed=draw(st.integers(0, 30)), ddr_bytes=draw(st.integers(0, 2000))))
        elif what == "handshake" and a != b:
            for x, y in ((a, b), (b, a)):
                tiles[x].append(row(HANDSHAKE, fixed=draw(st.integers(0, 20)), issue=3, peer=y))
        elif what == "barrier":
            for t in range(a // n * n, a // n * n + n):
                tiles[t] += [row(WAIT, fixed=3), row(BARRIER, fixed=11)]
        elif what == "wait":
            tiles[a] += [row(SEND_WAIT, issue=0), row(WAIT, fixed=5)]
    return tiles, (w, draw(st.integers(1, 9)), draw(st.integers(0, 9)), draw(st.integers(1, 3)), h, cx, draw(st.integers(1, 5)),
                   draw(st.integers(0, 60)))  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs(), st.sampled_from([(7, 10), (32, 150), (5, 5)]))
def test_the_kernel_and_its_twin_agree(made, rates):
    tiles, mesh = made
    same_as_twin(tiles, port=rates[0], total=rates[1], mesh=mesh)
