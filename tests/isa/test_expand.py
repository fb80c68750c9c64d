"""Loop folding."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tx8fast import isa
from tx8fast.errors import SimulationError

A = 0x10000


def load(ddr, dst=A, slot=0):
    return isa.make("rdma", dst=dst, run_bytes=64, slot=slot, ddr=ddr)


def add(dst=A):
    return isa.make("add_vv", src0=A, src1=A, dst=dst, n=64)


def check(rows):
    rows = isa.rows(rows) if isinstance(rows, list) else rows
    code = isa.roll(rows)
    assert np.array_equal(isa.expand(code), rows)
    return code


def test_short_period_folds_to_one_loop():
    code = check([r for i in range(100) for r in (load(i * 64), load(i * 128, slot=1), add())])
    assert len(code) == 5
    assert code["ddr_step"][1:4, 0].tolist() == [64, 128, 0]
    assert int(code["p"][0, 0]) == 100


def test_nested_loops():
    rows = []
    for j in range(20):
        rows.append(add(A + 256))
        for i in range(30):
            rows += [load(j * 100_000 + i * 64), add()]
        rows.append(load(j * 7, slot=2))
    code = check(rows)
    assert len(code) == 8
    assert code["depth"].tolist() == [0, 1, 1, 2, 2, 1, 1, 0]
    assert code["ddr_step"][3].tolist() == [100_000, 64]


def test_steps_that_change_break_loops():
    rows = [load(64 * i * i) for i in range(50)]
    assert len(check(rows)) == 50
    rows = [load(64 * i) for i in range(50)] + [load(64 * 49 + 128 * i) for i in range(1, 50)]
    assert len(check(rows)) <= 8


def test_depth_limit_and_empty():
    rows = []
    for k in range(5):
        for j in range(6):
            for i in range(7):
                rows.append(load(k * 10**6 + j * 10**4 + i * 64))
            rows.append(add())
        rows.append(add(A + 512))
    code = check(rows)
    assert code["depth"].max() == isa.MAX_LOOPS
    assert len(check([])) == 0


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5), st.integers(0, 2)), max_size=30))
def test_roundtrip_property(parts):
    rows = []
    for kind, repeat, step in parts:
        for i in range(repeat):
            rows += [load(i * step * 64, slot=kind), add(A + 64 * kind)][: 1 + kind % 2]
    check(rows)
    check(rows * 4)


def test_large_code_is_fast():
    body = [load(0, slot=k % 5, dst=A + k * 64) for k in range(40)]
    one = isa.rows(body)
    rows = np.tile(one, 2500)
    rows["ddr"] = np.repeat(np.arange(2500), 40) * 4096
    begin = time.perf_counter()
    code = check(rows)
    assert len(code) == 42
    assert time.perf_counter() - begin < 3.0


def test_unbalanced_loops_are_reported():
    with pytest.raises(SimulationError, match="not ended"):
        isa.expand(isa.rows([isa.make("loop", count=2), add()]))
    with pytest.raises(SimulationError, match="not opened"):
        isa.expand(isa.rows([isa.make("end")]))
