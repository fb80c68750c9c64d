"""The exact search (opt 3): all candidate groups of a function priced, the cheapest cover of its steps by HiGHS.

May import: graph_table, search.*, errors. Must not: emit programs.

The interval search (opt 2) looks at runs of steps in one order. Here every candidate of `search.candidates` is a
column of a set-partitioning problem, so that groups may take their steps from anywhere. The interval search's groups are among
the columns and are the start of the integer program, and they stay where it finds nothing cheaper.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from tx8fast.errors import SearchLimitWarning
from tx8fast.graph_table import FunctionTable, GraphTable, Step
from tx8fast.records import dataclass
from tx8fast.search.barriers import place_barriers
from tx8fast.search.candidates import candidates, edges_of
from tx8fast.search.chained import saving_most
from tx8fast.search.chains import Chains
from tx8fast.search.grouping import NO_PLAN, Option, best_cuts, cost_of
from tx8fast.search.memory import Memory
from tx8fast.search.partition import NODES, SECONDS, Choice, Limits, Problem, choose, in_line
from tx8fast.search.planning import Planner

Items = tuple[int, ...]
WORK_LIMIT = "work limit"  # chains were left out; of what was looked at the choice is the best


@dataclass(frozen=True)
class FunctionReport:
    """What the exact search did in one function. Cycles are those of one run of it, calls aside."""

    name: str
    steps: int
    columns: int
    opt2_cycles: int
    cycles: int
    bound_cycles: int
    gap: float
    status: str
    nodes: int

    def to_json(self) -> dict[str, Any]:
        """Return the row with stable keys."""
        return {k: getattr(self, k) for k in self.__dataclass_fields__}


@dataclass
class SearchReport:
    """The exact search of a whole graph, function by function."""

    functions: list[FunctionReport] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able facts; the head line sums up what the functions say."""
        total = lambda key: sum(getattr(f, key) for f in self.functions)  # noqa: E731
        cycles, bound = total("cycles"), total("bound_cycles")
        limited = [f.status for f in self.functions if f.status != "optimal"]
        return {
            "status": limited[0] if limited else "optimal",
            "mip_gap": (cycles - bound) / cycles if cycles else 0.0,
            "nodes": total("nodes"),
            "opt2_cycles": total("opt2_cycles"),
            "cycles": cycles,
            "functions": [f.to_json() for f in self.functions],
        }


def exact_table(
    table: GraphTable,
    planner: Planner,
    options: Mapping[str, Sequence[Option]],
    report: SearchReport,
    seconds: float = SECONDS,
    nodes: int = NODES,
) -> None:
    """Replace steps, ordered by `order_steps`, by the cheapest groups, set the barriers anew and fill `report`.
    options: by function, further groups to choose from; seconds: for all functions together, of HiGHS, and as an amount of
    work of the search for chains; nodes: of branch and bound in one independent problem."""
    solver = Solver(nodes, seconds)
    memory = Memory(planner, seconds)
    for fn in table.functions.values():
        fn.steps = _cover(fn, options.get(fn.name, ()), memory, solver, report)
        place_barriers(fn)


class Solver:
    """Solves problems one after the other with a common time limit."""

    def __init__(self, nodes: int, seconds: float) -> None:
        self.nodes, self.seconds = nodes, seconds

    def choose(self, problem: Problem) -> Choice:
        """Return the best choice found; that of `problem.start` if none is better."""
        before = time.monotonic()
        found = choose(problem, Limits(self.nodes, max(0.0, self.seconds)))
        self.seconds -= time.monotonic() - before
        known = sum(problem.costs[j] for j in problem.start)
        if found.columns and found.cost < known:
            return found
        bound = found.bound if found.columns else 0.0
        return replace(found, columns=sorted(problem.start), cost=known, bound=min(bound, known))


