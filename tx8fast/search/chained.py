"""Chains among the groups that the interval search has chosen (opt 2): neighbours that one launch runs, if that is cheaper.

May import: graph_table, search.*. Must not: change groups, emit programs.

The exact search chooses among all groups and all chains of them; here the groups stay, and of the chains that overlap the one
that saves most is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tx8fast.graph_table import FunctionTable, GraphTable, Step
from tx8fast.search.candidates import edges_of
from tx8fast.search.chains import Chains, Items
from tx8fast.search.grouping import NO_PLAN, Parts, cost_of, place_barriers
from tx8fast.search.memory import Memory
from tx8fast.search.partition import Edge, in_line, mask_of
from tx8fast.search.planning import Planner

#: of the most cycles that a chain saves, what a longer one may save instead: estimates are no better, and it has fewer launches
NEARLY = 0.98
LOOKED = 100  # chains that save most, among which another one is looked for
SECONDS = 1.0  # of the search for chains, as an amount of work


def chain_table(table: GraphTable, planner: Planner, parts: Mapping[str, Mapping[tuple[int, ...], Parts]]) -> None:
    """Replace groups by chains of them where that is cheaper, and set the barriers anew. parts: by function, of a group by its
    results, two steps that may be nests of a chain in its place, or none."""
    memory = Memory(planner, SECONDS)
    for fn in table.functions.values():
        chained = _chained(fn, memory, parts[fn.name])
        if chained != fn.steps:
            fn.steps = chained
            place_barriers(fn)


def _chained(fn: FunctionTable, memory: Memory, parts: Mapping[tuple[int, ...], Parts]) -> list[Step]:
    """Return the steps, some of them as chains, in an order in which they can run."""
    planner = memory.planner
    own: dict[Items, Step] = {}  # the groups, by the numbers of their parts
    steps: list[Step] = []
    for step in fn.steps:
        cut = parts[step.outputs]
        own[tuple(range(len(steps), len(steps) + max(1, len(cut))))] = step
        steps += cut or (step,)
    pool = {**{(i,): step for i, step in enumerate(steps)}, **own}
    cost = {items: cost_of(step, planner) for items, step in pool.items()}
    edges = edges_of(steps)
    chains = Chains(fn, steps, edges, memory).find({k: (pool[k], cost[k]) for k in pool if cost[k] < NO_PLAN})
    chosen, chained = saving_most(list(own), cost, {k: c for k, (_, c, _) in chains.items()}, edges)
    order, _ = in_line(chosen, edges)
    out = []
    for items in (chosen[j] for j in order):
        step = chains[items][0] if items in chained else pool[items]
        if items in chained and step.record is not None:
            planner.known[step.record] = chains[items][2]
        out.append(step)
    return out


def saving_most(
    groups: Sequence[Items], cost: Mapping[Items, float], chains: Mapping[Items, float], edges: Sequence[Edge]
) -> tuple[list[Items], set[Items]]:
    """Return groups, some of them as chains (cycles of both by their steps), and which are: of chains that overlap the one that saves
    most together with the best one beside it, of those that save nearly as much that of most steps, then what saves most of what is left. Steps of a group that a chain leaves
    out stand alone."""
    chosen, chained, left = list(groups), set(), dict(chains)
    while left:
        owner = {i: k for k in chosen for i in k}
        saved: dict[Items, tuple[float, list[Items]]] = {}
        for items, cycles in left.items():
            parts = dict.fromkeys(owner[i] for i in items)
            alone = [(i,) for k in parts for i in k if i not in items]
            if all(k in cost for k in alone):
                saving = sum(cost[k] for k in parts) - cycles - sum(cost[k] for k in alone)
                if saving > 0:
                    saved[items] = saving, alone
        score = with_another(
            {
                items: (saving, mask_of(i for k in (items, *alone) for i in k))
                for items, (saving, alone) in saved.items()
            }
        )
        nearly = NEARLY * max(score.values(), default=0.0)
        for items in sorted(saved, key=lambda items: (-len(items) * (score[items] >= nearly), -score[items], items)):
            inside = {i for k in (items, *saved[items][1]) for i in k}
            wanted = [*(k for k in chosen if not inside & set(k)), *saved[items][1], items]
            del left[items]
            if not in_line(wanted, edges)[1]:
                chosen = wanted
                chained.add(items)
                left = {k: c for k, c in left.items() if not {*items} & {*k}}
                break
        else:
            break
    return chosen, chained


def with_another(saved: Mapping[Items, tuple[float, int]]) -> dict[Items, float]:
    """Return of every chain (what it saves, and the steps that it takes as bits) what it saves together with the best one that takes none
    of its steps, of the first LOOKED."""
    first = sorted(saved.values(), key=lambda s: (-s[0], s[1]))[:LOOKED]
    return {
        items: saving + next((other for other, its in first if not its & mask), 0.0)
        for items, (saving, mask) in saved.items()
    }
