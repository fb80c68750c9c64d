"""Tiles that share operands do not all set up their loads at the same time."""

from __future__ import annotations

import dataclasses

import numpy as np
from support.one_op import Arg, best_plan, build, check, grouped, one_op, with_plan

from tx8fast import isa
from tx8fast.search.trial import PlanTimer
from tx8fast.simulator.cycle import simulate
from tx8fast.tile import sharing
from tx8fast.tile.tiling import Tiling

B = "blocked"
RDMA = isa.INSTRUCTIONS["rdma"].OPCODE


def product(rows: int, depth: int, cols: int):
    return one_op("gemm", Arg((1, rows, depth), "bf16", B), Arg((depth, cols), "bf16", B), out=B)


def loads(case) -> list[np.ndarray]:
    """Return the loads of every tile, loops unrolled."""
    s = case.segment
    rows = [isa.expand(s.codes[c]) for c in s.tile_code]
    return [r[r["opcode"] == RDMA] for r in rows]


def test_half_of_the_tiles_begin_with_one_more_load_of_the_same_bytes(monkeypatch) -> None:
    monkeypatch.setattr(sharing, "SHARE_MIN_BYTES", 1)
    case = product(64, 512, 4096)
    plan = best_plan(case.lowering(), case.machine)
    plan = dataclasses.replace(
        plan, parts=(1, 4, 4, 1), shard=(1, 16, 1024, 512), slices=(1, 16, 64, 512), shared=(4, 4)
    )
    assert sharing.stagger(Tiling(case.lowering(), plan)) == 2  # setups of 300 cycles and of pages
    made = with_plan(case, plan)
    of_tile = loads(made)
    early, late = [of_tile[t] for t in range(16) if t % 4 % 2 == 0], [of_tile[t] for t in range(16) if t % 4 % 2 == 1]
    assert {len(x) for x in late} == {len(early[0]) + 2} and {len(x) for x in early} == {len(early[0])}
    moved = [int((x["p"][:, 0] * x["p"][:, 2] * x["p"][:, 4] * x["p"][:, 6]).sum()) for x in of_tile]
    assert len(set(moved)) == 1
    check(made)


def test_reads_that_change_together_are_loaded_by_different_tiles() -> None:
    """Three weights of one operand, the first four times as wide: a tile loads a part of one of them, and all get all."""
    args = [Arg((1, 64, 256), "bf16", B), *(Arg((256, n), "bf16", B) for n in (2048, 512, 512))]
    body = lambda b, x, *w: [b.op("gemm", x, m, mem_layout=B).result for m in w]  # noqa: E731
    case = grouped(build(args, body))
    low = case.lowering()
    plan = best_plan(low, case.machine)
    plan = dataclasses.replace(
        plan, parts=(1, 8, 2, 1), shard=(1, 8, 256, 256), slices=(1, 8, 64, 128), shared=(2, 8, 8, 8)
    )
    assert Tiling(low, plan).loaders == {0: (0, 2), 1: (0, 5), 2: (5, 2), 3: (7, 1)}
    made = with_plan(case, plan, low)
    check(made, tolerance=4e-2)
    sends = [isa.expand(made.segment.codes[c]) for c in made.segment.tile_code]
    n_sends = {int((r["opcode"] == isa.INSTRUCTIONS["send"].OPCODE).sum()) for r in sends}
    assert n_sends == {8 + 8}, "in each of eight slices a part of the rows and one of the weights"
    timed, found = PlanTimer(low, case.machine).cycles(Tiling(low, plan)), simulate(made.program).cycles
    assert abs(timed / found - 1) < 0.05


def test_products_that_wait_for_weights_run_at_the_rate_of_the_ddr(monkeypatch) -> None:
    case = product(256, 4096, 8192)
    plan = best_plan(case.lowering(), case.machine)
    tiling = Tiling(case.lowering(), plan)
    assert max(plan.shared) > 1 and max(tiling.fills(r.factors) for r in tiling.low.reads) >= 8
    found = simulate(case.program)
    ddr_cycles = found.ddr_bytes / case.machine.ddr_bytes_per_cycle
    assert found.cycles < 1.04 * ddr_cycles
    assert abs(PlanTimer(tiling.low, case.machine).cycles(tiling) / found.cycles - 1) < 0.03
    monkeypatch.setattr(sharing, "STAGGERED", 1 << 30)
    assert simulate(with_plan(case, plan).program).cycles > 1.01 * found.cycles
