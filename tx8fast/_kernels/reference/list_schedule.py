"""Readable twin of list scheduling.

May import: the standard library. Must not: be fast, share code with the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

Ranges = Sequence[tuple[int, int]]
CORE = 5  # behind the engines
WINDOWS = 3
LOOK = 16  # rows per engine that are looked at for the next one


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


def longest_paths(cycles: Sequence[int], before: Sequence[Sequence[int]]) -> list[int]:
    """Return cycles from the begin of a row to the end of the last one that waits for it; `before` as lists."""
    tail = list(cycles)
    for j in reversed(range(len(tail))):
        tail[j] = cycles[j] + max([tail[i] for i in range(j + 1, len(tail)) if j in before[i]], default=0)
    return tail


def list_order(engine: Sequence[int], issue: Sequence[int], cycles: Sequence[int], before: Sequence[Sequence[int]],
               depth: Sequence[int], own: Sequence[int] | None = None, home: Sequence[int] | None = None,
               rule: Sequence[int] | None = None, wait_cycles: int = 0, ahead: bool = False, rank: Sequence[int] | None = None
               ) -> tuple[list[int], list[int]]:  # fmt: skip
    """Return order and windows; arguments as in the facade, `before` as lists, own, home and rule of its `Windows`."""
    n = len(engine)
    rank = range(n) if rank is None else rank
    own, home, rule = (x or [0] * n for x in (own, home, rule))
    tile = _Tile()
    cores = [j for j in range(n) if engine[j] == CORE]
    order: list[int] = []
    worker = [0] * n
    ready = [0] * n
    waits: list[dict[int, int]] = [{} for _ in range(n)]  # window -> waits before its youngest predecessor was issued
    done: set[int] = set()

    def way(j: int) -> tuple[int, int, int, int, set[int]]:
        """Key, start, when the core is done, window, windows that must be waited for before."""
        waiting = tile.open(waits[j])
        if own[j] >= 0:
            window = own[j]
        elif rule[j] == 2 or waiting == {0, 2}:
            window = home[j]
        elif len(waiting) == 1 and waiting <= {0, 2}:
            window = min(waiting)
        else:
            window = tile.last if rule[j] == 0 else home[j]
        waiting = waiting - {window}
        core = tile.drained(waiting) + wait_cycles if waiting else tile.core
        queue = tile.starts[engine[j]]
        slot = queue[-depth[engine[j]]] if len(queue) >= depth[engine[j]] else 0
        soonest = max(tile.free[engine[j]], ready[j], slot)
        issued = max(core + issue[j], slot)
        return max(core, soonest), max(issued, soonest), issued, window, waiting

    while len(done) < n:
        able = [j for j in range(n) if j not in done and all(i in done for i in before[j])]
        core = next((j for j in able if engine[j] == CORE), -1)
        found: list[tuple[int, int, int]] = []
        mask: set[int] = set()
        over = 0
        if core >= 0:
            mask = tile.open(waits[core]) | {w for w in range(WINDOWS) if own[core] >> w & 1}
            until = tile.drained(mask)
            over = until + issue[core] + (wait_cycles if mask else 0)
            later = cores[cores.index(core) + 1 :][:1]
            next_mask = tile.open(waits[later[0]]) if later and ahead else set()
            next_until = max(over, tile.drained(next_mask))
        for e in range(CORE):
            for j in sorted([j for j in able if engine[j] == e], key=rank.__getitem__)[:LOOK]:
                key, start, issued, window, _ = way(j)
                if core >= 0:
                    if start >= over or issued > max(until, tile.core + issue[j]):
                        continue
                    if (
                        window in mask
                        and start + cycles[j] > until
                        or window in next_mask
                        and start + cycles[j] > next_until
                    ):
                        continue
                found.append((key, rank[j], j))
        if found:
            j = min(found)[2]
            _, start, issued, window, waiting = way(j)
        else:
            j, start, issued, window, waiting = core, over, over, 0, mask
        if waiting:
            waiting = waiting | {w for w in range(WINDOWS) if tile.end[w] <= tile.drained(waiting)}
            order.append(-sum(1 << w for w in waiting))
        order.append(j)
        done.add(j)
        tile.core = issued
        for w in sorted(waiting):
            tile.waited[w] += 1
            tile.last = w if w != 1 else tile.last
        end = start
        if engine[j] < CORE:
            end = start + cycles[j]
            tile.starts[engine[j]].append(start)
            tile.free[engine[j]] = end
            tile.end[window] = max(tile.end[window], end)
            worker[j] = window
        for i in range(n):
            if j in before[i]:
                ready[i] = max(ready[i], end)
                if engine[j] < CORE and engine[i] != engine[j]:
                    waits[i][window] = tile.waited[window]
    return order, worker


class _Tile:
    """The state of a tile: when its core and engines are free, what every window has under way, and how often it was
    waited for."""

    def __init__(self) -> None:
        self.core = self.last = 0
        self.free = [0] * CORE
        self.starts: list[list[int]] = [[] for _ in range(CORE)]
        self.end, self.waited = [0] * WINDOWS, [0] * WINDOWS

    def open(self, waits: dict[int, int]) -> set[int]:
        """Return the windows that have not been waited for since."""
        return {w for w, count in waits.items() if count == self.waited[w]}

    def drained(self, windows: set[int]) -> int:
        return max([self.core, *(self.end[w] for w in windows)])
