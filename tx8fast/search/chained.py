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
from tx8fast.search.partition import Edge, in_line
from tx8fast.search.planning import Planner

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
    chosen = saving_most(list(own), cost, {k: c for k, (_, c, _) in chains.items()}, edges)
    order, _ = in_line(chosen, edges)
    out = []
    for items in (chosen[j] for j in order):
        step = pool[items] if items in pool else chains[items][0]
        if items not in pool and step.record is not None:
            planner.known[step.record] = chains[items][2]
        out.append(step)
    return out


def saving_most(groups: Sequence[Items], cost: Mapping[Items, float], chains: Mapping[Items, float], edges: Sequence[Edge]
                ) -> list[Items]:  # fmt: skip
    """Return groups, some of them as chains (cycles of both by their steps): of chains that overlap the one that saves most. Steps of
    a group that a chain leaves out stand alone."""
    chosen, saved = list(groups), {}
    alone: dict[Items, list[Items]] = {}  # of every chain, the steps that it leaves out
    for items, cycles in chains.items():
        parts = [k for k in groups if set(k) & set(items)]
        alone[items] = [(i,) for k in parts for i in k if i not in items]
        if all(k in cost for k in alone[items]):
            saved[items] = sum(cost[k] for k in parts) - cycles - sum(cost[k] for k in alone[items])
    for items in sorted(saved, key=lambda items: (-saved[items], items)):
        new = [*alone[items], items]
        inside = {i for n in new for i in n}
        wanted = [k for k in chosen if not inside & set(k)] + new
        left = [k for k in groups if inside & set(k)]  # of what another chain has taken nothing is left
        if saved[items] > 0 and all(k in chosen for k in left) and not in_line(wanted, edges)[1]:
            chosen = wanted
    return chosen
