"""Arbitration of whole programs: forms of rows, sets arbitrated once, against every row by itself."""

from __future__ import annotations

import random

import numpy as np
import pytest
from simulator import banks_oracle

from tx8fast.machine import DDR_BASE, load_machine
from tx8fast.program.builder import CodeBuilder, make_program, make_segment
from tx8fast.simulator import banks
from tx8fast.simulator.arbitration import Arbiter, distinct
from tx8fast.simulator.cycle import simulate

PLACES = range(0x10000, 0x2A0000, 0x10100)  # of all phases of the banks


def random_code(seed):
    """Rows of all engines on operands anywhere, messages included."""
    r = random.Random(seed)
    b, messages = CodeBuilder(), 0
    for _ in range(40):
        a, c, d, e = (r.choice(PLACES) for _ in range(4))
        worker, kind = r.randrange(2), r.randrange(6)
        if kind == 0:
            m, k, n = (r.choice((64, 128, 192)) for _ in range(3))
            b.add("gemm", left=a, right=c, out=d, m=m, k=k, n=n, fmt="bf16", out_fmt=3, worker=worker)
        elif kind == 1:
            b.add("add_vv", src0=a, src1=c, dst=d, n=r.choice((1024, 4096)), fmt="bf16", worker=worker)
        elif kind == 2:
            b.add("rdma", dst=a, run_bytes=r.choice((4096, 16384)), slot=0, worker=worker)
        elif kind == 3:
            b.add("wdma", src=c, run_bytes=8192, slot=0, worker=worker)
        elif kind == 4:
            b.add("memset", dst=e, value=0, n=4096, fmt="bf16", worker=worker)
        elif messages < 5:
            b.add("send", src=a, dst=d, bytes=4096, mask=1 << 1)
            messages += 1
    return b, messages


def program(seed, fifo):
    m = load_machine("test_2x2", {"tile.spm_model": 3, "tile.spm_fifo_beats": fifo, "kcore.issue_per_reg": 0})
    (one, messages), (two, _) = random_code(seed), (CodeBuilder(), 0)
    for _ in range(messages):
        two.add("recv", monitor=0, bytes=4096)
    two.add("gemm", left=0x10000, right=0x10000, out=0x90000, m=64, k=64, n=64, fmt="bf16", out_fmt=3)
    codes = [b.finish().code() for b in (one, two)]
    return make_program(m, [make_segment(m, "s", codes, [0, 1, -1, -1], [0])], [(0, [DDR_BASE])])


@pytest.mark.parametrize("seed", range(6))
def test_forms_change_nothing(seed, monkeypatch):
    p = program(seed, 16 if seed < 4 else 17)
    found = simulate(p).to_json()
    monkeypatch.setattr(banks, "settle", lambda *args: banks_oracle.settle(*args[:4]))
    assert simulate(p).to_json() == found
    p.machine["tile"]["spm_model"] = 1
    before, after = simulate(p).busy, found["busy_cycles"]
    assert before["ne"] + before["ct"] < after["ne"] + after["ct"]  # there were conflicts


def test_sets_are_arbitrated_once(monkeypatch):
    arbiter = Arbiter(load_machine("tx8", {"tile.spm_model": 3}))
    seen = []
    monkeypatch.setattr(arbiter, "_arbitrate", lambda sets: seen.append(len(sets)) or np.ones((len(sets), 2)))
    first, streamed = np.array([[0, 256], [0, 256], [2048, 256]]), np.array([[1280, 0]] * 3)
    forms = arbiter.form_ids(first, streamed, np.array([10, 10, 10]))
    assert forms.tolist() == [0, 0, 0]  # eight banks further is the same bank; nothing is read from the second
    arbiter.speeds(np.array([forms, [-1, -1, -1]]))
    arbiter.speeds(np.array([forms, [-1, 0, -1]]))
    assert seen == [1, 1]


def test_distinct_rows_of_wide_tables():
    """Columns whose ranges together exceed 64 bits."""
    r = np.random.default_rng(3)
    table = r.integers(0, 1 << 40, (50, 5))[r.integers(0, 50, 300)]
    at, which = distinct(list(table.T))
    assert len(at) == len(np.unique(table, axis=0)) and (table[at][which] == table).all()
