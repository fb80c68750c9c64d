"""The door to the sharding enumeration.

May import: numpy, the checks and the compiled module beside it. Must not: know ops or machines.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tx8fast._kernels import shard_enum as _shard_enum
from tx8fast._kernels._checks import Ints, check_status, int_array, require


def enumerate_shardings(
    shape: Sequence[int],
    base: Sequence[int],
    n_parts: int,
    limit: Sequence[int] | None = None,
    n_first: bool = False,
) -> tuple[Ints, Ints, Ints]:
    """Return all ordered ways to cut a tensor into `n_parts` parts, and the uncut one, best first.

    `shape`, `base` (rank,) are elements, `limit` the most parts per dimension (default: no limit).
    Result: vectors (n, rank), effective tiles (n,), factor = floor(log2 effective tiles) (n,); all
    int64, in descending factor, descending effective tiles, then ascending lexicographic order
    (descending when `n_first`). Source: back-end notes 11.1.
    """
    kernel = "shard_enum"
    shape_ = int_array(kernel, "shape", shape)
    base_ = int_array(kernel, "base", base)
    rank = len(shape_)
    limit_ = np.full(rank, n_parts, np.int64) if limit is None else int_array(kernel, "limit", limit)
    require(kernel, len(base_) == rank == len(limit_), "shape, base and limit differ in length")
    require(kernel, rank <= 16, f"rank {rank} is above 16")
    require(kernel, n_parts >= 1, f"n_parts is {n_parts}, at least 1 required")
    require(kernel, not rank or shape_.min() >= 0, "negative length in shape")
    require(kernel, not rank or min(base_.min(), limit_.min()) >= 1, "base and limit must be >= 1")
    capacity = 64
    while True:
        slot = np.zeros(n_parts + 2, np.int64)
        vectors = np.empty((capacity, rank), np.int64)
        eff = np.empty(capacity, np.int64)
        status, count = _shard_enum.shard_enum(shape_, base_, limit_, n_parts, n_first, slot, vectors, eff)
        if status != 1:  # too small is the one status that is answered by trying again
            break
        capacity = count
    check_status(kernel, status)
    eff = eff[:count]
    factor = np.frexp(np.maximum(eff, 1).astype(np.float64))[1].astype(np.int64) - 1
    return vectors[:count], eff, factor
