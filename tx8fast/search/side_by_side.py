"""Launches that leave tiles idle, moved beside others: to an earlier epoch, the time between two barriers, and to tiles that wait there.

May import: graph_table, isa, machine, tile, search.barriers. Must not: choose groups or plans.

Between two barriers every tile does its part of one launch after the other, so an epoch takes as long as its busiest tile, and no less than
the DDR needs for all that its launches move. A launch none of whose tiles exchanges anything may run on any tiles; it may
run in any epoch behind those that make what it reads and before those that read what it makes.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tx8fast import isa
from tx8fast.graph_table import FunctionTable, Record, Step, epochs
from tx8fast.machine import Machine
from tx8fast.records import dataclass
from tx8fast.search.barriers import in_epochs
from tx8fast.tile.tiling import Planned

#: of the cycles that a launch adds where it is, what its move has to save at least: less is within what estimates round. Twelve decode
#: steps of four models take the same with 0, with 0.1 one is 0.05 % longer
WORTH = 0.02
#: epochs before its own that a launch is tried in, so that work grows with the launches alone: of the same steps one is 21 cycles shorter
#: with 2, and none differs with 64
NEAR = 8


@dataclass(frozen=True)
class Load:
    """What a launch means for the tiles. cycles (..., tiles), of which a tile that idles has none; ddr_cycles: what the DDR alone
    needs; apart: no tile waits for another one."""

    cycles: np.ndarray
    ddr_cycles: float
    apart: bool


def load_of(p: Planned, machine: Machine) -> Load:
    """Return the load of a planned launch, as the search has estimated it."""
    nests = p.nests or (p,)
    own = p.plan.estimate_cycles - isa.sequence_cycles(machine, isa.make("barrier"))
    if any(n.low.exchanges for n in nests):
        return Load(np.full(machine.n_tiles, float(own)), 0.0, apart=False)
    busy = np.array([[not r.idle for r in n.tiling.ranges] for n in nests]).any(axis=0)
    sent = any(n.plan.gathered or n.plan.delivered or max(n.plan.shared, default=1) > 1 for n in nests)
    ddr = sum([n.tiling.ddr_cycles() for n in nests])
    return Load(np.where(busy, float(own), 0.0), min(ddr, own), not sent)


def _sum(loads: Sequence[Load]) -> Load:
    return Load(np.sum([x.cycles for x in loads], axis=0), sum([x.ddr_cycles for x in loads]), apart=True)


def epoch_cycles(loads: Sequence[Load]) -> np.ndarray:
    """Return the cycles (...) between two barriers: launches in turn on every tile, those whose tiles exchange parts once all of
    these are there."""
    at = np.zeros(1)
    for load in loads:
        if not load.apart:
            at = np.where(load.cycles > 0, np.where(load.cycles > 0, at, 0.0).max(axis=-1, keepdims=True), at)
        at = at + load.cycles
    return np.maximum(at.max(axis=-1), sum([load.ddr_cycles for load in loads]))


def run_side_by_side(fn: FunctionTable, plans: Mapping[Record, Planned], machine: Machine) -> None:
    """Move launches of a function, ordered by `place_barriers`, where that makes epochs shorter; the longest ones first."""
    places = _Places(fn, plans, machine)
    for i in places.free():
        places.move(i)
    if places.first_tile:
        fn.steps = places.steps()


class _Places:
    """Where the launches of a function run. epoch: by step, the number of barriers before it; first_tile: of launches that were
    moved, the tile that does the part of tile 0."""

    def __init__(self, fn: FunctionTable, plans: Mapping[Record, Planned], machine: Machine) -> None:
        self.fn, self.n_tiles, self.epoch = fn, machine.n_tiles, epochs(fn.steps)
        steps = [(i, s.record) for i, s in enumerate(fn.steps) if s.kind == "group" and not s.is_empty]
        runs = {i: record for i, record in steps if record is not None}
        known = {record: load_of(plans[record], machine) for record in dict.fromkeys(runs.values())}
        self.loads = {i: known[record] for i, record in runs.items()}
        self.within: dict[int, list[int]] = {}  # by epoch, its launches in order
        for i in self.loads:
            self.within.setdefault(self.epoch[i], []).append(i)
        self.alone = {n: self._together(own) for n, own in self.within.items()}
        self.maker = {v: j for j, s in enumerate(fn.steps) for v in s.outputs}
        #: epochs in which other steps wait for a call
        self.calls = {n for n, s in zip(self.epoch, fn.steps, strict=True) if s.kind == "call"}
        self.first_tile: dict[int, int] = {}

    def free(self) -> list[int]:
        """Return the launches that may be moved: what writes over its operand stays behind those that read it before."""
        found = [i for i, x in self.loads.items() if x.apart and not x.cycles.all() and self.fn.steps[i].in_place < 0]
        return sorted(found, key=lambda i: (-self.loads[i].cycles.max(), i))

    def _together(self, launches: Sequence[int]) -> list[Load]:
        """Return loads that take as long as those of the launches, in order."""
        loads = [self.loads[i] for i in launches]
        if not loads or not all(x.apart for x in loads):
            return loads
        return [_sum(loads)]

    def _without(self, i: int) -> list[Load]:
        """Return loads that take as long as the other launches of a launch's epoch."""
        here, own = self.epoch[i], self.loads[i]
        if len(self.within[here]) == 1 or len(self.alone[here]) > 1:
            return self._together([j for j in self.within[here] if j != i])
        (every,) = self.alone[here]
        return [Load(every.cycles - own.cycles, every.ddr_cycles - own.ddr_cycles, apart=True)]

    def move(self, i: int) -> None:
        """Put a launch where it adds least, if that is worth it: as late as before, and on the same tiles, if nothing is better."""
        here, own = self.epoch[i], self.loads[i]
        turns = np.array([np.roll(own.cycles, n) for n in range(self.n_tiles)])
        rest = self._without(i)
        now = float(epoch_cycles(self.alone[here]) - epoch_cycles(rest))
        least, best = (1 - WORTH) * now, None
        before = range(here - 1, self._earliest(i) - 1, -1)
        earlier = [n for n in before if self.within.get(n) and n not in self.calls]
        for there in [here, *earlier[:NEAR]]:
            others = rest if there == here else self.alone[there]
            added = self._with(i, replace(own, cycles=turns), there, others) - epoch_cycles(others)
            if added.min() < least:
                least, best = float(added.min()), (there, int(added.argmin()))
        if best is None:
            return
        there, turn = best
        self.within[here].remove(i)
        self.alone[here] = rest
        self.epoch[i], self.first_tile[i] = there, turn
        self.loads[i] = replace(own, cycles=turns[turn])
        bisect.insort(self.within[there], i)
        if all(x.apart for x in self.alone[there]):
            self.alone[there] = [_sum([*self.alone[there], self.loads[i]])]
        else:
            self.alone[there] = self._together(self.within[there])

    def _with(self, i: int, own: Load, there: int, others: Sequence[Load]) -> np.ndarray:
        """Return the cycles of an epoch with launch i in it."""
        if all(x.apart for x in others):
            return epoch_cycles([*others, own])
        before = sum(j < i for j in self.within[there] if j != i)
        return epoch_cycles([*others[:before], own, *others[before:]])

    def _earliest(self, i: int) -> int:
        """Return the first epoch in which step i finds what it reads."""
        first, left = 0, [*self.fn.steps[i].inputs]
        while left:
            j = self.maker.get(left.pop())
            if j is not None and self.fn.steps[j].kind == "alias":
                left += self.fn.steps[j].inputs
            elif j is not None:
                first = max(first, self.epoch[j] + 1)
        return first

    def steps(self) -> list[Step]:
        """Return the steps by epoch; what only gives a value another name stands before its readers."""
        steps, epoch = self.fn.steps, list(self.epoch)
        reads: dict[int, int] = {}  # value -> the first epoch in which it is read
        for i in reversed(range(len(steps))):
            if steps[i].kind == "alias":
                epoch[i] = min([epoch[i], *(reads[v] for v in steps[i].outputs if v in reads)])
            for v in steps[i].inputs:
                reads[v] = min(reads.get(v, epoch[i]), epoch[i])
        return in_epochs([replace(s, first_tile=self.first_tile.get(i, 0)) for i, s in enumerate(steps)], epoch)
