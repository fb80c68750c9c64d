"""Bound and losses add up to the cycles, and each loss is what its name says."""

from __future__ import annotations

import numpy as np
import pytest
from support.one_op import Arg, one_op

from tx8fast._kernels import EventInput, simulate_events
from tx8fast.errors import ProgramError
from tx8fast.machine import load_machine
from tx8fast.simulator.cycle import simulate
from tx8fast.simulator.losses import LOSSES, account
from tx8fast.simulator.roofline import Roofline, group_roofline

CT, NE, RDMA, WAIT, BARRIER = 0, 1, 2, 6, 7
B = "blocked"
OPS = {
    "gemm": lambda: one_op("gemm", Arg((1, 512, 1024), "bf16", B), Arg((1024, 2048), "bf16", B), out=B),
    "add": lambda: one_op("add", Arg((1, 512, 2048), "bf16", B), Arg((1, 512, 2048), "bf16", B), out=B),
    "softmax": lambda: one_op("softmax", Arg((2, 8, 128, 384), "bf16", B), out=B),
    "few tiles": lambda: one_op("gemm", Arg((1, 8, 64), "bf16", B), Arg((64, 192), "bf16", B), out=B),
    "kernel core": lambda: one_op("cumsum", Arg((4, 64)), axis=1),
}  # fmt: skip


def run(*tiles: list[tuple[int, int]]):
    """Simulate tiles of (kind, cycles) rows without issue cost; rows of one tile depend on each other in order."""
    kind = np.array([k for t in tiles for k, _ in t], np.uint8)
    n = len(kind)
    read, write = np.zeros((n, 4, 2), np.int64), np.zeros((n, 2, 2), np.int64)
    write[:, 0] = 0, 64  # everything writes one place, so nothing overlaps
    size = [len(t) for t in tiles]
    begin = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    none = np.zeros((n, 2), np.int64)
    rows = EventInput(kind=kind, issue=np.zeros(n, np.int64), spm_read=read, spm_write=write, code_begin=begin[:-1],
                      tile_begin=begin, fixed=np.array([c for t in tiles for _, c in t], np.int64),
                      ddr_bytes=np.zeros(n, np.int64), ddr_read=none, ddr_write=none)  # fmt: skip
    return rows, simulate_events(rows, (6, 6, 6, 6, 4), 32.0, 150.0)


def test_worked_example_of_a_group_bound_by_the_matrix_engine() -> None:
    """Load 100, product 200, vector 50, product 300, load 30 beside nothing, wait 10, barrier 40; useful are 450."""
    tile = [(RDMA, 100), (NE, 200), (CT, 50), (NE, 300), (RDMA, 30), (WAIT, 10), (BARRIER, 40)]
    rows, times = run(tile)
    found = account(rows, times, Roofline(450.0, 1.0), 0.0)
    want = {"startup": 100, "exposed_vector": 50, "exposed_dma": 30, "bubble": 10, "barrier": 40, "overhead": 50}
    assert times.cycles == 730
    assert found == {**dict.fromkeys(LOSSES, 0.0), **want}


def test_tiles_that_are_done_wait_for_the_slowest() -> None:
    """Two tiles, 100 and 300 cycles of products: on average 100 cycles of imbalance."""
    rows, times = run([(NE, 100), (WAIT, 0), (BARRIER, 40)], [(NE, 300), (WAIT, 0), (BARRIER, 40)])
    found = account(rows, times, Roofline(200.0, 0.0), 0.0)
    assert found == {**dict.fromkeys(LOSSES, 0.0), "imbalance": 100.0, "barrier": 40.0}


def test_traffic_beyond_the_bound_is_told_from_slow_transfers() -> None:
    """Transfers 400 cycles, of which 150 must be and 250 are bytes; products of 60 cycles hide nothing."""
    rows, times = run([(RDMA, 400), (NE, 60), (WAIT, 0), (BARRIER, 10)])
    found = account(rows, times, Roofline(10.0, 150.0), 250.0)
    want = {"extra_traffic": 100, "overhead": 150, "exposed_matrix": 60, "barrier": 10}
    assert found == {**dict.fromkeys(LOSSES, 0.0), **want}


@pytest.mark.parametrize("name", OPS)
def test_bound_and_losses_are_the_cycles(name: str) -> None:
    result = simulate(OPS[name]().program)
    for g in result.groups:
        assert g.roofline.bound_cycles + sum(g.losses.values()) == pytest.approx(g.cycles)
        assert min(g.losses.values()) >= 0 and g.losses.keys() == LOSSES.keys()
        assert 0 <= g.roofline.ratio(g.cycles) <= 1
    assert result.bound_cycles + sum(result.losses.values()) == pytest.approx(result.cycles)


def test_bytes_that_an_op_does_not_need_are_not_in_its_bound() -> None:
    """An op reads one row of a table: its bound is what it moves, not the table."""
    machine = load_machine("tx8")
    bound = group_roofline(machine, [{"useful_macs": 0, "operand_bytes": 1 << 30}], {}, 1500)
    assert bound.memory_cycles == pytest.approx(1500 / machine.ddr_bytes_per_cycle) and bound.unique_ddr_bytes == 1500


def test_damaged_terms_are_refused() -> None:
    with pytest.raises(ProgramError, match="segment info 'operand_bytes' is -1"):
        group_roofline(load_machine("tx8"), [{"operand_bytes": -1}], {}, 0)
