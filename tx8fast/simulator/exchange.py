"""The tiles of one launch as streams that take turns: messages, monitors, meeting points.

May import: isa, host, machine, errors, simulator.waiting. Must not: know launches, DDR or time.

In every round each tile runs until a row may stop it; then what was sent is delivered, in tile order, and tiles that may go on
pass. So no tile sees anything of another's stretch before the round ends, and a run repeats exactly, in however many threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tx8fast import isa
from tx8fast.errors import SimulationError
from tx8fast.host.core import deliver
from tx8fast.isa.comm import N_MONITORS
from tx8fast.machine import Machine
from tx8fast.machine.topology import mask_tiles
from tx8fast.simulator.waiting import leftover_lines, waiting_line

if TYPE_CHECKING:
    from tx8fast.simulator.code import Code
    from tx8fast.simulator.state import TileState

BARRIER, RECV, BARRIER_SUB, HANDSHAKE = (
    isa.INSTRUCTIONS[name].OPCODE for name in ("barrier", "recv", "barrier_sub", "handshake")
)


def stop_rows(rows: np.ndarray) -> np.ndarray:
    """Return the positions of rows that may have to wait for another tile, ascending."""
    return np.flatnonzero(np.isin(rows["opcode"], (BARRIER, RECV, BARRIER_SUB, HANDSHAKE)))


class Stream:
    """One tile's loop-free rows on its state; `ops` names where they came from, `where` begins the messages of errors."""

    def __init__(
        self, tile: int, code: Code, addresses: np.ndarray, ops: Sequence[str], state: TileState, where: str
    ) -> None:
        self.tile, self.rows, self.addresses, self.ops = tile, code.rows, addresses, ops
        self.state, self.where = state, where
        self.stops = code.stops
        self.at = 0
        self.passed = 0  # stops
        self.arrived = False  # at the stop it stands at
        self.barriers = int((self.rows["opcode"][self.stops] == BARRIER).sum())

    @property
    def done(self) -> bool:
        return self.at == len(self.rows)

    @property
    def stop(self) -> int:
        """The next row that may have to wait, or the end."""
        return self.stops[self.passed] if self.passed < len(self.stops) else len(self.rows)

    def waits_for(self) -> tuple[int, list[int]]:
        """Return opcode and parameters of the row the stream stands at."""
        row = self.rows[self.at]
        return int(row["opcode"]), row["p"].tolist()


#: runs the streams of an exchange to their ends
Execute = Callable[["Exchange"], None]


