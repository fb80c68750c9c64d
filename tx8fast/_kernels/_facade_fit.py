"""The door to first-fit placement.

May import: numpy, the checks and the compiled module beside it. Must not: know buffers' meaning.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tx8fast._kernels import fit as _fit
from tx8fast._kernels._checks import Ints, check_status, int_array, require


def first_fit(
    ptr: npt.ArrayLike,
    start: npt.ArrayLike,
    end: npt.ArrayLike,
    size_bytes: npt.ArrayLike,
    align_bytes: npt.ArrayLike,
    order: npt.ArrayLike,
    fixed: npt.ArrayLike | None = None,
    bank_bytes: int = 0,
) -> tuple[Ints, int]:
    """Place items one after the other at the lowest offset that is free over all their lifetimes.

    Item i lives in the half-open intervals [start[j], end[j]) for j in ptr[i] .. ptr[i + 1] (CSR;
    ptr is (n + 1,), start and end (m,)); `size_bytes`, `align_bytes`, `order` (a permutation) and
    `fixed` (given offset, -1 = free) are (n,). With `bank_bytes`, an item starts at a bank when it
    is at least a bank long or would otherwise straddle a bank border. Returns offsets (n,) and the
    peak, both in bytes. Items placed at fixed offsets are not checked against one another. Source:
    back-end notes 13.4 and 15.2.
    """
    kernel = "fit"
    ptr_ = int_array(kernel, "ptr", ptr)
    start_ = int_array(kernel, "start", start)
    end_ = int_array(kernel, "end", end)
    size = int_array(kernel, "size_bytes", size_bytes)
    align = int_array(kernel, "align_bytes", align_bytes)
    order_ = int_array(kernel, "order", order)
    n, m = len(size), len(start_)
    fixed_ = np.full(n, -1, np.int64) if fixed is None else int_array(kernel, "fixed", fixed)
    require(kernel, len(ptr_) == n + 1, f"ptr has {len(ptr_)} entries, {n + 1} required")
    counts = np.diff(ptr_)
    require(
        kernel,
        ptr_[0] == 0 and ptr_[-1] == m == len(end_) and (counts >= 0).all(),
        "ptr does not partition the intervals",
    )
    require(kernel, (start_ < end_).all(), "empty or reversed interval")
    require(
        kernel,
        len(align) == len(order_) == len(fixed_) == n,
        "size, align, order and fixed differ in length",
    )
    seen = np.zeros(n, np.bool_)
    in_range = n == 0 or (order_.min() >= 0 and order_.max() < n)
    if in_range:
        seen[order_] = True
    require(kernel, in_range and seen.all(), "order is not a permutation")
    require(kernel, n == 0 or (size.min() >= 0 and align.min() >= 1), "negative size or align < 1")
    require(kernel, bank_bytes >= 0, "negative bank size")
    # Offsets stay below the sum of padded sizes, so this keeps all sums inside 63 bits.
    pad = float(max(bank_bytes, align.max(initial=1)))
    top = float(fixed_.max(initial=0)) + float(size.astype(np.float64).sum()) + 2 * n * pad
    require(kernel, top < 2.0**62, "sizes add up to more than 2**62 bytes")
    times, ranks = np.unique(np.concatenate((start_, end_)), return_inverse=True)
    ranks = ranks.astype(np.int64, copy=False)
    offset = np.zeros(n, np.int64)
    owner = np.repeat(np.arange(n, dtype=np.int64), counts)
    status, peak = _fit.fit(
        ptr_,
        np.ascontiguousarray(ranks[:m]),
        np.ascontiguousarray(ranks[m:]),
        owner,
        size,
        align,
        order_,
        fixed_,
        bank_bytes,
        len(times),
        offset,
    )
    check_status(kernel, status)
    return offset, peak
