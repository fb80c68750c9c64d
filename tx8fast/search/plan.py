"""The Plan artifact: how one op is cut over tiles and time.

May import: the standard library. Must not: know how plans are found or used.
"""

from __future__ import annotations

from dataclasses import dataclass


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
