"""The code of a tile of a stream, whatever its kind.

May import: lower, tile, isa. Must not: place buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from tx8fast import isa
from tx8fast.lower.rounds import Stream
from tx8fast.lower.spread import SpreadStream
from tx8fast.tile.spread_code import SpreadCode
from tx8fast.tile.stream_code import StreamCode


def stream_code(low: Stream, starts: Sequence[int], barrier: bool, meet: bool) -> Callable[[int], np.ndarray]:
    """Return what makes the code of a tile, no rows of one that has nothing to do. starts: by tile, the image that its DDR slots begin
    with."""
    base = low.machine.spm_base
    if low.per_image > 1:
        return SpreadCode(cast(SpreadStream, low), base, starts, barrier).for_tile
    builders: dict[int, StreamCode] = {}

    def of(tile: int) -> np.ndarray:
        own = min(low.images_per_tile, max(0, low.images - tile * low.images_per_tile))
        if not own and (not shares or tile >= low.loaders):
            return isa.rows([isa.make("barrier")] if barrier else [])
        if own not in builders:
            builders[own] = StreamCode(low, base, own, low.images_per_tile, meet, barrier)
        return builders[own].for_tile(tile)

    shares = any(True for _ in low.shared_fills())  # tiles without an image load for the others
    return of
