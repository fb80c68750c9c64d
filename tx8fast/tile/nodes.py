"""Rows and multicasts of a code as the list scheduler takes them.

May import: isa, machine, _kernels, tile.{blocks, epochs, fills, multicast, ranks}. Must not: choose an order, know ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tx8fast import isa
from tx8fast._kernels import Csr, Windows, byte_dependences, improved, list_order, within_reach
from tx8fast._kernels._facade_events import KIND_RECV, KIND_SEND, KIND_WAIT_WORKER
from tx8fast.machine import QUEUE_DEPTH, Machine
from tx8fast.tile.blocks import Columns
from tx8fast.tile.epochs import LOADS as DDR_LOADS
from tx8fast.tile.epochs import STORES, by_steps
from tx8fast.tile.fills import Multicasts, Range, Reach
from tx8fast.tile.multicast import ENGINES as FILL_WINDOWS
from tx8fast.tile.multicast import LOADS
from tx8fast.tile.ranks import Way, by_path

CORE = len(QUEUE_DEPTH)  # behind the engines
TDMA = 4  # the engine that moves data in scratchpad
MASKS = 8  # of three windows
MESSAGE_BYTES = 1  # of the one message that a tile sends itself: how long it takes is its own time
#: steps of the core from the last one before a fill is used until stores of what it makes go, if they are to stay behind loads
BEHIND = 6
STEPS = 3  # of the core in a multicast

#: (m, 4, 2) and (m, 2, 2): byte ranges that are read and written; (n,): which of them a row has
Touched = tuple[np.ndarray, np.ndarray, np.ndarray]


class Border(NamedTuple):
    """Between two nests: the row at which the core has sent all, the number of multicasts before it, and whether nothing of the nest
    behind it goes before all of the one before it is over."""

    row: int
    multicasts: int
    whole: bool


class Ranked(NamedTuple):
    """By what nodes are ordered, each (n,): rank; stay: steps of the core to be over before; issue, cycles; before: what each must follow."""

    rank: np.ndarray
    stay: np.ndarray
    issue: np.ndarray
    cycles: np.ndarray
    before: Csr


@lru_cache(maxsize=4)
def waits(machine: Machine) -> tuple[np.ndarray, Columns]:
    """Return the rows that wait: for messages, for no window, ..., for all windows."""
    rows = isa.rows([isa.make("send_wait"), *[isa.make("wait_worker", workers=mask) for mask in range(MASKS)]])
    return rows, Columns(machine, rows)


class Nodes:
    """An engine's rows each for itself, and three steps of the core per multicast. `costs` are of all rows and, behind them, of those
    that wait; `timed` says which rows are: the time of a multicast is in its first one and its last. costs: of the rows; touched: by them;
    fill (n,): the number of the multicast that the row's slice belongs to."""

    def __init__(
        self,
        machine: Machine,
        costs: Columns,
        touched: Touched,
        multicasts: Multicasts,
        fill: np.ndarray,
        borders: Sequence[Border] = (),
    ) -> None:
        n, count = len(costs.kind), multicasts.count
        self.wait_cycles, self.sent_row, self.mask_row = machine.kcore.wait_cycles, n, n + 1
        self.costs = costs = costs.followed_by(waits(machine)[1])
        self.timed = np.ones(len(costs.kind), bool)
        self.loads = multicasts.loads
        own = np.flatnonzero(costs.kind[:n] < CORE)
        begin, end, sending, cycles = multicasts[:4]
        # a multicast's first step stands before the parts of the next one, which may then be loaded
        parts = np.append(multicasts.first_parts(n)[1:], np.full(min(1, count), n))
        between = np.array([b.row for b in borders], np.int64)
        place = np.concatenate(
            [4 * own + 3, 4 * np.minimum(begin, parts), 4 * begin + 1, 4 * begin + 2, 4 * between + 3]
        )
        by_place = np.argsort(place, kind="stable")
        node = np.empty_like(by_place)  # of own rows, first, second and third steps
        node[by_place] = np.arange(len(node))
        last_step = len(own) + STEPS * count
        self.waiting, self.meeting, self.receiving = node[len(own) : last_step].reshape(STEPS, count)
        self.between, self.borders = node[last_step:], borders
        first = np.concatenate([own, np.full(count, self.sent_row), begin, end - 1, between])
        size = np.ones(len(first), np.int64)
        size[len(own) + count : len(own) + 2 * count] = end - 1 - begin
        size[len(own) : len(own) + 1] = 0  # before the first one nothing was sent, and at borders all is
        size[[len(own) + b.multicasts for b in borders if b.multicasts < count]] = 0
        self.first, self.size, self.node = first[by_place], size[by_place], np.full(n, -1)
        self.node[own] = node[: len(own)]
        self.row = np.concatenate([own, np.full(len(first) - len(own), -1)])[by_place]  # -1: the core
        engine, at = self.row >= 0, np.maximum(self.row, 0)
        self.kind = np.where(engine, costs.kind[at], CORE)
        self.issue = np.where(engine, costs.issue[at], 0)
        self.issue[self.waiting] = self.size[self.waiting] * self.wait_cycles
        self.issue[self.between] = self.wait_cycles
        self.issue[self.meeting] = sending
        self.landing = np.zeros(len(self.row), np.int64)  # cycles from a step of the core until the next one may begin
        self.landing[self.meeting] = cycles - sending
        self.window = np.where(engine, -1, 0)
        self.window[self.waiting] = 1 << LOADS
        self.window[self.node[self.loads[0]]] = LOADS
        self.window[self.between] = [MASKS - 1 if b.whole else 0 for b in borders]
        self.fill = np.where(engine, fill[at], 0)
        self.fill[self.waiting] = self.fill[self.meeting] = self.fill[self.receiving] = np.arange(count)
        self.before = self._before(touched, multicasts)
        self.ranks: dict[tuple, np.ndarray] = {}  # by what they depend on, of ways that have them in common
        self.home = self._home()
        # of a multicast the tile sees one message, to itself
        last, sends = end - 1, end - 1 > begin
        inside = np.zeros(len(self.timed), np.int64)
        inside[begin[sends] + 1] += 1
        inside[last[sends]] -= 1
        self.timed[:] = np.cumsum(inside) == 0
        costs.kind[last], costs.issue[last], costs.fixed[last], costs.windows[last] = KIND_RECV, 0, 0, MESSAGE_BYTES
        first, alone = begin[sends], last[~sends]
        costs.kind[first], costs.windows[first] = KIND_SEND, MESSAGE_BYTES
        costs.issue[first], costs.fixed[first] = sending[sends], (cycles - sending)[sends]
        # it sends nothing, and only waits
        costs.kind[alone], costs.issue[alone], costs.windows[alone] = KIND_WAIT_WORKER, cycles[~sends], 0

    def _before(self, touched: Touched, multicasts: Multicasts) -> Csr:
        """Return what every node must follow."""
        n = len(self.kind)
        known: dict[Reach, int] = {}
        number = np.array([known.setdefault(reach, len(known)) for reach in multicasts.reaches], np.int64)
        number = number[multicasts.reach]
        # what was sent may be written over from the border on
        before = [multicasts.reach[: b.multicasts][-1:].tolist() for b in self.borders]
        read_last = [tuple([r for i in last for r in multicasts.reaches[i][0]]) for last in before]
        sent = [known.setdefault((ranges, ()), len(known)) for ranges in read_last]
        n_plain, more = len(touched[0]), 1 + len(known)  # the last one touches nothing
        read = np.zeros((n_plain + more, max([4, *[len(r) for r, _ in known]]), 2), np.int64)
        write = np.zeros((n_plain + more, max([2, *[len(w) for _, w in known]]), 2), np.int64)
        read[:n_plain, :4], write[:n_plain, :2] = touched[:2]
        for (r, w), i in known.items():
            read[n_plain + i, : len(r)], write[n_plain + i, : len(w)] = r or 0, w or 0
        at = np.where(self.row >= 0, touched[2][np.maximum(self.row, 0)], n_plain + more - 1)
        at[self.meeting] = at[self.receiving] = n_plain + number
        at[self.between] = n_plain + np.array(sent, np.int64)
        ptr, before = byte_dependences(read, write, at)
        after = np.repeat(np.arange(n), np.diff(ptr))
        waiting = self.waiting
        pairs = [np.stack([waiting, self.meeting]), np.stack([self.receiving[:-1], waiting[1:]])]
        pairs += self._over_borders() + self._beside_messages(write[:n_plain], at, multicasts)
        row, own, sent = self.loads
        again = sent >= 0
        pairs += [np.stack([self.node[row], waiting[own]]), np.stack([waiting[sent[again] + 1], self.node[row[again]]])]
        old, new = np.concatenate(pairs, axis=1)
        before, after = np.concatenate([before, old]), np.concatenate([after, new])
        ptr = np.concatenate([[0], np.cumsum(np.bincount(after, minlength=n))])
        return ptr, before[np.argsort(after, kind="stable")]

    def _over_borders(self) -> list[np.ndarray]:
        """Return pairs of nodes: a border follows what it sees sent, and the loads of the nest behind it the last fill before it, so that
        they do not keep that nest's own ones waiting."""
        if not self.borders:
            return []
        at, count = self.between, np.array([b.multicasts for b in self.borders], np.int64)
        rows, loads = np.flatnonzero(self.row >= 0), np.flatnonzero(self.kind == DDR_LOADS)
        pairs: list[tuple[np.ndarray, np.ndarray]] = []
        for n, f, border in zip(at.tolist(), count.tolist(), self.borders, strict=True):
            behind = loads[loads > n]
            if f:
                pairs += [
                    (self.receiving[f - 1 : f], np.array([n])),
                    (np.full(len(behind), self.waiting[f - 1]), behind),
                ]
            if f < len(self.waiting):
                pairs.append((np.array([n]), self.waiting[f : f + 1]))
            if border.whole:
                old, new = rows[rows < n], rows[rows > n]
                pairs += [(old, np.full(len(old), n)), (np.full(len(new), n), new)]
        return [np.stack(pair) for pair in pairs]

    def _beside_messages(self, write: np.ndarray, at: np.ndarray, multicasts: Multicasts) -> list[np.ndarray]:
        """Return pairs of nodes of several nests. What is sent of what the nest before has made follows all rows that computed it: the
        last of them would do for the bytes, but the others may have another window, and what is sent waits for what it means. What
        a later nest writes where parts were sent from follows the step that sees them sent. write: of rows alike; at: which of
        them a node is, and behind them others."""
        if not self.borders:
            return []
        computes = (self.row >= 0) & ~np.isin(self.kind, (DDR_LOADS, STORES))
        ends = np.array([b.multicasts for b in self.borders])
        found: list[tuple[np.ndarray, np.ndarray]] = []
        wrote: dict[tuple[Range, ...], np.ndarray] = {}
        for f, i in enumerate(multicasts.reach.tolist()):
            key = multicasts.reaches[i][0]
            if key not in wrote:
                spans = np.array(key, np.int64).reshape(-1, 2)
                over = (write[:, :, None, 0] < spans[:, 1]) & (write[:, :, None, 1] > spans[:, 0])
                wrote[key] = np.flatnonzero(
                    (self.row >= 0) & np.append(over.any(axis=(1, 2)), False)[np.minimum(at, len(write))]
                )
            rows = wrote[key]
            if f >= ends[0]:
                made = rows[computes[rows] & (rows < self.meeting[f])]
                found.append((made, np.full(len(made), self.meeting[f])))
            if f + 1 < multicasts.count and f + 1 not in ends and f < ends[-1]:
                later = rows[rows > self.between[np.searchsorted(ends, f, "right")]]
                found.append((np.full(len(later), self.waiting[f + 1]), later))
        return [np.stack(pair) for pair in found]

    def _home(self) -> np.ndarray:
        """Return the window of every node: that of the first multicast that must wait for it, so that no other one does; else that
        of its slice's. Even and odd multicasts have one each."""
        n = len(self.kind)
        number = np.full(n, -1)
        number[self.meeting] = np.arange(len(self.meeting))
        ptr, before = self.before
        after = np.repeat(number, np.diff(ptr))
        first = np.full(n, len(number))
        np.minimum.at(first, before[after >= 0], after[after >= 0])
        return np.array(FILL_WINDOWS)[np.where(first < len(number), first, self.fill) % 2]

    def seen(self, at: np.ndarray, worker: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the places of rows that take time, and their windows."""
        timed = self.timed[at]
        return at[timed], worker[timed]

    def ranked(self, rate: float, way: Way) -> Ranked:
        """Return by what list scheduling takes the nodes. rate: bytes per cycle of a transfer."""
        stay = np.where(way.behind & (self.kind == STORES), STEPS * self.fill + BEHIND + 1, 0)
        cycles = np.where(self.row >= 0, self.costs.took(rate)[np.maximum(self.row, 0)], self.landing)
        before = within_reach(self.before, way.reach) if way.reach else self.before
        key = rate, way.policy, way.reach, way.better_than, way.held
        if key not in self.ranks:
            self.ranks[key] = self._rank(cycles, before, way)
        rank, issue = self.ranks[key], self.issue
        if way.whole:
            issue, cycles = self.issue + self.landing, np.where(self.row >= 0, cycles, 0)
        return Ranked(rank, stay, issue, cycles, before)

    def form(self, rate: float) -> tuple[bytes, ...]:
        """Return what orders of the nodes depend on. rate: bytes per cycle of a transfer."""
        own = (self.row, self.kind, self.issue, self.landing, self.window, self.home, self.fill, self.first, self.size)
        return tuple([column.tobytes() for column in (*own, *self.before, self.costs.took(rate))])

    def ordered(self, rate: float, way: Way) -> tuple[np.ndarray, np.ndarray]:
        """Return the places of rows in the order of list scheduling, and the window of each."""
        return self.listed(self.ranked(rate, way), way.drains)

    def listed(self, ranked: Ranked, drains: bool) -> tuple[np.ndarray, np.ndarray]:
        """As `ordered`. drains: as of a `Way`."""
        rank, stay, issue, cycles, before = ranked
        windows = Windows(self.window, self.home, stay, self.wait_cycles, drains)
        order, worker = list_order(self.kind, issue, cycles, before, QUEUE_DEPTH, windows, rank)
        wait, node = order < 0, np.maximum(order, 0)
        first, size = np.where(wait, self.mask_row - order, self.first[node]), np.where(wait, 1, self.size[node])
        end = np.cumsum(size)
        at = np.arange(end[-1]) + np.repeat(first - end + size, size)
        own = np.repeat(np.where(wait | (self.row[node] < 0), 0, worker[node]), size)
        sent = min(1, len(self.waiting))  # at the end all messages are sent
        return np.append(at, np.full(sent, self.sent_row)), np.append(own, np.zeros(sent, np.int64))

    def places(self, nest: Nodes, first_row: int, multicasts: int) -> np.ndarray:
        """Return which nodes those of a nest are here, where its rows begin at `first_row` behind so many multicasts."""
        own = np.empty(len(nest.row), np.int64)
        rows, count = nest.row >= 0, len(nest.waiting)
        own[rows] = self.node[nest.row[rows] + first_row]
        for mine, theirs in (
            (self.waiting, nest.waiting),
            (self.meeting, nest.meeting),
            (self.receiving, nest.receiving),
        ):
            own[theirs] = mine[multicasts : multicasts + count]
        return own

    def _rank(self, cycles: np.ndarray, before: Csr, way: Way) -> np.ndarray:
        if way.policy == "stepped":
            busy = np.where(self.row >= 0, cycles, self.issue + self.landing)
            return by_steps(self.kind, busy, self.fill, before)
        return self._better(cycles, before, way) if way.better_than else np.arange(len(self.kind))

    def _better(self, cycles: np.ndarray, before: Csr, way: Way) -> np.ndarray:
        """Return the rank of every node for an order that is better than another one. Backwards nobody knows what a wait will
        take in: without windows, multicasts are work of an engine that nests with them hardly use, and the core, unless it is
        held up by them, goes on meanwhile."""
        core, beside = self.row < 0, (self.row < 0) & (not way.held)
        kind, issue, took = (
            np.where(core, TDMA, self.kind),
            np.where(beside, 0, self.issue + self.landing),
            np.where(core, np.where(beside, self.issue + self.landing, 0), cycles),
        )
        rank = by_path(took, before) if way.better_than == "path" else None
        first, _ = list_order(kind, issue, took, before, QUEUE_DEPTH, rank=rank)
        return improved(kind, issue, took, before, first, QUEUE_DEPTH)
