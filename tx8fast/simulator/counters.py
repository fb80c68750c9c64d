"""Counters of a simulation under the names of the hardware's performance monitor (TX8 hardware manual 16.8).

May import: numpy, _kernels (types). Must not: know programs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tx8fast._kernels import EventInput, EventResult

ENGINES = ("ct", "ne", "rdma", "wdma", "tdma")
SEND = 8


def engine_instructions(rows: EventInput) -> dict[str, int]:
    """Return how many rows each engine of all tiles executes, transfers between tiles as "dte"."""
    total = np.zeros(16, np.int64)
    for begin, n in zip(rows.code_begin.tolist(), np.diff(rows.tile_begin).tolist()):
        total += np.bincount(rows.kind[begin : begin + n], minlength=16)
    return {name: int(total[k]) for k, name in enumerate(ENGINES)} | {"dte": int(total[SEND])}


def union_busy(rows: EventInput, times: EventResult) -> int:
    """Return the cycles in which at least one engine of a tile is busy, summed over tiles."""
    out = 0
    for tile, begin in enumerate(rows.code_begin.tolist()):
        span = slice(int(rows.tile_begin[tile]), int(rows.tile_begin[tile + 1]))
        own = rows.kind[begin : begin + span.stop - span.start] < len(ENGINES)
        start, end = times.start[span][own], times.end[span][own]
        if len(start):
            order = np.argsort(start, kind="stable")
            start, reach = start[order], np.maximum.accumulate(end[order])
            # a gap opens where a row starts behind everything before it
            out += int(reach[-1] - start[0] - np.maximum(start[1:] - reach[:-1], 0).sum())
    return out


def monitor(
    instructions: dict[str, int], busy: dict[str, int], blocked: dict[str, int], union: int, window: int
) -> dict[str, Any]:
    """Return the counters of a run, JSON-able: cycles summed over tiles; `window` of one tile."""
    return {
        "engines": {
            name: {"instructions": instructions[name], "execution_cycles": busy[name], "blocking_cycles": blocked[name]}
            for name in ENGINES
        },
        "union_busy_cycles": union,
        "statistics_window_cycles": window,
        "dte_instructions": instructions["dte"],
        "dte_execution_cycles": busy["dte"],
    }
