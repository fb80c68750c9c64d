"""Rows whose results nobody uses: of every scratchpad byte, the row that wrote it last; of every row, whether a byte of it was read.

May import: numpy, isa, simulator.sanitizer_bytes, simulator.sanitizer_clock. Must not: know values or order.

Envelopes of strided reads count as read, holes included; of strided writes only the bytes that are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from tx8fast import isa
from tx8fast.simulator.sanitizer_bytes import Range, spm_view
from tx8fast.simulator.sanitizer_clock import Run

LOAD = isa.UNITS.index("rdma")


class Uses:
    """The rows of one launch; scratchpads of tiles are taken where something is written."""

    def __init__(self, spm_bytes: int) -> None:
        self.spm_bytes = spm_bytes
        self.begin(())

    def begin(self, runs: Iterable[Run]) -> None:
        """A launch starts: its rows are numbered from 1 on, tile after tile."""
        self.first: dict[int, int] = {}
        self.runs = list(runs)
        total = 1
        for run in self.runs:
            self.first[run.tile] = total
            total += len(run.facts.rows)
        self.used = np.zeros(total, bool)
        # by tile: number of the row that wrote a byte last, 0 none; new zeros cost nothing until they are touched
        self.writer: dict[int, np.ndarray] = {}

    def read(self, tile: int, spans: Iterable[Range]) -> None:
        if tile in self.writer:
            for a, b in spans:
                self.used[self.writer[tile][a:b]] = True

    def write(self, run: Run, at: int, spans: Iterable[Range], tile: int = -1) -> None:
        """Row `at` writes; `tile`: in the scratchpad of another one."""
        tile = run.tile if tile < 0 else tile
        if tile not in self.writer:
            self.writer[tile] = np.zeros(self.spm_bytes, np.int32)
        writer, number, row = self.writer[tile], self.first[run.tile] + at, run.facts.rows[at]
        view = spm_view(writer, int(row["opcode"]), int(row["fmt"]), row["spm"].tolist(), row["p"].tolist(), True)
        if view is not None:
            view[...] = number
            return
        for a, b in spans:
            writer[a:b] = number

    def faults(self) -> Iterator[tuple[str, Run, int, str]]:
        """Yield (kind, run, row, text) of what led to nothing, in segments that declare their arguments: what others do may be
        meant to. A single load that nobody reads only costs time, since a slice may turn out not to need it; an argument of
        which a tile reads nothing that it has loaded is missing in what it computes."""
        for run in self.runs:
            if not any(run.segment.arguments):
                continue
            wrote = (run.facts.writes[..., 1] > run.facts.writes[..., 0]).any(axis=1)
            first, count = self.first[run.tile], len(run.facts.rows)
            unread = wrote & ~self.used[first : first + count]
            loads = np.flatnonzero(isa.units(run.facts.rows) == LOAD)
            for at in np.setdiff1d(np.flatnonzero(unread), loads).tolist():
                yield "unused result", run, at, "writes bytes of which nothing reads a single one before they are lost"
            argument = run.segment.slot_arg[run.facts.rows["slot"][loads]]
            for arg in np.unique(argument[unread[loads]]).tolist():
                rows = loads[argument == arg]
                if unread[rows].all():
                    yield "unused operand", run, int(rows[0]), f"loads argument {arg}, of which the tile reads nothing"
