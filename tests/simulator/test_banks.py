"""Bank conflicts of the scratchpad, models 1 to 3, and the performance monitor's counters."""

from __future__ import annotations

import json
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.plain import plain_machine

from tx8fast._kernels import STEPS, bank_shares
from tx8fast._kernels._facade_banks import JITTER, WINDOW
from tx8fast.errors import ConfigError
from tx8fast.machine import DDR_BASE
from tx8fast.program.builder import CodeBuilder, make_program, make_segment
from tx8fast.simulator.cycle import simulate, trace

A, B, C, D, E, F = (0x10000 + k * 0x48000 for k in range(6))
GEMM = dict(left=A, right=B, out=C, m=256, k=512, n=256, fmt="bf16", out_fmt=3)
ADD = dict(src0=D, src1=E, dst=F, n=16384, fmt="f32")
GEMM_TIME, ADD_TIME = 8252, 45 + 512
#: bytes of both rows: the left operand is read once per 64 columns
GEMM_BYTES = 4 * 2 * 256 * 512 + 2 * 256 * 512 + 2 * 256 * 256
ADD_BYTES = 3 * 65536


def arbitrate(asked, banks, per_bank, fifo=16):
    """The share of each lane; lanes are given by their streams (first beat, parts of a beat per cycle)."""
    lane, beat, step = zip(*[(k, *stream) for k, streams in enumerate(asked) for stream in streams] or [(0, 0, 1)])
    n = sum(map(len, asked))
    lane, beat, step = (np.array(c[:n], np.int64) for c in (lane, beat, step))
    return tuple(bank_shares(np.array([0, n]), lane, beat, step, len(asked), banks, per_bank, [fifo])[0, 0].tolist())


def machine(model, **keys):
    return plain_machine(**{"tile.spm_model": model, **{f"tile.{k}": v for k, v in keys.items()}})


def times(m, build, tile=0):
    b = CodeBuilder()
    build(b)
    segment = make_segment(m, "s", [b.finish().code()], [0 if t == tile else -1 for t in range(16)], [0])
    program = make_program(m, [segment], [(0, [DDR_BASE])])
    t = trace(program, 0)[tile]
    return t.start.tolist(), (t.end - t.start).tolist(), program


def pair(b):
    b.add("gemm", **GEMM).add("add_vv", **ADD)


def test_model_1_has_no_conflicts():
    assert times(machine(1, spm_banks=1), pair)[1][:2] == [GEMM_TIME, ADD_TIME]


def test_moves_beside_the_vector_engine():
    """A move of 296 cycles begins 76 cycles after an addition of 557: at half its rate until that is over."""

    def build(b):
        b.add("add_vv", **ADD).add("gather_scatter", src0=A, dst=B, size=16384)

    for percent, cycles in ((100, 296), (50, 557 - 76 + ceil(296 - (557 - 76) / 2))):
        m = plain_machine(**{"tile.spm_model": 2, "tdma.beside_ct_percent": percent})
        assert times(m, build)[1][:2] == [ADD_TIME, cycles]


@pytest.mark.parametrize("banks", [8, 2, 1])
def test_model_2_shares_the_bandwidth(banks):
    """Two rows slow down alike while both run, and by themselves if one alone asks for more than there is."""
    m = machine(2, spm_banks=banks)
    start, length, _ = times(m, pair)
    ceiling = banks * 256
    both = max(1, (GEMM_BYTES / GEMM_TIME + ADD_BYTES / ADD_TIME) / ceiling)
    alone = max(1, GEMM_BYTES / GEMM_TIME / ceiling)
    assert start[1] - start[0] == 44 and alone == 1
    assert (both > 1) == (banks < 8)
    assert length[1] == ceil(ADD_TIME * both - 1e-6)
    assert abs(length[0] - (GEMM_TIME + length[1] * (1 - 1 / both))) <= 1
    lone = times(m, lambda b: b.add("add_vv", **ADD))[1][0]
    assert lone == ceil(ADD_TIME * max(1, ADD_BYTES / ADD_TIME / ceiling) - 1e-6)


def test_model_2_keeps_every_default_timing():
    """All ports together ask for less than eight banks deliver."""
    assert 128 * (3 + 5 + 4 + 2) < 8 * 256
    assert times(machine(2), pair)[1] == times(machine(1), pair)[1]


