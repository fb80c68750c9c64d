"""How the streams of a launch are executed: all of them by the core in threads, or one row at a time.

May import: numpy, host, isa, errors, simulator.state, simulator.faults. Must not: know launches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.errors import SimulationError
from tx8fast.host.core import default_threads, run_together
from tx8fast.program.model import Tensor
from tx8fast.simulator.exchange import Exchange, Execute, Stream
from tx8fast.simulator.faults import row_fault
from tx8fast.simulator.state import TileState, finish_row

KCORE = isa.INSTRUCTIONS["kcore"].OPCODE
ERRORS = (SimulationError, ValueError, IndexError, KeyError, TypeError)


class Together:
    """The core runs all tiles to their ends, in at most `threads` threads."""

    def __init__(self, inputs: Sequence[Tensor], threads: int | None = None) -> None:
        self.inputs, self.threads = inputs, threads or default_threads()

    def __call__(self, exchange: Exchange) -> None:
        streams, tiles = exchange.streams, [s.core for s in exchange.states]
        end, which, places = run_together(
            [s.state.core for s in streams],
            [s.tile for s in streams],
            [s.stops for s in streams],
            tiles,
            exchange.monitors,
            exchange.n_chips,
            self.threads,
        )
        for s, s.at in zip(streams, places, strict=True):
            s.state.wb = s.state.core.result
        match end:
            case "row_failed":
                s = streams[which]
                try:
                    s.state.core.stopped()
                except ERRORS as error:
                    raise failure(error, s, s.at, self.inputs) from error
            case "send_failed":
                streams[which].state.core.stopped()
            case "not_a_member":
                raise exchange.not_a_member(streams[which])
            case "stuck":
                raise exchange.stuck()
            case "no_memory":
                raise MemoryError


#: one row: state, row, absolute DDR address in bytes
Meaning = Callable[[TileState, Any, int], None]


class RowByRow:
    """Every tile's stretch one row after the other; `watch` sees each before it runs, `meaning` runs it instead of the core."""

    def __init__(self, inputs: Sequence[Tensor], watch: Any = None, meaning: Meaning | None = None) -> None:
        self.inputs, self.watch, self.meaning = inputs, watch, meaning

    def __call__(self, exchange: Exchange) -> None:
        exchange.turns(self._stretches)

    def _stretches(self, streams: Sequence[Stream]) -> None:
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
