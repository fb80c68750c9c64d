"""Readable twin of list scheduling.

May import: the standard library. Must not: be fast, share code with the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

Ranges = Sequence[tuple[int, int]]


def byte_dependences(read: Sequence[Ranges], write: Sequence[Ranges]) -> list[list[int]]:
    """Return per row those it must follow, ascending; arguments as in the facade."""
    writer: dict[int, int] = {}  # byte -> last row that wrote it
    readers: dict[int, set[int]] = {}  # byte -> rows that read it since
    found = []
    for j, (sources, targets) in enumerate(zip(read, write, strict=True)):
        mine: set[int] = set()
        for b in (b for start, end in sources for b in range(start, end)):
            mine |= {writer[b]} if b in writer else set()
        written = {b for start, end in targets for b in range(start, end)}
        for b in written:
            since = readers.get(b, set())
            mine |= since or ({writer[b]} if b in writer else set())
        for b in written:
            writer[b], readers[b] = j, set()
        for b in {b for start, end in sources for b in range(start, end)} - written:
            readers.setdefault(b, set()).add(j)
        found.append(sorted(mine))
    return found


def list_order(engine: Sequence[int], issue: Sequence[int], cycles: Sequence[int], before: Sequence[Sequence[int]],
               depth: Sequence[int]) -> tuple[list[int], list[int]]:  # fmt: skip
    """Return order and starts; arguments as in the facade, `before` as lists."""
    order: list[int] = []
    begin: list[int] = []
    end: dict[int, int] = {}  # of what is in the order already
    queue: dict[int, list[int]] = {e: [] for e in engine}  # starts
    free = dict.fromkeys(engine, 0)
    core = 0
    while len(order) < len(engine):
        ready = [j for j in range(len(engine)) if j not in end and all(i in end for i in before[j])]
        at = {j: max([core, free[engine[j]], *(end[i] for i in before[j])]) for j in ready}
        j = min(ready, key=lambda j: (at[j], j))
        own = queue[engine[j]]
        core += issue[j]
        if len(own) >= depth[engine[j]]:
            core = max(core, own[-depth[engine[j]]])
        start = max([core, free[engine[j]], *(end[i] for i in before[j])])
        end[j] = free[engine[j]] = start + cycles[j]
        own.append(start)
        order.append(j)
        begin.append(start)
    return order, begin
