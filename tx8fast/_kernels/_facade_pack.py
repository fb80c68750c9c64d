"""The door to exact placement.

May import: numpy, the checks and the compiled module beside it. Must not: know buffers' meaning.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tx8fast._kernels import pack as _pack
from tx8fast._kernels._checks import Ints, check_status, int_array, require

MAX_ITEMS = 2000  # the search keeps O(n^2) numbers
_LIMIT_REACHED, _INFEASIBLE = 5, 6


def pack_exact(
    start: npt.ArrayLike,
    end: npt.ArrayLike,
    size_bytes: npt.ArrayLike,
    order: npt.ArrayLike,
    capacity_bytes: int,
    budget: int,
) -> tuple[Ints | None, bool, int]:
    """Search for offsets that keep every item below `capacity_bytes`, visiting at most `budget` nodes.

    Item i, one of at most 2000, lives in [start[i], end[i]) and has size_bytes[i] > 0; `order` is
    the permutation in which equals are tried. Returns (offsets (n,) int64 bytes or None, True when
    the answer is proven, nodes visited): None and True means that no placement exists.
    """
    kernel = "pack"
    start_, end_ = int_array(kernel, "start", start), int_array(kernel, "end", end)
    size, order_ = int_array(kernel, "size_bytes", size_bytes), int_array(kernel, "order", order)
    n = len(size)
    require(kernel, n <= MAX_ITEMS, f"{n} items, at most {MAX_ITEMS} allowed")
    require(kernel, len(start_) == len(end_) == len(order_) == n, "columns differ in length")
    if n == 0:
        return np.empty(0, np.int64), True, 0
    require(kernel, (start_ < end_).all(), "empty or reversed interval")
    require(kernel, size.min() > 0, "sizes must be positive")
    require(kernel, float(size.astype(np.float64).sum()) < 2.0**62, "sizes add up to over 2**62")
    require(kernel, 0 <= capacity_bytes < 2**62 and budget >= 0, "capacity or budget out of range")
    rank = np.full(n, -1, np.int64)
    require(kernel, order_.min() >= 0 and order_.max() < n, "order is not a permutation")
    rank[order_] = np.arange(n)
    require(kernel, rank.min() >= 0, "order is not a permutation")
    times, dense = np.unique(np.concatenate((start_, end_)), return_inverse=True)
    dense = dense.astype(np.int64, copy=False)
    first, last = np.ascontiguousarray(dense[:n]), np.ascontiguousarray(dense[n:])
    together = (first[:, None] < last[None, :]) & (first[None, :] < last[:, None])
    np.fill_diagonal(together, False)
    ptr = np.concatenate(([0], np.cumsum(together.sum(axis=1), dtype=np.int64)))
    neighbour = np.nonzero(together)[1].astype(np.int64)
    offset = np.zeros(n, np.int64)
    status, nodes = _pack.pack(
        first, last, size, rank, ptr, neighbour, len(times), capacity_bytes, budget, offset
    )
    if status in (_LIMIT_REACHED, _INFEASIBLE):
        return None, status == _INFEASIBLE, nodes
    check_status(kernel, status)
    return offset, True, nodes
