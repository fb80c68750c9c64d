"""Rows between tiles: fields, costs, ranges; the worker of a row."""

import numpy as np
import pytest
from isa_state import DDR_BASE, A, B, new_state
from support.plain import plain_machine

from tx8fast import isa
from tx8fast.errors import SimulationError
from tx8fast.isa.comm import mask_diameter, mask_of, mask_tiles, message_cycles
from tx8fast.machine import topology
from tx8fast.simulator.state import run_row

MACHINE = plain_machine()


def one(name, **fields):
    return isa.rows([isa.make(name, **fields)])


def cost(name, **fields):
    return int(isa.durations(MACHINE, one(name, **fields), np.zeros(1, np.int64))[0][0])


def test_message_costs():
    want = {(1, 2048): 1444, (1, 8192): 1492, (1, 65536): 1940, (15, 65536): 1980}
    for (dst, size), cycles in want.items():
        assert message_cycles(MACHINE, 0, 1 << dst, size) == cycles
    assert message_cycles(MACHINE, 5, mask_of(range(16)), 128) == 1320 + 100 + 4 * 8 + 1
    send = one("send", src=A, dst=B, bytes=2048, mask=2)
    assert isa.issue_cycles(MACHINE, send).tolist() == [20 + 4 * 6 + 1320]
    # without hops: rows do not know their tile
    assert cost("send", src=A, dst=B, bytes=2048, mask=2) == 100 + 16
    assert isa.UNITS[isa.units(send)[0]] == "dte"
    spans = isa.ranges(send, np.zeros(1, np.int64))
    assert spans["spm_read"][0, 0].tolist() == [A, A + 2048]
    assert spans["spm_write"][0, 0].tolist() == [B, B + 2048]


def test_synchronisation_costs():
    assert cost("barrier_sub", mask=0b11) == 400 + 2 * 8
    assert cost("barrier_sub", mask=0x33) == 400 + 2 * 2 * 8
    assert cost("barrier_sub", mask=0xFFFF) == cost("barrier") == 496
    assert cost("barrier_sub", mask=1 << 7) == 400
    assert cost("handshake", peer=3) == 120
    assert cost("wait_worker", workers=5) == cost("wait") == 180
    assert cost("recv", monitor=0, bytes=5) == cost("send_wait") == 0
    assert isa.issue_cycles(MACHINE, one("recv", monitor=0, bytes=5)).tolist() == [0]


def test_masks():
    rng = np.random.default_rng(1)
    hops = topology(4, 4).hops
    for _ in range(50):
        tiles = sorted(rng.choice(16, int(rng.integers(1, 16)), replace=False).tolist())
        assert mask_tiles(mask_of(tiles)) == tiles
        diameter = mask_diameter(MACHINE, mask_of(tiles))
        assert hops[np.ix_(tiles, tiles)].max() <= diameter <= 6
    assert mask_tiles(0) == []


def test_worker_is_part_of_a_row():
    rows = isa.rows(
        [isa.make("rdma", dst=A, run_bytes=64, slot=0, ddr=64 * i, worker=k) for k in (0, 2) for i in range(20)]
    )
    assert rows["worker"].tolist() == [0] * 20 + [2] * 20
    code = isa.roll(rows)
    assert len(code) == 6 and code["worker"].tolist() == [0, 0, 0, 0, 2, 0]
    assert np.array_equal(isa.expand(code), rows)
    assert isa.decode(rows[-1])["worker"] == 2
    many = isa.make_rows("send", 3, src=A, dst=B, bytes=64, mask=[1, 2, 4], worker=1)
    assert many["worker"].tolist() == [1, 1, 1]
    assert [isa.decode(r)["mask"] for r in many] == [1, 2, 4]
    assert isa.RECORD.itemsize == 256


def test_a_lone_tile_cannot_send():
    with pytest.raises(SimulationError, match="no launch is running"):
        run_row(new_state(), one("send", src=A, dst=B, bytes=64, mask=2)[0], DDR_BASE)
