"""What is tried of a plan: a long loop nest with few steps on one tile, and what the others add.

May import: numpy, tile. Must not: know what a step does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tx8fast.records import dataclass
from tx8fast.tile.fill_rows import ranges
from tx8fast.tile.fills import Multicasts
from tx8fast.tile.order import Order
from tx8fast.tile.tiling import Tiling

MAX_STEPS = 24  # steps of a loop nest that are tried
MIN_TRIPS = 4  # what is left of a loop at least, and
MIN_INNER = 8  # of the innermost: loads run ahead of it until its buffers are full


def shortened(trips: Sequence[int], most: int = MAX_STEPS) -> list[int]:
    """Return the trips to try of nested loops, outermost first: the longest are cut until few steps are left."""
    out = list(trips)
    least = [MIN_TRIPS] * (len(out) - 1) + [MIN_INNER]
    while math.prod(out) > most and any(n > m for n, m in zip(out, least, strict=True)):
        j = max(range(len(out)), key=lambda i: out[i] / least[i])
        out[j] = max(least[j], out[j] // 2)
    return out


def left_out(tried: Sequence[int], full: Sequence[int], ends: np.ndarray) -> float:
    """Return the cycles that the trips left out of nested loops add; ends: of every step that was tried.

    A trip of a loop takes what is measured with the shortened loops inside, and what the trips left out of these add. Trips
    of a loop that was tried whole differ: operands may stay after the first one.
    """
    grid = ends.reshape(tuple(tried))

    def added(outer: tuple[int, ...]) -> float:
        """The cycles that are left out of one trip of the outer loops."""
        j = len(outer)
        if j == len(tried):
            return 0.0
        inside = (
            [added((*outer, i)) for i in range(tried[j])]
            if list(tried[j + 1 :]) != list(full[j + 1 :])
            else [0.0] * tried[j]
        )
        left = full[j] - tried[j]
        if not left:
            return sum(inside)
        n = tried[j]
        usual, last = n - 2 if n > 2 else n - 1, (-1,) * (len(tried) - j - 1)
        done = [float(grid[(*outer, i, *last)]) for i in range(n)]
        # buffers take turns, so that two trips are one measure; the first and last ones, and what the loop outside does between, are none
        pairs = [(b - a) / 2 for a, b in zip(done, done[2:-1], strict=False)]
        took = _median(pairs) if n > 4 else done[usual] - done[usual - 1]
        return sum(inside) + left * (took + inside[usual])

    return added(())


def _median(values: Sequence[float]) -> float:
    """Return the median; numpy's loads its masked arrays, which takes longer than a plan is tried."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def busy_tiles(tiling: Tiling) -> float:
    """Return the tiles that load at the same rate as the one that is tried: tiles with less to do leave their share
    of the DDR to the others."""
    low, plan, of, total, own = tiling.low, tiling.plan, tiling.loaders, 0.0, 0.0
    gathered = dict(plan.gathered)
    for k, access in enumerate(tiling.accesses):
        if k in gathered:
            continue
        tiles = [
            s / d if f in access.factors else n
            for f, (s, d, n) in enumerate(zip(low.sizes, plan.shard, tiling.pieces, strict=True))
        ]
        size = tiling.slice_bytes[k] * tiling.fills(access.factors)
        first, count = of.get(k, (0, 1))
        own += 0 if first else size / count
        total += size * math.prod(tiles) / (plan.shared[k] if k in of else 1)
    return total / own


@dataclass(frozen=True)
class Trial:
    """What is tried of a plan. actions: block, distance of its ranges (an index), step and whether other tiles' loads overlap with it,
    of each, one after the other; computes: which of them end a step; multicasts: their rows counted in actions; trips: tried and
    all of every loop."""

    tiling: Tiling
    trips: tuple[list[int], list[int]]
    order: Order
    actions: list[int]
    computes: list[int]
    multicasts: Multicasts

    def in_rows(self, begin: np.ndarray, end: np.ndarray) -> Multicasts:
        """Return the multicasts counted in rows. begin, end: of every action."""
        made, (at, of, sent) = self.multicasts, self.multicasts.loads
        row, load = ranges(begin[at], end[at])
        return made._replace(begin=begin[made.begin], end=end[made.begin], loads=np.stack([row, of[load], sent[load]]))


def closely_timed(tiling: Tiling) -> bool:
    """True for a plan of a shared nest of which many trips are left out: what is chosen is timed with more of them. Of nests in which
    slices without work are left out, so many steps are tried in any case."""
    return not tiling.low.skipping and math.prod(tiling.trips) > MAX_STEPS and max(tiling.plan.shared, default=1) > 1
