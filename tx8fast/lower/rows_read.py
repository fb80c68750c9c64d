"""Which rows of the members' results of a stream some reader needs.

May import: lower.chain. Must not: cut members, place buffers.

A window that is smaller than its step steps over rows, and behind the last window some may be left. A piece of a result that has none
but such rows is not made, so that what only it would read need not be made either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tx8fast.lower.chain import PSUM, Stage

Pieces = Callable[[int], Iterable[tuple[int, int]]]


def rows_read(stages: Sequence[Stage], pieces: Pieces) -> list[np.ndarray]:
    """Return by member a bool per row of its result. pieces(i): ranges of member i's second factor that are made or left out as a whole."""
    read = [np.zeros(s.shape[1], bool) for s in stages]
    read[-1][:] = True
    for i in reversed(range(len(stages))):
        stage, made = stages[i], read[i].copy()
        for a, b in (in_rows(stage, *piece) for piece in pieces(i)):
            made[a:b] |= read[i][a:b].any()
        for j, (kind, k) in stage.images.items():
            if kind != "op":
                continue
            if stage.windowed and j != PSUM:
                for row in np.flatnonzero(made).tolist():
                    a, b = stage.needs(j, (row, row + 1))
                    read[k][a:b] = True
            else:
                read[k] |= made if len(made) == len(read[k]) else True
    return read


def in_rows(stage: Stage, begin: int, end: int) -> tuple[int, int]:
    """Return the rows that [begin, end) of a member's second factor touches: rows themselves, or positions."""
    width = 1 if stage.windowed else stage.shape[2]
    return begin // width, -(-end // width)
