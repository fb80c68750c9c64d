"""A height that no placement can go below.

May import: `problem`, numpy. Must not: place anything.
"""

from __future__ import annotations

import numpy as np

from tx8fast.alloc.problem import Ints, Problem


def live_bytes(problem: Problem) -> tuple[Ints, Ints]:
    """Return the times at which something starts or ends (t,) and the bytes alive from then on (t,)."""
    ptr, start, end, size, _, _ = problem.arrays
    per_interval = np.repeat(size, np.diff(ptr))
    times, ranks = np.unique(np.concatenate((start, end)), return_inverse=True)
    change = np.zeros(len(times), np.int64)
    np.add.at(change, ranks, np.concatenate((per_interval, -per_interval)))
    return times, np.cumsum(change)


def lower_bound_bytes(problem: Problem) -> int:
    """Return the most bytes alive at one time, or the end of the highest fixed buffer if that is more.

    Lifetimes of one buffer must not overlap one another (`merge_intervals`). Source: back-end notes
    13.4.
    """
    _, live = live_bytes(problem)
    _, _, _, size, _, fixed = problem.arrays
    held = fixed >= 0
    return max(int(live.max(initial=0)), int((fixed + size)[held].max(initial=0)))