class Exchange:
    """Everything the streams of one launch share.

    Tiles are counted on over the chips. `state(tile)` returns a tile's state; `execute` runs them; `where` begins
    the messages of errors. `observer` is told when a tile arrives at a row that may stop it and when it passes.
    """

    def __init__(
        self,
        machine: Machine,
        state: Callable[[int], TileState],
        execute: Execute,
        where: str,
        observer: Any = None,
        n_chips: int = 1,
    ) -> None:
        self.machine = machine
        self.n_chips = n_chips
        self.observer = observer
        self.where = where
        self.execute = execute
        self.states = [state(tile) for tile in range(machine.n_tiles * n_chips)]
        self.monitors = np.zeros((len(self.states), N_MONITORS), np.int64)
        self.streams: list[Stream] = []
        self.met: Counter[tuple[Any, ...]] = Counter()  # (what, tile) -> times arrived
        for found in self.states:
            found.exchange = self

    def deliver(self, state: TileState) -> None:
        """Put what a tile's rows have sent where it goes. Raises SimulationError for what does not exist."""
        tiles = [s.core for s in self.states]
        deliver(state.core, tiles, self.monitors, self.machine.n_tiles, self.n_chips)

    def send(self, pieces: Sequence[tuple[int, np.ndarray]], dst: int, monitor: int, chip: int = 0) -> None:
        """Put bytes at `dst` of each tile of a chip. Raises SimulationError for what does not exist."""
        tiles = [t for t, _ in pieces]
        if not 0 <= chip < self.n_chips:
            raise SimulationError(f"sending to chip {chip}: required is a chip below {self.n_chips}")
        if not 0 <= monitor < N_MONITORS or not tiles or max(tiles) >= self.machine.n_tiles:
            raise SimulationError(
                f"sending to tiles {tiles}, monitor {monitor}: required are tiles below "
                f"{self.machine.n_tiles}, at least one, and a monitor below {N_MONITORS}"
            )
        for tile, data in pieces:
            tile += chip * self.machine.n_tiles
            self.states[tile].spm[dst : dst + data.size] = data
            self.monitors[tile, monitor] += data.size

    def run(self, streams: Sequence[Stream]) -> None:
        """Run all streams to their ends. Raises SimulationError if they block each other or bytes are left."""
        self.streams = list(streams)
        self.execute(self)
        left = leftover_lines(self.monitors.tolist(), self._per_chip)
        if left:
            raise SimulationError(f"{self.where}: messages are left over:\n  - " + "\n  - ".join(left))

    @property
    def _per_chip(self) -> int:
        return self.machine.n_tiles if self.n_chips > 1 else 0

    def turns(self, stretches: Callable[[Sequence[Stream]], None]) -> None:
        """Let the streams take turns until all have ended, as `host/csrc/rounds.c` does; `stretches` brings every stream it is given to
        its stop. Raises SimulationError."""
        waiting = [s for s in self.streams if not s.done]
        while waiting:
            ready = [s for s in waiting if s.at < s.stop]
            stretches(ready)
            for s in ready:
                if s.state.core.has_messages:
                    self.deliver(s.state)
            moved = [self._pass(s) for s in waiting]
            waiting = [s for s in waiting if not s.done]
            if waiting and not ready and not any(moved):
                raise self.stuck()

    def stuck(self) -> SimulationError:
        """Return the error of streams of which none can go on."""
        lines = [
            waiting_line(s.tile, s.at, s.rows[s.at], s.ops, self.monitors[s.tile].tolist(), self._per_chip)
            for s in self.streams
            if not s.done
        ]
        return SimulationError(f"{self.where}: no tile can go on:\n  - " + "\n  - ".join(lines))

    def not_a_member(self, s: Stream) -> SimulationError:
        """Return the error of a tile that arrives at a barrier of others."""
        mask = int(s.rows[s.at]["p"][0])
        return SimulationError(
            f"{self.where}: tile {s.tile} arrives at a barrier of tiles {mask_tiles(mask)}, which it is not one of"
        )

    def _pass(self, s: Stream) -> bool:
        """Let `s` pass as many of the stops it stands at as it may; return whether anything happened."""
        moved = False
        while not s.done and s.at == s.stop:
            opcode, p = s.waits_for()
            if not s.arrived:
                self._arrive(s, opcode, p)
                s.arrived = moved = True
                if self.observer is not None:
                    self.observer.arrived(s.tile, s.at)
            if not self._may_pass(s.tile, opcode, p):
                return moved
            if self.observer is not None:
                self.observer.passed(s.tile, s.at)
            s.arrived, moved = False, True
            s.at += 1
            s.passed += 1
        return moved

    def _arrive(self, s: Stream, opcode: int, p: Sequence[int]) -> None:
        tile = s.tile
        if opcode == BARRIER:
            self.met[BARRIER, tile] += 1
        elif opcode == BARRIER_SUB:
            if not p[0] >> tile % self.machine.n_tiles & 1:
                raise self.not_a_member(s)
            self.met[BARRIER_SUB, p[0], tile] += 1
        elif opcode == HANDSHAKE:
            self.met[HANDSHAKE, self._peer(tile, p), tile] += 1

    def _peer(self, tile: int, p: Sequence[int]) -> int:
        """Return the tile that a handshake of `tile` names."""
        chip = p[1] - 1 if p[1] > 0 else tile // self.machine.n_tiles
        return chip * self.machine.n_tiles + p[0]

    def _may_pass(self, tile: int, opcode: int, p: Sequence[int]) -> bool:
        met = self.met
        if opcode == RECV:
            monitor, need = p[0], p[1]
            if not 0 <= monitor < N_MONITORS or self.monitors[tile, monitor] < need:
                return False
            self.monitors[tile, monitor] -= need
            return True
        if opcode == BARRIER:
            mine = met[BARRIER, tile]
            chip = tile // self.machine.n_tiles
            return all(
                s.barriers < mine or met[BARRIER, s.tile] >= mine
                for s in self.streams
                if s.tile // self.machine.n_tiles == chip
            )
        if opcode == BARRIER_SUB:
            mine = met[BARRIER_SUB, p[0], tile]
            home = tile - tile % self.machine.n_tiles
            return all(met[BARRIER_SUB, p[0], home + other] >= mine for other in mask_tiles(p[0]))
        peer = self._peer(tile, p)
        return met[HANDSHAKE, tile, peer] >= met[HANDSHAKE, peer, tile]
