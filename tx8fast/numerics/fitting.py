"""Do the values of a given array fit an integer format? One rule for arrays of a file and of a caller.

May import: numpy, numerics.formats. Must not: convert, or know programs.
"""

from __future__ import annotations

import numpy as np

from tx8fast.numerics.formats import int_limits, np_dtype


def integer_misfit(array: np.ndarray, dtype: str) -> str | None:
    """Return what is wrong with `array` for the integer format `dtype`: its dtype, or its first value out of range with
    its position. None if it fits."""
    if (array.dtype == np_dtype(dtype) and dtype not in ("i4", "u4")) or not array.size:  # these are held in 8 bits
        return None
    if array.dtype.name in ("int4", "uint4"):
        array = array.astype(np.int8)
    if array.dtype.kind not in "iu":
        return f"has dtype {array.dtype}"
    low, high = int_limits(dtype)
    if int(array.min()) >= low and int(array.max()) <= high:
        return None
    # compared as Python integers: numpy would turn some mixed widths into floats
    flat = array.reshape(-1)
    first = next(i for i, v in enumerate(flat.tolist()) if not low <= v <= high)
    at = [int(i) for i in np.unravel_index(first, array.shape)]
    return f"has dtype {array.dtype} and values from {array.min()} to {array.max()}, the first out of range {flat[first]} at {at}"


def integers_required(dtype: str) -> str:
    """Return the words for what an integer input takes."""
    low, high = int_limits(dtype)
    return f"an integer type with values {low} to {high} ({dtype})"
