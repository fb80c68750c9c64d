"""Which steps of a function may run as one group, wherever they stand: the candidates of the exact search.

May import: graph_table, lower, machine, search.grouping, search.partition. Must not: price or choose anything.

Besides the runs of steps that the interval search knows, sets grow from every matrix product: by an op that works
on a result of the set, and by a product of the same extent that shares an operand or a follower with it. Grown
sets must be convex (no path leaves and comes back), none of their products may read a result of the set, and their ops
must have a common loop nest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tx8fast.graph_table import FunctionTable, GroupRecord, OpRecord, Record, Step
from tx8fast.lower import NotLowerable, lower
from tx8fast.lower.members import is_product
from tx8fast.machine import Machine
from tx8fast.search.grouping import Option, groupable, intervals, join, uses
from tx8fast.search.partition import Edge, closure, items_of, mask_of

MAX_SET = 8  # ops of a grown set
MAX_GROWN = 400  # sets looked at in one function
MAX_RECORDS = 60  # distinct ones of them that are priced


def edges_of(steps: Sequence[Step]) -> list[Edge]:
    """Return (producer, consumer) positions, ascending."""
    maker = {v: i for i, s in enumerate(steps) for v in s.outputs}
    return sorted({(maker[v], i) for i, s in enumerate(steps) for v in s.inputs if v in maker})


def candidates(
    fn: FunctionTable, steps: Sequence[Step], machine: Machine, given: Sequence[Option] = ()
) -> dict[tuple[int, ...], Step]:
    """Return every candidate, single steps included: positions (ascending) -> the step they would be."""
    found = {tuple(range(start, end)): step for start, end, step in intervals(fn, steps, given)}
    for items, step in _grown(fn, steps, machine):
        found.setdefault(items, step)
    return found


def _grown(fn: FunctionTable, steps: Sequence[Step], machine: Machine) -> Iterator[tuple[tuple[int, ...], Step]]:
    edges = edges_of(steps)
    behind = closure(len(steps), edges)
    ahead = [0] * len(steps)
    for i, mask in enumerate(behind):
        for j in items_of(mask):
            ahead[j] |= 1 << i
    used = uses(fn, steps)
    products = [i for i, s in enumerate(steps) if groupable(s) and is_product(s.record)]  # type: ignore[arg-type]
    followers = {
        i: [j for j in sorted(used.get(s.outputs[0], ())) if j >= 0 and groupable(steps[j])]
        for i, s in enumerate(steps)
        if groupable(s)
    }
    level: list[tuple[int, ...]] = [(i,) for i in products]
    seen = set(level)
    records: set[Record | None] = set()
    while level and len(seen) < MAX_GROWN:
        coming: list[tuple[int, ...]] = []
        for items in level:
            for i in _more(steps, items, products, followers):
                grown = tuple(sorted((*items, i)))
                if grown in seen or len(seen) >= MAX_GROWN:
                    continue
                seen.add(grown)
                inside = mask_of(grown)
                between = _any(behind, grown) & _any(ahead, grown) & ~inside
                made = {v for k in grown for v in steps[k].outputs}
                if between or any(made.intersection(steps[k].inputs) for k in grown if k in products):
                    continue
                step = join(fn, [steps[k] for k in grown], set(grown), used)
                if step.outputs and (step.record in records or len(records) < MAX_RECORDS and _lowers(step, machine)):
                    records.add(step.record)
                    yield grown, step
                    coming.append(grown)
        level = [items for items in coming if len(items) < MAX_SET]


def _any(masks: Sequence[int], items: Sequence[int]) -> int:
    found = 0
    for i in items:
        found |= masks[i]
    return found


def _more(
    steps: Sequence[Step], items: Sequence[int], products: Sequence[int], followers: dict[int, list[int]]
) -> list[int]:
    """Return what a set may grow by: ops on its results, and products that share an operand or a follower."""
    near = {j for i in items for j in followers[i] if not is_product(steps[j].record)}  # type: ignore[arg-type]
    lead = next(i for i in items if i in products)
    sizes = _sizes(steps[lead])
    read = {v for i in items if i in products for v in steps[i].inputs if v >= 0}
    for p in products:
        if _sizes(steps[p]) == sizes and (read.intersection(steps[p].inputs) or set(followers[p]).intersection(items)):
            near.add(p)
    return sorted(near.difference(items))


def _sizes(step: Step) -> tuple[int, ...] | None:
    assert isinstance(step.record, OpRecord)
    return step.record.rule.sizes if step.record.rule is not None else None


def _lowers(step: Step, machine: Machine) -> bool:
    assert isinstance(step.record, GroupRecord)
    try:
        lower(step.record, machine)
    except NotLowerable:
        return False
    return True
