"""Plans whose slices' sums disturb each other in the banks, made with longer slices of the reduction where there is room.

May import: graph_table, lower, machine, tile, search.{planner, trial}. Must not: enumerate plans.

A product that reads and writes partial sums at the full rate of a port, beside its operands, waits for banks, whatever phases
buffers have; with a longer slice of the reduction its sums come at a lower rate. Room for that is where a result's slice takes the place of
an operand (`lower.banded`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tx8fast.lower import in_bands
from tx8fast.lower.base import Lowering, round_up
from tx8fast.machine import Machine
from tx8fast.search.planner import EQUAL
from tx8fast.search.trial import PlanTimer
from tx8fast.tile.phases import FREE, lost_share
from tx8fast.tile.tiling import Plan, Planned, Tiling


def undisturbed(planned: Planned, near: Sequence[Tiling], machine: Machine) -> Planned:
    """Return the plan, or another one if that takes less with what banks cost: of those that take about as long without (near, the
    fastest first), or with longer slices of the reduction. These are in bands, with the parts, rows and columns of a plan that takes
    as long, or of two products in turn."""
    tiling = planned.tiling
    if planned.low.variant or planned.reason or not tiling.sums or tiling.plan.kept:
        return planned
    share = lost_share(tiling)
    room_bytes = machine.spm_limit - machine.spm_base
    options = _longer(planned.low, tiling.plan, room_bytes) if planned.low.trailing else []
    low = in_bands(planned.low.record, machine) if share > 1 - FREE else None
    if low is not None:
        low.sharing = planned.low.sharing
        most = EQUAL * tiling.plan.estimate_cycles
        plans = [t.plan for t in (tiling, *near) if not t.plan.kept and t.plan.estimate_cycles <= most]
        banded = [made for plan in plans if (made := _longest(low, plan, room_bytes)) is not None]
        options += sorted(banded, key=lambda option: math.prod(option.trips))[:1]
    timers = {low: PlanTimer(low, machine) for low in dict.fromkeys([option.low for option in options])}
    timed = [option.but(estimate_cycles=timers[option.low].final(option)) for option in options]
    if share > 1 - FREE:  # what loses nothing was chosen for more than its cycles
        timed += [t for t in near if t.plan.estimate_cycles < tiling.plan.estimate_cycles * (1 + share)]
    costs = [option.plan.estimate_cycles * (1 + lost_share(option)) for option in timed]
    if min(costs, default=math.inf) >= tiling.plan.estimate_cycles * (1 + share):
        return planned
    best = timed[costs.index(min(costs))]
    return replace(planned, tiling=best.but(runner_up=tiling.plan.but(runner_up=None)))


def _longest(low: Lowering, plan: Plan, room_bytes: int) -> Tiling | None:
    """Return the plan with the longest slices of the reduction for which there is room, all of nearly one length; None if its own are."""
    return next(iter(reversed(_longer(low, plan, room_bytes))), None)


def _longer(low: Lowering, plan: Plan, room_bytes: int) -> list[Tiling]:
    """Return the plans with longer slices of the reduction for which there is room, each of nearly one length, ascending."""
    f = max((g for g, r in enumerate(low.reduce) if r), key=lambda g: low.sizes[g])
    cut = lambda length: Tiling(low, plan.but(slices=(*plan.slices[:f], length, *plan.slices[f + 1 :])))  # noqa: E731
    found: dict[int, Tiling] = {}
    for length in range(plan.slices[f] + low.units[f], min(low.sizes[f] - 1, low.max_len[f]) + 1, low.units[f]):
        made = cut(length)
        if not low.fits(made.plan.slices) or made.demand_bytes() > room_bytes:
            break
        even = round_up(-(-low.sizes[f] // made.trips[f]), low.units[f])
        if even > plan.slices[f] and even not in found:
            made = cut(even)
            found[even] = made.but(spm_bytes=made.demand_bytes())
    return list(found.values())
