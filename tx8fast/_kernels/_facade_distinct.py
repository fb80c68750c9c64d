"""The door to the numbering of rows.

May import: numpy, the checks and the compiled module beside it. Must not: know what rows mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tx8fast._kernels import distinct as _distinct
from tx8fast._kernels._checks import Ints, check_status, int_array, require

KERNEL = "distinct"


def distinct_rows(
    words: npt.NDArray[np.uint64], kept: Sequence[int], salt: Ints | None = None
) -> tuple[npt.NDArray[np.int32], Ints]:
    """Return a number per row of `words` (n, w), equal where the words `kept` and `salt` (n,) are, and where each number appears first.

    Numbers count from 0 in the order in which they appear."""
    words = np.ascontiguousarray(words, np.uint64)
    require(KERNEL, words.ndim == 2, f"rows of words have {words.ndim} dimensions, 2 required")
    n, columns = len(words), int_array(KERNEL, "kept", np.array(kept, np.int64))
    own = np.zeros(n, np.int64) if salt is None else int_array(KERNEL, "salt", salt)
    require(KERNEL, len(own) == n, "salt and rows differ in length")
    require(KERNEL, bool(((columns >= 0) & (columns < words.shape[1])).all()), "kept words out of range")
    ids, first, count = np.zeros(n, np.int32), np.zeros(n, np.int64), np.zeros(1, np.int64)
    check_status(KERNEL, _distinct.distinct(words, own, columns, ids, first, count))
    return ids, first[: int(count[0])]
