"""In which order a tile issues the instructions of a loop nest.

May import: machine, _kernels, tile.blocks, tile.epochs, tile.nodes. Must not: choose plans, know ops.

The nest's own order, slice after slice, is right: every row finds what it reads. Any order that keeps, for every byte, writes and
reads in turn is as right, so list scheduling lets rows of later slices go first where an engine would wait. What the orders take
is measured on the event kernel, for one tile with its share of the DDR, to which a multicast is time of the core.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tx8fast._kernels import (
    ENGINES,
    Csr,
    EventInput,
    EventResult,
    byte_dependences,
    improved,
    list_order,
    simulate_events,
)
from tx8fast._kernels._facade_events import KIND_SEND, NO_ROUTES, Routes
from tx8fast.machine import QUEUE_DEPTH, Machine
from tx8fast.records import dataclass
from tx8fast.tile.blocks import Code, Columns, aliased_ranges
from tx8fast.tile.epochs import by_steps
from tx8fast.tile.joined import TileCode
from tx8fast.tile.nodes import CORE, Nodes, Ranked, Touched
from tx8fast.tile.ranks import Way, by_path

#: orders of instructions: that of the loop nest, list scheduling over the whole nest, and the same by time steps
POLICIES = ("nest", "free", "stepped")
#: what a compilation may ask for: one of them, or the list order with the fewest cycles
ORDERS = (*POLICIES, "best")
MAX_ROWS = 1 << 15  # of one code; of a longer one no orders are compared
#: of the cycles of plain list scheduling, what a further order may take: its transfers may meet those of other tiles elsewhere. Of 0.99,
#: 0.995, 0.998 and 1 on twelve programs of the replay corpus at opt 2 this one makes none slower and seven faster, by up to 0.8 %; at
#: opt 1, where products stand alone, one of 42 takes 2.3 % longer
GAIN = 0.998


#: of a tile that sends messages to itself, without a link
ITSELF = Routes(
    mask_size=np.ones(1, np.int64),
    tree_of=np.zeros((1, 1), np.int64),
    tree_begin=np.zeros(2, np.int64),
    leaf_begin=np.array([0, 1]),
    leaf_tile=np.zeros(1, np.int64),
    leaf_hop=np.full(1, -1),
    leaf_turn=np.zeros(1, np.int64),
    engines=3,
)


@dataclass(frozen=True)
class Ordered:
    """Which policy ordered a code, the cycles of those that were measured, and those that no order is below."""

    policy: str
    cycles: Mapping[str, int]
    least: int


#: those that are tried, and those that are compared; of a policy the first one alone is used where none are. In 47 nests of five models
#: the best of those which are tried is 0.4 % above the best of 31 ways on one tile, and 3.3 % the best of those that are not improved.
#: Waits that drain windows gain little there, and lose up to 4.5 % on sixteen tiles that wait for the DDR, where transfers end later: the
#: first of those compared, which equals are decided for, has none
TRIED = (Way("free", True, drains=True, better_than="age"), Way("free", better_than="age", held=True))
COMPARED = (
    Way("free", behind=True, better_than="age"),
    TRIED[1],
    Way("free", drains=True, better_than="path"),
    Way("stepped"),
    Way("stepped", drains=True),
    Way("free", better_than="age", held=True, whole=True),
)
WAYS = (*COMPARED, Way("nest", reach=1))


def least_cycles(costs: Columns, rate: float, share: float) -> int:
    """Return the cycles that the busiest engine, the core or the tile's share of the DDR is busy in any order of the rows."""
    kind = np.minimum(costs.kind, ENGINES)
    busy = np.bincount(kind, np.where(kind < ENGINES, costs.took(rate), 0), ENGINES + 1)
    core = int(costs.issue.sum())
    return max(math.ceil(busy.max()), core, math.ceil(costs.ddr_bytes.sum() / share))


def list_orders(
    kind: np.ndarray, issue: np.ndarray, cycles: np.ndarray, before: Csr, ranks: Sequence[np.ndarray]
) -> Iterator[np.ndarray]:
    """Yield orders of list scheduling for rows between which no wait stands, two by every rank, but each once."""
    seen: set[bytes] = set()
    for order in _all_orders(kind, issue, cycles, before, ranks):
        if (form := order.tobytes()) not in seen:
            seen.add(form)
            yield order


