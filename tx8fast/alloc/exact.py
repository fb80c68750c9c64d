"""Search for placements below what first fit reaches, with a budget of nodes instead of a clock.

May import: `problem`, `_kernels`, numpy. Must not: read the time; results must repeat.
A good order places a tight problem with hardly a step back, a bad one is lost early. So many short
searches with different orders are run, each a little longer than those before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tx8fast._kernels import N_RULES, PackSearch
from tx8fast.alloc.problem import Ints, Problem

MAX_BUFFERS = 2000
FIRST_NODES = 1000  # budget of the first searches; a placement found needs about one node per buffer
GROWTH = 1.25  # of the budget, once all combinations of order and rule had their turn
ORDER_TURNS = (0, 1, 0, 1, 2)  # indices of orders by width, by sections, by area
NOISE = 0.6  # spread of the factor on the keys of an order, from the second round on


class ExactSearch:
    """Searches one problem at given heights; `nodes_left` is what remains of the effort."""

    def __init__(self, problem: Problem, effort: int) -> None:
        ptr, start, end, size, align, fixed = problem.arrays
        self.nodes_left = effort
        # A buffer without bytes or lifetimes is in nobody's way and stays where first fit puts it.
        lives = np.diff(ptr)
        self._kept = kept = np.flatnonzero((lives > 0) & (size > 0))
        self._rest = np.maximum(fixed, 0)
        used = np.repeat((lives > 0) & (size > 0), lives)
        size, align, fixed = size[kept], align[kept], fixed[kept]
        # All offsets worth trying are multiples of this many bytes.
        grid = (*size.tolist(), *align[align > 1].tolist(), *fixed[fixed > 0].tolist())
        self.unit = unit = math.gcd(*grid) or 1
        align = np.maximum(align // unit, 1)
        fixed = np.where(fixed >= 0, fixed // unit, -1)
        ptr = np.concatenate(([0], np.cumsum(lives[kept])))
        start, end = start[used], end[used]
        self._search = PackSearch(ptr, start, end, size // unit, align, fixed)
        width = np.zeros(len(kept), np.float64)
        np.add.at(width, np.repeat(np.arange(len(kept)), lives[kept]), (end - start).astype(float))
        sections = self._search.n_sections.astype(np.float64)
        bulk = size.astype(np.float64)
        self._orders = ((width, bulk), (sections, bulk), (width * bulk, bulk))

    @staticmethod
    def accepts(problem: Problem) -> bool:
        """Say whether the search covers the problem: not too many buffers."""
        return 0 < len(problem.buffers) <= MAX_BUFFERS

    def at_height(self, height_bytes: int, effort: int) -> tuple[Ints | None, bool]:
        """Return offsets within `height_bytes` or None, and whether None is proven; spends at most `effort`."""
        if not len(self._kept):
            return self._rest.copy(), True
        random = np.random.default_rng(len(self._kept))
        effort = min(effort, self.nodes_left)
        budget, turn = max(FIRST_NODES, 3 * len(self._kept)), 0
        while effort > 0:
            for which in ORDER_TURNS:
                for rule in range(N_RULES):
                    order = self._order(which, random if turn else None)
                    found, proven, nodes = self._search.run(order, height_bytes // self.unit, min(budget, effort), rule)
                    effort -= nodes
                    self.nodes_left -= nodes
                    if found is not None:
                        offsets = self._rest.copy()
                        offsets[self._kept] = found * self.unit
                        return offsets, True
                    if proven:
                        return None, True
                    if effort <= 0:
                        return None, False
            turn += 1
            budget = int(budget * GROWTH)
        return None, False

    def _order(self, which: int, random: np.random.Generator | None) -> Ints:
        first, second = self._orders[which]
        if random is not None:
            first = first * (1 + NOISE * (random.random(len(first)) - 0.5))
        return np.lexsort((-second, -first))

    def lower(self, low_bytes: int, high_bytes: int) -> Iterator[tuple[Ints | None, int]]:
        """Yield (placement or None, height in bytes that is proven necessary) as both improve.

        The first height tried is `low_bytes`, which must be necessary, then by bisection what lies
        below `high_bytes`, which must be reachable.
        """
        unit = self.unit
        share = self.nodes_left // 2
        middle = low_bytes
        possible = low_bytes  # below this, nothing was found, proven or not
        while self.nodes_left > 0 and possible < high_bytes:
            found, proven = self.at_height(middle, share)
            if found is not None:
                high_bytes = middle
                yield found, low_bytes
            else:
                possible = (middle // unit + 1) * unit
                if proven and possible > low_bytes:
                    low_bytes = possible
                    yield None, low_bytes
            share = max(self.nodes_left // 6, min(self.nodes_left, FIRST_NODES))
            middle = possible + (high_bytes - possible) // (2 * unit) * unit
