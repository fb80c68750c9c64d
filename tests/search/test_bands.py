"""Longer slices of a reduction where a product's sums wait for banks: taken for what they save, and for nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from support.one_op import MACHINES, Arg, Case, build, check, grouped, with_plan

import tx8fast
from tests.simulator.planting import findings
from tx8fast.lower import in_bands, lower
from tx8fast.machine import Machine
from tx8fast.machine.tags import changed
from tx8fast.search import bands
from tx8fast.search.trial import PlanTimer
from tx8fast.simulator.stretch import total_cycles
from tx8fast.tile.bank_losses import DEPTHS
from tx8fast.tile.phases import lost_share
from tx8fast.tile.tiling import Plan, Planned, Tiling

CHIP = changed(MACHINES["test_2x2"], {"tile.spm_model": 3})
FREE = changed(CHIP, {"tile.spm_model": 1})
ROWS, DEPTH, COLUMNS = 1024, 4096, 1024


def product() -> Case:
    """A product to which rows are added, large enough for four tiles to be busy."""
    left, right, x = (Arg(shape, "bf16", "blocked") for shape in ((ROWS, DEPTH), (DEPTH, COLUMNS), (ROWS, COLUMNS)))

    def body(b, left, right, x):
        y = b.op("gemm", left, right, mem_layout="blocked").results[0]
        return [b.op("add", x, y, mem_layout="blocked").results[0]]

    return grouped(build((left, right, x), body, machine="test_2x2"))


def planned(case: Case, length: int, chip: Machine = CHIP) -> Planned:
    """Return the plan of one slice of rows and columns per tile, two if there is no room, with slices of the reduction of a length."""
    low = lower(case.records[0], chip)[0]
    plan = Plan(
        (2, 2, 1),
        (512, 512, DEPTH),
        (512 if length <= 128 else 256, 512, length),
        (0, 1, 2),
        1,
        0,
        0,
        "",
        shared=(2, 2, 1),
    )
    made = Tiling(low, plan)
    return Planned(made.but(spm_bytes=made.demand_bytes(), estimate_cycles=PlanTimer(low, chip).final(made)), "")


def longer(case: Case, depth: int) -> float:
    """Return by what share the program takes longer with banks."""
    banks = changed(CHIP, {"tile.spm_fifo_beats": depth})
    return total_cycles(case.program, banks) / total_cycles(case.program, FREE) - 1


@pytest.mark.parametrize("length", [64, 128, 192, 256])
@pytest.mark.slow(but_every=3)
def test_the_share_is_what_the_simulator_says(length: int) -> None:
    case = product()
    made = planned(case, length)
    worst = max(longer(with_plan(case, made.plan), d) for d in DEPTHS)
    assert lost_share(made.tiling) == pytest.approx(worst, abs=0.03)
    assert (worst < 0.01) == (length >= 192)


def test_slices_get_longer_where_products_wait_for_banks() -> None:
    case = product()
    before = planned(case, 128)
    made = bands.undisturbed(before, (), CHIP)
    assert (
        made.low.variant == in_bands(case.records[0], CHIP).variant and made.plan.slices[:2] == before.plan.slices[:2]
    )
    assert made.plan.slices[2] >= 192 and lost_share(made.tiling) < 0.01
    assert made.plan.spm_bytes <= CHIP.spm_limit - CHIP.spm_base
    banks = changed(CHIP, {"tile.spm_fifo_beats": 9})
    programs = [with_plan(case, p.plan, p.low).program for p in (before, made)]
    assert not findings(programs[1])
    whole, finished = (total_cycles(p, banks) for p in programs)
    assert finished < 0.985 * whole


def test_other_plans_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices that lose nothing, those of which longer ones take more time than they save, and on a machine without conflicts."""
    assert lost_share(planned(product(), 128, FREE).tiling) == 0
    case = product()
    for length in (256, 512):
        before = planned(case, length)
        assert bands.undisturbed(before, (), CHIP) is before
    before = planned(case, 128)
    slow = int(before.plan.estimate_cycles * (1.01 + lost_share(before.tiling)))
    monkeypatch.setattr(PlanTimer, "final", lambda timer, tiling: slow)
    assert bands.undisturbed(before, (), CHIP) is before


