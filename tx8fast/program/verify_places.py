"""Which buffers of a segment hold a range of scratchpad.

May import: numpy, program.model. Must not: know instructions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tx8fast.program.model import SCRATCH, SEVERAL, Segment

#: beyond every scratchpad address: arguments of one segment, and segments, are kept apart by multiples of it
PLACE = 1 << 33


class Places:
    """The buffers of several segments, each given once and named by its place, ordered so that one bisection tells whether some buffer holds a range: of all that
    begin in front of it, the one that ends last."""

    # sets of a segment's buffers: all, those of several arguments, those of each argument
    EVERY, IN_TURN, ARGUMENT = range(3)

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.width = max((s.n_args for s in segments), default=0) + self.ARGUMENT
        begins, ends = [], []
        for number, s in enumerate(segments):
            start, size, argument = np.asarray(s.buffers, np.int64).reshape(-1, 3).T
            moved = argument != SCRATCH
            own = np.where(argument[moved] == SEVERAL, self.IN_TURN, self.ARGUMENT + argument[moved])
            sets = np.concatenate([np.full(len(start), self.EVERY), own]) + number * self.width
            begins.append(sets * PLACE + np.concatenate([start, start[moved]]))
            ends.append(begins[-1] + np.concatenate([size, size[moved]]))
        begin, end = np.concatenate([*begins, np.zeros(0, np.int64)]), np.concatenate([*ends, np.zeros(0, np.int64)])
        order = np.argsort(begin, kind="stable")
        self.begin = begin[order]
        self.end = np.maximum.accumulate(np.concatenate([[-1], end[order]]))  # of all that begin before a place

    def hold(self, home: np.ndarray, argument: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
        """Return whether a buffer of segment `home` holds bytes [lo, hi); `argument`: that of a transfer, -1 of other rows."""
        held = self._in(home, np.where(argument < 0, self.EVERY, self.ARGUMENT + argument), lo, hi)
        return held | ((argument >= 0) & self._in(home, np.full(len(home), self.IN_TURN), lo, hi))

    def _in(self, home: np.ndarray, which: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
        at = (home * self.width + which) * PLACE
        return self.end[np.searchsorted(self.begin, at + lo, "right")] >= at + hi
