"""The door to rows of a tile that run at the same time.

May import: numpy, the checks and the compiled module beside it. Must not: know engines, banks or machines.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tx8fast._kernels import overlaps as _overlaps
from tx8fast._kernels._checks import Ints, check_status, int_array, require
from tx8fast.records import dataclass

KERNEL = "overlaps"
OUTPUT_TOO_SMALL = 1
LARGEST = 1 << 61  # of a time; sums of the kernel stay within 64 bits
FEW = 1 << 10  # sets that there is room for at first


@dataclass(frozen=True)
class Overlaps:
    """knots (k,): cycles at which a row of a lane begins or ends; from knot i to the next one the rows of set state[i] run,
    state (k - 1,); sets (n_sets, lanes): the form of the row that each lane has, -1 = none."""

    knots: Ints
    state: npt.NDArray[np.int32]
    sets: npt.NDArray[np.int32]


def number_pairs(a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> tuple[Ints, Ints]:
    """Return where the distinct pairs a[i], b[i] first stand, in that order, and which of them each pair (n,) is."""
    a, b = int_array(KERNEL, "a", a), int_array(KERNEL, "b", b)
    require(KERNEL, len(a) == len(b), "columns of pairs differ in length")
    first, which = np.empty(len(a), np.int64), np.empty(len(a), np.int64)
    status, found = _overlaps.number(a, b, first, which)
    check_status(KERNEL, status)
    return first[:found].copy(), which


def overlapping(
    start: Ints, end: Ints, lane: npt.NDArray[np.int32], form: npt.NDArray[np.int32], lanes: int
) -> Overlaps:
    """Return which rows run at the same time. start, end (n,): cycles; lane (n,): -1 = in none; rows that take no time are in none
    either. Rows of a lane come in the order of their starts, one after the other. form (n,): what rows are alike in."""
    start, end = int_array(KERNEL, "start", start), int_array(KERNEL, "end", end)
    lane, form = np.ascontiguousarray(lane, np.int32), np.ascontiguousarray(form, np.int32)
    n = len(start)
    require(KERNEL, len(end) == len(lane) == len(form) == n, "columns of rows differ in length")
    require(KERNEL, lanes > 0 and lane.min(initial=-1) >= -1 and lane.max(initial=-1) < lanes, "lane out of range")
    require(KERNEL, start.min(initial=0) >= 0 and end.max(initial=0) < LARGEST, "time out of range")
    require(KERNEL, form.min(initial=0) >= 0, "form out of range")
    knots, state, room = np.empty(2 * n + 1, np.int64), np.empty(2 * n + 1, np.int32), FEW
    while True:
        sets = np.empty((room, lanes), np.int32)
        status, n_knots, n_sets = _overlaps.sets(start, end, lane, form, knots, state, sets)
        if status != OUTPUT_TOO_SMALL:
            break
        room *= 4
    check_status(KERNEL, status)
    return Overlaps(knots[:n_knots].copy(), state[: max(0, n_knots - 1)].copy(), sets[:n_sets].copy())


def stretched(
    start: Ints, lane: npt.NDArray[np.int32], work: Ints, found: Overlaps, speed: npt.NDArray[np.float64]
) -> Ints:
    """Return the cycles (n,) that rows take whose `work` (n,) cycles go on at the speed of their lane's set.

    start (n,): cycles, of rows in lanes one of the knots of `found`; lane (n,): -1 = rows that take their work. speed
    (n_sets, lanes): shares of full speed, more than 0 or, where nothing moves, 0; behind the last knot it is 1.
    """
    start, work = int_array(KERNEL, "start", start), int_array(KERNEL, "work", work)
    lane = np.ascontiguousarray(lane, np.int32)
    speed = np.ascontiguousarray(speed, np.float64)
    n, lanes = len(start), found.sets.shape[1]
    require(KERNEL, len(lane) == len(work) == n, "columns of rows differ in length")
    require(KERNEL, speed.shape == found.sets.shape, "speed is not (n_sets, lanes)")
    require(KERNEL, lane.min(initial=-1) >= -1 and lane.max(initial=-1) < lanes, "lane out of range")
    require(KERNEL, bool((speed >= 0).all()) and work.min(initial=0) >= 0, "speed or work below 0")
    inside = lane >= 0
    own, knots = start[inside], found.knots
    within = not len(own) or (len(knots) > 0 and own.min() >= knots[0] and own.max() <= knots[-1])
    require(KERNEL, within, "a row starts before the first knot or behind the last one")
    out = work.copy()
    status = _overlaps.stretch(start, lane, work, found.knots, found.state, speed, np.empty(len(found.knots)), out)
    check_status(KERNEL, status)
    return out
