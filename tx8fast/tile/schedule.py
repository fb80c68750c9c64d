"""In which order a tile issues the instructions of a loop nest.

May import: machine, _kernels, tile.blocks, tile.nodes. Must not: choose plans, know ops.

The nest's own order, slice after slice, is right: every row finds what it reads. Any order that keeps, for every byte, writes and
reads in turn is as right, so list scheduling lets rows of later slices go first where an engine would wait. What the orders take
is measured on the event kernel, for one tile with its share of the DDR, to which a multicast is time of the core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tx8fast._kernels import (
    Csr,
    EventInput,
    EventResult,
    backwards,
    byte_dependences,
    list_order,
    longest_paths,
    simulate_events,
)
from tx8fast.machine import QUEUE_DEPTH, Machine
from tx8fast.tile.blocks import Code, Columns, aliased_ranges
from tx8fast.tile.nodes import Multicast, Nodes, Touched, waits

#: orders of instructions: that of the loop nest, list scheduling over the whole nest
POLICIES = ("nest", "free")
#: what a compilation may ask for: the nest's order, one list order, or the list order with the fewest cycles
ORDERS = ("nest", "free", "best")
WINDOWS = 3  # of registers
MAX_ROWS = 1 << 15  # of one code; of a longer one no orders are compared
#: of the cycles of plain list scheduling, what a further order may take: its transfers may meet those of other tiles elsewhere
GAIN = 0.99


@dataclass(frozen=True)
class Ordered:
    """Which policy ordered a code, and the cycles of those that were measured."""

    policy: str
    cycles: Mapping[str, int]


def free_orders(kind: np.ndarray, issue: np.ndarray, cycles: np.ndarray, before: Csr) -> list[np.ndarray]:
    """Return orders of list scheduling for rows between which no wait stands, each once.

    Of rows that could start at the same time, the older one goes first, or the one from whose begin to the end of the last row
    that waits for it are more cycles. An order becomes better when it is made backwards from its end, and forwards again in the
    order of the begins found (forward-backward improvement: Li and Willis, An iterative scheduling technique for
    resource-constrained project scheduling, 1992)."""
    n, turned = len(cycles), backwards(before)
    found = []
    for rank in (np.arange(n), np.argsort(np.argsort(-longest_paths(cycles, before), kind="stable"))):
        first, _ = list_order(kind, issue, cycles, before, QUEUE_DEPTH, rank=rank)
        # backwards row i is number n - 1 - i, and what went last goes first
        late = n - 1 - np.argsort(first)[::-1]
        last, _ = list_order(kind[::-1], issue[::-1], cycles[::-1], turned, QUEUE_DEPTH, rank=late)
        better, _ = list_order(kind, issue, cycles, before, QUEUE_DEPTH, rank=n - 1 - np.argsort(last)[::-1])
        found += [first, better]
    return list({order.tobytes(): order for order in found}.values())


def better(cycles: Sequence[int]) -> int:
    """Return which of the orders of `free_orders` to take: the one with the fewest cycles, or the first one if that gains little."""
    best = min(range(len(cycles)), key=cycles.__getitem__)
    return best if cycles[best] < GAIN * cycles[0] else 0


def measured(
    costs: Columns, at: np.ndarray, share: float, port: float, worker: np.ndarray | None = None
) -> EventResult:
    """Return the times of rows in the order `at` on a tile. share, port: bytes per cycle of the DDR that the tile and its port
    get; worker: the window of each row, None: all have the first."""
    n, none = len(at), np.zeros((len(at), 2), np.int64)
    arg = np.stack([costs.windows[at], none[:, 0], none[:, 0]], axis=1)
    return simulate_events(EventInput(
        kind=costs.kind[at], issue=costs.issue[at], spm_read=costs.read[at], spm_write=costs.write[at],
        code_begin=np.zeros(1, np.int64), tile_begin=np.array([0, n], np.int64), fixed=costs.fixed[at],
        ddr_bytes=costs.ddr_bytes[at], ddr_read=none, ddr_write=none, arg=arg,
        worker=None if worker is None else worker.astype(np.uint8),
    ), QUEUE_DEPTH, port, share)  # fmt: skip


class TileOrder:
    """Orders the codes of one segment, and remembers how. share: DDR bytes per cycle of one tile; aliased (slots,): where the
    bytes of a DDR slot begin, of slots of which one may be written while another is read; -1: bytes that nobody else has."""

    def __init__(self, machine: Machine, wanted: str, share: float, aliased: np.ndarray | None = None) -> None:
        self.machine, self.wanted, self.share, self.aliased = machine, wanted, share, aliased
        self.port = float(machine.dma.port_bytes)
        self.rate = min(self.port, share)
        self.made: list[Ordered] = []
        self.known: dict[tuple[bytes, ...], tuple[np.ndarray, int]] = {}  # what an order depends on -> order and cycles
        self.behind: bool | None = None  # whether stores of codes with multicasts stay behind loads

    def of(self, code: Code) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows, none of which waits for anything, in the wanted order, and their forms (`Code.forms`)."""
        n = len(code.at)
        if self.wanted == "nest" or not 1 < n <= MAX_ROWS:
            self.made.append(Ordered("nest", {}))
            return code.rows(), code.forms[code.at]
        costs = code.columns.of(code.at)
        before = byte_dependences(*self._touched(code, costs))
        key = tuple([column.tobytes() for column in (costs.kind, costs.issue, costs.fixed, costs.ddr_bytes, *before)])
        if key not in self.known:
            took = costs.took(self.rate)
            orders = free_orders(costs.kind, costs.issue, took, before)[: 1 if self.wanted == "free" else None]
            cycles = [measured(costs, order, self.share, self.port).cycles for order in orders]
            best = better(cycles)
            self.known[key] = orders[best], cycles[best]
        order, cycles = self.known[key]
        self.made.append(Ordered("free", {"free": cycles}))
        return code.rows(order), code.forms[code.at[order]]

    def of_shared(self, code: Code, multicasts: Callable[[], tuple[Sequence[Multicast], np.ndarray]]
                  ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """Return the rows of a nest whose tiles pass operands on, in the wanted order, and their forms. All codes of a segment are
        ordered as the first one, because their tiles meet. multicasts: gives them, and per row the number of the one that its slice
        belongs to."""
        costs = code.columns.of(code.at)
        nodes = Nodes(self.machine, costs, self._touched(code, costs), *multicasts())
        if self.behind is not None:
            found = {self.behind: self._order(nodes, self.behind)}
        else:
            every = self.wanted == "best" and len(code.at) <= MAX_ROWS
            found = {behind: self._order(nodes, behind) for behind in (False, True)[: 1 + every]}
            cycles = [measured(nodes.costs, *self._timed(nodes, order)).cycles for order in found.values()]
            self.behind = bool(better(cycles))
            policy = "nest" if self.wanted == "nest" else "free"
            self.made.append(Ordered(policy, {policy: cycles[self.behind]}))
        return self._written(code, *found[self.behind])

    def _order(self, nodes: Nodes, behind: bool) -> tuple[np.ndarray, np.ndarray]:
        return nodes.ordered(self.rate, behind, int(self.wanted == "nest"))

    def _timed(self, nodes: Nodes, order: tuple[np.ndarray, np.ndarray]) -> tuple:
        at, worker = nodes.seen(*order)
        return at, self.share, self.port, worker

    def _touched(self, code: Code, costs: Columns) -> Touched:
        """Return what rows touch, in DDR as well where operand and result have the same bytes there. costs: of all rows, in turn."""
        if self.aliased is None:
            return code.columns.read, code.columns.write, code.at
        aliased_ranges(code, self.aliased, costs.read, costs.write)
        return costs.read, costs.write, np.arange(len(code.at))

    def facts(self) -> dict[str, Any]:
        """Return the orders that the codes have, and what the slowest code takes in each order that was measured."""
        took = {policy: max((o.cycles.get(policy, 0) for o in self.made), default=0) for policy in POLICIES}
        return {"policy": sorted({o.policy for o in self.made}), "policy_cycles": {p: n for p, n in took.items() if n}}

    def _written(self, code: Code, at: np.ndarray, worker: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows in an order, each in its window, and their forms."""
        code = code.followed_by(*waits(self.machine))
        out = code.rows(at)
        out["worker"] = worker
        plain = code.at[at]
        return out, (code.forms[plain] * WINDOWS + worker).astype(np.int32)
