"""Whether a plan that comes from outside may be used: rules that hold for every plan, checked without a search.

May import: lower, machine, tile, search.trial. Must not: share code with what makes plans.
"""

from __future__ import annotations

import math

from tx8fast.lower import may_deliver
from tx8fast.lower.base import Lowering, round_up
from tx8fast.machine import Machine
from tx8fast.search.keeping import MAX_KEPT
from tx8fast.tile.sharing import sharers
from tx8fast.tile.tiling import MAX_SLICES, Plan, Tiling

MAX_BUFS = 2


def shard_of(low: Lowering, parts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the length per tile of every factor; parts: at least 1 each."""
    return tuple([min(round_up(-(-s // p), u), s) for s, p, u in zip(low.sizes, parts, low.units, strict=True)])


def plan_problems(tiling: Tiling, machine: Machine) -> list[str]:
    """Return what is wrong with a plan, which has an entry per factor and a shard that follows from its parts."""
    low, plan = tiling.low, tiling.plan
    problems = _cuts(low, plan, machine) + _order(low, plan)
    if not 1 <= plan.bufs <= MAX_BUFS:
        problems.append(f"{plan.bufs} copies of a buffer, required 1 to {MAX_BUFS}")
    if problems:
        return problems
    if tiling.steps_above:
        problems.append(f"{tiling.steps_above:,} slices per tile, at most {MAX_SLICES:,} are allowed")
    if not low.fits(plan.slices):
        problems.append(f"slices {list(plan.slices)} exceed the fields of the instructions")
    if problems := _delivered(tiling):
        return problems
    together = sharers(tiling)
    if plan.shared not in ((), (1,) * len(together), together):
        problems.append(f"operands shared by {list(plan.shared)} tiles, required {list(together)} or none")
    problems += _kept(tiling) + _gathered(plan)
    if problems:
        return problems
    used, capacity = tiling.demand_bytes(), machine.spm_limit - machine.spm_base
    if used > capacity:
        problems.append(f"its buffers need {used:,} bytes of scratchpad, {capacity:,} are available per tile")
    return problems


def _cuts(low: Lowering, plan: Plan, machine: Machine) -> list[str]:
    problems = []
    if math.prod(plan.parts) > machine.n_tiles:
        problems.append(f"parts {list(plan.parts)} need {math.prod(plan.parts)} tiles, the chip has {machine.n_tiles}")
    for f, (part, shard, length) in enumerate(zip(plan.parts, plan.shard, plan.slices, strict=True)):
        if part > 1 and not low.shard[f]:
            problems.append(f"factor {f} is cut into {part} parts and cannot be")
        whole = length == shard
        if not 1 <= length <= shard:
            problems.append(f"factor {f} has slices of {length} points, required 1 to {shard}")
        elif not whole and not low.split[f]:
            problems.append(f"factor {f} has slices of {length} of {shard} points and cannot be sliced")
        elif low.split[f] and length > low.max_len[f]:
            problems.append(f"factor {f} has slices of {length} points, at most {low.max_len[f]} are possible")
        elif not whole and length % low.units[f] and length != low.max_len[f]:
            problems.append(f"factor {f} has slices of {length} points, required a multiple of {low.units[f]}")
    return problems


def _order(low: Lowering, plan: Plan) -> list[str]:
    n = len(low.sizes)
    if sorted(plan.order) != list(range(n)):
        return [f"loop order {list(plan.order)}, required each of 0 to {n - 1} once"]
    sums = [low.reduce[f] for f in plan.order]
    return [] if sums == sorted(sums) else [f"loop order {list(plan.order)}, required reductions last"]


def _kept(tiling: Tiling) -> list[str]:
    low, plan = tiling.low, tiling.plan
    kept = [k for k in plan.kept if k < len(low.reads)]
    results = [k for k in plan.kept if k not in kept]
    if any(k >= len(tiling.accesses) or k in tiling.replaced for k in results):
        return [f"results {results} cannot stay: the nest has {len(low.writes)} with buffers of their own"]
    if not kept:
        return []
    summed = {f for f, r in enumerate(low.reduce) if r}
    pieces = math.prod(tiling.trips[f] for f in summed)
    right = (
        low.keeps
        and 1 < pieces <= MAX_KEPT
        and sorted(set(kept)) == kept
        and all(0 <= k and k not in low.rare and summed & low.reads[k].factors for k in kept)
    )
    return [] if right else [f"operands {kept} cannot be kept for all slices of the sum"]


def _delivered(tiling: Tiling) -> list[str]:
    plan, low = tiling.plan, tiling.low
    right = all(0 <= k < len(low.reads) and may_deliver(low, k) for k in plan.delivered) and (
        sorted(set(plan.delivered)) == [*plan.delivered]
        and not {*plan.kept, *dict(plan.gathered)} & {*plan.delivered}
        and all(tiling.once(k) for k in plan.delivered)
    )
    return [] if right else [f"operands {list(plan.delivered)} cannot come before the nest begins"]


def _gathered(plan: Plan) -> list[str]:
    if not plan.gathered:
        return []
    right = len(plan.gathered) == 1 and all(
        len(g) == 2 and 0 <= g[0] < len(plan.shared) and plan.shared[g[0]] > 1 and g[1] > 0 for g in plan.gathered
    )
    return [] if right else [f"gathered {list(map(list, plan.gathered))}, required one shared operand and its columns"]
