"""The door to list scheduling: which rows must follow which, and the order in which a tile issues them.

May import: numpy, the checks and the compiled modules beside it. Must not: know instructions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tx8fast._kernels import dependences as _dependences
from tx8fast._kernels import list_schedule as _kernel
from tx8fast._kernels._checks import Ints, check_status, int_array, require
from tx8fast.records import dataclass

ENGINES = 5  # of a tile, each with a queue of its own
MAX_DEPTH = 16  # entries of a queue that the kernel remembers
#: what is wrong with an argument, by the kernel's negative status
UNSOUND = (
    "",
    "before: ptr does not partition the entries",
    "a row follows a later one",
    f"engines must be at most {ENGINES}",
    "negative cycles",
    f"queue depths out of range 1 to {MAX_DEPTH - 1}",
    "unknown windows",
    "ranks must be a permutation",
)
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
    some = np.flatnonzero(both)  # most ranges are empty
    ends, place = np.unique(both.ravel()[some], return_inverse=True)
    touched = np.zeros(both.shape, np.int64)
    touched.ravel()[some] = place + 1
    n, n_read = len(which), read_.shape[1]
    none = np.full(len(ends) + 1, -1, np.int64)
    reads = (touched[:, :n_read, 1] - touched[:, :n_read, 0]).sum(axis=1)
    cells = np.empty((int(reads[which].sum()), 2), np.int64)
    room = 8 * n + 16
    while True:
        ptr, before = np.zeros(n + 1, np.int64), np.empty(room, np.int64)
        status, count = _dependences.byte_dependences(
            touched, n_read, which, none.copy(), none.copy(), cells, np.full(n, -1, np.int64), ptr, before
        )
        if status != 1 or room > n * n:
            break
        room *= 4
    check_status(kernel, status)
    return ptr, before[:count]


def longest_paths(cycles: npt.ArrayLike, before: tuple[npt.ArrayLike, npt.ArrayLike]) -> Ints:
    """Return per row (n,) the cycles from its begin to the end of the last row that waits for it, on engines that are always free.

    cycles (n,); before: CSR, what each must follow (smaller numbers)."""
    kernel = "longest_paths"
    cycles_ = int_array(kernel, "cycles", cycles)
    ptr, rows = int_array(kernel, "before ptr", before[0]), int_array(kernel, "before", before[1])
    tail = np.zeros(len(cycles_), np.int64)
    _check(kernel, _dependences.longest_paths(cycles_, ptr, rows, tail))
    return tail


def within_reach(before: Csr, reach: int) -> Csr:
    """Return what each row must follow so that none comes before the one `reach` places in front of it. before: CSR, what each must
    follow besides."""
    ptr, rows = before
    n = len(ptr) - 1
    late = np.arange(reach, n)
    after = np.concatenate([np.repeat(np.arange(n), np.diff(ptr)), late])
    own = np.concatenate([[0], np.cumsum(np.bincount(after, minlength=n))])
    return own, np.concatenate([rows, late - reach])[np.argsort(after, kind="stable")]


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


def list_order(
    engine: npt.ArrayLike,
    issue: npt.ArrayLike,
    cycles: npt.ArrayLike,
    before: tuple[npt.ArrayLike, npt.ArrayLike],
    depth: Sequence[int],
    windows: Windows | None = None,
    rank: npt.ArrayLike | None = None,
) -> tuple[Ints, Ints]:
    """Return the rows' numbers in the order in which they are issued, between them -mask for a wait for windows, and the
    window of every row (n,).

    engine, issue, cycles (n,): who runs a row (`ENGINES`: the core itself), how long the core takes to issue it and the
    engine to run it, or, of what the core does itself, until the next thing that it does may begin; before: CSR, what each must follow (smaller numbers); depth: entries of every engine's queue; windows:
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
    rank_ = np.arange(n) if rank is None else int_array(kernel, "rank", rank)
    ptr, rows = int_array(kernel, "before ptr", before[0]), int_array(kernel, "before", before[1])
    order, worker = np.empty(2 * n, np.int64), np.zeros(n, np.int64)
    status, count = _kernel.list_order(
        engine_, issue_, cycles_, own, home, held, ptr, rows, rank_, depth_, w.wait_cycles, w.drains, order, worker
    )
    _check(kernel, status)
    return order[:count], worker


def improved(
    engine: npt.ArrayLike,
    issue: npt.ArrayLike,
    cycles: npt.ArrayLike,
    before: tuple[npt.ArrayLike, npt.ArrayLike],
    first: npt.ArrayLike,
    depth: Sequence[int],
) -> Ints:
    """Return the rank (n,) of every row for an order better than `first` (n,), one of all rows: rows are ordered backwards from its
    end, what went last first, and ranked by the begins found. Arguments as for `list_order`; no row is the core's."""
    kernel = "improved"
    engine_, issue_ = int_array(kernel, "engine", engine), int_array(kernel, "issue", issue)
    cycles_, depth_ = int_array(kernel, "cycles", cycles), int_array(kernel, "depth", depth)
    ptr, rows = int_array(kernel, "before ptr", before[0]), int_array(kernel, "before", before[1])
    rank = np.empty(len(engine_), np.int64)
    first_ = int_array(kernel, "first", first)
    _check(kernel, _kernel.improved_ranks(engine_, issue_, cycles_, ptr, rows, first_, depth_, rank))
    return rank


def _check(kernel: str, status: int) -> None:
    require(kernel, status >= 0, UNSOUND[-min(status, 0)])
    check_status(kernel, status)
