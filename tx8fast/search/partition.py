"""Exact choice of sets that cover every item once, under an order, as an integer program for HiGHS.

May import: highs, numpy, and highspy late. Must not: know steps, plans or costs' meaning.

Items are partly ordered by `edges`. A column is a set of items that would run as one; the chosen columns cover every
item exactly once, cost least in total, and can be put in a line: if one reaches another along edges, that one does not
reach it. Two columns that reach each other exclude each other from the start; a longer ring shows only when it
is chosen, is then forbidden, and the program is solved again. Items that no column joins are independent problems;
equal ones are solved once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace

import numpy as np

from tx8fast import highs
from tx8fast.records import dataclass

NODES = 2_000  # of branch and bound, for one independent problem
SECONDS = 5.0  # for all problems together, on top: reached only where the counted limits are too large
ROUNDS = 40  # solves that may end in a ring of columns
GRACE = 0.05  # part of the time limit kept for HiGHS to stop in

Edge = tuple[int, int]


@dataclass(frozen=True)
class Problem:
    """`columns[j]`: ascending items; `costs[j]` >= 0 cycles; `edges`: (before, after) items, without rings;
    `start`: columns of a known valid choice."""

    n_items: int
    columns: Sequence[tuple[int, ...]]
    costs: Sequence[int]
    edges: Sequence[tuple[int, int]]
    start: Sequence[int]


@dataclass
class Choice:
    """`columns`: the chosen ones, ascending, empty if none was found. cost, bound: cycles; `bound` is what no choice
    can go below. status: "optimal", "node limit", "time limit" or why HiGHS gave nothing. `solved`: False then."""

    columns: list[int]
    cost: float = 0.0
    bound: float = 0.0
    status: str = "optimal"
    nodes: int = 0
    solves: int = 0
    solved: bool = True

    @property
    def gap(self) -> float:
        """How far the cost may be above the least one, as a part of the cost."""
        return max(0.0, self.cost - self.bound) / self.cost if self.cost else 0.0


@dataclass(frozen=True)
class Limits:
    """How much work one choice may take: nodes of one problem, and as the last resort seconds of all together."""

    nodes: int = NODES
    seconds: float = SECONDS


def choose(problem: Problem, limits: Limits = Limits()) -> Choice:
    """Return the cheapest valid choice that HiGHS finds within the limits."""
    return _Search(problem, limits).run()


def closure(n_items: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Return per item the set of items behind it, as a bit mask. Items are numbered in a topological order."""
    after: list[list[int]] = [[] for _ in range(n_items)]
    for a, b in edges:
        after[a].append(b)
    behind = [0] * n_items
    for i in range(n_items - 1, -1, -1):
        for j in after[i]:
            behind[i] |= behind[j] | 1 << j
    return behind


def mask_of(items: Iterable[int]) -> int:
    """Return a set of items as a bit mask."""
    mask = 0
    for i in items:
        mask |= 1 << i
    return mask


def items_of(mask: int) -> Iterator[int]:
    """Yield the items of a bit mask, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def in_line(columns: Sequence[tuple[int, ...]], edges: Iterable[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Return an order in which the columns (disjoint) can run, lowest item first, and the places of columns on a ring:
    one of the two is empty."""
    place = {i: j for j, items in enumerate(columns) for i in items}
    before: list[set[int]] = [set() for _ in columns]
    after: list[set[int]] = [set() for _ in columns]
    for a, b in edges:
        if place[a] != place[b]:
            before[place[b]].add(place[a])
            after[place[a]].add(place[b])
    waits = [len(x) for x in before]
    ready = sorted((j for j, n in enumerate(waits) if not n), key=lambda j: columns[j], reverse=True)
    order: list[int] = []
    while ready:
        j = ready.pop()
        order.append(j)
        free = [k for k in after[j] if waits[k] == 1]
        for k in after[j]:
            waits[k] -= 1
        if free:
            ready = sorted([*ready, *free], key=lambda k: columns[k], reverse=True)
    if len(order) == len(columns):
        return order, []
    done = set(order)
    at = min((j for j in range(len(columns)) if j not in done), key=lambda j: columns[j])
    walk: list[int] = []
    while at not in walk:
        walk.append(at)
        at = min((k for k in before[at] if k not in done), key=lambda k: columns[k])
    return [], walk[walk.index(at) :]


