"""Conflicts of a tile's engines over the banks of its scratchpad: models 2 and 3 of the machine's `tile.spm_model`.

May import: numpy, machine, _kernels, and arbitration, network and timing beside it. Must not: simulate events itself.
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

from tx8fast._kernels import EventInput, EventResult, number_pairs, overlapping, stretched
from tx8fast.machine import Machine
from tx8fast.simulator import network
from tx8fast.simulator.arbitration import Arbiter, distinct
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
    which (n,): their number.
    """

    def __init__(self, machine: Machine, parts: Sequence[Part], tile: int, kind: np.ndarray) -> None:
        codes = [p.code.code(tile) for p in parts]
        first, streamed = (np.concatenate([c.operands[k] for c in codes]) for k in (0, 1))
        at, number = distinct([*first.T, *streamed.T])
        self.first, self.streamed = first[at], streamed[at]
        begin = np.cumsum([0, *[len(c.body) for c in codes]])
        self.which = np.concatenate([number[b + c.place] for b, c in zip(begin, codes)])
        self.longer = np.isin(kind, LONGER)
        # lane (n,): every engine is one, and so is every transfer engine, which take turns; -1 = rows that reach no bank
        self.lane = np.where(kind <= TDMA, kind.astype(np.int32), -1)
        sends = np.flatnonzero(kind == network.SEND)
        self.lane[sends] = TDMA + 1 + np.arange(len(sends)) % machine.dte.engines
        self.lanes = TDMA + 1 + machine.dte.engines


def _tile(
    machine: Machine, body: _Body, rows: EventInput, times: EventResult, span: slice, arbiter: Arbiter
) -> np.ndarray:
    """Return the durations of one tile's rows."""
    start, end, work = times.start[span], times.end[span], rows.fixed[span]
    # what a row asks for per cycle is what it would move undisturbed
    length = np.maximum(np.where(body.longer, work, end - start), 1)
    at, which = number_pairs(body.which, length)
    alike = body.which[at]
    first, streamed, length = body.first[alike], body.streamed[alike], length[at]
    if machine.tile.spm_model == 2:
        form = which
    else:
        form = arbiter.form_ids(first, streamed, length)[which]
    found = overlapping(start, end, body.lane, form.astype(np.int32), body.lanes)
    if not len(found.sets):
        return work
    active = found.sets.T.astype(np.int64)
    if machine.tile.spm_model == 2:
        rate = np.append(streamed.sum(axis=1) / length, 0.0)
        ceiling = machine.tile.spm_banks * machine.tile.spm_bank_width
        speed = np.repeat(1 / np.maximum(1, rate[active].sum(axis=0, keepdims=True) / ceiling), len(active), axis=0)
    else:
        speed = arbiter.speeds(active)
    if machine.tdma.beside_ct_percent < 100:
        speed = speed.copy()
        speed[TDMA] *= np.where(active[CT] >= 0, machine.tdma.beside_ct_percent / 100, 1)
    longer = body.longer & (end > start) & (rows.ddr_bytes[span] == 0)
    return stretched(start, np.where(longer, body.lane, -1), work, found, speed.T)
