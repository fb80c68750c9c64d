"""Readable twin of the dependences between rows.

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


def longest_paths(cycles: Sequence[int], before: Sequence[Sequence[int]]) -> list[int]:
    """Return cycles from the begin of a row to the end of the last one that waits for it; `before` as lists."""
    tail = list(cycles)
    for j in reversed(range(len(tail))):
        tail[j] = cycles[j] + max([tail[i] for i in range(j + 1, len(tail)) if j in before[i]], default=0)
    return tail
