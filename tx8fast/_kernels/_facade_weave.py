"""The door to the order of instructions.

May import: numpy, the checks and the compiled module beside it. Must not: know instructions.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tx8fast._kernels import weave as _weave
from tx8fast._kernels._checks import Ints, check_status, int_array, require

Csr = tuple[Ints, Ints]  # row i holds entries ptr[i] .. ptr[i + 1]


def depends(read: npt.ArrayLike, write: npt.ArrayLike, reach: int) -> Csr:
    """Return per instruction those at most `reach` places before it that it must follow, ascending.

    read (n, r, 2), write (n, w, 2): half-open byte ranges; empty ones share bytes with none."""
    kernel = "depends"
    read_, write_ = int_array(kernel, "read", read, 3), int_array(kernel, "write", write, 3)
    n = len(read_)
    require(kernel, len(write_) == n and read_.shape[2] == write_.shape[2] == 2, "ranges must be (n, ranges, 2)")
    require(kernel, reach >= 0, "negative reach")
    ptr, before = np.zeros(n + 1, np.int64), np.zeros(n * min(reach, max(n - 1, 0)), np.int64)
    status, count = _weave.depends(read_, write_, reach, ptr, before)
    check_status(kernel, status)
    return ptr, before[:count].copy()


def weave_rows(
    engine: npt.ArrayLike,
    cycles: npt.ArrayLike,
    before: tuple[npt.ArrayLike, npt.ArrayLike],
    touches: tuple[npt.ArrayLike, npt.ArrayLike],
    size_bytes: npt.ArrayLike,
    reach: int,
    budget_bytes: int,
) -> Ints:
    """Return the instructions' numbers in the order in which no engine waits while there is work for it.

    Of those that may come next, the one that starts first; the older one on ties. One comes at most `reach` places before the
    oldest that is left, and only if the older ones can still have their buffers within `budget_bytes`. engine, cycles (n,):
    who runs it and for how long; before, touches: CSR, what each must follow (smaller numbers) and which buffers it
    touches (none twice); size_bytes: of every buffer, in use from the first to the last that touches it."""
    kernel = "weave"
    engine_, cycles_ = int_array(kernel, "engine", engine), int_array(kernel, "cycles", cycles)
    size = int_array(kernel, "size_bytes", size_bytes)
    n = len(engine_)
    ptr, row = _csr(kernel, "before", before, n, n)
    touch_ptr, touch = _csr(kernel, "touches", touches, n, len(size))
    require(kernel, len(cycles_) == n, f"{len(cycles_)} cycles for {n} instructions")
    require(kernel, n == 0 or (engine_.min() >= 0 and cycles_.min() >= 0), "negative engine or cycles")
    require(kernel, not size.size or size.min() >= 0, "negative size")
    require(kernel, reach >= 1, "a reach below 1")
    owner = np.repeat(np.arange(n, dtype=np.int64), np.diff(ptr))
    require(kernel, bool((row < owner).all()), "an instruction follows a later one")
    after = owner[np.argsort(row, kind="stable")]
    after_ptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))]).astype(np.int64)
    order = np.zeros(n, np.int64)
    engines = np.zeros(int(engine_.max(initial=0)) + 1, np.int64)
    status = _weave.weave(engine_, cycles_, ptr, row, after_ptr, after, touch_ptr, touch, size, reach, budget_bytes, order,
                          np.zeros((3, n), np.int64), engines, np.zeros(n, np.int64),
                          np.zeros((5, len(size)), np.int64))  # fmt: skip
    check_status(kernel, status)
    return order


def _csr(kernel: str, name: str, csr: tuple[npt.ArrayLike, npt.ArrayLike], n: int, limit: int) -> Csr:
    ptr, values = int_array(kernel, f"{name} ptr", csr[0]), int_array(kernel, name, csr[1])
    require(kernel, len(ptr) == n + 1, f"{name}: {len(ptr)} entries of ptr, {n + 1} required")
    sound = ptr[0] == 0 and ptr[-1] == len(values) and bool((np.diff(ptr) >= 0).all())
    require(kernel, sound, f"{name}: ptr does not partition the entries")
    require(kernel, not values.size or (values.min() >= 0 and values.max() < limit), f"{name}: entry out of range")
    return ptr, values
