"""In which order a tile issues the instructions of a loop nest.

May import: isa, machine, _kernels, tile.multicast. Must not: choose plans, know ops.

The nest's own order is right: every row finds what it reads. Any order that keeps, for every byte, writes and reads in turn is
as right, so list scheduling may let rows of later slices go first where an engine would wait. What both orders take is
measured on the event kernel, for one tile with its share of the DDR.

Where tiles pass operands on, a *multicast* is a step of the core, in two halves: it waits until the tile's own parts are there
(from then on the parts of the next one may be loaded), and then, when nobody on this tile uses the target's bytes any
more, meets the other tiles, sends and receives. List scheduling gives every row a register window and waits for windows where
rows of different engines would else have to be in one (hardware manual 15); the waits of the nest's order are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast._kernels import EventInput, Windows, byte_dependences, list_order, simulate_events
from tx8fast._kernels._facade_events import KIND_WAIT, KIND_WAIT_WORKER
from tx8fast.machine import QUEUE_DEPTH, Machine
from tx8fast.tile.multicast import ENGINES as FILL_WINDOWS
from tx8fast.tile.multicast import LOADS

ENGINES = len(QUEUE_DEPTH)
#: orders of instructions: that of the loop nest, list scheduling over the whole nest
POLICIES = ("nest", "free")
#: what a compilation may ask for: one of them, or per code the one that takes fewer cycles
ORDERS = (*POLICIES, "best")
#: other orders of codes with multicasts are taken below this share of the nest's cycles: one tile stands for all, and tiles meet
GAIN = 0.995
MAX_ROWS = 1 << 15  # of one code; a longer one keeps the order of its nest
DDR = 1 << 40  # bytes of DDR stand behind all addresses of the scratchpad
MASKS = 8  # of three windows
#: ways to choose windows (see `_kernels.Windows`): rules for rows that do not read what a multicast brings, for those that do, and
#: whether waits after the next one count
RULES = ((1, 1, 0), (1, 1, 1), (0, 1, 0), (0, 1, 1))
#: what the event kernel calls rows that wait; sends are over when the tiles that wait for them are released
SYNC_KINDS = {"wait": KIND_WAIT, "wait_worker": KIND_WAIT_WORKER, "send_wait": KIND_WAIT_WORKER}

Range = tuple[int, int]


@dataclass(frozen=True)
class Multicast:
    """Rows [begin, end) that bring one fill, in the nest's order. cycles: of the core, from the meeting to the last byte; read,
    write: bytes of the parts and of the targets; parts: rows that load the own parts, with the number of the multicast that
    used their bytes before, -1: none."""

    begin: int
    end: int
    cycles: int
    read: Sequence[Range]
    write: Sequence[Range]
    parts: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Ordered:
    """Which policy ordered a code, and the cycles of those that were measured."""

    policy: str
    cycles: Mapping[str, int]


class TileOrder:
    """Orders the codes of one segment, and remembers how. share: DDR bytes per cycle of one tile."""

    def __init__(self, machine: Machine, wanted: str, share: float) -> None:
        self.machine, self.wanted, self.share = machine, wanted, share
        self.port = float(machine.dma.port_bytes)
        self.made: list[Ordered] = []
        self.rule: tuple[int, int, int] | None = None  # how the first code with multicasts was ordered

    def of(self, rows: np.ndarray, aliased: np.ndarray | None = None) -> np.ndarray:
        """Return the rows, none of which waits for anything, in the wanted order. aliased (slots,): where the bytes of a DDR
        slot begin, of slots of which one may be written while another is read; -1: bytes that nobody else has."""
        if self.wanted == "nest" or not 1 < len(rows) <= MAX_ROWS:
            self.made.append(Ordered("nest", {}))
            return rows
        costs = _Costs(self.machine, rows, aliased)
        before = byte_dependences(costs.read, costs.write)
        order, _ = list_order(costs.kind, costs.issue, costs.took(self.port, self.share), before, QUEUE_DEPTH)
        found = {"nest": np.arange(len(rows)), "free": order}
        cycles = {policy: self._measured(costs, at) for policy, at in found.items()}
        best = min(POLICIES, key=cycles.__getitem__) if self.wanted == "best" else self.wanted
        self.made.append(Ordered(best, cycles))
        return rows[found[best]]

    def keeps(self, n_rows: int) -> bool:
        """True if codes whose tiles pass operands on keep the nest's order; all codes of a segment are ordered as the first
        one, because their tiles meet."""
        return self.wanted == "nest" or n_rows > MAX_ROWS or bool(self.made) and self.rule is None

    def of_shared(self, rows: np.ndarray, multicasts: Sequence[Multicast], fill: np.ndarray,
                  aliased: np.ndarray | None = None) -> np.ndarray:  # fmt: skip
        """Return the rows of a nest whose tiles pass operands on, in the wanted order. fill (n,): the number of the multicast
        that the row's slice belongs to."""
        nodes = _Nodes(self.machine, rows, multicasts, fill, aliased)
        took = nodes.costs.took(self.port, self.share)
        if self.rule is not None:
            return nodes.written(*nodes.ordered(self.rule, took))
        cycles = {"nest": self._measured(nodes.costs, np.arange(len(rows)), rows["worker"])}
        made = {rule: nodes.ordered(rule, took) for rule in RULES}
        found = {rule: self._measured(nodes.costs, *order) for rule, order in made.items()}
        best = min(found, key=found.__getitem__)
        cycles["free"] = found[best]
        if self.wanted == "free" or cycles["free"] < GAIN * cycles["nest"]:
            self.rule = best
        self.made.append(Ordered("nest" if self.rule is None else "free", cycles))
        return rows if self.rule is None else nodes.written(*made[best])

    def facts(self) -> dict[str, Any]:
        """Return the orders that the codes have, and what the slowest code takes in each order that was measured."""
        took = {policy: max((o.cycles.get(policy, 0) for o in self.made), default=0) for policy in POLICIES}
        return {"policy": sorted({o.policy for o in self.made}), "policy_cycles": {p: n for p, n in took.items() if n}}

    def scaled(self, cycles: int) -> int:
        """Return what an estimate for the nest's order, of the slowest tile, becomes with the orders that were chosen."""
        nest = max((o.cycles.get("nest", 0) for o in self.made), default=0)
        chosen = max((o.cycles.get(o.policy, 0) for o in self.made), default=0)
        return round(cycles * chosen / nest) if nest else cycles

    def _measured(self, costs: _Costs, at: np.ndarray, worker: np.ndarray | None = None) -> int:
        """Return the cycles of rows in the order `at`."""
        timed = costs.timed[at]
        own, at = (None if worker is None else worker[timed].astype(np.uint8)), at[timed]
        n, none = len(at), np.zeros((len(at), 2), np.int64)
        return simulate_events(EventInput(
            kind=costs.kind[at], issue=costs.issue[at], spm_read=costs.read[at], spm_write=costs.write[at],
            code_begin=np.zeros(1, np.int64), tile_begin=np.array([0, n], np.int64), fixed=costs.fixed[at],
            ddr_bytes=costs.ddr_bytes[at], ddr_read=none, ddr_write=none, worker=own, arg=costs.arg[at],
        ), QUEUE_DEPTH, self.port, self.share).cycles  # fmt: skip