def _all_orders(
    kind: np.ndarray, issue: np.ndarray, cycles: np.ndarray, before: Csr, ranks: Sequence[np.ndarray]
) -> Iterator[np.ndarray]:
    for rank in ranks:
        first, _ = list_order(kind, issue, cycles, before, QUEUE_DEPTH, rank=rank)
        yield first
        rank = improved(kind, issue, cycles, before, first, QUEUE_DEPTH)
        yield list_order(kind, issue, cycles, before, QUEUE_DEPTH, rank=rank)[0]


def free_ranks(cycles: np.ndarray, before: Csr) -> list[np.ndarray]:
    """Return by what free orders choose among rows that could start at the same time: by their age, or by what waits for them."""
    return [np.arange(len(cycles)), by_path(cycles, before)]


def better(cycles: Sequence[int]) -> int:
    """Return which of several orders to take: the one with the fewest cycles, or the first one if that gains little."""
    best = min(range(len(cycles)), key=cycles.__getitem__)
    return best if cycles[best] < GAIN * cycles[0] else 0


def measured(
    costs: Columns, at: np.ndarray, share: float, port: float, worker: np.ndarray | None = None
) -> EventResult:
    """Return the times of rows in the order `at` on a tile. share, port: bytes per cycle of the DDR that the tile and its port
    get; worker: the window of each row, None: all have the first."""
    kind, n = costs.kind[at], len(costs.kind)
    none, arg = np.zeros((n, 2), np.int64), np.zeros((n, 3), np.int64)
    arg[:, 0] = costs.windows
    window = np.zeros(n, np.uint8)
    window[at] = 0 if worker is None else worker
    sends = bool((kind == KIND_SEND).any())
    return simulate_events(
        EventInput(
            kind=kind,
            issue=costs.issue[at],
            spm_read=costs.read,
            spm_write=costs.write,
            form=at,
            code_begin=np.zeros(1, np.int64),
            tile_begin=np.array([0, len(at)], np.int64),
            fixed=costs.fixed[at],
            ddr_bytes=costs.ddr_bytes[at],
            ddr_read=none,
            ddr_write=none,
            arg=arg,
            worker=window,
            routes=ITSELF if sends else NO_ROUTES,
        ),
        QUEUE_DEPTH,
        port,
        share,
    )


class Found(NamedTuple):
    """An order of a tile's rows: their places, those of rows that wait behind all of them, and the window of each; of a nest whose tiles
    pass operands on also by what it was found."""

    at: np.ndarray
    worker: np.ndarray
    nodes: Nodes | None = None
    ranked: Ranked | None = None
    drains: bool = False


