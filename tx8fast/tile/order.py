"""In what order a tile loads, computes, stores and exchanges: the code is built from it, the trial is timed by it.

May import: lower, tile. Must not: emit instructions, know addresses or cycles.

Loads of the next step come before the compute of the present one, so that the engines' queues overlap them.

Where tiles share operands, a *fill* of the shared operands is used by the steps until the next one changes. While
the engines work on fill f the kernel core prepares f + 1:

    own part of f + 1 is in staging         wait_worker (loads)
    own part of f + 2 starts loading        after send_wait: its staging buffer was the source of send f
    every tile is done with fill f - 1      wait_worker (that fill's engines), then barrier_sub
    part of f + 1 goes to all, all arrive   send, recv

Where every step has a fill of its own, the engines' rows of even fills go through one register window and
those of odd fills through another, so that "done with fill f - 1" does not wait for fill f; loads of parts
have the third. A fill that serves several steps is drained before the next one starts. Ordering between windows
is never left to the hardware: whatever crosses them is waited for (hardware manual 14, 15).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tx8fast.lower.base import Lowering
from tx8fast.tile.multicast import ENGINES, LOADS
from tx8fast.tile.nest import LoopStep, loop_steps
from tx8fast.tile.tiling import Tiling


class Action(NamedTuple):
    """One thing a tile does. kind, and what else counts:

    load (step, access, worker), part (fill, access): its own part of a shared read into staging;
    emit, front, back (step, worker): a slice or half of it; store (step, worker);
    meet, exchange (fill); wait, send_wait; wait_worker (worker: a mask of windows).
    """

    kind: str
    step: int = 0
    access: int = -1
    worker: int = 0
    fill: int = -1


SENT, LOADED = Action("send_wait"), Action("wait_worker", worker=1 << LOADS)


class Fill(NamedTuple):
    """Shared reads that change before step `step`. version: how often each shared read had been filled before."""

    step: int
    changed: tuple[int, ...]
    version: dict[int, int]


@dataclass(frozen=True)
class Order:
    """A tile's actions; `steps` and `fills` are what they count. parity: of every step, `Slice.parity`."""

    steps: list[LoopStep]
    parity: list[int]
    fills: list[Fill]
    actions: list[Action]


def tile_order(tiling: Tiling, lo: Sequence[int], hi: Sequence[int], shared: Collection[int] = (), meet: bool = False,
               limit: int | None = None) -> Order:  # fmt: skip
    """Return the order of a tile with range [lo, hi). shared: reads whose parts are exchanged; meet: tiles must meet
    before the first exchange; limit: steps to look at."""
    low, copies = tiling.low, tiling.copies
    steps = loop_steps(tiling, lo, hi, limit)
    parity = [i % low.turns if low.turns else s.done % 2 for i, s in enumerate(steps)]
    if not shared:
        return Order(steps, parity, [], _alone(steps))
    fills = _fills(steps, shared)
    return Order(steps, parity, fills, _Shared(low, copies, steps, fills, shared, meet).actions)


def _alone(steps: Sequence[LoopStep]) -> list[Action]:
    out = [Action("load", 0, k) for k in steps[0].load]
    for i, (s, after) in enumerate(itertools.zip_longest(steps, steps[1:])):
        coming, copy = (after.load, after.copy) if after is not None else ((), s.copy)
        late = [k for k in coming if copy[k] == s.copy[k]]  # this step reads the buffer that they fill
        out += [Action("load", i + 1, k) for k in coming if k not in late]
        out.append(Action("emit", i))
        if s.last:
            out.append(Action("store", i))
        out += [Action("load", i + 1, k) for k in late]
    return out


def _fills(steps: Sequence[LoopStep], shared: Collection[int]) -> list[Fill]:
    fills: list[Fill] = []
    version = dict.fromkeys(shared, -1)
    for i, s in enumerate(steps):
        changed = tuple([k for k in s.load if k in version])
        if changed:
            for k in changed:
                version[k] += 1
            fills.append(Fill(i, changed, dict(version)))
    return fills