def _cover(
    fn: FunctionTable, given: Sequence[Option], memory: Memory, solver: Solver, report: SearchReport
) -> list[Step]:
    """Return the cheapest steps in an order in which they can run."""
    planner = memory.planner
    steps = fn.steps
    if not steps:
        return []
    cuts = {tuple(range(a, b)): step for a, b, step in best_cuts(fn, steps, planner, given)}
    start = list(cuts)
    edges = edges_of(steps)
    priced = {k: (step, cost_of(step, planner)) for k, step in candidates(fn, steps, planner.machine, given).items()}
    # of several that take the same steps; a group that was asked for and does not fit is left to the end, too
    priced |= {k: (step, min(cost_of(step, planner), NO_PLAN)) for k, step in cuts.items()}
    pool = {k: found for k, found in priced.items() if found[1] < float("inf")}
    problem = _problem(len(steps), pool, edges, start)
    choice = solver.choose(problem)
    groups = {*start, *(problem.columns[j] for j in choice.columns)}
    groups |= {half for items in groups for half in _halves(items, pool)}
    opt2 = sum(pool[k][1] for k in start if pool[k][1] < NO_PLAN)
    chains = Chains(fn, steps, edges, memory).find({k: pool[k] for k in sorted(groups) if pool[k][1] < NO_PLAN})
    if chains:
        before = [start, [problem.columns[j] for j in choice.columns]]
        for items, (step, cost, planned) in chains.items():
            if items not in pool or cost < pool[items][1]:
                assert step.record is not None
                pool[items] = step, cost
                planner.known[step.record] = planned
        cost = {k: found[1] for k, found in pool.items()}
        before = [saving_most(groups, cost, {k: cost[k] for k in chains}, edges)[0] for groups in before]
        opt2 = sum(cost[k] for k in before[0] if cost[k] < NO_PLAN)
        problem = _problem(len(steps), pool, edges, min(before, key=lambda groups: sum(cost[k] for k in groups)))
        choice = solver.choose(problem)
    if memory.limited and choice.status == "optimal":
        choice = replace(choice, status=WORK_LIMIT)
    report.functions.append(_row(fn, problem, choice, int(opt2)))
    if choice.status != "optimal":
        warnings.warn(_limited(fn, choice), SearchLimitWarning, stacklevel=2)
    chosen = [problem.columns[j] for j in choice.columns]
    order, _ = in_line(chosen, edges)
    return [pool[chosen[j]][0] for j in order]


def _halves(items: Items, pool: Mapping[Items, tuple[Step, float]]) -> Sequence[Items]:
    """Return the two cheapest groups that together are a group, which as a chain may be cheaper than it; nothing if there are none."""
    whole = frozenset(items)
    pairs = [
        (pool[a][1] + pool[b][1], a, b)
        for a in pool
        if a[0] == items[0] and whole.issuperset(a) and (b := tuple(sorted(whole.difference(a)))) in pool
    ]
    return min(pairs)[1:] if pairs else ()


def _problem(
    n_items: int, pool: Mapping[Items, tuple[Step, float]], edges: Sequence[tuple[int, int]], start: Sequence[Items]
) -> Problem:
    """Return the set-partitioning problem. A step that fits only inside a group costs more than all others together."""
    columns = sorted(pool)
    finite = sum(cost for _, cost in pool.values() if cost < NO_PLAN)
    costs = [int(min(pool[c][1], 1 + finite)) for c in columns]
    number = {c: j for j, c in enumerate(columns)}
    return Problem(n_items, columns, costs, edges, [number[c] for c in start])


def _row(fn: FunctionTable, problem: Problem, choice: Choice, opt2: int) -> FunctionReport:
    return FunctionReport(
        fn.name,
        problem.n_items,
        len(problem.columns),
        opt2,
        int(choice.cost),
        int(choice.bound),
        choice.gap,
        choice.status,
        choice.nodes,
    )


def _limited(fn: FunctionTable, choice: Choice) -> str:
    """Say which limit ended the search of a function, and what was taken."""
    if choice.status == WORK_LIMIT:
        return (
            f"opt 3 did not look at every chain of groups in '{fn.name}'; what it looked at gave the best groups there are; "
            "--search-seconds above what it is looks at more"
        )
    if choice.solved:
        return (
            f"opt 3 stopped at its {choice.status} in '{fn.name}'; the best groups found may cost up to {choice.gap:.2%} more "
            "than the best there are"
        )
    return f"opt 3 found nothing in '{fn.name}' ({choice.status}): the groups are those of opt 2"
