"""The tiles of one launch as streams that take turns: messages, monitors, meeting points.

May import: isa, machine, errors, simulator.waiting. Must not: know launches, DDR or time.

A tile runs until a row stops it, then the next one has its turn, in tile order, so a run repeats exactly.
Bytes of a send are in the other tiles' scratchpads as soon as the send has run; a program whose result depends
on more than that lacks synchronisation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.errors import SimulationError
from tx8fast.isa.comm import N_MONITORS, mask_tiles
from tx8fast.machine import Machine
from tx8fast.simulator.waiting import leftover_lines, waiting_line

BARRIER, RECV, BARRIER_SUB, HANDSHAKE = (
    isa.INSTRUCTIONS[name].OPCODE for name in ("barrier", "recv", "barrier_sub", "handshake")
)


def stop_rows(rows: np.ndarray) -> list[int]:
    """Return the positions of rows that may have to wait for another tile, ascending."""
    return np.flatnonzero(np.isin(rows["opcode"], (BARRIER, RECV, BARRIER_SUB, HANDSHAKE))).tolist()


def takes_turns(rows: np.ndarray, stops: Sequence[int]) -> bool:
    """Return whether the rows exchange anything with other tiles before their end."""
    last = len(rows) - 1
    return bool((isa.units(rows) == isa.UNITS.index("dte")).any()) or any(
        at != last or rows["opcode"][at] != BARRIER for at in stops
    )


class Stream:
    """One tile's loop-free rows; `run(lo, hi)` executes a stretch of them, `ops` names where they came from."""

    def __init__(
        self,
        tile: int,
        rows: np.ndarray,
        stops: Sequence[int],
        ops: Sequence[str],
        run: Callable[[int, int], None],
    ) -> None:
        self.tile, self.rows, self.ops, self.run = tile, rows, ops, run
        self.stops = [*stops, len(rows)]
        self.at = 0
        self.passed = 0  # stops
        self.arrived = False  # at the stop it stands at
        self.barriers = int((rows["opcode"] == BARRIER).sum())

    @property
    def done(self) -> bool:
        return self.at == len(self.rows)

    def waits_for(self) -> tuple[int, list[int]]:
        """Return opcode and parameters of the row the stream stands at."""
        row = self.rows[self.at]
        return int(row["opcode"]), row["p"].tolist()


class Exchange:
    """Everything the streams of one launch share.

    Tiles are counted on over the chips. `spm(tile)` returns a tile's scratchpad (u8); `where` begins the messages of errors.
    `observer` is told when a tile arrives at a row that may stop it and when it passes.
    """

    def __init__(
        self, machine: Machine, spm: Callable[[int], np.ndarray], where: str, observer: Any = None, n_chips: int = 1
    ) -> None:
        self.machine = machine
        self.n_chips = n_chips
        self.observer = observer
        self.where = where
        self.spm = spm
        self.monitors = [[0] * N_MONITORS for _ in range(machine.n_tiles * n_chips)]
        self.streams: list[Stream] = []
        self.met: Counter[tuple[Any, ...]] = Counter()  # (what, tile) -> times arrived

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
            self.spm(tile)[dst : dst + data.size] = data
            self.monitors[tile][monitor] += data.size

    def run(self, streams: Sequence[Stream]) -> None:
        """Run all streams to their ends. Raises SimulationError if they block each other or bytes are left."""
        self.streams = list(streams)
        waiting = self.streams
        while waiting:
            moved = [self._advance(s) for s in waiting]
            waiting = [s for s in waiting if not s.done]
            if waiting and not any(moved):
                per_chip = self.machine.n_tiles if self.n_chips > 1 else 0
                lines = [
                    waiting_line(s.tile, s.at, s.rows[s.at], s.ops, self.monitors[s.tile], per_chip) for s in waiting
                ]
                raise SimulationError(f"{self.where}: no tile can go on:\n  - " + "\n  - ".join(lines))
        left = leftover_lines(self.monitors, self.machine.n_tiles if self.n_chips > 1 else 0)
        if left:
            raise SimulationError(f"{self.where}: messages are left over:\n  - " + "\n  - ".join(left))

    def _advance(self, s: Stream) -> bool:
        """Run `s` until it is stopped; return whether anything happened."""
        moved = False
        while not s.done:
            stop = s.stops[s.passed]
            if s.at < stop:
                s.run(s.at, stop)
                s.at, moved = stop, True
                continue
            opcode, p = s.waits_for()
            if not s.arrived:
                self._arrive(s.tile, opcode, p)
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

    def _arrive(self, tile: int, opcode: int, p: Sequence[int]) -> None:
        if opcode == BARRIER:
            self.met[BARRIER, tile] += 1
        elif opcode == BARRIER_SUB:
            if not p[0] >> tile % self.machine.n_tiles & 1:
                raise SimulationError(
                    f"{self.where}: tile {tile} arrives at a barrier of tiles {mask_tiles(p[0])}, which it is not one of"
                )
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
            if not 0 <= monitor < N_MONITORS or self.monitors[tile][monitor] < need:
                return False
            self.monitors[tile][monitor] -= need
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
