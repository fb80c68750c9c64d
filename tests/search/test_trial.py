"""The trial of a plan on one tile agrees with the simulation of all tiles' code."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.one_op import Arg, one_op, random_plan, with_plan

import tx8fast
from tx8fast import isa
from tx8fast.search import trial
from tx8fast.search.blocks import Pool
from tx8fast.search.trial import HOPELESS, PlanTimer
from tx8fast.simulator.cycle import simulate
from tx8fast.tile import schedule
from tx8fast.tile.blocks import Columns
from tx8fast.tile.nest import loop_steps
from tx8fast.tile.tiling import Plan, Tiling

B = "blocked"
ZOO = Path(tx8fast.__file__).parent / "zoo"
CASES = {
    "gemm": lambda: one_op("gemm", Arg((1, 512, 1024), "bf16", B), Arg((1024, 2048), "bf16", B), out=B),
    "decode gemm": lambda: one_op("gemm", Arg((1, 1, 2048), "bf16", B), Arg((2048, 4096), "bf16", B), out=B),
    "f32 gemm": lambda: one_op("gemm", Arg((2, 128, 768), "f32", B), Arg((768, 768), "f32", B), Arg((768,)), out=B),
    "scores": lambda: one_op(
        "contract", Arg((1, 128, 1024), "bf16", B), Arg((1, 256, 256), "bf16", B), out=B,
        equation="b s (h g d), b t (h d) -> b (h g) s t", sizes=("h", 4, "d", 64)),
    "softmax": lambda: one_op("softmax", Arg((2, 8, 128, 384), "bf16", B), Arg((128, 384), "bf16", B), out=B),
    "rmsnorm": lambda: one_op("rmsnorm", Arg((1, 512, 2048), "bf16", B), Arg((2048,), "bf16"), out=B),
    "gelu": lambda: one_op("gelu", Arg((1, 512, 1024), "f32", B), out=B),
    "add": lambda: one_op("add", Arg((1, 512, 2048), "bf16", B), Arg((1, 512, 2048), "bf16", B), out=B),
    "channel_norm": lambda: one_op("channel_norm", Arg((1, 512, 1024), "bf16"), out=B, to="align"),
    "conv": lambda: one_op("conv", Arg((1, 56, 56, 64), "bf16", B), Arg((3, 3, 64, 64), "bf16", B), out=B, pad_lo=(1, 1),
                           pad_hi=(1, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_estimate_of_found_plans(name: str) -> None:
    case = CASES[name]()
    cycles = simulate(case.program).cycles
    assert abs(case.segment.estimate_cycles / cycles - 1) < 0.1, (case.segment.estimate_cycles, cycles)


@pytest.mark.parametrize("name", CASES)
def test_estimate_of_random_plans_without_shared_loads(name: str) -> None:
    """Plans that leave the last tiles less to do are estimated by their fullest tile: never far too low."""
    case = CASES[name]()
    timer = PlanTimer(case.lowering(), case.machine)
    rng = np.random.default_rng(7)
    ratios = []
    for _ in range(6):
        plan = random_plan(case, rng)
        if plan is not None:
            plan = replace(plan, shared=())
            ratios.append(timer.cycles(Tiling(timer.low, plan)) / simulate(with_plan(case, plan).program).cycles)
    assert ratios and min(ratios) > 0.85 and np.median(np.abs(np.array(ratios) - 1)) < 0.1, ratios


def test_long_loop_nests_are_continued_at_their_rate() -> None:
    """Far more steps than are tried: the estimate stays with the simulation."""
    case = CASES["add"]()
    plan = Plan((1, 16, 1), (1, 32, 2048), (1, 1, 128), (0, 1, 2), 2, 0, 0, "")
    tiling = Tiling(case.lowering(), plan)
    estimate = PlanTimer(tiling.low, case.machine).cycles(tiling)
    assert np.prod(tiling.trips) == 512
    assert abs(estimate / simulate(with_plan(case, plan).program).cycles - 1) < 0.03


def test_steps_load_what_changes_and_alternate_copies() -> None:
    """M in 2, N in 2, K in 2: x is loaded at every K step, w too; the result's copy changes when K is complete."""
    low = CASES["gemm"]().lowering()
    plan = Plan((1, 1, 1, 1), (1, 16, 128, 256), (1, 8, 64, 128), (0, 1, 2, 3), 2, 0, 0, "")
    tiling = Tiling(low, plan)
    steps = loop_steps(tiling, (0, 0, 0, 0), plan.shard)
    assert tiling.copies == (2, 2, 2) and len(steps) == 8
    assert [s.load for s in steps] == [(0, 1)] * 8
    assert [s.copy[2] for s in steps] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert [(s.first, s.last) for s in steps] == [(True, False), (False, True)] * 4
    steps = loop_steps(tiling.but(slices=(1, 8, 64, 256)), (0, 0, 0, 0), plan.shard)
    assert [s.load for s in steps] == [(0, 1), (1,), (0, 1), (1,)]
    assert [s.copy for s in steps] == [(0, 0, 0), (0, 1, 1), (1, 0, 0), (1, 1, 1)]


