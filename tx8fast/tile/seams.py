"""One order for the nests of one launch: what a nest needs first comes while the one before works on its last slices.

May import: isa, machine, _kernels, tile.*. Must not: choose plans, know ops or addresses.

Every nest has the order that is best for it alone. All nests together are list-scheduled by the same ranks, so that nothing changes but
where rows of a nest can go before the one before it is over. Where that gains little, the nests stay one behind the other. The last results of
a nest that nothing is waiting for may be stored once the next one has what its first slice needs: they share the DDR with that.

A row waits for the window of the row that touched its bytes last. In another nest an earlier row of the same engine may have touched
them through another window: it is over, too, since every engine works off its queue in order (hardware manual 15, rule 1).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from tx8fast import isa
from tx8fast._kernels import ENGINES
from tx8fast.machine import Machine
from tx8fast.tile.epochs import STORES
from tx8fast.tile.joined import TileCode
from tx8fast.tile.nodes import MASKS, STEPS, Nodes, Ranked
from tx8fast.tile.schedule import MAX_ROWS, Found, TileOrder, better, measured


class LaunchOrder:
    """Orders the codes of nests that one launch runs. orders: those of each nest alone; share: DDR bytes per cycle of one tile."""

    def __init__(self, machine: Machine, orders: Sequence[TileOrder], share: float) -> None:
        self.machine, self.orders, self.share = machine, orders, share
        #: that of the first code: whether nests stay one behind the other, and else if last stores go late, and if waits drain windows, as
        #: of a `Way`
        self.way: tuple[bool, bool, bool] | None = None
        self.saved_cycles = 0  # by the first code, beside nests that each end with a wait
        self.aliased: np.ndarray | None = None  # as of a `TileOrder`

    @property
    def apart(self) -> bool:
        """True if it is known that the nests stay one behind the other."""
        return self.way is not None and self.way[0]

    def of(self, tile: TileCode, nests: Sequence[TileCode], numbers: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the order that the rows of several nests have together, and the window of each. tile: all of them as one code;
        numbers: of the nests."""
        alone = [self.orders[i].of_tile(nest) for i, nest in zip(numbers, nests, strict=True)]
        order = self.orders[numbers[0]]
        code = tile.code
        apart = self._apart(tile, nests, alone)
        drains = sorted({f.drains for f in alone if f.nodes is not None}) or [False]
        movable = order.wanted != "nest" and len(code.at) <= MAX_ROWS and all(map(_movable, nests))
        if not movable or self.apart:
            # no wait stands between nests without multicasts
            if self.way is None and not tile.multicasts.count and len(code.at) <= MAX_ROWS:
                together = measured(code.columns.of(code.at), apart[0], self.share, order.port, apart[1]).cycles
                self.saved_cycles = max(0, self._waiting(nests, alone) - together)
            self.way = self.way or (True, False, False)
            return apart
        costs = code.columns.of(code.at)
        held, order.aliased = order.aliased, self.aliased
        nodes = Nodes(self.machine, costs, order.touched(code, costs), tile.multicasts, tile.fill, tile.borders)
        order.aliased = held
        ranked = self._ranked(nodes, tile, nests, alone)
        late = ranked._replace(stay=np.maximum(ranked.stay, _behind_first(nodes, tile)))
        if self.way is not None:
            return nodes.listed(late if self.way[1] else ranked, self.way[2])
        among = [ranked, late] if (late.stay > ranked.stay).any() else [ranked]
        ways = [(False, r is late, d) for r in among for d in drains]
        found = [apart, *[nodes.listed(late if way[1] else ranked, way[2]) for way in ways]]
        timed = [nodes.seen(*at) for at in found]
        cycles = [measured(nodes.costs, at, self.share, order.port, worker).cycles for at, worker in timed]
        best = better(cycles)
        self.way = ways[best - 1] if best else (True, False, False)
        self.saved_cycles = (cycles[0] if tile.multicasts.count else self._waiting(nests, alone)) - cycles[best]
        return found[best]

    def _waiting(self, nests: Sequence[TileCode], alone: Sequence[Found]) -> int:
        """Return the cycles of nests without multicasts, between which a tile waits for its engines."""
        port, wait = self.orders[0].port, isa.sequence_cycles(self.machine, isa.make("wait"))
        own = [
            measured(nest.code.columns.of(nest.code.at), found.at, self.share, port, found.worker).cycles
            for nest, found in zip(nests, alone, strict=True)
        ]
        return sum(own) + wait * (len(own) - 1)

    def _apart(
        self, tile: TileCode, nests: Sequence[TileCode], alone: Sequence[Found]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the orders of the nests one behind the other, between them a wait for all that is under way."""
        at, worker = [], []
        behind, waits = len(tile.code.at), min(1, tile.multicasts.count)
        for nest, (first, _), found in zip(nests, tile.begins, alone, strict=True):
            n = len(nest.code.at)
            at += [np.where(found.at < n, found.at + first, found.at - n + behind), np.full(waits, behind + MASKS)]
            worker += [found.worker, np.zeros(waits, np.int64)]
        return np.concatenate(at), np.concatenate(worker)

    def _ranked(self, nodes: Nodes, tile: TileCode, nests: Sequence[TileCode], alone: Sequence[Found]) -> Ranked:
        """Return the nests' ranks one behind the other."""
        n = len(nodes.row)
        key, stay = np.zeros(n, np.int64), np.zeros(n, np.int64)
        issue = nodes.issue.copy()
        cycles = np.where(
            nodes.row >= 0, nodes.costs.took(self.orders[0].rate)[np.maximum(nodes.row, 0)], nodes.landing
        )
        top = 0
        for i, (nest, (row, multicasts), found) in enumerate(zip(nests, tile.begins, alone, strict=True)):
            if found.nodes is None or found.ranked is None:
                key[nodes.node[found.at + row]] = top + np.arange(len(found.at))
                top += len(nest.code.at) + 1
            else:
                own, ranked = nodes.places(found.nodes, row, multicasts), found.ranked
                key[own] = top + ranked.rank
                stay[own] = np.where(ranked.stay > 0, ranked.stay + STEPS * multicasts + i, 0)
                issue[own], cycles[own] = ranked.issue, ranked.cycles
                top += len(own) + 1
            if i < len(nodes.between):
                key[nodes.between[i]] = top - 1
        return Ranked(np.argsort(np.argsort(key, kind="stable")), stay, issue, cycles, nodes.before)


def _movable(nest: TileCode) -> bool:
    """True if the core does nothing but multicasts."""
    return nest.multicasts.count > 0 or bool((nest.code.columns.kind[nest.code.at] < ENGINES).all())


def _behind_first(nodes: Nodes, tile: TileCode) -> np.ndarray:
    """Return `Ranked.stay` of stores that nothing follows, for which they wait until the next nest has what its first slice needs; 0 of all
    other nodes."""
    stay, last = np.zeros(len(nodes.row), np.int64), np.ones(len(nodes.row), bool)
    last[nodes.before[1]] = False
    for i, ((own, _), (row, multicasts)) in enumerate(itertools.pairwise(tile.begins)):
        needed = int(tile.fill[row]) + 1
        if needed > multicasts:
            stay[last & (nodes.kind == STORES) & (nodes.row >= own) & (nodes.row < row)] = STEPS * needed + i + 1
    return stay
