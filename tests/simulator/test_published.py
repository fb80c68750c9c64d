"""What is published of the chip beyond times of single instructions (tests/data/measurements.csv), beside the default machine."""

from __future__ import annotations

import numpy as np
import pytest

from tx8fast import isa
from tx8fast.machine import load_machine
from tx8fast.simulator.measurements import Measurement, predicted_cycles

MACHINE = load_machine()
MIB = 1 << 20


def cycles(engine: str, size: str | int, tiles: int = 1) -> int:
    return predicted_cycles(MACHINE, Measurement(engine, str(size), 1, 1, tiles))


def row_cycles(name: str, **fields) -> int:
    rows = isa.rows([isa.make(name, **fields)])
    return int(isa.durations(MACHINE, rows, np.zeros(1, np.int64))[0][0])


@pytest.mark.parametrize(("fmt", "out_fmt", "tera_ops"), [("bf16", 3, 128), ("f16", 2, 128), ("tf32", 6, 128), ("i8", 0, 256),
                                                          ("f32", 5, 21)])  # fmt: skip
def test_peaks_of_products(fmt, out_fmt, tera_ops):
    """Operations per second of the chip at a product that is large beside its start."""
    n = 1024
    took = row_cycles("gemm", left=0, right=0, out=0, m=n, k=n, n=n, fmt=fmt, out_fmt=out_fmt)
    assert 2 * n**3 * MACHINE.n_tiles * MACHINE.chip.clock_hz / took / 1e12 == pytest.approx(tera_ops, rel=0.05)


@pytest.mark.parametrize(("fmt", "giga_ops"), [("bf16", 64), ("f16", 64), ("f32", 32)])
def test_peaks_of_vectors(fmt, giga_ops):
    n = MIB
    took = row_cycles("add_vv", src0=0, src1=0, dst=0, n=n, fmt=fmt)
    assert n * MACHINE.chip.clock_hz / took / 1e9 == pytest.approx(giga_ops, rel=0.05)


def test_bandwidth_of_the_ddr():
    """About 150 GB/s with all tiles, 200 at best, and not more than 34 B a cycle for one tile."""
    took = cycles("rdma", MIB, tiles=16)
    assert 16 * MIB / took == pytest.approx(150, rel=0.05) and 16 * MIB / took <= 200
    assert MIB / cycles("rdma", MIB) <= 65536 / 1935


def test_bandwidth_between_tiles():
    assert (MIB - 2048) / (cycles("dte", MIB) - cycles("dte", 2048)) == pytest.approx(128, rel=0.05)


@pytest.mark.parametrize(("engine", "size", "rate", "low", "high"), [("rdma", 65536, 32, 220, 350), ("wdma", 65536, 32, 130, 260),
                                                                     ("tdma", 65536, 64, 10, 70)])  # fmt: skip
def test_start_of_transfers(engine, size, rate, low, high):
    """What batches of six say of the start of one: cycles beyond what its bytes take."""
    each = cycles("+".join([engine] * 4), size) / 4 - size / rate
    assert low <= each <= high


def test_room_and_banks():
    assert MACHINE.spm_limit - MACHINE.spm_base == 3 * MIB - 2 * 65536 == 3_014_656
    assert (MACHINE.tile.spm_banks, MACHINE.tile.spm_bank_width) == (8, 256)
    assert (MACHINE.c2c.link_bytes, MACHINE.dte.engines) == (25, 3)
