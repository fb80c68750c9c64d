"""The door to list scheduling: which rows must follow which, and the order in which a tile issues them.

May import: numpy, the checks and the compiled module beside it. Must not: know instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tx8fast._kernels import list_schedule as _kernel
from tx8fast._kernels._checks import Ints, check_status, int_array, require

ENGINES = 5  # of a tile, each with a queue of its own
MAX_DEPTH = 16  # entries of a queue that the kernel remembers
Csr = tuple[Ints, Ints]  # row i holds entries ptr[i] .. ptr[i + 1]


def byte_dependences(read: npt.ArrayLike, write: npt.ArrayLike, at: npt.ArrayLike | None = None) -> Csr:
    """Return per row the rows before it that it must follow: after the last writer of what it reads, after the last
    writer and the readers since of what it writes. What those follow themselves is not repeated.

    read (m, r, 2), write (m, w, 2): half-open byte ranges; empty ones touch nothing. at (n,): row i has the ranges of number
    at[i]; None: row i those of number i."""
    kernel = "byte_dependences"
    read_, write_ = int_array(kernel, "read", read, 3), int_array(kernel, "write", write, 3)
    require(
        kernel, len(write_) == len(read_) and read_.shape[2] == write_.shape[2] == 2, "ranges must be (n, ranges, 2)"
    )
    which = np.arange(len(read_)) if at is None else int_array(kernel, "at", at)
    require(kernel, not which.size or 0 <= which.min() and which.max() < len(read_), "at: number out of range")
    both = np.concatenate([read_, write_], axis=1)
    both[both[..., 1] <= both[..., 0]] = 0
    ends, place = np.unique(both, return_inverse=True)
    place, n = place.reshape(both.shape)[which], len(which)
    read_, write_ = np.ascontiguousarray(place[:, : read_.shape[1]]), np.ascontiguousarray(place[:, read_.shape[1] :])
    none = np.full(len(ends), -1, np.int64)
    cells = np.zeros((int((read_[..., 1] - read_[..., 0]).sum()), 2), np.int64)
    room = 8 * n + 16
    while True:
        ptr, before = np.zeros(n + 1, np.int64), np.zeros(room, np.int64)
        status, count = _kernel.byte_dependences(read_, write_, none.copy(), none.copy(), cells, np.full(n, -1, np.int64),
                                                 ptr, before)  # fmt: skip
        if status != 1 or room > n * n:
            break
        room *= 4
    check_status(kernel, status)
    return ptr, before[:count]


def longest_paths(cycles: npt.ArrayLike, before: tuple[npt.ArrayLike, npt.ArrayLike]) -> Ints:
    """Return per row (n,) the cycles from its begin to the end of the last row that waits for it, on engines that are always free.

    cycles (n,); before: CSR, what each must follow (smaller numbers)."""
    kernel = "longest_paths"
    cycles_, ptr, rows = int_array(kernel, "cycles", cycles), *_preceding(kernel, len(np.asarray(cycles)), before)
    tail = np.zeros(len(cycles_), np.int64)
    check_status(kernel, _kernel.longest_paths(cycles_, ptr, rows, tail))
    return tail


def backwards(before: Csr) -> Csr:
    """Return what each row must follow when time runs backwards, and row i of n is number n - 1 - i. before: CSR, what each must
    follow."""
    ptr, rows = before
    n = len(ptr) - 1
    after = np.repeat(np.arange(n), np.diff(ptr))
    back = np.concatenate([[0], np.cumsum(np.bincount(n - 1 - rows, minlength=n))])
    return back, (n - 1 - after)[np.argsort(-rows, kind="stable")]


def within_reach(before: Csr, reach: int) -> Csr:
    """Return what each row must follow so that none comes before the one `reach` places in front of it. before: CSR, what each must
    follow besides."""
    ptr, rows = before
    n = len(ptr) - 1
    late = np.arange(reach, n)
    after = np.concatenate([np.repeat(np.arange(n), np.diff(ptr)), late])
    own = np.concatenate([[0], np.cumsum(np.bincount(after, minlength=n))])
    return own, np.concatenate([rows, late - reach])[np.argsort(after, kind="stable")]


def _preceding(kernel: str, n: int, before: tuple[npt.ArrayLike, npt.ArrayLike]) -> Csr:
    """Return what each of n rows must follow, checked."""
    ptr, rows = int_array(kernel, "before ptr", before[0]), int_array(kernel, "before", before[1])
    sound = len(ptr) == n + 1 and ptr[0] == 0 and ptr[-1] == len(rows) and bool((np.diff(ptr) >= 0).all())
    require(kernel, sound, "before: ptr does not partition the entries")
    owner = np.repeat(np.arange(n, dtype=np.int64), np.diff(ptr))
    require(kernel, bool(((rows >= 0) & (rows < owner)).all()), "a row follows a later one")
    return ptr, rows


@dataclass(frozen=True)
class Windows:
    """Register windows of rows (n,), and the core's cycles of a wait for one. own: a row's window, -1: `home`, which is 0 or 2, or
    the other one of these if only that needs no wait; of what the core does: the windows it waits for itself, as a mask. held: how
    many things the core is to have done before a row goes, as long as it can do them. drains: waits take in every window that will
    be over by their end, not only those that a row is known to need."""

    own: npt.ArrayLike
    home: npt.ArrayLike
    held: npt.ArrayLike
    wait_cycles: int
    drains: bool = False


def list_order(engine: npt.ArrayLike, issue: npt.ArrayLike, cycles: npt.ArrayLike, before: tuple[npt.ArrayLike, npt.ArrayLike],
               depth: Sequence[int], windows: Windows | None = None, rank: npt.ArrayLike | None = None
               ) -> tuple[Ints, Ints]:  # fmt: skip
    """Return the rows' numbers in the order in which they are issued, between them -mask for a wait for windows, and the
    window of every row (n,).

    engine, issue, cycles (n,): who runs a row (`ENGINES`: the core itself), how long the core takes to issue it and the
    engine to run it; before: CSR, what each must follow (smaller numbers); depth: entries of every engine's queue; windows:
    None: all rows have window 0, and there is nothing the core does. rank (n,), a permutation: of rows that could start at the
    same time the one of the smallest rank goes first; None: by number."""
    kernel = "list_order"
    engine_, issue_ = int_array(kernel, "engine", engine), int_array(kernel, "issue", issue)
    cycles_, depth_ = int_array(kernel, "cycles", cycles), int_array(kernel, "depth", depth)
    n, none = len(engine_), np.zeros(len(engine_), np.int64)
    w = windows or Windows(none, none, none, 0)
    own, home, held = (int_array(kernel, name, x) for name, x in (("own", w.own), ("home", w.home), ("held", w.held)))
    require(kernel, len(issue_) == len(cycles_) == n, f"{len(issue_)} issues and {len(cycles_)} cycles for {n} rows")
    require(kernel, len(own) == len(home) == len(held) == n, f"windows of {len(own)} rows for {n}")
    core = engine_ == ENGINES
    require(kernel, n == 0 or (0 <= engine_.min() and engine_.max() <= ENGINES), f"engines must be at most {ENGINES}")
    require(kernel, n == 0 or (issue_.min() >= 0 and cycles_.min() >= 0), "negative cycles")
    require(
        kernel, len(depth_) == ENGINES and 1 <= depth_.min() and depth_.max() < MAX_DEPTH, "queue depths out of range"
    )
    if windows is not None:
        known = np.where(core, (own >= 0) & (own < 8), (own >= -1) & (own <= 2)) & ((home == 0) | (home == 2))
        require(kernel, bool(known.all()), "unknown windows")
    ptr, rows = _preceding(kernel, n, before)
    rank_ = numbers = np.arange(n)
    if rank is not None:
        rank_ = int_array(kernel, "rank", rank)
        inside = len(rank_) == n and (n == 0 or 0 <= rank_.min() and rank_.max() < n)
        require(kernel, inside and bool((np.bincount(rank_, minlength=n) == 1).all()), "ranks must be a permutation")
        rank_ = np.where(core, numbers, rank_)  # the core's own steps keep their order
    order, worker = np.zeros(2 * n, np.int64), np.zeros(n, np.int64)
    status, count = _kernel.list_order(
        engine_, issue_, cycles_, own, home, held, ptr, rows, rank_, depth_, w.wait_cycles, w.drains, order, worker
    )
    check_status(kernel, status)
    return order[:count], worker
