"""Which rows of the members' results of a stream some reader needs.

May import: lower.chain, lower.thin. Must not: cut members, place buffers.

Gathers step over rows, and behind the last window of a band some may be left. A piece of a result that has none but such rows is not made,
so that what only it would read need not be made either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tx8fast.lower.chain import PSUM, Stage
from tx8fast.lower.thin import Thin


def cut(size: int, piece: int) -> list[tuple[int, int]]:
    """Return the ranges of pieces of so much."""
    return [(a, min(a + piece, size)) for a in range(0, size, piece)]


def rows_read(stages: Sequence[Stage], piece: Callable[[int], int]) -> list[np.ndarray]:
    """Return by member a bool per row of its result. piece(i): how much of member i's second factor is made, or left out, as a whole."""
    read = [np.zeros(s.shape[1], bool) for s in stages]
    read[-1][:] = True
    for i in reversed(range(len(stages))):
        stage = stages[i]
        found = (in_rows(stage, *own) for own in cut(stage.low.sizes[1], piece(i)))
        made = [(a, b) for a, b in found if read[i][a:b].any()]
        for j, (kind, k) in stage.images.items():
            if kind == "op":
                for a, b in _taken(stage, j, made, len(read[k])):
                    read[k][a:b] = True
    return read


def _taken(stage: Stage, j: int, made: Sequence[tuple[int, int]], rows: int) -> Iterator[tuple[int, int]]:
    """Yield what pieces of a member take of image j, which has so many rows: a gather what it moves, an instruction all from its first
    window to its last, and a whole image in scratchpad to the end."""
    if j == PSUM or not stage.windowed:
        yield from made if rows == stage.shape[1] else [(0, rows)]
    elif isinstance(stage.low, Thin):
        yield from (stage.needs(j, (row, row + 1)) for a, b in made for row in range(a, b))
    else:
        for a, b in made:
            first, behind = stage.needs(j, (a, b))
            whole = stage.low.window.resident and b == stage.shape[1]  # type: ignore[attr-defined]
            yield first, rows if whole else behind


def in_rows(stage: Stage, begin: int, end: int) -> tuple[int, int]:
    """Return the rows that [begin, end) of a member's second factor touches: rows themselves, or positions."""
    width = 1 if stage.windowed else stage.shape[2]
    return begin // width, -(-end // width)
