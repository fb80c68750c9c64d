"""The sanitizer of a program of several chips, as the simulator of one of them sees it.

May import: program.model, and simulator.sanitizer for types alone. Must not: keep a state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tx8fast.program.model import Launch, Segment

if TYPE_CHECKING:
    from tx8fast.simulator.sanitizer import Sanitizer


class OfChip:
    """Passes the events of one chip's simulator on, tiles counted on over the chips."""

    def __init__(self, watch: Sanitizer, chip: int) -> None:
        self.watch, self.chip, self.first = watch, chip, chip * watch.machine.n_tiles
        self.end = watch.end

    def host_wrote(self, address: int, n_bytes: int) -> None:
        self.watch.host_wrote(address, n_bytes, self.chip)

    def begin(self, launch: Launch, segment: Segment, tiles: Sequence[int]) -> None:
        self.watch.begin(launch, segment, [self.first + t for t in tiles])

    def row(self, tile: int, at: int, state: Any, address: int) -> None:
        self.watch.row(self.first + tile, at, state, address)

    def arrived(self, tile: int, at: int) -> None:
        self.watch.arrived(self.first + tile, at)

    def passed(self, tile: int, at: int) -> None:
        self.watch.passed(self.first + tile, at)
