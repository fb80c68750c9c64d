"""Plans: they fit, they cover, the published example costs what it must, and no plan means a clear error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.one_op import Arg, best_plan, one_op, with_plan
from support.plain import plain_machine

from tx8fast import isa
from tx8fast.errors import InfeasibleError
from tx8fast.machine import Machine
from tx8fast.numerics.formats import FORMAT_CODES
from tx8fast.schedule.buffers import Buffers
from tx8fast.simulator.cycle import simulate
from tx8fast.tile.phases import turn_bytes
from tx8fast.tile.tiling import Plan, Tiling

B = "blocked"
TX8 = plain_machine()
SHARE = 150 / 16  # bytes per cycle of each of 16 tiles


def oracle_case():
    return one_op("gemm", Arg((1, 1024, 1024), "bf16", B), Arg((1024, 1024), "bf16", B), out=B)


def price(name: str, **fields) -> int:
    """Cycles of one transfer with 16 active tiles."""
    rows = isa.rows([isa.make(name, slot=0, ddr=0, **fields)])
    cycles, ddr_bytes = isa.durations(TX8, rows, np.zeros(1, np.int64))
    return int(cycles[0]) + math.ceil(ddr_bytes[0] / SHARE)


def test_published_gemm_component_costs() -> None:
    """Back-end notes 14.1: x shard of 256 rows, weight shard of 4 blocks, product, result shard."""
    x = price("rdma", dst=0x10000, run_bytes=32768, s0=131072, n0=16)
    w = price("rdma", dst=0x10000, run_bytes=524288)
    y = price("wdma", src=0x10000, run_bytes=32768, s0=131072, n0=4)
    low = oracle_case().lowering()
    gemm = _compute_cycles(low, (1, 256, 256, 1024))
    assert (x, w, gemm, y) == (56649, 56229, 16444, 14290)
    assert x + w + gemm + y == 143612
    half = price("rdma", dst=0x10000, run_bytes=262144), _compute_cycles(low, (1, 256, 128, 1024))
    half_y = price("wdma", src=0x10000, run_bytes=32768, s0=131072, n0=2)
    assert (*half, half_y) == (28267, 8252, 7243)
    # steps {x w0} {product 0, w1} {product 1, y0} {y1}
    assert x + half[0] + max(half[0], half[1]) + max(half[1], half_y) + half_y == 128678


def _compute_cycles(low, lens) -> int:
    from tx8fast.lower.base import Slice
    from tx8fast.lower.emitter import Emitter

    em = Emitter()
    low.emit(em, Slice((0,) * 4, lens, [0x10000] * 2, [0x10000], [], []))
    rows = isa.rows(em.rows)
    return int(isa.durations(TX8, rows, np.zeros(len(rows), np.int64))[0].sum())


def test_transfers_of_the_published_gemm() -> None:
    """The lowering makes exactly the descriptors that the example counts."""
    low = oracle_case().lowering()
    x, w, y = (a.transfers((0, 0, 0, 0), (1, 256, 256, 1024)) for a in (*low.reads, *low.writes))
    assert [(d.run_bytes, d.loops) for d in x] == [(32768, ((131072, 16),))]
    assert [(d.run_bytes, d.loops) for d in w] == [(524288, ())]
    assert [(d.run_bytes, d.loops) for d in y] == [(32768, ((131072, 4),))]


@pytest.mark.parametrize(("columns", "serial", "expected"), [(256, True, 143612), (128, False, 128678)])
def test_simulated_cycles_of_the_published_plans(columns: int, serial: bool, expected: int) -> None:
    """What comes on top is issue, the wait, the barrier - and, when tiles overlap, less or more DDR sharing."""
    plan = Plan((1, 4, 4, 1), (1, 256, 256, 1024), (1, 256, columns, 1024), (0, 1, 2, 3), 2, 0, 0, "")
    cycles = simulate(with_plan(oracle_case(), plan).program, serial=serial).cycles
    overhead = 180 + 400 + 2 * 6 * 8
    assert expected <= cycles - overhead <= expected * (1.002 if serial else 1.06)


def test_scratch_sizes_of_row_operations() -> None:
    """Softmax in f32: one value per row in 4 lanes, one block of 64 lanes per row; logarithm: a copy of the slice."""
    plain = one_op("softmax", Arg((4, 100, 256)), out="dense").lowering()
    logged = one_op("softmax", Arg((4, 100, 256)), out="dense", log=True).lowering()
    lens = (1, 10, 256)
    zero = (0, 0, 0)
    assert plain.scratch_bytes(zero, lens) == [10 * 16, 10 * 256]
    assert logged.scratch_bytes(zero, lens) == [10 * 16, 10 * 256, 10 * 1024]


@st.composite
def ops(draw):
    size = st.integers(1, 3000)
    kind = draw(st.sampled_from(["gemm", "add", "softmax", "transpose"]))
    m, n = draw(size), draw(size)
    machine = draw(st.sampled_from(["tx8", "test_2x2"]))
    if kind == "gemm":
        args = [Arg((m, draw(size)), "bf16", B)]
        return kind, [*args, Arg((args[0].shape[1], n), "bf16", B)], {}, machine
    if kind == "transpose":
        return kind, [Arg((m, n))], {"perm": (1, 0)}, machine
    return kind, [Arg((2, m, n), "bf16", B)] * (2 if kind == "add" else 1), {}, machine


@given(ops())
def test_found_plans_fit_and_use_the_tiles(what) -> None:
    kind, args, attrs, machine = what
    case = one_op(kind, *args, out="dense" if kind == "transpose" else B, machine=machine, **attrs)
    low, chip = case.lowering(), case.machine
    plan = best_plan(low, chip)
    assert math.prod(plan.parts) <= chip.n_tiles
    assert plan.spm_bytes <= chip.spm_limit - chip.spm_base
    placed = Buffers(Tiling(low, plan))
    phases = 2 * turn_bytes(chip) * len(placed.table)  # a buffer begins at a bank that suits it
    assert placed.peak <= min(plan.spm_bytes + phases, chip.spm_limit - chip.spm_base)
    for f, (size, shard, length) in enumerate(zip(low.sizes, plan.shard, plan.slices, strict=True)):
        assert 1 <= length <= shard <= size and shard * plan.parts[f] >= size
        assert shard in (size, *range(0, size, low.units[f])), "shards are whole units"
        assert low.shard[f] or plan.parts[f] == 1
        assert low.split[f] or length == shard
    assert best_plan(low, chip) == plan, "search is deterministic"


@pytest.mark.parametrize("kind", ["gemm", "add", "softmax"])
def test_more_work_never_costs_less(kind: str) -> None:
    cycles = []
    for rows in (64, 256, 1024, 4096):
        args = [Arg((rows, 1024), "bf16", B)]
        if kind != "softmax":
            args.append(Arg((1024, 1024) if kind == "gemm" else args[0].shape, "bf16", B))
        cycles.append(best_plan(one_op(kind, *args, out=B).lowering(), TX8).estimate_cycles)
    assert cycles == sorted(cycles)


def test_no_plan_fits() -> None:
    """A scratchpad of 5 KiB cannot hold one row of 16384 values: the error names op and both sizes."""
    small = TX8.to_dict()
    small["tile"]["spm_bytes"] = small["tile"]["spm_reserved_low"] + small["tile"]["spm_reserved_high"] + 5120
    low = one_op("softmax", Arg((4, 16384))).lowering()
    with pytest.raises(InfeasibleError, match=r"layer 7.*needs [\d,]+ bytes.*5,120 bytes"):
        best_plan(low, Machine.from_dict(small), "layer 7")


def test_the_error_names_what_takes_the_scratchpad() -> None:
    """The demand is the sum of the buffers; the largest are named, and what cannot be cut."""
    small = TX8.to_dict()
    small["tile"]["spm_bytes"] = small["tile"]["spm_reserved_low"] + small["tile"]["spm_reserved_high"] + 5120
    low = one_op("softmax", Arg((4, 16384))).lowering()
    with pytest.raises(InfeasibleError) as found:
        best_plan(low, Machine.from_dict(small))
    text = str(found.value)
    for part in ("operand 0 65,536", "dimensions of 16,384 points cannot be cut", "would help"):
        assert part in text, text


def test_tight_scratchpad_means_more_slices() -> None:
    case = one_op("gemm", Arg((512, 2048), "bf16", B), Arg((2048, 1024), "bf16", B), out=B)
    plenty = best_plan(case.lowering(), TX8)
    small = TX8.to_dict()
    small["tile"]["spm_bytes"] = small["tile"]["spm_reserved_low"] + small["tile"]["spm_reserved_high"] + 65536
    tight = best_plan(case.lowering(), Machine.from_dict(small))
    low = case.lowering()
    assert math.prod(Tiling(low, tight).trips) > math.prod(Tiling(low, plenty).trips)
    assert tight.spm_bytes <= 65536 < plenty.spm_bytes and tight.estimate_cycles > plenty.estimate_cycles


def test_reloads_follow_the_loop_order() -> None:
    """M outer, N inner: x is loaded once per M slice, the weight for every pair; K split: both always."""
    low = oracle_case().lowering()
    x, w = (a.factors for a in low.reads)
    plan = Plan((1, 4, 4, 1), (1, 256, 256, 1024), (1, 64, 128, 1024), (0, 1, 2, 3), 2, 0, 0, "")
    tiling = Tiling(low, plan)
    assert (tiling.fills(x), tiling.fills(w)) == (4, 8)
    swapped = tiling.but(order=(0, 2, 1, 3))
    assert (swapped.fills(x), swapped.fills(w)) == (8, 2)
    split = tiling.but(slices=(1, 64, 128, 256))
    assert (split.fills(x), split.fills(w)) == (32, 32)


def test_reduction_and_whole_factors_are_not_cut_over_tiles() -> None:
    gemm = oracle_case().lowering()
    assert gemm.reduce == (False, False, False, True) and gemm.shard == (True, True, True, False)
    rows = one_op("softmax", Arg((4, 100, 256))).lowering()
    assert rows.shard == (True, True, False) == rows.split
    assert FORMAT_CODES["bf16"] == 3
