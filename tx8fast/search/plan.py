"""The Plan artifact: how one op is cut over tiles and time.

May import: lower. Must not: know how plans are found or used.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tx8fast.lower.base import Access, Lowering


@dataclass(frozen=True)
class Plan:
    """One choice per factor. Lengths in factor points.

    parts: pieces over tiles; shard: length per tile; slices: length per time slice; order: loop order, outermost
    first (reductions last); bufs: copies of a buffer that is loaded or stored more than once.
    """

    parts: tuple[int, ...]
    shard: tuple[int, ...]
    slices: tuple[int, ...]
    order: tuple[int, ...]
    bufs: int
    estimate_cycles: int
    spm_bytes: int
    bound: str
    candidates: int = 1
    runner_up_cycles: int = 0

    @property
    def trips(self) -> tuple[int, ...]:
        return tuple(-(-a // b) for a, b in zip(self.shard, self.slices, strict=True))


def reloads(low: Lowering, plan: Plan, factors: frozenset[int]) -> int:
    """How often a buffer that depends on `factors` is filled during the whole loop nest."""
    times = total = 1
    for f in plan.order:
        total *= plan.trips[f]
        if f in factors and plan.trips[f] > 1:
            times = total
    return times


def slice_bytes(low: Lowering, access: Access, plan: Plan) -> int:
    """Largest scratchpad footprint of an access over all slices (windows differ at the borders)."""
    zero = (0,) * len(plan.shard)
    if not low.positional:
        return access.size_bytes(zero, plan.slices)
    best = 0
    own = sorted(access.factors)
    steps = [range(0, low.sizes[f], plan.slices[f]) for f in own]
    for starts in itertools.islice(itertools.product(*steps), 4096):
        lo, hi = [0] * len(zero), list(plan.slices)
        for f, a in zip(own, starts, strict=True):
            lo[f], hi[f] = a, min(a + plan.slices[f], low.sizes[f])
        best = max(best, access.size_bytes(lo, hi))
    return best


@dataclass(frozen=True)
class Planned:
    """A record's lowering with its plan, and why it fell to the kernel core (empty: an engine does it)."""

    low: Lowering
    plan: Plan
    reason: str