class _Shared:
    """Builds the actions of a tile that exchanges parts of shared reads."""

    def __init__(self, low: Lowering, copies: Sequence[int], steps: Sequence[LoopStep], fills: Sequence[Fill],
                 shared: Collection[int], meet: bool) -> None:  # fmt: skip
        self.low, self.copies, self.steps, self.fills = low, copies, steps, fills
        self.loads = [[k for k in s.load if k not in shared] for s in steps]
        # a shared operand with one buffer that is filled again is not filled before its readers are done
        self.single = any(copies[k] == 1 for fill in fills[1:] for k in fill.changed)
        self.actions: list[Action] = []
        if low.prepares(self.loads[0]):  # while it is still being loaded, into the window of its first slice
            self._parts(0)
            self._load_all(self.loads[0], 0)
            self._add("wait_worker", worker=1 << LOADS)
        else:
            self._load_all(self.loads[0], 0)
            self._parts(0)
            self._add("wait")
        self._parts(1)
        if meet:
            self._add("meet", fill=0)
        self._add("exchange", fill=0)
        if len(fills) == len(steps) and not self.single and not self._one_copy():
            self._one_step_fills()
        else:
            self._long_fills()
        self._add("send_wait")

    def _one_copy(self) -> bool:
        """True if two steps that follow each other have one buffer for what they load, or for their results."""
        n_read = len(self.low.reads)
        loaded = any(self.copies[k] == 1 for a, b in itertools.pairwise(self.loads) for k in b if k in a)
        made = any(a.last and b.last for a, b in itertools.pairwise(self.steps))
        return loaded or made and any(self.copies[k] == 1 for k in range(n_read, len(self.copies)))

    def _add(self, kind: str, step: int = 0, access: int = -1, worker: int = 0, fill: int = -1) -> None:
        self.actions.append(Action(kind, step, access, worker, fill))

    def _parts(self, f: int) -> None:
        """Start loading this tile's parts of fill f into staging."""
        if f < len(self.fills):
            self.actions += [Action("part", 0, k, LOADS, f) for k in self.fills[f].changed]

    def _run(self, i: int, worker: int) -> None:
        self._add("emit", i, -1, worker)
        self._store(i, worker)

    def _store(self, i: int, worker: int) -> None:
        if self.steps[i].last:
            self._add("store", i, -1, worker)

    def _one_step_fills(self) -> None:
        """Every step has its own fill: engines of even and odd steps use different windows.

        The second half of a deferred step is issued behind the first half of the next one, when that of its own is
        done: the wait for a free shared buffer is then a wait for the matrix engine alone."""
        # reads that are not loaded anew for every step: both windows use a copy
        slow = set().union(*self.loads) - set(self.loads[0]).intersection(*self.loads)
        deferred = self.low.deferred
        # what reads operands of its own slice goes to the window that is waited for before they are filled again
        lag = int(self.low.lags)
        held: list[int] = []  # steps whose second half is still to come
        for i in range(len(self.steps)):
            last = i + 1 == len(self.steps)
            coming = [] if last else self.loads[i + 1]
            early = [k for k in coming if k not in slow]
            late = [k for k in coming if k in slow]
            if deferred:
                self._add("front", i, -1, ENGINES[i % 2])
                seconds, held = held, [i]
            else:
                self._load_all(early, i + 1)
                self._run(i, ENGINES[i % 2])
                seconds = []
            if last or late:
                self._finish_all([*seconds, *held], 0)
                seconds, held = [], []
            if late:
                self._add("wait")
                for k in late:
                    self._add("load", i + 1, k, ENGINES[(i + 1) % 2])
                if not self.low.prepares(late):
                    self._add("wait")
            if last:
                return
            self._bring(i, 1 << ENGINES[(i + 1) % 2])
            self._finish_all(seconds, lag)
            if deferred:
                self._load_all(early, i + 1)
            self._exchange(i + 1)
            if self.low.prepares(self.steps[i].new):  # the next slice, in the other window, reads it too
                self._add("wait_worker", worker=1 << ENGINES[i % 2])

    def _load_all(self, reads: Sequence[int], i: int) -> None:
        self.actions += [Action("load", i, k, ENGINES[i % 2]) for k in reads]

    def _finish_all(self, steps: Sequence[int], lag: int) -> None:
        for j in steps:
            self._add("back", j, -1, ENGINES[(j + lag) % 2])
            self._store(j, ENGINES[(j + lag) % 2])

    def _long_fills(self) -> None:
        """A fill serves several steps: one window for all engines, drained before the next fill begins."""
        starts = {fill.step: f for f, fill in enumerate(self.fills)}
        f = 0
        for i in range(len(self.steps)):
            f = starts.get(i, f)
            coming = self.loads[i + 1] if i + 1 < len(self.steps) else []
            for k in coming:
                if self.copies[k] > 1:
                    self._add("load", i + 1, k)
            ends = i + 1 == len(self.steps) or i + 1 in starts
            self._run(i, 0)
            for k in coming:
                if self.copies[k] == 1:
                    self._add("load", i + 1, k)
            if i in starts and f + 1 < len(self.fills) and not self.single:
                self._prepare(f, 0)
            if ends and i + 1 < len(self.steps):
                self._add("wait_worker", worker=1)
                if self.single:
                    self._prepare(f, 0)

    def _prepare(self, f: int, previous: int) -> None:
        """Bring fill f + 1 to all tiles while the engines work on fill f; previous: windows of the fill whose buffer
        is written next."""
        self._bring(f, previous)
        self._exchange(f + 1)

    def _bring(self, f: int, previous: int) -> None:
        """Wait until this tile can take part in the exchange of fill f + 1."""
        self.actions += (SENT, LOADED)
        self._parts(f + 2)
        if previous:
            self._add("wait_worker", 0, -1, previous)

    def _exchange(self, f: int) -> None:
        self.actions += (Action("meet", 0, -1, 0, f), Action("exchange", 0, -1, 0, f))
