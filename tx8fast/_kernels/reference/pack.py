"""Twins of the exact placement: the kernel's search in plain Python, and brute force for a handful of items.

May import: the standard library. Must not: share code with the kernel.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

FAR = 1 << 62
MASK = (1 << 64) - 1
OK, LIMIT_REACHED, INFEASIBLE = 0, 5, 6


def minimum_height(start: Sequence[int], end: Sequence[int], size_bytes: Sequence[int]) -> int:
    """Return the lowest height in bytes at which the items fit; n! placements are tried.

    Lowest-free placement in some order reaches the optimum: sort an optimal placement by offset and
    let every item fall.
    """
    n = len(size_bytes)
    best = sum(size_bytes)
    for order in itertools.permutations(range(n)):
        offset: dict[int, int] = {}
        for i in order:
            at = 0
            for k in sorted(offset, key=lambda k: offset[k]):
                alive = start[k] < end[i] and start[i] < end[k]
                if alive and offset[k] < at + size_bytes[i] and at < offset[k] + size_bytes[k]:
                    at = offset[k] + size_bytes[k]
            offset[i] = at
        best = min(best, max((offset[i] + size_bytes[i] for i in order), default=0))
    return best


class OutOfBudget(Exception):
    """The nodes are used up."""


class Contradiction(Exception):
    """Section `args[0]` cannot be filled."""


def mix(x: int) -> int:
    """Return 64 well-mixed bits."""
    x &= MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


class Search:
    """One run: `lists[i]` are the sections of item i, `near[i]` its neighbours, `live[k]` the items of k."""

    def __init__(self, lists, near, live, size, align, fixed, rank, rule, capacity, budget) -> None:
        self.lists, self.near, self.live, self.size, self.align = lists, near, live, size, align
        self.rank, self.rule, self.capacity, self.budget = rank, rule, capacity, budget
        n = len(size)
        self.weight = [1] * len(live)
        self.failed: set[int] = set()
        self.low = [max(f, 0) for f in fixed]
        self.ground = list(self.low)
        self.high = [min(capacity - s, f if f >= 0 else FAR) for s, f in zip(size, fixed, strict=True)]
        self.placed = [False] * n
        self.first = [0] * len(live)  # items that can lie lowest
        self.reach = [0] * len(live)
        self.tops: list[list[tuple[int, int]]] = [[] for _ in live]  # two least (low + size, item)
        self.dirty: list[int] = []
        self.check: list[int] = []

    def touch(self, item: int) -> None:
        self.dirty += [k for k in self.lists[item] if k not in self.dirty]

    def ask(self, item: int) -> None:
        if self.low[item] > self.ground[item] and item not in self.check:
            self.check.append(item)

    def lift(self, item: int, at: int, section: int) -> None:
        at = -(-at // self.align[item]) * self.align[item]
        if at > self.high[item]:
            raise Contradiction(section)
        self.low[item] = at
        self.touch(item)
        self.ask(item)

    def open_items(self, k: int) -> list[int]:
        return sorted((i for i in self.live[k] if not self.placed[i]), key=lambda i: self.low[i])

    def look(self, k: int) -> None:
        while True:
            items = self.open_items(k)
            bound = self.capacity - sum(self.size[i] for i in items)
            filled = 0
            for i in items:
                filled = max(filled, self.low[i]) + self.size[i]
            if filled > self.capacity:
                raise Contradiction(k)
            firsts = [i for i in items if self.low[i] <= bound]
            least = min((self.low[i] + self.size[i] for i in firsts), default=FAR)
            late = [i for i in items[len(firsts) :] if self.low[i] < least]
            for i in late:
                self.lift(i, least, k)
            if not late:
                break
        self.first[k], self.reach[k] = len(firsts), filled
        tops = sorted((self.low[i] + self.size[i], i) for i in items)[:2]
        if tops != self.tops[k]:
            self.tops[k] = tops
            for i in items:
                self.ask(i)

    def rest(self, item: int) -> int:
        at = FAR
        for k in self.lists[item]:
            at = min([at, *(top for top, owner in self.tops[k] if owner != item)])
        return at

    def propagate(self) -> None:
        while self.dirty or self.check:
            if self.dirty:
                self.look(self.dirty.pop())
                continue
            item = self.check.pop()
            if not self.placed[item] and self.low[item] > self.ground[item]:
                at = self.rest(item)
                if self.low[item] < at:
                    self.lift(item, at, self.lists[item][0])

    def place(self, item: int) -> None:
        top = self.low[item] + self.size[item]
        self.placed[item] = True
        self.touch(item)
        for other in self.near[item]:
            if not self.placed[other]:
                align = self.align[other]
                self.ground[other] = max(self.ground[other], -(-top // align) * align)
                if self.low[other] < top:
                    self.lift(other, top, self.lists[other][0])

    def choose(self, items: list[int]) -> int:
        def value(k: int) -> float:
            slack, n, weight = self.capacity - self.reach[k], self.first[k], self.weight[k]
            if self.rule == 1:
                return n * float(slack + self.capacity // 128 + 1) / weight
            return n * float(self.capacity) + slack / weight if self.rule == 2 else n / weight

        def by_low(i: int) -> tuple[int, int]:
            return self.low[i], self.rank[i]

        span = range(min(self.lists[i][0] for i in items), max(self.lists[i][-1] for i in items) + 1)
        best = min((k for k in span if self.open_items(k)), key=value)
        pick = min(self.open_items(best), key=by_low)
        while True:
            beneath = [
                i for i in self.near[pick] if not self.placed[i] and self.low[i] + self.size[i] <= self.low[pick]
            ]
            if not beneath:
                return pick
            pick = min(beneath, key=by_low)

    def solve_parts(self, items: list[int]) -> bool:
        parts: list[list[int]] = []
        reach = -1
        for i in items:
            if not self.placed[i]:
                if self.lists[i][0] >= reach:
                    parts.append([])
                parts[-1].append(i)
                reach = max(reach, self.lists[i][-1] + 1)
        slack = [min(self.capacity - self.reach[k] for i in p for k in self.lists[i]) for p in parts]
        return all(self.solve_connected(parts[j]) for j in sorted(range(len(parts)), key=slack.__getitem__))

    def attempt(self, step) -> bool:
        """Run `step`; a contradiction gives its section weight."""
        try:
            return step() is not False
        except Contradiction as error:
            self.weight[error.args[0]] += 1
            self.dirty, self.check = [], []
            return False

    def solve_connected(self, items: list[int]) -> bool:
        seen: list[int] = []
        while True:
            if self.budget <= 0:
                raise OutOfBudget
            self.budget -= 1
            state = 0
            for i in items:
                state += mix(mix(i + 1) + 2 * self.low[i] + (self.low[i] > self.ground[i]))
            state = state & MASK | 1
            seen.append(state)
            if state in self.failed:
                break
            item = self.choose(items)
            names = ("low", "ground", "placed", "first", "reach", "tops")
            saved = {name: list(getattr(self, name)) for name in names}
            if self.attempt(lambda: (self.place(item), self.propagate())) and self.solve_parts(items):
                return True
            vars(self).update(saved)
            home = self.lists[item][0]
            if not self.attempt(lambda: (self.lift(item, self.rest(item), home), self.propagate())):
                break
        self.failed.update((seen[0], seen[-1]))
        return False


def search(
    ptr, section, nptr, neighbour, mptr, member, size, align, fixed, by_first, rank, rule, capacity, budget
) -> tuple[int, int, list[int]]:
    """Return (status, nodes visited, offsets); arguments as the kernel's, without what runs share."""

    def rows(ptr, values):
        return [list(values[a:z]) for a, z in itertools.pairwise(ptr)]

    run = Search(
        rows(ptr, section),
        rows(nptr, neighbour),
        rows(mptr, member),
        size,
        align,
        fixed,
        rank,
        rule,
        capacity,
        budget,
    )
    if any(low > high for low, high in zip(run.low, run.high)):
        return INFEASIBLE, 0, []
    for i in range(len(size)):
        run.touch(i)
    try:
        fits = run.attempt(run.propagate) and run.solve_parts(list(by_first))
    except OutOfBudget:
        return LIMIT_REACHED, budget, []
    return (OK if fits else INFEASIBLE), budget - run.budget, run.low if fits else []
