"""The door to the arbitration of a scratchpad's banks.

May import: numpy, the checks and the compiled module beside it. Must not: know engines or machines.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tx8fast._kernels import banks as _banks
from tx8fast._kernels._checks import Ints, check_status, int_array, require

KERNEL = "banks"
STEPS = 32  # rates of streams are whole parts of a beat per cycle
WARM, WINDOW = 128, 256  # cycles of arbitration until the streams have settled, and from which their rate is taken
JITTER = 2  # beats that a stream without lasting conflicts may be off at the ends of the window
LARGEST = 1 << 40  # of a beat or a rate; sums and products of the kernel stay within 64 bits
MOST_BEATS = 1 << 20  # that a buffer holds


def bank_shares(
    begin: Ints, lane: Ints, beat: Ints, step: Ints, lanes: int, banks: int, per_bank: int, fifos: Sequence[int]
) -> npt.NDArray[np.float64]:
    """Return (depths, n, lanes): the share of its rate that each lane of each set of streams gets, for every depth in `fifos`.

    begin (n + 1,): streams begin[i] to begin[i + 1] are set i. lane, beat, step (n_streams,): the lane, the first
    beat's number, the rate in STEPS parts of a beat per cycle. In a cycle every bank serves one beat; beats are
    numbered through the banks, `per_bank` of them in a row in each. Lanes come in order of priority (their streams beside
    each other), and no stream of a lane gets further than a depth's beats ahead of another."""
    begin, lane = int_array(KERNEL, "begin", begin), int_array(KERNEL, "lane", lane)
    beat, step = int_array(KERNEL, "beat", beat), int_array(KERNEL, "step", step)
    require(
        KERNEL,
        len(begin) > 0 and begin[0] == 0 and begin[-1] == len(lane) and bool((np.diff(begin) >= 0).all()),
        "begin does not partition the streams",
    )
    require(KERNEL, len(lane) == len(beat) == len(step), "columns of streams differ in length")
    for values, low, top, name in ((lane, 0, lanes, "lane"), (beat, 0, LARGEST, "beat"), (step, 1, LARGEST, "step")):
        require(KERNEL, bool(((values >= low) & (values < top)).all()), f"{name} out of range")
    inside = np.ones(max(0, len(lane) - 1), bool)
    inside[begin[1:-1][(begin[1:-1] > 0) & (begin[1:-1] < len(lane))] - 1] = False
    require(KERNEL, bool((np.diff(lane)[inside] >= 0).all()), "lanes of a set are not in order")
    deep = all(0 < fifo <= MOST_BEATS for fifo in fifos)
    require(KERNEL, banks > 0 and 0 < per_bank and deep, "banks, beats or buffers out of range")
    out = np.ones((len(fifos), len(begin) - 1, lanes))
    depths = int_array(KERNEL, "fifos", sorted(fifos))
    check_status(
        KERNEL, _banks.shares(begin, lane, beat, step, banks, per_bank, depths, STEPS, WARM, WINDOW, JITTER, out)
    )
    return out[np.searchsorted(depths, np.asarray(fifos, np.int64))]
