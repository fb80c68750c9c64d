"""Readable twin of list scheduling.

May import: the standard library. Must not: be fast, share code with the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

CORE = 5  # behind the engines
WINDOWS = 3
LOOK = 16  # rows per engine that are looked at for the next one
AHEAD = 3  # steps of the core behind the next one whose waits rows do not make longer


def list_order(
    engine: Sequence[int],
    issue: Sequence[int],
    cycles: Sequence[int],
    before: Sequence[Sequence[int]],
    depth: Sequence[int],
    own: Sequence[int] | None = None,
    home: Sequence[int] | None = None,
    held: Sequence[int] | None = None,
    wait_cycles: int = 0,
    rank: Sequence[int] | None = None,
    drains: bool = False,
) -> tuple[list[int], list[int]]:
    """Return order and windows; arguments as in the facade, `before` as lists, own, home and held of its `Windows`."""
    n = len(engine)
    rank = range(n) if rank is None else rank
    own, home, held = (x or [0] * n for x in (own, home, held))
    # windows that rows take unless they are free to take others
    usual = [w if w >= 0 else h for w, h in zip(own, home, strict=True)]
    tile = _Tile()
    cores = [j for j in range(n) if engine[j] == CORE]
    order: list[int] = []
    worker = [0] * n
    ready = [0] * n
    waits: list[dict[int, int]] = [{} for _ in range(n)]  # window -> waits before its youngest predecessor was issued
    drained: set[int] = set()  # steps of the core that have waited for windows
    done: set[int] = set()

    def way(j: int) -> tuple[int, int, int, int, set[int]]:
        """Key, start, when the core is done, window, windows that must be waited for before."""
        waiting = tile.open(waits[j])
        if own[j] >= 0:
            window = own[j]
        else:
            window = min(waiting) if waiting in ({0}, {2}) else home[j]
        waiting = waiting - {window}
        core = tile.drained(waiting) + wait_cycles if waiting else tile.core
        queue = tile.starts[engine[j]]
        slot = queue[-depth[engine[j]]] if len(queue) >= depth[engine[j]] else 0
        soonest = max(tile.free[engine[j]], ready[j], slot)
        issued = max(core + issue[j], slot)
        return max(core, soonest), max(issued, soonest), issued, window, waiting

    def wanted(w: int) -> bool:
        """Whether a row of an engine would have to wait for window w, or leave its usual one."""
        rows = [j for j in range(n) if j not in done and engine[j] < CORE and usual[j] != w]
        return any(w in tile.open(waits[j]) for j in rows)

    def steps() -> list[tuple[int, set[int], int, int]]:
        """What the core does next: step, windows it waits for, when these are free, when it has done it."""
        out, over, landed = [], tile.core, tile.landed
        for j in [c for c in cores if c not in done][: AHEAD + 1]:
            mask = tile.open(waits[j]) | {w for w in range(WINDOWS) if own[j] >> w & 1 and j not in drained}
            for i in before[j]:
                if i not in done and engine[i] < CORE:
                    mask |= {usual[i]}
            until = max(over, landed, tile.drained(mask))
            over = until + issue[j] + (wait_cycles if mask else 0)
            landed = over + cycles[j]
            out.append((j, mask, until, over))
        return out

    def first_after(e: int, coming: Sequence[tuple[int, set[int], int, int]]) -> list[tuple[int, int]]:
        """Rank of the first row of an engine that waits for nothing but the core's next step, and for those after it; and when it could
        begin."""
        out = []
        for q in range(len(coming[:AHEAD])):
            passed = done | {c for c, *_ in coming[: q + 1]}
            rows = [
                j
                for j in range(n)
                if engine[j] == e and coming[q][0] in before[j] and all(i in passed for i in before[j])
            ]
            if rows:
                first = min(rows, key=rank.__getitem__)
                out.append((rank[first], max(coming[q][3], ready[first])))
        return out

    while len(done) < n:
        able = [j for j in range(n) if j not in done and all(i in done for i in before[j])]
        core = next((j for j in cores if j not in done), -1)
        core = core if core in able else -1
        found: list[tuple[int, int, int]] = []
        coming = steps() if core >= 0 else []
        for e in range(CORE):
            first, longer = first_after(e, coming), False
            for j in sorted([j for j in able if engine[j] == e], key=rank.__getitem__)[:LOOK]:
                key, start, issued, window, _ = way(j)
                end = start + cycles[j]
                if core >= 0:
                    _, mask, until, over = coming[0]
                    if (
                        held[j] > len(done.intersection(cores))
                        or start >= over
                        or issued > max(until, tile.core + issue[j])
                    ):
                        continue
                    if window in mask and end > until:  # the wait would become longer
                        first += [] if longer else [(rank[j], max(over, ready[j]))]
                        longer = True
                        continue
                    if any(window in mask and end > until and j not in before[c] for c, mask, until, _ in coming[1:]):
                        continue
                    if any(r < rank[j] and end > when for r, when in first):
                        continue
                found.append((key, rank[j], j))
        if found:
            j = min(found)[2]
            _, start, issued, window, waiting = way(j)
        else:
            j, waiting, _, issued = coming[0]
            start, window = issued, 0
        if waiting:
            until = tile.drained(waiting)
            waiting = waiting | {w for w in range(WINDOWS) if (drains or wanted(w)) and tile.end[w] <= until}
            order.append(-sum(1 << w for w in waiting))
            for w in waiting:
                tile.waited[w] += 1
            if engine[j] == CORE:  # rows that the wait has set free may go before the step
                tile.core = until + wait_cycles
                drained.add(j)
                continue
        order.append(j)
        done.add(j)
        tile.core = issued
        end = start
        if engine[j] == CORE:
            tile.landed = issued + cycles[j]
        else:
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


def improved(
    engine: list[int], issue: list[int], cycles: list[int], before: list[list[int]], first: list[int], depth: list[int]
) -> list[int]:
    """See the kernel."""
    n, none = len(engine), [0] * len(engine)
    follows = [sorted(n - 1 - i for i in range(n) if n - 1 - j in before[i]) for j in range(n)]
    late = [n - 1 - first.index(n - 1 - j) for j in range(n)]
    last, _ = list_order(engine[::-1], issue[::-1], cycles[::-1], follows, depth, none, none, none, 0, late, False)
    return [n - 1 - last.index(n - 1 - i) for i in range(n)]


class _Tile:
    """The state of a tile: when its core and engines are free, what every window has under way, and how often it was
    waited for."""

    def __init__(self) -> None:
        self.core, self.landed = 0, 0
        self.free = [0] * CORE
        self.starts: list[list[int]] = [[] for _ in range(CORE)]
        self.end, self.waited = [0] * WINDOWS, [0] * WINDOWS

    def open(self, waits: dict[int, int]) -> set[int]:
        """Return the windows that have not been waited for since."""
        return {w for w, count in waits.items() if count == self.waited[w]}

    def drained(self, windows: set[int]) -> int:
        return max([self.core, *(self.end[w] for w in windows)])
