"""The door to slack bubbling: transfers move to time steps with room to spare.

May import: numpy, the checks and the compiled module beside it. Must not: know instructions.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tx8fast._kernels import time_steps as _kernel
from tx8fast._kernels._checks import Ints, check_status, int_array, require


def bubble(cycles: npt.ArrayLike, limit: npt.ArrayLike, step: npt.ArrayLike, computed: npt.ArrayLike) -> Ints:
    """Return the steps of transfers (n,) so that the sum of the steps' lengths is not longer, mostly shorter, than it was.

    A step is as long as its transfers take in turn, or what it computes if that is longer. cycles (n,) of transfers; step (n,): where
    they are; limit (n,): the step that each may be moved to at most, before its own for a load and behind it for a store;
    computed (steps,): cycles."""
    kernel = "bubble"
    cycles_, limit_ = int_array(kernel, "cycles", cycles), int_array(kernel, "limit", limit)
    step_, slack = int_array(kernel, "step", step).copy(), int_array(kernel, "computed", computed).copy()
    n, steps = len(cycles_), len(slack)
    require(kernel, len(limit_) == len(step_) == n, f"{len(limit_)} limits and {len(step_)} steps for {n} transfers")
    inside = n == 0 or (0 <= min(limit_.min(), step_.min()) and max(limit_.max(), step_.max()) < steps)
    require(kernel, inside, "a step out of range")
    require(kernel, n == 0 or cycles_.min() >= 0, "negative cycles")
    np.subtract.at(slack, step_, cycles_)
    check_status(kernel, _kernel.bubble(cycles_, limit_, step_, slack))
    return step_
