"""The order of instructions in which no engine waits while there is work for it.

May import: numpy. Must not: know instructions.

Instructions arrive in an order that is right for one engine at a time. Those of other engines that depend on nothing
unfinished may come earlier, at most `reach` places before the oldest one left: list scheduling on engines that work
through their queues in order, as the hardware does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


def depends(engine: np.ndarray, read: np.ndarray, write: np.ndarray, reach: int) -> list[list[int]]:
    """Return per instruction those at most `reach` places before it that it must follow.

    engine (n,); read (n, r, 2), write (n, w, 2): half-open byte ranges, empty ones (0, 0)."""
    n = len(engine)
    out: list[list[int]] = [[] for _ in range(n)]

    def meet(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x, y = x[:, :, None], y[:, None]
        return np.any((x[..., 0] < y[..., 1]) & (y[..., 0] < x[..., 1]), (1, 2))

    for d in range(1, min(reach, n - 1) + 1):
        old, new = slice(0, n - d), slice(d, n)
        hit = meet(write[new], write[old]) | meet(write[new], read[old]) | meet(read[new], write[old])
        for j in np.flatnonzero(hit):
            out[j + d].append(int(j))
    return out


@dataclass(frozen=True)
class Room:
    """What instructions touch in scratchpad: per instruction the numbers of its buffers, the buffers' bytes, and how many
    bytes may be in use when an instruction comes before an older one."""

    touches: list[list[int]]
    size_bytes: list[int]
    budget_bytes: int


def weave(engine: np.ndarray, cycles: np.ndarray, before: list[list[int]], reach: int, room: Room) -> np.ndarray:
    """Return the instructions' numbers in their new order: of those that may come next, the one that starts first;
    the older one on ties. cycles (n,): how long each takes; before: what each must follow."""
    n = len(engine)
    after: list[list[int]] = [[] for _ in range(n)]
    missing = [0] * n
    for j, old in enumerate(before):
        missing[j] = len(old)
        for i in old:
            after[i].append(j)
    engines, took = engine.tolist(), cycles.tolist()
    ready_at = [0] * n
    free = {e: 0 for e in set(engines)}
    ready: dict[int, list[int]] = {e: [] for e in free}
    done = [False] * n
    left = [0] * len(room.size_bytes)  # instructions that will touch a buffer
    for names in room.touches:
        for k in names:
            left[k] += 1
    used = [False] * len(left)
    alive = oldest = seen = 0
    order: list[int] = []

    def fits(j: int) -> bool:
        """True if j and then all older instructions, one after the other, can have their buffers."""
        need, opened, later = alive, set(), {}
        for i in (j, *(i for i in range(oldest, j) if not done[i])):
            new = [k for k in room.touches[i] if not used[k] and k not in opened]
            opened.update(new)
            need += sum(room.size_bytes[k] for k in new)
            if need > room.budget_bytes:
                return False
            for k in room.touches[i]:
                later[k] = later.get(k, left[k]) - 1
                need -= 0 if later[k] else room.size_bytes[k]
        return True

    while len(order) < n:
        while oldest < n and done[oldest]:
            oldest += 1
        while seen < min(n, oldest + max(1, reach)):
            if not missing[seen]:
                ready[engines[seen]].append(seen)
            seen += 1
        coming = sorted((max(ready_at[j], free[e]), j) for e, waiting in ready.items() for j in waiting)
        j = next(j for _, j in coming if j == oldest or fits(j))
        start = max(ready_at[j], free[engines[j]])
        e = engines[j]
        ready[e].remove(j)
        done[j] = True
        order.append(j)
        for k in room.touches[j]:
            alive += 0 if used[k] else room.size_bytes[k]
            used[k] = True
            left[k] -= 1
            alive -= 0 if left[k] else room.size_bytes[k]
        free[e] = end = start + took[j]
        for k in after[j]:
            ready_at[k] = max(ready_at[k], end)
            missing[k] -= 1
            if not missing[k] and k < seen:
                ready[engines[k]].append(k)
    return np.array(order, np.int64)
