"""The door to the search for stretches of code that repeat themselves.

May import: numpy, the checks and the compiled module beside it. Must not: know instructions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tx8fast._kernels import folds as _folds
from tx8fast._kernels._checks import Ints, check_status, int_array, require

KERNEL = "folds"


def find_folds(
    ids: npt.NDArray[np.int32],
    ddr: Ints,
    level: Ints,
    free: npt.NDArray[np.bool_],
    periods: Sequence[int],
    min_repeats: int,
    min_saving: int,
) -> list[tuple[int, int, int]]:
    """Return disjoint (first row, period, repeats), in the order in which they are found: shorter periods that come first in `periods` win.

    ids (n,): equal for rows that differ in their offset `ddr` (n,) alone; level (n,): loops around each row; free (n,): rows that may be
    folded. A fold has at least `min_repeats` repeats, saves at least `min_saving` rows and begins at a whole item: a row outside
    all loops that is not the end of one."""
    ids = np.ascontiguousarray(ids, np.int32)
    ddr, level, distances = (
        int_array(KERNEL, "ddr", ddr),
        int_array(KERNEL, "level", level),
        int_array(KERNEL, "periods", list(periods)) if periods else np.zeros(0, np.int64),
    )
    require(
        KERNEL, ids.ndim == 1 and len(ids) == len(ddr) == len(level) == len(free), "columns of rows differ in length"
    )
    require(
        KERNEL, bool((distances > 0).all()) and min_repeats > 1 and min_saving >= 0, "periods or repeats out of range"
    )
    if not len(ids):
        return []
    out, count = np.zeros((len(ids), 3), np.int64), np.zeros(1, np.int64)
    open_rows = np.array(free, np.uint8)
    check_status(KERNEL, _folds.folds(ids, ddr, level, open_rows, distances, min_repeats, min_saving, out, count))
    return [(a, b, c) for a, b, c in out[: int(count[0])].tolist()]
