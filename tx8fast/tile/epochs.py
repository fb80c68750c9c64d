"""Time steps of a loop nest: which loads and stores go beside the computing of which slice.

May import: _kernels. Must not: know plans, ops or addresses.

A step is what a tile computes for one slice, or between two multicasts. A load is wanted one step before the one that first reads it, a
store one step behind the one that made it; where the transfers of a step take longer than its computing, loads move to
earlier steps with room and stores to later ones (kernel `time_steps`). How far they may go follows from the rows' bytes: a
load waits for the last reader of its buffer, a store is over before the next writer.
"""

from __future__ import annotations

import numpy as np

from tx8fast._kernels import ENGINES, Csr, Ints, bubble

LOADS, STORES = 2, 3  # the engines that move what is in DDR


def time_steps(kind: np.ndarray, cycles: np.ndarray, step: np.ndarray, before: Csr) -> Ints:
    """Return the step (n,) of every row. kind (n,): its engine, or the core; cycles (n,); step (n,): of the slice that it belongs
    to; before: what each must follow."""
    n, count = len(kind), int(step.max(initial=0)) + 1
    moves = np.isin(kind, (LOADS, STORES))
    busy = np.zeros((count, ENGINES + 1), np.int64)
    np.add.at(busy, (step, np.minimum(kind, ENGINES)), np.where(moves, 0, cycles))
    ptr, rows = before
    after = np.repeat(np.arange(n), np.diff(ptr))
    first, last = np.zeros(n, np.int64), np.full(n, count)
    np.maximum.at(first, after, step[rows])
    np.minimum.at(last, rows, step[after])
    made = kind == STORES
    near = np.where(made, np.minimum(first + 1, np.minimum(last, count - 1)), np.maximum(first, last - 1))
    limit = np.where(made, np.maximum(near, np.minimum(last, count - 1)), np.minimum(near, first))
    found = step.copy()
    found[moves] = bubble(cycles[moves], limit[moves], near[moves], busy.max(axis=1))
    return found


def by_steps(kind: np.ndarray, cycles: np.ndarray, step: np.ndarray, before: Csr) -> Ints:
    """Return the rank (n,) of every row, step after step and in each its transfers first; arguments as of `time_steps`."""
    moves = np.isin(kind, (LOADS, STORES))
    order = np.lexsort((np.arange(len(kind)), ~moves, time_steps(kind, cycles, step, before)))
    rank = np.empty(len(kind), np.int64)
    rank[order] = np.arange(len(kind))
    return rank
