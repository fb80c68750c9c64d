"""What every door to a kernel needs: argument checks, and the exception of each status code.

May import: `errors`, numpy. Must not: import a compiled module.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tx8fast.errors import InfeasibleError, InternalError, SimulationError

Ints = npt.NDArray[np.int64]

# Meaning of every code in _status.pxd except OK; a test keeps both lists equal.
STATUS_ERRORS: dict[int, tuple[type[Exception], str]] = {
    1: (InternalError, "an output array is too small"),
    2: (InternalError, "an argument is out of range"),
    3: (MemoryError, "scratch memory could not be allocated"),
    4: (SimulationError, "work is left that waits for something that never happens"),
    5: (InfeasibleError, "the work budget of the search is used up"),
    6: (InfeasibleError, "no solution exists"),
}


def check_status(kernel: str, status: int) -> None:
    """Raise the exception that belongs to `status`; an unknown code is a defect of ours."""
    if status == 0:
        return
    kind, text = STATUS_ERRORS.get(status, (InternalError, f"unknown status {status}"))
    raise kind(f"kernel {kernel}: {text}")


def int_array(kernel: str, name: str, values: npt.ArrayLike, ndim: int = 1) -> Ints:
    """Return `values` as a C-contiguous int64 array of `ndim` dimensions; floats are refused."""
    array = np.asarray(values)
    if array.dtype == np.int64 and array.ndim == ndim and array.flags.c_contiguous:  # nearly always
        return array
    if array.size and array.dtype.kind not in "iub":
        raise InternalError(f"kernel {kernel}: {name} has dtype {array.dtype}, integers required")
    if array.ndim != ndim:
        raise InternalError(f"kernel {kernel}: {name} has {array.ndim} dimensions, {ndim} required")
    return np.ascontiguousarray(array, dtype=np.int64)


def require(kernel: str, ok: bool | np.bool_, text: str) -> None:
    """Raise InternalError unless `ok`: the caller broke the contract of a kernel."""
    if not ok:
        raise InternalError(f"kernel {kernel}: {text}")