def test_model_3_single_streams_and_priority():
    full = (0, STEPS)
    assert arbitrate(((full,), (), ()), 8, 2) == (1.0, 1.0, 1.0)
    # streams through different banks at any time do not meet
    assert arbitrate(((full,), ((4, STEPS),)), 8, 2) == (1.0, 1.0)
    # the same phase: after waiting two beats the second follows behind the first
    assert arbitrate(((full,), (full,)), 8, 2) == (1.0, 1.0)
    # one bank, one access per cycle: all of it goes to the first
    assert arbitrate(((full,), (full,)), 1, 2) == (1.0, JITTER / WINDOW)
    # half rates fit beside each other
    assert arbitrate((((0, STEPS // 2),), ((0, STEPS // 2),)), 1, 2) == (1.0, 1.0)


@pytest.mark.parametrize("ports", [2, 3, 5])
def test_model_3_operands_of_one_row_wait_for_each_other(ports):
    (share,) = arbitrate((tuple((0, STEPS) for _ in range(ports)),), 1, 2)
    assert share == pytest.approx(1 / ports, abs=2 * JITTER / WINDOW)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 15), st.integers(1, STEPS)), max_size=4).map(tuple), min_size=1, max_size=5),
       st.sampled_from([1, 2, 4, 8]))  # fmt: skip
def test_model_3_serves_no_more_than_the_banks_have(asked, banks):
    shares = arbitrate(tuple(asked), banks, 2)
    assert all(0 < s <= 1 for s in shares)
    beats = sum(share * step for share, streams in zip(shares, asked) for _, step in streams) / STEPS
    assert beats <= banks + sum(map(len, asked)) * JITTER / WINDOW + 1e-9
    # more banks never hurt the first
    assert arbitrate(tuple(asked), 2 * banks, 2)[0] >= shares[0] - JITTER / WINDOW or len(asked[0]) > 1


def test_model_3_stretches_rows():
    m = machine(3, spm_banks=1)
    _, length, _ = times(m, lambda b: b.add("add_vv", **ADD))
    # three operands of 30 / 32 beats per cycle share one access per cycle
    assert length[0] == pytest.approx(ADD_TIME * 3 * 30 / 32, rel=0.02)
    _, with_banks, _ = times(machine(3), lambda b: b.add("add_vv", **ADD))
    assert with_banks[0] == ADD_TIME
    slow, fast = times(m, pair)[1], times(machine(3), pair)[1]
    assert fast[1] == ADD_TIME and fast[0] == pytest.approx(GEMM_TIME, rel=0.005)
    assert slow[0] > GEMM_TIME and slow[1] > ADD_TIME


@pytest.mark.parametrize("model", [2, 3])
def test_dependencies_hold_with_stretched_rows(model):
    """A chain of rows that wait for each other; serial mode overlaps nothing, so rows keep their own times."""
    m = machine(model, spm_banks=2)

    def chain(b):
        for k in range(4):
            b.add("gemm", **GEMM | {"m": 64})
            b.add("add_vv", **ADD | {"src0": C, "src1": C, "dst": F, "n": 64 * 256 // 2})
            b.add("add_vv", **ADD | {"worker": 1})

    start, length, program = times(m, chain)
    for k in range(4):
        gemm, own = 3 * k, 3 * k + 1
        assert start[own] >= start[gemm] + length[gemm]
    assert simulate(program).cycles == simulate(program).cycles >= simulate(times(machine(1), chain)[2]).cycles


def test_unknown_model_is_refused():
    with pytest.raises(ConfigError, match="spm_model: found 4"):
        machine(4)


def test_counters_under_the_monitors_names():
    def some(b):
        b.add("rdma", dst=A, run_bytes=65536, slot=0)
        b.add("add_vv", **ADD).add("add_vv", **ADD | {"worker": 1}).add("gemm", **GEMM | {"left": D})
        b.add("send", src=A, dst=A, bytes=4096, mask=1 << 5).add("recv", monitor=0, bytes=4096)

    start, length, program = times(machine(1), some, tile=5)
    tree = json.loads(json.dumps(simulate(program).to_json()))["counters"]
    assert set(tree) == {
        "engines",
        "union_busy_cycles",
        "statistics_window_cycles",
        "dte_instructions",
        "dte_execution_cycles",
    }
    assert {n: e["instructions"] for n, e in tree["engines"].items()} == {
        "ct": 2,
        "ne": 1,
        "rdma": 1,
        "wdma": 0,
        "tdma": 0,
    }
    assert tree["engines"]["ne"]["execution_cycles"] == GEMM_TIME
    assert tree["engines"]["ct"]["execution_cycles"] == 2 * ADD_TIME
    # the left operand is being read by the additions: nothing to wait for
    assert tree["engines"]["ne"]["blocking_cycles"] == 0
    busy = np.zeros(max(s + n for s, n in zip(start, length)) + 1, bool)
    for s, n in list(zip(start, length))[:4]:
        busy[s : s + n] = True
    assert tree["union_busy_cycles"] == busy.sum()
    assert tree["dte_instructions"] == 1 and tree["dte_execution_cycles"] == length[4]
    assert tree["statistics_window_cycles"] == simulate(program).cycles
