"""Ways of list scheduling: by what it chooses among rows that could start at the same time.

May import: _kernels, machine. Must not: know plans, ops or addresses.

An order becomes better when it is made backwards from its end, and forwards again in the order of the begins found
(forward-backward improvement: Li and Willis, An iterative scheduling technique for resource-constrained project scheduling, 1992).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tx8fast._kernels import Csr, Ints, backwards, list_order, longest_paths
from tx8fast.machine import QUEUE_DEPTH


class Way(NamedTuple):
    """How multicasts and rows are ordered. behind: stores stay behind the loads of the fill after next, which hold up all tiles;
    reach: places by which a row may go earlier than it stands in the nest, 0: any; drains: waits take in every window that will be
    over by their end; better_than: the order that is improved, in which of rows that could start at the same time the older one goes
    first ("age") or that on which most waits ("path"); held: meanwhile multicasts hold up the core, else rows go on beside them."""

    policy: str
    behind: bool = False
    reach: int = 0
    drains: bool = False
    better_than: str = ""
    held: bool = False


def by_path(cycles: np.ndarray, before: Csr) -> Ints:
    """Return the rank (n,) of every row: that from whose begin to the end of the last row that waits for it are more cycles goes
    first. cycles (n,); before: what each must follow."""
    return np.argsort(np.argsort(-longest_paths(cycles, before), kind="stable"))


def improved(kind: np.ndarray, issue: np.ndarray, cycles: np.ndarray, before: Csr, first: np.ndarray) -> Ints:
    """Return the rank (n,) of every row for an order better than `first` (n,), one of all rows. kind, issue, cycles (n,): the engine
    of a row, and how long the core and the engine take for it."""
    n = len(cycles)
    # backwards row i is number n - 1 - i, and what went last goes first
    late = n - 1 - np.argsort(first)[::-1]
    last, _ = list_order(kind[::-1], issue[::-1], cycles[::-1], backwards(before), QUEUE_DEPTH, rank=late)
    return n - 1 - np.argsort(last)[::-1]