class _Costs:
    """What rows take and touch. kind (n,) uint8: what the event kernel calls them; issue, fixed (n,) cycles; ddr_bytes (n,),
    moved at the rate that DDR and port leave; read (n, 4, 2), write (n, 2, 2): byte ranges in scratchpad, and behind it those of
    aliased DDR; arg (n, 3): windows that a row waits for; timed (n,): False where the time is in another row."""

    def __init__(self, machine: Machine, rows: np.ndarray, aliased: np.ndarray | None) -> None:
        families = list(isa.by_family(rows))
        fixed, charged = isa.durations(machine, rows, np.maximum(rows["ddr"], 0), families)
        self.kind = isa.units(rows).astype(np.uint8)
        self.issue = np.asarray(isa.issue_cycles(machine, rows, families), np.int64)
        self.fixed, self.ddr_bytes = np.asarray(fixed, np.int64), np.asarray(charged, np.int64)
        self.read, self.write = isa.spm_ranges(rows, families)
        self.arg, self.timed = np.zeros((len(rows), 3), np.int64), np.ones(len(rows), bool)
        if aliased is not None:
            base = np.where(rows["slot"] >= 0, aliased[rows["slot"]], -1)
            ddr = isa.ranges(rows, base + rows["ddr"])
            # loads read no scratchpad and stores write none: their last range is free
            for own, key in ((self.read, "ddr_read"), (self.write, "ddr_write")):
                there = (base >= 0) & (ddr[key] != 0).any(axis=1)
                own[:, -1] = np.where(there[:, None], DDR + ddr[key], own[:, -1])

    def took(self, port: float, share: float) -> np.ndarray:
        """Return the cycles of every row when nobody else of the tile transfers."""
        return self.fixed + np.ceil(self.ddr_bytes / min(port, share)).astype(np.int64)


