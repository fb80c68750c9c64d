"""Which tiles can share one code.

May import: lower, tile.tiling. Must not: emit instructions.

Two tiles share code when every factor range has the same length and nothing their
instructions depend on differs except the DDR base of each access.
"""

from __future__ import annotations

from tx8fast.lower.base import Lowering
from tx8fast.lower.transfer import channel_form
from tx8fast.tile.tiling import TileRange


def code_key(low: Lowering, r: TileRange) -> tuple:
    """Return what a tile's instructions depend on besides DDR bases."""
    if low.positional:
        return (r.lo, r.hi)
    lens = tuple(b - a for a, b in zip(r.lo, r.hi, strict=True))
    lanes = []
    for a in (*low.reads, *low.writes):
        lanes.append(channel_form(a.spec, *(a.box(r.lo, r.hi)[-1] if a.dims else (0, 1))))
    return (lens, tuple(lanes), low.place(r.lo, r.hi))
