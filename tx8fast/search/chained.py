"""Chains among the groups that the interval search has chosen (opt 2): neighbours that one launch runs, if that is cheaper.

May import: graph_table, search.*. Must not: change groups, emit programs.

The exact search chooses among all groups and all chains of them; here the groups stay, and of the chains that overlap the one
that saves most is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tx8fast.graph_table import FunctionTable, GraphTable, Record, Step
from tx8fast.search.barriers import place_barriers
from tx8fast.search.candidates import edges_of
from tx8fast.search.chains import Chains, Items
from tx8fast.search.grouping import NO_PLAN, Parts, cost_of
from tx8fast.search.memory import Memory
from tx8fast.search.partition import Edge, in_line, mask_of
from tx8fast.search.planning import Planner
from tx8fast.search.turning import Turned, calls_in_turn, whole_groups
from tx8fast.tile.tiling import Planned

#: of the most cycles that a chain saves, what a longer one may save instead: estimates are no better, and it has fewer launches
NEARLY = 0.98
#: of the cycles of a layer's launches, what those of one that begins elsewhere may take, since estimates are no better: where some nest
#: waits for an engine, which moving less does not help (of six prefills three between 0.992 and 1 are 0.1 to 3 % slower, three below 0.984 0.5
#: to 6 % faster); where all wait for transfers (0.9952: 3 % faster, 0.9969: 0.5 % slower); and where something stays besides, as much as
#: before (of seven between 0.992 and 0.9964 six are 0.9 to 3.6 % faster, one 0.8 % slower)
TURNED_BELOW, TURNED_IF_ALL_WAIT = 0.99, 0.996
LOOKED = 100  # chains that save most, among which another one is looked for
SECONDS = 1.0  # of the search for chains, as an amount of work


def chain_table(table: GraphTable, planner: Planner, parts: Mapping[str, Mapping[tuple[int, ...], Parts]]) -> None:
    """Replace groups by chains of them where that is cheaper, and set the barriers anew. parts: by function, of a group by its
    results, two steps that may be nests of a chain in its place, or none."""
    memory = Memory(planner, SECONDS)
    parts = dict(parts)
    found = {fn.name: _chained(fn, memory, parts[fn.name]) for fn in table.functions.values()}
    turned = {name: new for name in list(found) if (new := _turned(table, found, name, memory, parts)) is not None}
    if turned:
        found |= {**turned, "main": _chained(table.functions["main"], memory, parts["main"])}
    for fn in table.functions.values():
        steps, _, plans = found[fn.name]
        planner.known |= plans
        if steps != fn.steps:
            fn.steps = steps
            place_barriers(fn)


#: steps in an order in which they can run, their cycles, and the plans of the chains among them
Chained = tuple[list[Step], float, dict[Record, Planned]]


def _turned(
    table: GraphTable,
    found: Mapping[str, Chained],
    name: str,
    memory: Memory,
    parts: dict[str, Mapping[tuple[int, ...], Parts]],
) -> Chained | None:
    """Let the layers of a function begin behind its first launch if that makes its launches cheaper, and return them; None if not.

    found: the launches of every function as it is."""
    steps, cycles, _ = found[name]
    work = [s for s in steps if s.kind == "group" and not s.is_empty]
    calls = calls_in_turn(table, name) if len(work) > 1 else None
    if calls is None:
        return None
    names = {n for s in steps[: steps.index(work[0]) + 1] for n in s.members}
    if not whole_groups(calls.fn, names):  # the first launch is a part of a group that chains have taken apart
        return None
    new = Turned(table.functions["main"], calls, names)
    main, fn = new.parts(parts[name])
    place_barriers(new.fn)
    turned = _chained(new.fn, memory, fn)
    if not worth_turning(cycles, turned[1], [*turned[2].values()]):
        return None
    place_barriers(new.main)
    new.take(table)
    parts |= {"main": {**parts["main"], **main}, name: fn}
    return turned


def worth_turning(cycles: float, turned: float, chains: Sequence[Planned]) -> bool:
    """Return whether a layer of `cycles` begins elsewhere, where it takes `turned` with such chains."""
    if not all(nest.plan.waits for p in chains for nest in p.nests):
        return turned <= TURNED_BELOW * cycles
    return turned < cycles * (1 if any(p.stays for p in chains) else TURNED_IF_ALL_WAIT)


def _chained(fn: FunctionTable, memory: Memory, parts: Mapping[tuple[int, ...], Parts]) -> Chained:
    """Return the steps, some of them as chains."""
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
    plans = {step.record: planned for step, _, planned in map(chains.__getitem__, chained) if step.record is not None}
    cycles = sum([chains[items][2].plan.estimate_cycles if items in chained else cost[items] for items in chosen])
    return [chains[chosen[j]][0] if chosen[j] in chained else pool[chosen[j]] for j in order], cycles, plans


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
