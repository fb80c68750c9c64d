"""Conflicts of a tile's engines over the banks of its scratchpad: models 2 and 3 of the machine's `tile.spm_model`.

May import: numpy, machine, _kernels (types), simulator.timing. Must not: simulate events itself.
Source: TX8 hardware manual 3.1, 16.8. Model 1 has no conflicts. In model 2 engines that together ask for more bytes per
cycle than all banks deliver slow down alike. In model 3 every operand is a stream of beats through the banks, one access
per bank and cycle, granted in the order CT, NE, DMA, DTE.

The event kernel takes durations as given, so the cycle simulator repeats its run with the durations that the last run's
overlaps cause, until they stay. Beside the vector engine moves in scratchpad get `tdma.beside_ct_percent` of what they would get. Rows of CT, NE and TDMA become longer; transfers, an order slower than a port of the
scratchpad, only take their share. Arriving messages are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tx8fast._kernels import EventInput, EventResult
from tx8fast.machine import Machine
from tx8fast.simulator import network
from tx8fast.simulator.arbitration import NOTHING, Arbiter, distinct
from tx8fast.simulator.timing import Part

MAX_ROUNDS = 16
SETTLED = 1e-4  # what the rounds add falls off faster than by half: all that would follow is less than this
CT, NE, RDMA, WDMA, TDMA = range(5)
LONGER = np.array([CT, NE, TDMA])


def settle(
    machine: Machine,
    parts: Sequence[Part],
    rows: EventInput,
    run: Callable[[EventInput], EventResult],
    arbiter: Arbiter,
) -> EventResult:
    """Return the run of `rows` in which every duration is what the run's own overlaps make of it.

    If durations still change after MAX_ROUNDS runs, or change the time of the run by no more than a SETTLED part of it, the
    last one counts. `arbiter` remembers what it has seen.
    """
    times, made = run(rows), rows
    bodies: dict[int, _Body] = {}
    for _ in range(MAX_ROUNDS):
        fixed = rows.fixed.copy()
        for tile, begin in enumerate(rows.code_begin.tolist()):
            span = slice(int(rows.tile_begin[tile]), int(rows.tile_begin[tile + 1]))
            if span.stop > span.start:
                if begin not in bodies:
                    bodies[begin] = _Body(machine, parts, tile, rows.kind[begin : begin + span.stop - span.start])
                fixed[span] = _tile(machine, bodies[begin], rows, times, span, arbiter)
        if np.array_equal(fixed, made.fixed):
            break
        before, made = times.cycles, replace(rows, fixed=fixed)
        del times  # a program may have millions of rows
        times = run(made)
        if abs(times.cycles - before) <= SETTLED * before:
            break
    return times


class _Body:
    """What the rows of a tile say of their operands: the same for all tiles that share their code, in every round.

    first, streamed (k, 6): where operands begin and the bytes of them that go through the scratchpad, of rows that differ in that;
    which (n,): their number; lane (n,): every engine is one, and so is every transfer engine, which take turns.
    """

    def __init__(self, machine: Machine, parts: Sequence[Part], tile: int, kind: np.ndarray) -> None:
        codes = [p.code.code(tile) for p in parts]
        first, streamed = (np.concatenate([c.operands[k] for c in codes]) for k in (0, 1))
        at, number = distinct([*first.T, *streamed.T])
        self.first, self.streamed = first[at], streamed[at]
        begin = np.cumsum([0, *[len(c.body) for c in codes]])
        self.which = np.concatenate([number[b + c.place] for b, c in zip(begin, codes)])
        self.works = (kind <= TDMA) | (kind == network.SEND)
        self.longer = np.isin(kind, LONGER)
        self.lane = np.where(kind <= TDMA, kind, TDMA + 1).astype(np.int64)
        sends = np.flatnonzero(kind == network.SEND)
        self.lane[sends] += np.arange(len(sends)) % machine.dte.engines
        self.lanes = TDMA + 1 + machine.dte.engines


def _tile(
    machine: Machine, body: _Body, rows: EventInput, times: EventResult, span: slice, arbiter: Arbiter
) -> np.ndarray:
    """Return the durations of one tile's rows."""
    start, end, fixed = times.start[span], times.end[span], rows.fixed[span].copy()
    moving = (end > start) & body.works
    if not moving.any():
        return fixed
    knots = np.sort(np.concatenate([start[moving], end[moving]]))
    knots = knots[np.append(True, knots[1:] > knots[:-1])]
    active = np.full((body.lanes, len(knots) - 1), -1, np.int64)
    for k in range(body.lanes):
        own = np.flatnonzero(moving & (body.lane == k))
        if len(own):  # a lane takes its rows in their order, one after the other
            at = np.searchsorted(start[own], knots[:-1], side="right") - 1
            row = own[np.maximum(at, 0)]
            active[k] = np.where((at >= 0) & (end[row] > knots[:-1]), row, -1)
    # what a row asks for per cycle is what it would move undisturbed
    length = np.maximum(np.where(body.longer, rows.fixed[span], end - start), 1)
    if machine.tile.spm_model == 2:
        rate = np.append(body.streamed.sum(axis=1)[body.which] / length, 0.0)
        ceiling = machine.tile.spm_banks * machine.tile.spm_bank_width
        speed = np.broadcast_to(1 / np.maximum(1, rate[active].sum(axis=0) / ceiling), active.shape)
    else:
        at, which = distinct([body.which, length])
        alike = body.which[at]
        forms = arbiter.form_ids(body.first[alike], body.streamed[alike], length[at])[which]
        speed = arbiter.speeds(np.where(active >= 0, forms[active], NOTHING))
    if machine.tdma.beside_ct_percent < 100:
        speed = speed.copy()
        speed[TDMA] *= np.where(active[CT] >= 0, machine.tdma.beside_ct_percent / 100, 1)
    gaps = np.diff(knots)
    for k in LONGER.tolist():
        own = np.flatnonzero(moving & (body.lane == k) & (rows.ddr_bytes[span] == 0))
        done = np.concatenate([[0.0], np.cumsum(speed[k] * gaps)])
        want = done[np.searchsorted(knots, start[own])] + fixed[own]
        # behind the last change everything runs at full speed
        until = np.where(want > done[-1], knots[-1] + want - done[-1], np.interp(want, done, knots))
        fixed[own] = np.maximum(fixed[own], np.ceil(until - start[own] - 1e-6).astype(np.int64))
    return fixed
