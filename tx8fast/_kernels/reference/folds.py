"""Readable twin of the search for stretches of code that repeat themselves.

May import: the standard library. Must not: be fast, share code with the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence


def folds(
    ids: Sequence[int],
    ddr: Sequence[int],
    level: Sequence[int],
    free: Sequence[bool],
    periods: Sequence[int],
    min_repeats: int,
    min_saving: int,
) -> list[tuple[int, int, int]]:
    """Return (first row, period, repeats) of every fold, in the order in which they are found."""
    free, found = list(free), []
    for period in periods:
        least = max(min_repeats, 1 + -(-(min_saving + 2) // period))

        def alike(i: int) -> bool:
            rows = (i, i + period, i + 2 * period)
            same = len({ids[r] for r in rows}) == 1 and all(free[r] for r in rows)
            return same and len({ddr[b] - ddr[a] for a, b in zip(rows, rows[1:])}) == 1

        good = {i for i in range(len(ids) - 2 * period) if alike(i)}
        runs = [(i, next(j for j in range(i, len(ids)) if j not in good)) for i in sorted(good) if i - 1 not in good]
        taken = 0
        for begin, end in runs:
            items = [i for i in range(max(begin, taken), end) if level[i] == 0 and (i == 0 or level[i - 1] == 0)]
            if not items or 2 + (end - items[0]) // period < least:
                continue
            repeats = 2 + (end - items[0]) // period
            found.append((items[0], period, repeats))
            taken = items[0] + repeats * period
            free[items[0] : taken] = [False] * (taken - items[0])
    return found
