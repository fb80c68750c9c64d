"""Finds a placement by first fit in two orders, or by search, and explains why buffers do not fit.

May import: `problem`, `lower_bound`, `exact`, `_kernels`, `errors`, numpy. Must not: validate its
own result.
"""

from __future__ import annotations

import numpy as np

from tx8fast._kernels import first_fit
from tx8fast.alloc.exact import ExactSearch
from tx8fast.alloc.lower_bound import live_bytes, lower_bound_bytes
from tx8fast.alloc.problem import Ints, Placement, Problem
from tx8fast.errors import AllocationError


def solve(problem: Problem, bank_bytes: int = 0, effort: int = 0) -> Placement:
    """Return the lower of two first-fit placements, or a still lower one that a search finds.

    The orders are start ascending then size descending, and size descending then start ascending;
    inside an order ties go to the buffer listed first, between equal peaks the first order wins.
    The second is not tried when the first reaches the lower bound. `effort` is the number of nodes
    that the search may visit when first fit exceeds the capacity or, without capacity, the lower
    bound; 0 means no search. Stretches of time that no buffer connects are searched one by one.
    Problems with banks and stretches of over 2000 buffers are not searched. Raises AllocationError
    when buffers are ill formed, when fixed buffers collide, or when the capacity is exceeded.
    Source: back-end notes 13.4.
    """
    problem.check()
    _check_fixed(problem)
    ptr, start, end, size, align, fixed = problem.arrays
    bound = lower_bound_bytes(problem)
    by_start, by_size = _orders(problem)
    offsets, peak = first_fit(ptr, start, end, size, align, by_start, fixed, bank_bytes)
    if peak > bound:
        second = first_fit(ptr, start, end, size, align, by_size, fixed, bank_bytes)
        if second[1] < peak:
            offsets, peak = second
    capacity = problem.capacity_bytes
    impossible = False
    hopeless = capacity is not None and bound > capacity
    if effort > 0 and not bank_bytes and not hopeless and peak > max(bound, capacity or 0):
        offsets, bound, impossible = _search(problem, offsets, bound, effort)
        peak = int((offsets + size).max(initial=0))
    if capacity is not None and peak > capacity:
        raise AllocationError(explain_overflow(problem, peak, bound, impossible))
    return Placement(tuple(offsets.tolist()), peak, bound)


def _search(problem: Problem, offsets: Ints, bound: int, effort: int) -> tuple[Ints, int, bool]:
    """Return lower offsets, the height proven necessary, and whether the capacity is proven too small."""
    capacity = problem.capacity_bytes
    size = problem.arrays[3]
    offsets = offsets.copy()
    stretches = [(int((offsets + size)[s].max()), s) for s in _stretches(problem)]
    stretches.sort(key=lambda pair: -pair[0])
    for peak, members in stretches:
        if peak <= max(bound, capacity or 0) or effort <= 0:
            break
        part = Problem(tuple(problem.buffers[i] for i in members))
        if not ExactSearch.accepts(part):
            continue
        search = ExactSearch(part, effort)
        if capacity is None:
            for found, bound in search.lower(bound, peak):
                if found is not None:
                    offsets[members] = found
        else:
            found, proven = search.at_height(capacity, effort)
            if found is None:
                return offsets, bound, proven
            offsets[members] = found
        effort = search.nodes_left
    return offsets, bound, False


def _stretches(problem: Problem) -> list[Ints]:
    """Return the buffers of each stretch of time, in order of time; no buffer lives in two of them."""
    ptr, start, end, _, _, _ = problem.arrays
    alive = np.flatnonzero(np.diff(ptr) > 0)
    if not len(alive):
        return []
    first, last = start[ptr[alive]], end[ptr[alive + 1] - 1]
    order = np.argsort(first, kind="stable")
    reach = np.maximum.accumulate(last[order])
    cuts = np.flatnonzero(first[order][1:] >= reach[:-1]) + 1
    return [np.sort(part) for part in np.split(alive[order], cuts)]


def _orders(problem: Problem) -> tuple[Ints, Ints]:
    ptr, start, _, size, _, _ = problem.arrays
    n = len(size)
    first = np.zeros(n, np.int64)  # a buffer without lifetimes is nowhere in the way: any start will do
    owner = np.repeat(np.arange(n), np.diff(ptr))
    first[owner[::-1]] = start[::-1]  # lifetimes are sorted, so the first one wins
    by_start = np.lexsort((-size, first))
    by_size = np.lexsort((first, -size))
    return by_start, by_size


def _check_fixed(problem: Problem) -> None:
    """Raise when two buffers with given offsets share bytes at one time: no placement can mend that."""
    held = [b for b in problem.buffers if b.fixed is not None and b.size_bytes]
    spans = sorted((lo, hi, b.label, b.fixed or 0, b.size_bytes) for b in held for lo, hi in b.lifetimes)
    alive: list[tuple[int, int, str, int, int]] = []
    for span in spans:
        lo, _, label, at, size = span
        alive = [other for other in alive if other[1] > lo]
        for _, _, other, other_at, other_size in alive:
            if other != label and at < other_at + other_size and other_at < at + size:
                raise AllocationError(
                    f"placing buffers: fixed buffers {other!r} [{other_at}, {other_at + other_size}) and "
                    f"{label!r} [{at}, {at + size}) share bytes at time {lo}"
                )
        alive.append(span)


def explain_overflow(problem: Problem, peak: int, bound: int, proven: bool = False, rows: int = 8) -> str:
    """Return the message for a capacity that is exceeded: demand, bound, gap, and what is alive at the worst time."""
    capacity = problem.capacity_bytes or 0
    times, live = live_bytes(problem)
    worst = int(times[int(np.argmax(live))])
    alive = [b for b in problem.buffers if any(lo <= worst < hi for lo, hi in b.lifetimes)]
    alive.sort(key=lambda b: -b.size_bytes)
    lines = [
        f"placing {len(problem.buffers)} buffers: {peak:,} bytes needed, {capacity:,} bytes available "
        f"({peak - capacity:,} too many); at least {bound:,} bytes are alive at time {worst}",
        "  largest buffers at that time:",
        *(f"    {b.size_bytes:>14,} bytes  {b.label}" for b in alive[:rows]),
    ]
    if len(alive) > rows:
        rest = sum(b.size_bytes for b in alive[rows:])
        lines.append(f"    {rest:>14,} bytes  in {len(alive) - rows} smaller buffers")
    if bound > capacity or proven:
        lines.append("  no placement can fit: split into smaller slices or use fewer buffer copies")
    else:
        lines.append("  the space is fragmented: more search effort, smaller slices or fewer copies would help")
    return "\n".join(lines)
