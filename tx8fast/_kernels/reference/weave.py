"""Readable twin of the order of instructions.

May import: the standard library. Must not: be fast, share code with the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

Ranges = Sequence[tuple[int, int]]


def depends(read: Sequence[Ranges], write: Sequence[Ranges], reach: int) -> list[list[int]]:
    """Return per instruction those at most `reach` places before it that it must follow."""

    def meet(x: Ranges, y: Ranges) -> bool:
        return any(a < d and c < b for a, b in x for c, d in y)

    def conflict(new: int, old: int) -> bool:
        return (
            meet(write[new], write[old]) or meet(write[new], read[old]) or meet(read[new], write[old])
        )  # write after write, write after read, read after write

    return [[i for i in range(max(0, j - reach), j) if conflict(j, i)] for j in range(len(read))]


def weave(engine: Sequence[int], cycles: Sequence[int], before: Sequence[Sequence[int]], touches: Sequence[Sequence[int]],
          size_bytes: Sequence[int], reach: int, budget_bytes: int) -> list[int]:  # fmt: skip
    """Return the order; arguments as in the facade, with lists of lists."""
    n = len(engine)
    end: dict[int, int] = {}  # of what is in the order already
    free = dict.fromkeys(engine, 0)
    left = [sum(k in mine for mine in touches) for k in range(len(size_bytes))]  # instructions that will touch a buffer
    used: set[int] = set()
    oldest = 0

    def fits(j: int) -> bool:
        """Run j and then all older ones in thought."""
        opened, coming = set(used), list(left)
        for i in (j, *(i for i in range(oldest, j) if i not in end)):
            opened.update(touches[i])
            if sum(size_bytes[k] for k in opened if coming[k]) > budget_bytes:
                return False
            for k in touches[i]:
                coming[k] -= 1
        return True

    order: list[int] = []
    while len(order) < n:
        while oldest in end:
            oldest += 1
        ready = [j for j in range(oldest, min(n, oldest + reach)) if j not in end and all(i in end for i in before[j])]
        starts = sorted((max([free[engine[j]], *(end[i] for i in before[j])]), j) for j in ready)
        start, j = next((start, j) for start, j in starts if j == oldest or fits(j))
        end[j] = free[engine[j]] = start + cycles[j]
        order.append(j)
        used.update(touches[j])
        for k in touches[j]:
            left[k] -= 1
    return order
