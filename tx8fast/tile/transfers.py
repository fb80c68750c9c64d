"""What a tile moves between DDR and scratchpad.

May import: lower. Must not: know addresses, choose what is moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tx8fast.lower.transfer import Descriptor, clip, part_bytes


def part_of(found: Sequence[Descriptor], rank: int, tiles: int) -> tuple[list[Descriptor], int, int, int]:
    """Return what tile `rank` (negative: none) of those that load a slice together loads of it: transfers to a buffer of
    its own, the part's start in the slice, its bytes, and the bytes of the whole slice."""
    total = max((d.spm + d.size_bytes for d in found), default=0)
    if rank < 0:
        return [], 0, 0, total
    size = part_bytes(total, tiles)
    a, b = min(total, rank * size), min(total, (rank + 1) * size)
    moved = [replace(c, spm=c.spm - a) for d in found for c in clip(d, a, b)]
    return moved, a, b - a, total
