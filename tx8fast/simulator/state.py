"""A tile's memories and what its rows leave behind: what meanings see.

May import: numpy, host, machine, isa, simulator.memory. Must not: know programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.host.core import NO_CALLS, CoreTile
from tx8fast.machine import Machine
from tx8fast.simulator.memory import Ddr, new_spm

if TYPE_CHECKING:
    from tx8fast.simulator.exchange import Exchange


def _no_remark(index: int) -> str:
    return ""


class TileState:
    """`spm` of tile `tile`, `ddr`, and register results `wb` = (pattern or count, index). `chip`: among those that exchange data."""

    def __init__(self, machine: Machine, ddr: Ddr, tile: int = 0, chip: int = 0) -> None:
        self.spm = new_spm(machine)
        self.ddr = ddr
        self.tile, self.chip = tile, chip
        self.wb: tuple[int, int] = (0, 0)
        self.position = 0
        self.calls = NO_CALLS  # of the running segment's kernel-core routines
        self.routine: Callable[[int], None] | None = None  # executes one of them as its oracle does, for exact runs
        self.remark: Callable[[int], str] = _no_remark  # on what it was given, should it fail
        self.slots: Sequence[int] = ()  # DDR addresses of the running segment's slots
        self.exchange: Exchange | None = None
        self.status = 0  # the CT's sticky exception byte; exact runs set it
        self.core = CoreTile(self.spm, ddr.data, ddr.size_bytes, tile, chip)

    def place(self, chip: int) -> None:
        """Say which of the chips that exchange data in the next launch this tile's is."""
        self.chip = chip
        self.core.tile.place(self.tile, chip)

    def leave(self) -> None:
        """Let go of what the last launch has lent."""
        self.routine, self.remark, self.exchange = None, _no_remark, None

    def note(self, bits: int) -> None:
        """Add bits of the running row to the exception byte (`exact_values.STATUS`)."""
        self.status |= bits

    def seed(self) -> int:
        """Return the seed of stochastic rounding: tile and instruction index, so that runs repeat."""
        return self.tile * 1_000_003 + self.position

    def run_routine(self, index: int) -> None:
        """Execute kernel-core routine `index` of the running segment as its oracle does."""
        if self.routine is None:
            raise SimulationError(f"calling kernel-core routine {index}: no segment is running")
        self.routine(index)

    def send(self, pieces: Sequence[tuple[int, np.ndarray]], dst: int, monitor: int, chip: int = 0) -> None:
        """Put bytes into the scratchpads of other tiles: (tile, bytes) pairs, all at address `dst`; `chip` as in rows."""
        if self.exchange is None:
            raise SimulationError("sending to other tiles: no launch is running, so there are none")
        self.exchange.send(pieces, dst, monitor, chip - 1 if chip else self.chip)


def run_row(state: TileState, row: Any, address: int) -> None:
    """Execute one RECORD element on `state`; `address` is its absolute DDR address in bytes.

    Messages go out at once. Raises SimulationError if the row cannot be executed."""
    core = state.core
    core.load(np.asarray(row).reshape(1), np.array([address]), state.slots, state.calls)
    core.run(0, 1, state.position)
    finish_row(state)


def finish_row(state: TileState) -> None:
    """Do what is left of a row that the core has executed."""
    core = state.core
    if core.has_messages:
        if state.exchange is None:
            raise SimulationError("sending to other tiles: no launch is running, so there are none")
        state.exchange.deliver(state)
    state.wb = core.result
