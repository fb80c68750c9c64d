"""Plans whose slices' sums disturb each other in the banks, made with longer slices of the reduction where there is room.

May import: graph_table, lower, machine, tile, search.trial. Must not: enumerate plans.

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
from tx8fast.search.trial import PlanTimer
from tx8fast.tile.phases import FREE, lost_share
from tx8fast.tile.tiling import Plan, Planned, Tiling


def undisturbed(planned: Planned, near: Sequence[Tiling], machine: Machine) -> Planned:
    """Return the plan, or one with the parts, rows and columns of one that takes about as long, whose products lose less to banks than
    it takes longer. Products are taken for what a plan with disturbed ones waits for."""
    tiling = planned.tiling
    if planned.low.variant or planned.reason or not tiling.sums or tiling.plan.kept:
        return planned
    share = lost_share(tiling)
    banded = in_bands(planned.low.record, machine) if share > 1 - FREE else None
    lows = [low for low in (banded, planned.low if planned.low.trailing else None) if low is not None]
    room_bytes = machine.spm_limit - machine.spm_base
    plans = [t.plan for t in (tiling, *near) if not t.plan.kept]
    options = []
    for low in lows:
        low.sharing = planned.low.sharing
        options += [made for plan in plans if (made := _longest(low, plan, room_bytes)) is not None]
    if not options:
        return planned
    made = min(options, key=lambda option: math.prod(option.trips))
    made = made.but(estimate_cycles=PlanTimer(made.low, machine).final(made))
    if made.plan.estimate_cycles * (1 + lost_share(made)) >= tiling.plan.estimate_cycles * (1 + share):
        return planned
    return replace(planned, tiling=made.but(runner_up=tiling.plan.but(runner_up=None)))


def _longest(low: Lowering, plan: Plan, room_bytes: int) -> Tiling | None:
    """Return the plan with the longest slices of the reduction for which there is room, all of nearly one length; None if its own are."""
    f = max((g for g, r in enumerate(low.reduce) if r), key=lambda g: low.sizes[g])
    cut = lambda length: Tiling(low, plan.but(slices=(*plan.slices[:f], length, *plan.slices[f + 1 :])))  # noqa: E731
    best = None
    for length in range(plan.slices[f] + low.units[f], min(low.sizes[f] - 1, low.max_len[f]) + 1, low.units[f]):
        made = cut(length)
        if not low.fits(made.plan.slices) or made.demand_bytes() > room_bytes:
            break
        best = made
    if best is None:
        return None
    even = cut(round_up(-(-low.sizes[f] // best.trips[f]), low.units[f]))
    return even.but(spm_bytes=even.demand_bytes()) if even.plan.slices[f] > plan.slices[f] else None