@dataclass
class _Search:
    problem: Problem
    limits: Limits
    cuts: list[tuple[int, ...]] = field(default_factory=list)  # columns that must not all be chosen
    solved: dict[tuple, Choice] = field(default_factory=dict)

    def run(self) -> Choice:
        p = self.problem
        self.deadline = time.monotonic() + self.limits.seconds * (1 - GRACE)
        behind = closure(p.n_items, p.edges)
        self.masks = [mask_of(c) for c in p.columns]
        self.below = [mask_of(()) for _ in p.columns]
        for j, items in enumerate(p.columns):
            for i in items:
                self.below[j] |= behind[i]
        several = [j for j, c in enumerate(p.columns) if len(c) > 1 and self.below[j]]
        masks, below = self.masks, self.below
        pairs = [
            (j, k)
            for n, j in enumerate(several)
            for k in several[n + 1 :]
            if below[j] & masks[k] and below[k] & masks[j] and not masks[j] & masks[k]
        ]
        total = Choice([])
        for _ in range(ROUNDS):
            total = self._all(pairs, total)
            if not total.solved:
                return total
            _, ring = in_line([p.columns[j] for j in total.columns], p.edges)
            if not ring:
                return total
            on_ring = [total.columns[r] for r in ring]
            self.cuts.append(tuple(sorted(j for j in on_ring if len(p.columns[j]) > 1)))
        return Choice(
            [], solved=False, status=f"rings left after {ROUNDS} solves", nodes=total.nodes, solves=total.solves
        )

    def _all(self, pairs: Sequence[tuple[int, int]], before: Choice) -> Choice:
        """Solve every independent problem and put the choices together; counts go on from `before`."""
        p = self.problem
        root = list(range(p.n_items))

        def find(i: int) -> int:
            while root[i] != i:
                root[i] = root[root[i]]
                i = root[i]
            return i

        joined = [*p.columns, *(tuple(p.columns[j][0] for j in cut) for cut in [*pairs, *self.cuts])]
        for items in joined:
            for i in items[1:]:
                a, b = find(items[0]), find(i)
                root[max(a, b)] = min(a, b)
        members: dict[int, list[int]] = {}
        for j, items in enumerate(p.columns):
            members.setdefault(find(items[0]), []).append(j)
        rules: dict[int, list[tuple[int, ...]]] = {}
        for cut in [*pairs, *self.cuts]:
            rules.setdefault(find(p.columns[cut[0]][0]), []).append(cut)
        total = Choice([], nodes=before.nodes, solves=before.solves)
        for at in sorted(members):
            part = self._one(members[at], rules.get(at, []), total)
            if not part.solved:
                return Choice([], solved=False, status=part.status, nodes=total.nodes, solves=total.solves)
            total.columns += part.columns
            total.cost += part.cost
            total.bound += part.bound
            if part.status != "optimal":
                total.status = part.status
        total.columns.sort()
        return total

    def _one(self, columns: list[int], cuts: Sequence[tuple[int, ...]], total: Choice) -> Choice:
        p = self.problem
        if all(len(p.columns[j]) == 1 for j in columns):  # one item that nothing joins to another
            best = min(columns, key=lambda j: (p.costs[j], j))
            return Choice([best], p.costs[best], p.costs[best])
        items = sorted({i for j in columns for i in p.columns[j]})
        row = {i: r for r, i in enumerate(items)}
        number = {j: n for n, j in enumerate(columns)}
        start = set(p.start)
        key = (
            tuple(tuple(row[i] for i in p.columns[j]) for j in columns),
            tuple(p.costs[j] for j in columns),
            tuple(tuple(number[j] for j in cut) for cut in cuts),
            tuple(number[j] for j in columns if j in start),
        )
        if key not in self.solved:
            self.solved[key] = _solve(len(items), *key, self.limits.nodes, self.deadline - time.monotonic())
            total.nodes += self.solved[key].nodes
            total.solves += 1
        part = self.solved[key]
        return replace(part, columns=[columns[n] for n in part.columns])


def _solve(
    n_items: int,
    columns: Sequence[tuple[int, ...]],
    costs: Sequence[int],
    cuts: Sequence[tuple[int, ...]],
    start: Sequence[int],
    nodes: int,
    seconds: float,
) -> Choice:
    """Solve one set-partitioning problem. Rows: one per item (= 1), one per cut (<= members - 1)."""
    if seconds <= 0:
        return Choice([], solved=False, status="time limit")
    import highspy

    n, m = len(columns), n_items + len(cuts)
    in_cut: list[list[int]] = [[] for _ in columns]
    for r, cut in enumerate(cuts):
        for j in cut:
            in_cut[j].append(n_items + r)
    entries = [[*items, *more] for items, more in zip(columns, in_cut, strict=True)]
    begin = np.cumsum([0, *map(len, entries)]).astype(np.int32)
    index = np.array([r for e in entries for r in e], np.int32)
    lower = np.array([1.0] * n_items + [-np.inf] * len(cuts))
    upper = np.array([1.0] * n_items + [len(cut) - 1.0 for cut in cuts])
    solver = highs.solver({"mip_rel_gap": 0.0, "mip_abs_gap": 0.5, "mip_max_nodes": nodes, "time_limit": seconds})
    solver.passModel(
        n,
        m,
        len(index),
        int(highspy.MatrixFormat.kColwise),
        int(highspy.ObjSense.kMinimize),
        0.0,
        np.array(costs, np.float64),
        np.zeros(n),
        np.ones(n),
        lower,
        upper,
        begin,
        index,
        np.ones(len(index)),
        np.full(n, int(highspy.HighsVarType.kInteger), np.int32),
    )
    if start:
        known = np.zeros(n)
        known[list(start)] = 1.0
        solver.setSolution(n, np.arange(n, dtype=np.int32), known)
    solver.run()
    info, status = solver.getInfo(), solver.getModelStatus()
    reasons = {
        highspy.HighsModelStatus.kOptimal: "optimal",
        highspy.HighsModelStatus.kTimeLimit: "time limit",
        highspy.HighsModelStatus.kSolutionLimit: "node limit",
    }
    reason: str = reasons.get(status) or solver.modelStatusToString(status).lower()
    worked = max(0, int(info.mip_node_count))
    values = np.array(solver.getSolution().col_value)
    if info.primal_solution_status != int(highspy.SolutionStatus.kSolutionStatusFeasible) or len(values) != n:
        return Choice([], solved=False, status=reason, nodes=worked, solves=1)
    chosen = [j for j in range(n) if values[j] > 0.5]
    cost = sum(costs[j] for j in chosen)
    # costs are whole cycles; a bound within half a cycle of the cost proves it
    bound = cost if reason == "optimal" else max(0.0, min(cost, float(info.mip_dual_bound)))
    return Choice(chosen, cost, bound, reason, worked, 1)
