"""Operands of a reduction that stay in scratchpad for all of its slices, where there is room.

May import: tile. Must not: price or try plans.
"""

from __future__ import annotations

import math

from tx8fast.tile.tiling import Tiling

MAX_KEPT = 64  # slices of a reduction that have buffers of their own


def keep(made: Tiling, capacity: int) -> Tiling:
    """Return the plan with its reduction's operands kept if there is room, in bytes, and a second use."""
    low = made.low
    red = frozenset(f for f, r in enumerate(low.reduce) if r)
    pieces = math.prod(made.trips[f] for f in red)
    if not low.keeps or not 1 < pieces <= MAX_KEPT:
        return made
    again = [
        k for k, a in enumerate(low.reads) if red & a.factors and k not in low.rare and made.fills(a.factors) > pieces
    ]
    kept = made.but(kept=tuple(again))
    return kept if kept.demand_bytes() <= capacity else made
