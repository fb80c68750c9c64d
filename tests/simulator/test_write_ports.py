"""The port through which a tile writes what arrives: one for all messages, where a machine has it."""

from __future__ import annotations

import numpy as np
import pytest
from event_rows import SEND, SEND_WAIT, row, run, same_as_twin
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulator.test_event_chips import programs
from simulator.test_event_messages import chip, random_exchange, recv, send

from tx8fast.machine import load_machine
from tx8fast.program.builder import CodeBuilder, make_program, make_segment
from tx8fast.simulator.cycle import simulate

ROW = (3, 128, 8, 3)
BYTES, FIRST = 65536, 1320 + 100 + 8 + 512


def from_both_sides(write):
    """Tiles 0 and 2 send to tile 1 at the same time, over links of their own."""
    return same_as_twin([[send([1], BYTES)], [recv(BYTES), recv(BYTES)], [send([1], BYTES)]], mesh=ROW, write=write)


def test_two_links_and_one_port():
    assert from_both_sides(0).end[[0, 3]].tolist() == [FIRST, FIRST]
    got = from_both_sides(128)
    assert got.end[[0, 3]].tolist() == [FIRST, FIRST + 512]
    assert got.link_bytes[-3:].tolist() == [0, 2 * BYTES, 0]
    assert from_both_sides(256).end[[0, 3]].tolist() == [FIRST, FIRST + 256]
    assert from_both_sides(64).end[[0, 3]].tolist() == [FIRST + 512, FIRST + 1536]


def test_one_message_alone_takes_what_it_took():
    for dst in (0, 1, 5, 15):
        tiles = chip()
        tiles[0] = [send([dst], 8192), row(SEND_WAIT, issue=0)]
        tiles[dst].append(recv(8192))
        one, two = (run(tiles, mesh=(4, 128, 8, 3), write=w) for w in (0, 128))
        assert one.end.tolist() == two.end.tolist()


def test_the_own_part_of_a_broadcast_is_a_copy_through_the_port():
    """While tile 0 copies its own part, what tile 1 sends to it waits."""
    tiles = [[send([0, 1], BYTES), recv(2 * BYTES)], [send([0], BYTES), recv(BYTES)]]
    free, held = (same_as_twin(tiles, mesh=(2, 128, 8, 3), write=w) for w in (0, 128))
    assert free.end[2] == FIRST and held.end[2] == FIRST - 8 + 512


@pytest.mark.parametrize("seed", range(12))
def test_kernel_equals_twin(seed):
    rng = np.random.default_rng(seed)
    tiles_x, tiles_y = [(1, 2), (2, 2), (4, 1), (3, 2), (4, 4)][int(rng.integers(0, 5))]
    tiles, due = random_exchange(rng, tiles_x * tiles_y)
    rate, hop, engines = [(128, 8, 3), (7, 1, 1), (40, 3, 2)][int(rng.integers(0, 3))]
    got = same_as_twin(tiles, mesh=(tiles_x, rate, hop, engines), write=int(rng.choice([5, 40, 128])))
    assert got.monitors.tolist() == due.tolist()
    arrives = sum(r["bytes"] * len(r["tiles"]) for t in tiles for r in t if r["kind"] == SEND)
    assert got.link_bytes[-len(tiles) :].sum() == arrives


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs(), st.integers(1, 12))
def test_kernel_equals_twin_on_several_chips(made, write):
    tiles, mesh = made
    same_as_twin(tiles, port=7, total=10, mesh=mesh, write=write)


def test_machine_key():
    """A program whose tiles 0 and 2 send to tile 1: later, and counted, where the machine has the port."""
    found = {}
    for port in (0, 128):
        m = load_machine("tx8", {"dte.write_port_bytes": port})
        one = CodeBuilder().add("send", src=0x10000, dst=0x10000, bytes=BYTES, mask=2).add("send_wait").finish()
        two = CodeBuilder().add("recv", monitor=0, bytes=2 * BYTES).finish()
        codes = [b.code() for b in (one, two, CodeBuilder().finish())]
        tiles = [0, 1, 0] + [2] * 13
        found[port] = simulate(make_program(m, [make_segment(m, "s", codes, tiles)], [(0, [])]))
    assert found[128].cycles == found[0].cycles + 512
    assert found[128].port_bytes == 2 * BYTES == found[0].noc_bytes == found[128].noc_bytes and found[0].port_bytes == 0
    assert found[128].to_json()["port_bytes"] == 2 * BYTES and "port_bytes" not in found[0].to_json()
    assert 0 < found[128].utilisation["port"] < 1