class TileOrder:
    """Orders the codes of one segment, and remembers how. share: DDR bytes per cycle of one tile; aliased (slots,): where the
    bytes of a DDR slot begin, of slots of which one may be written while another is read; -1: bytes that nobody else has."""

    def __init__(self, machine: Machine, wanted: str, share: float, aliased: np.ndarray | None = None) -> None:
        self.machine, self.wanted, self.share, self.aliased = machine, wanted, share, aliased
        self.port = float(machine.dma.port_bytes)
        self.rate = min(self.port, share)
        self.made: list[Ordered] = []
        self.known: dict[tuple[bytes, ...], tuple[np.ndarray, Ordered]] = {}  # what an order depends on -> it
        self.way: Way | None = None  # of codes with multicasts
        self.listed: dict[tuple[bytes, ...], tuple[Ranked, tuple[np.ndarray, np.ndarray]]] = {}  # of them, by form
        self.found: dict[tuple, Found] = {}  # by what a code's nodes are made of
        self.alike: dict[bytes, int] = {}  # what a row costs and touches -> a number

    def of_tile(self, tile: TileCode) -> Found:
        """Return the wanted order of a tile's rows."""
        return self._shared(tile) if tile.multicasts.count else Found(*self._alone(tile.code, tile.step))

    def _alone(self, code: Code, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n, costs = len(code.at), code.columns.of(code.at)
        if self.wanted == "nest" or not 1 < n <= MAX_ROWS:
            self.made.append(Ordered("nest", {}, least_cycles(costs, self.rate, self.share)))
            return np.arange(n), np.zeros(n, np.int64)
        before = byte_dependences(*self.touched(code, costs))
        key = tuple([column.tobytes() for column in (costs.kind, costs.issue, costs.fixed, costs.ddr_bytes, *before)])
        if key not in self.known:
            took = costs.took(self.rate)
            stepped = self.wanted == "stepped"
            ranks = [by_steps(costs.kind, took, step, before)] if stepped else free_ranks(took, before)
            orders = list_orders(costs.kind, costs.issue, took, before, ranks)
            orders = list(orders if self.wanted == "best" else itertools.islice(orders, 1))
            cycles = [measured(costs, order, self.share, self.port).cycles for order in orders]
            best = better(cycles)
            policy = "stepped" if stepped else "free"
            self.known[key] = (
                orders[best],
                Ordered(policy, {policy: cycles[best]}, least_cycles(costs, self.rate, self.share)),
            )
        order, made = self.known[key]
        self.made.append(made)
        return order, np.zeros(n, np.int64)

    def _shared(self, tile: TileCode) -> Found:
        """As `of_tile`, where tiles pass operands on. All codes of a segment are ordered as the first one, because their tiles meet."""
        if self.aliased is not None:  # the bytes in DDR differ from tile to tile
            return self._listed(tile)
        made_of = self._made_of(tile)
        if made_of not in self.found:
            self.found[made_of] = self._listed(tile)
        return self.found[made_of]

    def _made_of(self, tile: TileCode) -> tuple:
        """Return what the nodes of a code are made of: costs of its rows and, of those of engines, the bytes that they touch; where the
        messages of the core lie differs from tile to tile."""
        columns, multicasts = tile.code.columns, tile.multicasts
        own = (columns.kind < CORE)[:, None]
        costs = (columns.kind, columns.issue, columns.fixed, columns.ddr_bytes, columns.windows)
        touched = (own * x.reshape(len(x), -1) for x in (columns.read, columns.write))
        alike = np.concatenate([np.stack(costs, axis=1), *touched], axis=1)
        alike = alike.view(f"V{alike.itemsize * alike.shape[1]}").ravel().tolist()
        number = np.array([self.alike.setdefault(row, len(self.alike)) for row in alike], np.int32)[tile.code.at]
        arrays = (number, tile.fill, *multicasts[:5], multicasts.loads)
        return (*[array.tobytes() for array in arrays], *multicasts.reaches)

    def _listed(self, tile: TileCode) -> Found:
        code, costs = tile.code, tile.code.columns.of(tile.code.at)
        nodes = Nodes(self.machine, costs, self.touched(code, costs), tile.multicasts, tile.fill)
        form = nodes.form(self.rate)
        if self.way is not None:
            if form not in self.listed:
                ranked = nodes.ranked(self.rate, self.way)
                self.listed[form] = ranked, nodes.listed(ranked, self.way.drains)
            ranked, order = self.listed[form]
            return Found(*order, nodes, ranked, self.way.drains)
        ways = COMPARED if self.wanted == "best" else [way for way in WAYS if way.policy == self.wanted]
        ways = ways[: None if len(code.at) <= MAX_ROWS else 1]
        ranked = [nodes.ranked(self.rate, way) for way in ways]
        found = [nodes.listed(r, way.drains) for r, way in zip(ranked, ways, strict=True)]
        timed = [nodes.seen(*order) for order in found]
        cycles = [measured(nodes.costs, at, self.share, self.port, worker).cycles for at, worker in timed]
        best = better(cycles)
        self.way = ways[best]
        took: dict[str, int] = {}
        for way, n in zip(ways, cycles, strict=False):
            took[way.policy] = min(n, took.get(way.policy, n))
        least = least_cycles(nodes.costs.of(timed[best][0]), self.rate, self.share)
        self.made.append(Ordered(self.way.policy, took, least))
        self.listed[form] = ranked[best], found[best]
        return Found(*found[best], nodes, ranked[best], self.way.drains)

    def touched(self, code: Code, costs: Columns) -> Touched:
        """Return what rows touch, in DDR as well where operand and result have the same bytes there. costs: of all rows, in turn."""
        if self.aliased is None:
            return code.columns.read, code.columns.write, code.at
        aliased_ranges(code, self.aliased, costs.read, costs.write)
        return costs.read, costs.write, np.arange(len(code.at))

    def facts(self) -> dict[str, Any]:
        """Return the orders that the codes have, and what the slowest code takes in each order that was measured."""
        took = {policy: max((o.cycles.get(policy, 0) for o in self.made), default=0) for policy in POLICIES}
        return {
            "policy": sorted({o.policy for o in self.made}),
            "policy_cycles": {p: n for p, n in took.items() if n},
            "order_bound_cycles": max((o.least for o in self.made), default=0),
        }
