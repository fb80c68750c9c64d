"""How rows between two stops are executed: by the core in threads, or one row at a time.

May import: numpy, host, isa, errors, simulator.state, simulator.faults. Must not: know launches or who waits for whom.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.errors import SimulationError
from tx8fast.host.core import default_threads, run_together
from tx8fast.program.model import Tensor
from tx8fast.simulator.exchange import Execute, Stream
from tx8fast.simulator.faults import row_fault
from tx8fast.simulator.state import TileState, finish_row

KCORE = isa.INSTRUCTIONS["kcore"].OPCODE
ERRORS = (SimulationError, ValueError, IndexError, KeyError, TypeError)


class Together:
    """The core runs all tiles' stretches, in at most `threads` threads."""

    def __init__(self, inputs: Sequence[Tensor], threads: int | None = None) -> None:
        self.inputs, self.threads = inputs, threads or default_threads()

    def __call__(self, streams: Sequence[Stream]) -> None:
        run_together([s.state.core for s in streams], [(s.at, s.stop) for s in streams], self.threads)
        for s in streams:
            try:
                s.at = s.state.core.stopped()
            except ERRORS as error:
                raise failure(error, s, s.state.core.at, self.inputs) from error
            s.state.wb = s.state.core.result


#: one row: state, row, absolute DDR address in bytes
Meaning = Callable[[TileState, Any, int], None]


class RowByRow:
    """Every tile's stretch one row after the other; `watch` sees each before it runs, `meaning` runs it instead of the core."""

    def __init__(self, inputs: Sequence[Tensor], watch: Any = None, meaning: Meaning | None = None) -> None:
        self.inputs, self.watch, self.meaning = inputs, watch, meaning

    def __call__(self, streams: Sequence[Stream]) -> None:
        with np.errstate(all="ignore"):
            for s in streams:
                for s.at in range(s.at, s.stop):
                    try:
                        self._row(s)
                    except ERRORS as error:
                        raise failure(error, s, s.at, self.inputs) from error
                s.at += 1

    def _row(self, s: Stream) -> None:
        at, state = s.at, s.state
        state.position = at
        if self.watch is not None:
            self.watch.row(s.tile, at, state, s.addresses[at])
        if self.meaning is not None:
            self.meaning(state, s.rows[at], s.addresses[at])
        else:
            state.core.run(at, at + 1)
            finish_row(state)


def execution(inputs: Sequence[Tensor], exact: bool, watch: Any, threads: int | None) -> Execute:
    """Return how a simulator executes: `exact` as the interpreter does, under the eyes of `watch`."""
    if not exact and watch is None:
        return Together(inputs, threads)
    if not exact:
        return RowByRow(inputs, watch)
    from tx8fast.simulator.exact import run_row

    return RowByRow(inputs, watch, run_row)


def failure(error: Exception, stream: Stream, at: int, inputs: Sequence[Tensor]) -> SimulationError:
    """Return the error of a run whose row `at` could not be executed."""
    row = stream.rows[at]
    if int(row["opcode"]) == KCORE:
        error = SimulationError(f"{error}{stream.state.remark(int(row['p'][0]))}")
    return SimulationError(row_fault(error, row, stream.where, at, inputs))