def test_rows_that_blocks_have_in_common_are_those_of_every_block() -> None:
    """Blocks of a pool, put together from distinct rows, are what their rows give one by one."""
    machine = one_op("abs", Arg((5, 5))).machine
    add = [isa.make("add_vv", src0=4096 * i, src1=0, dst=8192, n=64 + 64 * (i % 2), fmt=3) for i in range(3)]
    load = isa.make("rdma", slot=0, ddr=128, dst=4096, run_bytes=640)
    blocks = [[add[0], load], [load, add[1], add[0]], [add[2], load, load]]
    pool = Pool(machine)
    numbers = [pool.want(("block", 0), blocks[0])]
    pool.fill()
    numbers += [pool.want(("block", i), rows) for i, rows in enumerate(blocks[1:], 1)]
    pool.fill()
    assert numbers == list(range(3)) and len(pool.rows.kind) == 4
    for number, rows in zip(numbers, blocks, strict=True):
        begin = pool.begin[number]
        found = pool.rows.of(pool.place[begin : begin + pool.size[number]])
        for name, column in vars(Columns(machine, isa.rows(rows))).items():
            assert (getattr(found, name) == column).all(), name


def test_rows_of_moved_blocks_are_made_once() -> None:
    """What rows touch moves with their block, space by space; rows of equal blocks and shifts are one."""
    machine = one_op("abs", Arg((5, 5))).machine
    space, pool = 1 << 20, Pool(machine)
    add = isa.make("add_vv", src0=space, src1=2 * space, dst=3 * space, n=64, fmt=3)
    load = isa.make("rdma", slot=0, ddr=128, dst=space + 4096, run_bytes=640)
    pool.want(("both",), [add, load])
    pool.want(("load",), [load])
    pool.fill()
    distances = np.array([[0, 0, 0, 0], [0, 1 << 10, 1 << 11, 1 << 12]])
    plain, which = pool.moved(np.array([0, 1, 0, 0]), np.array([1, 0, 1, 0]), distances, space)
    assert len(plain.kind) == 5 and len(which) == 7 and (which[:2] == which[3:5]).all()
    found, own = plain.of(which), pool.rows.of(pool.place[np.array([0, 1, 2, 0, 1, 0, 1])])
    for touched, before in ((found.read, own.read), (found.write, own.write)):
        moved = before + np.where(np.array([1, 1, 0, 1, 1, 0, 0]) > 0, distances[1][before // space].T, 0).T
        assert (touched == moved).all()


def test_trips_that_were_tried_are_not_tried_again(monkeypatch) -> None:
    """A plan that is timed with fewer trips left out, but has none to leave out, takes what it took."""
    case = CASES["gemm"]()
    timer, tried = PlanTimer(case.lowering(), case.machine), []
    prepare = PlanTimer._prepare
    monkeypatch.setattr(PlanTimer, "_prepare", lambda self, *what: tried.append(what) or prepare(self, *what))
    short = Plan((1, 1, 1, 1), (1, 16, 128, 256), (1, 8, 64, 128), (0, 1, 2, 3), 2, 0, 0, "")
    long = Plan((1, 1, 1, 1), (1, 512, 2048, 1024), (1, 8, 64, 128), (0, 1, 2, 3), 2, 0, 0, "")
    tilings = [Tiling(timer.low, plan) for plan in (short, long)]
    took = timer.all_cycles(tilings)
    assert len(tried) == 2
    assert timer.closer().all_cycles(tilings)[0] == took[0]
    assert len(tried) == 3


@pytest.mark.parametrize(
    ("name", "seq"), [("gpt2", 300), ("bert-base", 77), ("gemma-2-9b", 96), ("llama-3.2-1b", 1000)]
)
@pytest.mark.slow
def test_no_order_of_a_plan_is_far_below_its_first_one(name: str, seq: int, tmp_path: Path, monkeypatch) -> None:
    """What lets the search stop at the first order of plans far above the best one."""
    shares: list[float] = []

    def better(cycles: list[int]) -> int:
        shares.append(min(cycles) / cycles[0])
        return schedule.better(cycles)

    monkeypatch.setattr(trial, "better", better)
    monkeypatch.setattr(trial, "HOPELESS", 0.0)  # all orders are tried
    shutil.copy(ZOO / f"{name}.json", tmp_path / "config.json")
    tx8fast.compile(tmp_path, seq=seq)
    assert len(shares) > 20 and HOPELESS <= min(shares) < 1


@pytest.mark.parametrize("name, past", [("gemma-3-27b", 2048), ("qwen2.5-7b", 500)])
@pytest.mark.slow
def test_steps_that_are_left_out_take_what_they_take_when_tried(
    name: str, past: int, tmp_path: Path, monkeypatch
) -> None:
    """Queries and keys of a decode step, whatever the slices of their sums: an order in which keys come late and catch up is no faster."""
    seen: dict[str, Tiling] = {}
    monkeypatch.setattr(PlanTimer, "all_cycles", spied(seen))
    shutil.copy(ZOO / f"{name}.json", tmp_path / "config.json")
    tx8fast.compile(tmp_path, phase="decode", past=past)
    tiling = seen["first"]
    plan, low = tiling.plan, tiling.low
    for length in (64, 128, 192, 384):
        cut = Tiling(low, plan.but(slices=(*plan.slices[:-1], length)))
        few, many = (PlanTimer(low, low.machine, most=most).cycles(cut) for most in (24, 128))
        assert few == pytest.approx(many, rel=0.02), length


def spied(seen: dict[str, Tiling]):
    """Return `PlanTimer.all_cycles`, which keeps a plan, with columns on all tiles, of two products with rotations whose left operand stays."""
    inner = PlanTimer.all_cycles

    def kept(timer: PlanTimer, tilings, *rest):
        ops = [op.kind for op in getattr(timer.low.record, "ops", ())]
        if timer.low.variant and ops.count("gemm") == ops.count("rope") == 2:
            seen.update(
                {"first": t for t in tilings if t.plan.parts == (1, 1, 16, 1) and max(t.plan.shared, default=1) == 1}
            )
        return inner(timer, tilings, *rest)

    return kept
