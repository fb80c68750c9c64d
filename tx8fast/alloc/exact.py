"""Search for placements below what first fit reaches, with a budget of nodes instead of a clock.

May import: `problem`, `lower_bound`, `_kernels`, numpy. Must not: read the time; results must
repeat.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tx8fast._kernels import pack_exact
from tx8fast.alloc.lower_bound import live_bytes
from tx8fast.alloc.problem import Ints, Problem

MAX_BUFFERS = 2000
FIRST_BUDGET = (
    20_000  # nodes; enough for most problems under some order, and each round has four times more
)
BISECTIONS = 6


class ExactSearch:
    """Searches one problem at given heights; `nodes_left` is what remains of the effort."""

    def __init__(self, problem: Problem, effort: int) -> None:
        ptr, start, end, size, align, _ = problem.arrays
        self.nodes_left = effort
        self._n = len(size)
        # A buffer without bytes or lifetimes is in nobody's way and stays at offset 0.
        self._kept = np.flatnonzero((np.diff(ptr) > 0) & (size > 0))
        self._unit = int(align.max(initial=1))
        # Between its lifetimes a buffer is treated as alive: safe, but then nothing is proven infeasible.
        self._one_life = bool((np.diff(ptr)[self._kept] == 1).all() and (align == self._unit).all())
        self._start = start[ptr[self._kept]]
        self._end = end[ptr[self._kept + 1] - 1]
        self._size = -(-size[self._kept] // self._unit)
        self._orders = _preferences(problem, self._start, self._end, self._size)

    @staticmethod
    def accepts(problem: Problem) -> bool:
        """Say whether the search covers the problem: no fixed offsets, and not too many buffers."""
        return 0 < len(problem.buffers) <= MAX_BUFFERS and not any(
            b.fixed is not None for b in problem.buffers
        )

    def at_height(self, height_bytes: int, effort: int) -> tuple[Ints | None, bool]:
        """Return offsets within `height_bytes` or None, and whether None is proven; spends at most `effort`."""
        if not len(self._kept):
            return np.zeros(self._n, np.int64), True
        effort = min(effort, self.nodes_left)
        budget = FIRST_BUDGET
        while effort > 0:
            for order in self._orders:
                found, proven, nodes = pack_exact(
                    self._start,
                    self._end,
                    self._size,
                    order,
                    height_bytes // self._unit,
                    min(budget, effort),
                )
                effort -= nodes
                self.nodes_left -= nodes
                if found is not None:
                    offsets = np.zeros(self._n, np.int64)
                    offsets[self._kept] = found * self._unit
                    return offsets, True
                if proven:
                    return None, self._one_life
                if effort <= 0:
                    break
            budget *= 4
        return None, False

    def lower(self, low_bytes: int, high_bytes: int) -> Iterator[Ints]:
        """Yield placements of falling height: first at `low_bytes`, else by bisection below `high_bytes`."""
        share = self.nodes_left // 2
        found, _ = self.at_height(low_bytes, share)
        if found is not None:
            yield found
            return
        share = max(self.nodes_left // BISECTIONS, 1)
        while high_bytes - low_bytes > max(self._unit, high_bytes >> BISECTIONS):
            middle = (low_bytes + high_bytes) // 2
            found, _ = self.at_height(middle, share)
            if found is None:
                low_bytes = middle
            else:
                high_bytes = middle
                yield found
            if self.nodes_left <= 0:
                return


def _preferences(problem: Problem, start: Ints, end: Ints, size: Ints) -> tuple[Ints, ...]:
    """Return orders by crowding, length and area, largest first: which one is lucky depends on the problem."""
    times, live = live_bytes(problem)
    first, last = np.searchsorted(times, start), np.searchsorted(times, end)
    pairs = zip(first.tolist(), last.tolist())
    crowding = np.array([live[a:b].max() for a, b in pairs], np.int64)
    length = end - start
    area = length.astype(np.float64) * size
    keys = (
        (crowding, length, area),
        (crowding, area, length),
        (length, area, crowding),
        (area, length, crowding),
    )
    return tuple(np.lexsort(tuple(-k for k in reversed(key))) for key in keys)