class _Nodes:
    """Rows and multicasts of a code as the list scheduler takes them: an engine's row each, two steps of the core per
    multicast. Behind the code's rows stand those that wait."""

    def __init__(self, machine: Machine, rows: np.ndarray, multicasts: Sequence[Multicast], fill: np.ndarray,
                 aliased: np.ndarray | None) -> None:  # fmt: skip
        waits = [isa.make("send_wait"), *[isa.make("wait_worker", workers=mask) for mask in range(MASKS)]]
        n, count = len(rows), len(multicasts)
        self.rows, self.wait_cycles = np.concatenate([rows, isa.rows(waits)]), machine.kcore.wait_cycles
        self.mask_row = n + 1  # where the wait for no window stands; behind it those for others
        self.costs = costs = _Costs(machine, self.rows, aliased)
        own = np.flatnonzero(costs.kind[:n] < ENGINES)
        begin = np.array([m.begin for m in multicasts], np.int64)
        # a multicast's first half stands before the parts of the next one, which may then be loaded
        parts = [min((r for r, _ in m.parts), default=n) for m in multicasts[1:]] + [n]
        place = np.concatenate([3 * own + 2, 3 * np.minimum(begin, parts), 3 * begin + 1])
        by_place = np.argsort(place, kind="stable")
        node = np.argsort(by_place)  # of own rows, first halves, second halves
        first = np.concatenate([own, np.full(count, n), begin])
        size = np.concatenate([np.ones(len(own) + count, np.int64), [m.end - m.begin for m in multicasts]])
        size[len(own)] = 0  # before the first one nothing was sent
        waiting, meeting = node[len(own) : len(own) + count], node[len(own) + count :]
        self.first, self.size, self.row = first[by_place], size[by_place], np.full(n, -1)
        self.row[own] = node[: len(own)]
        self.source = np.concatenate([own, np.full(2 * count, -1)])[by_place]  # the engine's row, -1: the core
        engine = self.source >= 0
        at = np.maximum(self.source, 0)
        self.kind = np.where(engine, costs.kind[at], ENGINES)
        self.issue = np.where(engine, costs.issue[at], 0)
        self.issue[waiting] = self.size[waiting] * self.wait_cycles
        self.issue[meeting] = [m.cycles for m in multicasts]
        self.window = np.where(engine, -1, 0)
        self.window[waiting] = 1 << LOADS
        self.home = np.where(engine, np.array(FILL_WINDOWS)[fill[at] % 2], 0)
        for m in multicasts:
            self.window[self.row[[r for r, _ in m.parts]]] = LOADS
        self._depend(multicasts, waiting, meeting)
        for m in multicasts:  # from here on the core is busy in their first row, and nothing else
            costs.timed[m.begin + 1 : m.end] = False
            costs.kind[m.begin : m.end], costs.issue[m.begin], costs.fixed[m.begin] = KIND_WAIT_WORKER, m.cycles, 0
        for name, kind in SYNC_KINDS.items():
            costs.kind[self.rows["opcode"] == isa.INSTRUCTIONS[name].OPCODE] = kind
        windows = self.rows["opcode"] == isa.INSTRUCTIONS["wait_worker"].OPCODE
        costs.arg[windows, 0] = self.rows["p"][windows, 0]

    def _depend(self, multicasts: Sequence[Multicast], waiting: np.ndarray, meeting: np.ndarray) -> None:
        """Find what every node must follow, and which ones read what a multicast brings."""
        widest = max(4, *(len(m.read) for m in multicasts)), max(2, *(len(m.write) for m in multicasts))
        read, write = (np.zeros((len(self.kind), width, 2), np.int64) for width in widest)
        engine = self.source >= 0
        read[engine, :4], write[engine, :2] = self.costs.read[self.source[engine]], self.costs.write[self.source[engine]]
        for m, node in zip(multicasts, meeting.tolist(), strict=True):
            read[node, : len(m.read)], write[node, : len(m.write)] = m.read, m.write
        ptr, before = byte_dependences(read, write)
        after = np.repeat(np.arange(len(self.kind)), np.diff(ptr))
        self.reads_multicast = np.zeros(len(self.kind), bool)
        self.reads_multicast[after[np.isin(before, meeting)]] = True
        pairs = [*zip(waiting, meeting, strict=True), *zip(meeting[:-1], waiting[1:], strict=True)]
        for f, m in enumerate(multicasts):
            pairs += [(self.row[r], waiting[f]) for r, _ in m.parts]
            pairs += [(waiting[sent + 1], self.row[r]) for r, sent in m.parts if sent >= 0]
        more = np.array(pairs, np.int64)
        before, after = np.concatenate([before, more[:, 0]]), np.concatenate([after, more[:, 1]])
        by_row = np.argsort(after, kind="stable")
        ptr = np.concatenate([[0], np.cumsum(np.bincount(after, minlength=len(self.kind)))])
        self.before = ptr, before[by_row]

    def written(self, at: np.ndarray, worker: np.ndarray) -> np.ndarray:
        """Return the rows of an order, with their windows."""
        out = self.rows[at]
        out["worker"] = worker
        return out

    def ordered(self, rule: tuple[int, int, int], took: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows in the order of list scheduling, and the window of each."""
        rules = np.where(self.reads_multicast, rule[1], rule[0])
        given = Windows(self.window, self.home, rules, self.wait_cycles, bool(rule[2]))
        cycles = np.where(self.source >= 0, took[np.maximum(self.source, 0)], 0)
        order, worker = list_order(self.kind, self.issue, cycles, self.before, QUEUE_DEPTH, given)
        wait = order < 0
        node = np.maximum(order, 0)
        first, size = np.where(wait, self.mask_row - order, self.first[node]), np.where(wait, 1, self.size[node])
        end = np.cumsum(size)
        at = np.arange(end[-1]) + np.repeat(first - end + size, size)
        windows = np.repeat(np.where(wait | (self.source[node] < 0), 0, worker[node]), size)
        return np.append(at, self.mask_row - 1), np.append(windows, 0)  # at the end all messages are sent
