"""Oracle of the scratchpad's bank conflicts: every row's streams as they are, every set of rows arbitrated by the twin.

Slow and obvious; `tx8fast.simulator.banks` must give the same durations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tx8fast._kernels import EventInput, EventResult
from tx8fast._kernels.reference.banks import shares
from tx8fast.machine import Machine
from tx8fast.simulator import network
from tx8fast.simulator.timing import Part

MAX_ROUNDS = 16
BEAT = 128  # bytes of one access, the width of an engine's port
WARM, WINDOW = 128, 256  # cycles of arbitration until the streams have settled, and from which their rate is taken
JITTER = 2  # beats that a stream without lasting conflicts may be off at the ends of the window
STEPS = 32  # rates of streams are rounded up to parts of a beat
CT, NE, RDMA, WDMA, TDMA = range(5)
LONGER = np.array([CT, NE, TDMA])

Stream = tuple[int, int]  # first beat, beats per cycle in STEPS


def settle(
    machine: Machine, parts: Sequence[Part], rows: EventInput, run: Callable[[EventInput], EventResult]
) -> EventResult:
    """Return the run of `rows` in which every duration is what the run's own overlaps make of it.

    If durations still change after MAX_ROUNDS runs, or the run by less than a ten-thousandth, the last one counts.
    """
    times, made = run(rows), rows
    for _ in range(MAX_ROUNDS):
        fixed = rows.fixed.copy()
        for tile in range(len(rows.code_begin)):
            span = slice(int(rows.tile_begin[tile]), int(rows.tile_begin[tile + 1]))
            if span.stop > span.start:
                fixed[span] = _tile(machine, parts, tile, rows, times, span)
        if np.array_equal(fixed, made.fixed):
            break
        before, made = times.cycles, replace(rows, fixed=fixed)
        times = run(made)
        if abs(times.cycles - before) * 10_000 <= before:
            break
    return times


def _tile(
    machine: Machine, parts: Sequence[Part], tile: int, rows: EventInput, times: EventResult, span: slice
) -> np.ndarray:
    """Return the durations of one tile's rows."""
    codes = [p.code.code(tile) for p in parts]
    begin = int(rows.code_begin[tile])
    kind = rows.kind[begin : begin + span.stop - span.start]
    start, end, fixed = times.start[span], times.end[span], rows.fixed[span].copy()
    streamed = np.concatenate([c.operands[1][c.place] for c in codes])
    first = np.concatenate([np.concatenate([c.spm_read, c.spm_write], axis=1)[c.place, :, 0] for c in codes])
    moving = (end > start) & ((kind <= TDMA) | (kind == network.SEND))
    # every engine is a lane, and so is every transfer engine
    lane = np.where(kind <= TDMA, kind, TDMA + 1).astype(np.int64)
    sends = np.flatnonzero(kind == network.SEND)
    lane[sends] += np.arange(len(sends)) % machine.dte.engines
    knots = np.unique(np.concatenate([start[moving], end[moving]]))
    if len(knots) < 2:
        return fixed
    lanes = TDMA + 1 + machine.dte.engines
    active = np.full((lanes, len(knots) - 1), -1, np.int64)
    for k in range(lanes):
        own = np.flatnonzero(moving & (lane == k))
        own = own[np.argsort(start[own], kind="stable")]
        if len(own):
            at = np.searchsorted(start[own], knots[:-1], side="right") - 1
            row = own[np.maximum(at, 0)]
            active[k] = np.where((at >= 0) & (end[row] > knots[:-1]), row, -1)
    # what a row asks for per cycle is what it would move undisturbed
    length = np.maximum(np.where(np.isin(kind, LONGER), rows.fixed[span], end - start), 1)
    if machine.tile.spm_model == 2:
        rate = np.append(streamed.sum(axis=1) / length, 0.0)
        ceiling = machine.tile.spm_banks * machine.tile.spm_bank_width
        speed = np.broadcast_to(1 / np.maximum(1, rate[active].sum(axis=0) / ceiling), active.shape)
    else:
        speed = _arbitrated(machine, active, first, streamed, length)
    gaps = np.diff(knots)
    for k in LONGER.tolist():
        own = np.flatnonzero(moving & (lane == k) & (rows.ddr_bytes[span] == 0))
        done = np.concatenate([[0.0], np.cumsum(speed[k] * gaps)])
        want = done[np.searchsorted(knots, start[own])] + fixed[own]
        # behind the last change everything runs at full speed
        until = np.where(want > done[-1], knots[-1] + want - done[-1], np.interp(want, done, knots))
        fixed[own] = np.maximum(fixed[own], np.ceil(until - start[own] - 1e-6).astype(np.int64))
    return fixed


def _arbitrated(machine: Machine, active: np.ndarray, first: np.ndarray, streamed: np.ndarray, length: np.ndarray):
    """Return the speed of every lane between knots under arbitration of the banks."""
    out = np.ones(active.shape)
    per_bank = machine.tile.spm_bank_width // BEAT or 1
    period = per_bank * machine.tile.spm_banks
    steps = np.ceil(streamed / BEAT * STEPS / length[:, None]).astype(np.int64)
    phase = first // BEAT % period
    streams = [tuple((p, s) for p, s in zip(*row) if s) for row in zip(phase.tolist(), steps.tolist())]
    sets, index = np.unique(active, axis=1, return_inverse=True)
    index = index.reshape(-1)
    for i, rows in enumerate(sets.T.tolist()):
        asked = tuple(streams[r] if r >= 0 else () for r in rows)
        out[:, index == i] = np.array(arbitrate(asked, machine.tile.spm_banks, per_bank, machine.tile.spm_fifo_beats))[
            :, None
        ]
    return out


@lru_cache(maxsize=1 << 14)
def arbitrate(asked: tuple[tuple[Stream, ...], ...], banks: int, per_bank: int, fifo: int) -> tuple[float, ...]:
    return tuple(shares(asked, banks, per_bank, fifo, STEPS, WARM, WINDOW, JITTER))
