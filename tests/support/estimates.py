"""The search's estimate of every group of a program beside its cycle simulation, and how it orders other plans."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tx8fast import api
from tx8fast._kernels import plan_costs
from tx8fast.frontend import open_model
from tx8fast.lower.kernel_core import KernelCore
from tx8fast.machine import Machine, load_machine
from tx8fast.options import CompileOptions
from tx8fast.program.model import Program, Segment
from tx8fast.schedule.assemble import assemble
from tx8fast.schedule.segment import build_segment
from tx8fast.search.cuts import candidates
from tx8fast.search.fitting import make_tiling
from tx8fast.search.prices import plan_space
from tx8fast.search.program import plan_table
from tx8fast.search.trial import PlanTimer
from tx8fast.simulator.cycle import simulate
from tx8fast.tile.tiling import Planned, Tiling, segment_cycles


@dataclass(frozen=True)
class GroupEstimate:
    """One segment: what the search expected, and what its first launch takes when it runs alone."""

    segment: Segment
    launches: int
    cycles: int
    planned: Planned

    @property
    def error(self) -> float:
        return abs(self.segment.estimate_cycles / self.cycles - 1)


class Compiled:
    """A model compiled step by step, with what the program does not keep: the plan of every segment."""

    def __init__(self, path: Path, **options: Any) -> None:
        given = CompileOptions(**options)
        self.machine: Machine = load_machine(given.machine)
        table = api.lower_graph(open_model(path, **given.import_options()), given).table
        plans = plan_table(table, self.machine, None, given.opt, given.sharing)
        self.program: Program = assemble(table, self.machine, plans, lambda key: {}, {})
        steps = [s for fn in table.functions.values() for s in fn.steps if s.record is not None]
        known = [(s, plans[s.record]) for s in reversed(steps) if s.record in plans]
        of_name = {(s.name, s.barrier, (s if p.nests else p.low).record.kind): p for s, p in known}  # type: ignore[union-attr]
        self.planned = [of_name[s.name, s.barrier, s.info["op"]] for s in self.program.segments]

    def alone(self, index: int, segment: Segment) -> int:
        """Return the cycles of one launch of segment `index`, or of `segment` in its place."""
        launch = next(x for x in self.program.launches if x.segment == index)
        made = dataclasses.replace(launch, segment=0)
        return simulate(dataclasses.replace(self.program, segments=[segment], launches=[made])).cycles

    def groups(self) -> list[GroupEstimate]:
        """Simulate every segment by itself."""
        count = np.bincount([x.segment for x in self.program.launches], minlength=len(self.program.segments))
        return [GroupEstimate(s, int(n), self.alone(i, s), p)
                for i, (s, n, p) in enumerate(zip(self.program.segments, count, self.planned, strict=True))]  # fmt: skip

    def candidates(self, index: int, n: int) -> list[tuple[int, int]]:
        """Return (estimate, simulated cycles) of the chosen plan of a segment and up to `n` others that fit."""
        s, planned = self.program.segments[index], self.planned[index]
        if isinstance(planned.low, KernelCore) or planned.nests:  # a chain has no other plan
            return []
        timer = PlanTimer(planned.low, self.machine)
        out = []
        for tiling in [planned.tiling, *other_plans(planned, self.machine, n)]:
            timed = tiling.but(estimate_cycles=timer.final(tiling))
            made = build_segment(timed, self.machine, s.name, s.ops, s.barrier)
            out.append((segment_cycles(timed.plan, self.machine, s.barrier), self.alone(index, made)))
        return out


def other_plans(planned: Planned, machine: Machine, n: int) -> list[Tiling]:
    """Return up to `n` candidates of the search that fit, at even distances in its order of prices."""
    low = planned.low
    parts, slices, inner = candidates(low, machine.n_tiles)
    price, _, _ = plan_costs(plan_space(low, machine), parts, slices, inner)
    capacity = machine.spm_limit - machine.spm_base
    out: list[Tiling] = []
    order = np.argsort(price, kind="stable")
    for i in order[np.unique(np.linspace(0, len(order) // 2, 4 * n).astype(int))]:
        made = make_tiling(low, parts[i], slices[i], int(inner[i]), "", 1)
        if made.demand_bytes() <= capacity and low.fits(made.plan.slices):
            out.append(made)
    return [out[i] for i in np.unique(np.linspace(0, len(out) - 1, min(n, len(out))).astype(int))] if out else []


def rank_correlation(pairs: list[tuple[int, int]]) -> float:
    """Return Spearman's correlation of two columns; equal values share a rank."""
    ranks = []
    for column in np.array(pairs, float).T:
        _, index, count = np.unique(column, return_inverse=True, return_counts=True)
        last = np.cumsum(count)
        ranks.append((last - (count - 1) / 2)[index])
    return float(np.corrcoef(ranks)[0, 1])
