"""The door to the count of DDR pages.

May import: numpy, the checks and the compiled module beside it. Must not: know instructions or machines.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tx8fast._kernels import pages as _pages
from tx8fast._kernels._checks import Ints, check_status, int_array, require


def extra_pages(start: npt.ArrayLike, runs: npt.ArrayLike, page: int) -> Ints:
    """Return the page openings charged to each transfer (n,), exactly as the manual counts them.

    start (n,): byte address of the first run; runs (n, 7): bytes of a run, then byte stride and count of every level,
    innermost first; page: bytes. Per run: pages touched beyond ceil(size / page). Between consecutive runs: one
    if the next starts in another page than the previous ended in. Source: TX8 hardware manual 16.4.
    """
    kernel = "pages"
    start_, runs_ = int_array(kernel, "start", start), int_array(kernel, "runs", runs, 2)
    require(kernel, runs_.shape == (len(start_), 7), "runs are not (n, 7)")
    require(kernel, page >= 1, f"a page has {page} bytes, at least 1 required")
    out = np.empty(len(start_), np.int64)
    check_status(kernel, _pages.extra_pages(start_, runs_, page, out))
    return out
