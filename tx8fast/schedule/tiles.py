"""Which part of the factor box each tile works on, and which tiles can share one code.

May import: lower, search.plan. Must not: emit instructions.

Tile t takes the shard whose coordinates are t written in the mixed radix of `plan.parts`, last factor fastest
(back-end notes 2.3). Two tiles share code when every factor range has the same length and nothing their
instructions depend on differs except the DDR base of each access.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tx8fast.lower.base import Lowering
from tx8fast.lower.transfer import channel_form
from tx8fast.search.plan import Plan


@dataclass(frozen=True)
class TileRange:
    """Half-open factor range of one tile; empty in any factor means the tile idles."""

    lo: tuple[int, ...]
    hi: tuple[int, ...]

    @property
    def idle(self) -> bool:
        return any(a >= b for a, b in zip(self.lo, self.hi, strict=True))


def tile_ranges(low: Lowering, plan: Plan, n_tiles: int) -> list[TileRange]:
    """Return one range per tile; tiles beyond the number of parts idle."""
    total = math.prod(plan.parts)
    ranges = []
    for t in range(n_tiles):
        if t >= total:
            ranges.append(_empty(max(1, len(plan.parts))))
            continue
        rest, coords = t, []
        for p in reversed(plan.parts):
            rest, k = divmod(rest, p)
            coords.append(k)
        coords.reverse()
        lo = tuple(min(k * d, s) for k, d, s in zip(coords, plan.shard, low.sizes, strict=True))
        hi = tuple(min(a + d, s) for a, d, s in zip(lo, plan.shard, low.sizes, strict=True))
        ranges.append(TileRange(lo, hi))
    return ranges


def _empty(n: int) -> TileRange:
    return TileRange((0,) * n, (0,) * n)


def code_key(low: Lowering, r: TileRange) -> tuple:
    """Return what a tile's instructions depend on besides DDR bases."""
    if low.positional:
        return (r.lo, r.hi)
    lens = tuple(b - a for a, b in zip(r.lo, r.hi, strict=True))
    lanes = []
    for a in (*low.reads, *low.writes):
        lanes.append(channel_form(a.spec, *(a.box(r.lo, r.hi)[-1] if a.dims else (0, 1))))
    return (lens, tuple(lanes), low.place(r.lo, r.hi))
