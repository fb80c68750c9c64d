"""The door to conversions to 16-bit floats.

May import: numpy, the checks and the compiled module beside it. Must not: know instructions or layouts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tx8fast._kernels import shorts as _shorts
from tx8fast._kernels._checks import check_status, require

Shorts = npt.NDArray[np.uint16]

WIDE = _shorts.has_wide()


def f16_of_f32(x: npt.NDArray[np.float32], wide: bool = WIDE) -> npt.NDArray[np.float16]:
    """Return `x` (C-contiguous) rounded to f16: to nearest, ties to even, a NaN with the high bits of its payload.

    wide: with the wider vectors of this machine, for tests; the result does not depend on it."""
    kernel = "shorts"
    require(kernel, x.dtype == np.float32 and x.flags.c_contiguous, f"operand is {x.dtype}, contiguous f32 required")
    require(kernel, WIDE or not wide, "this machine has no wider vectors")
    out = np.empty(x.shape, np.uint16)
    check_status(kernel, _shorts.halves(x.reshape(-1).view(np.uint32), wide, out.reshape(-1)))
    return out.view(np.float16)


def looked_up(x: Shorts, table: Shorts) -> Shorts:
    """Return `table[x]`: `x` u16, C-contiguous, of any shape; `table` (65536,) u16."""
    kernel = "shorts"
    require(kernel, x.dtype == table.dtype == np.uint16, f"operands are {x.dtype} and {table.dtype}, u16 required")
    require(kernel, x.flags.c_contiguous and table.flags.c_contiguous, "operands are not contiguous")
    require(kernel, table.shape == (1 << 16,), f"the table is {table.shape}, (65536,) required")
    out = np.empty(x.shape, np.uint16)
    check_status(kernel, _shorts.looked_up(x.reshape(-1), table, out.reshape(-1)))
    return out