def feed_forward(rows: int, hidden: int) -> tuple[Case, Planned]:
    """Two products in turn, and their plan with slices of 64 hidden columns."""
    sizes = ((rows, 256), (256, hidden), (hidden, 512))
    args = [Arg(shape, "bf16", "blocked", -0.3, 0.3) for shape in sizes]

    def body(b, x, w, v):
        op = lambda kind, *x: b.op(kind, *x, mem_layout="blocked").results[0]  # noqa: E731
        return [op("gemm", op("gelu", op("gemm", x, w)), v)]

    case = grouped(build(args, body, machine="test_2x2"))
    low = lower(case.records[0], CHIP)[0]
    shared = tuple(4 if a.factors == {1} else 1 for a in low.reads)
    made = Tiling(low, Plan((4, 1), (rows // 4, hidden), (rows // 4, 64), (0, 1), 2, 0, 0, "", shared=shared))
    return case, Planned(made.but(spm_bytes=made.demand_bytes(), estimate_cycles=PlanTimer(low, CHIP).final(made)), "")


def test_two_products_in_turn_get_longer_slices() -> None:
    """All lengths for which there is room are timed, each as even as the hidden columns allow."""
    case, before = feed_forward(256, 1216)
    room = before.plan.spm_bytes * 3
    longer = bands._longer(before.low, before.plan, room)
    assert [t.plan.slices[1] for t in longer] == [128, 192, 256]
    assert all(t.plan.spm_bytes == t.demand_bytes() <= room for t in longer)
    chip = changed(CHIP, {"tile.spm_bytes": CHIP.spm_base + CHIP.tile.spm_reserved_high + room})
    made = bands.undisturbed(before, (), chip)
    cost = {t.plan.slices[1]: PlanTimer(t.low, CHIP).final(t) * (1 + lost_share(t)) for t in longer}
    assert made.low is before.low and made.plan.slices[1] == min(cost, key=lambda length: cost[length])
    assert made.plan.runner_up is not None and made.plan.runner_up.slices == before.plan.slices
    program = with_plan(case, made.plan, made.low)
    assert not findings(program.program)
    check(program, [a.values(np.random.default_rng(1)) for a in case.args], tolerance=3e-2)
    assert total_cycles(program.program, CHIP) < total_cycles(with_plan(case, before.plan).program, CHIP)


def test_two_products_in_turn_stay_where_longer_slices_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    _, before = feed_forward(256, 1216)
    monkeypatch.setattr(PlanTimer, "final", lambda timer, tiling: 2 * before.plan.estimate_cycles)
    assert bands.undisturbed(before, (), CHIP) is before


def test_a_plan_that_waits_less_for_banks_is_taken_from_those_nearby(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that take little longer by themselves, the one that takes least with banks; none if all lose as much, or take longer
    than is lost."""
    case, before = feed_forward(256, 1216)
    share = lost_share(before.tiling)
    assert share > 0.02
    calm = {
        length: Tiling(before.low, before.plan.but(slices=(before.plan.slices[0], length))) for length in (192, 320)
    }
    assert all(lost_share(t) < share / 2 for t in calm.values())
    monkeypatch.setattr(bands, "_longer", lambda *given: [])
    monkeypatch.setattr(bands, "in_bands", lambda *given: None)

    def taken(**cycles: float) -> Tiling:
        """Return the plan if others take so many times its cycles."""
        near = [calm[int(n[1:])].but(estimate_cycles=int(x * before.plan.estimate_cycles)) for n, x in cycles.items()]
        return bands.undisturbed(before, [before.tiling, *near], CHIP).tiling

    assert taken(_192=1.01, _320=1 + share / 4).plan.slices[1] == 192
    assert taken(_192=1.001 + share).plan == before.plan
    assert taken().plan == before.plan


@pytest.mark.slow
def test_a_plan_with_bands_comes_back_from_a_file(tmp_path: Path) -> None:
    """The down projection of a Llama layer of 8 billion parameters has one, and is what its file says."""
    shutil.copy(Path(tx8fast.__file__).parent / "zoo" / "llama-3.1-8b.json", tmp_path / "config.json")
    first = tx8fast.compile(tmp_path, phase="prefill", seq=2048)
    nests = [n for s in first.program.segments for n in s.info.get("nests", [s.info]) if "down" in s.name]
    assert max(n["slices"][3] for n in nests if n["op"] == "gemm+add") >= 192
    first.save_plans(tmp_path / "plans.json")
    again = tx8fast.compile(tmp_path, phase="prefill", seq=2048, load_plans=str(tmp_path / "plans.json"))
    first.save(tmp_path / "first.tx8")
    again.save(tmp_path / "again.tx8")
    assert (tmp_path / "first.tx8").read_bytes() == (tmp_path / "again.tx8").read_bytes()
