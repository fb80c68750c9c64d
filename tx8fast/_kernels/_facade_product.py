"""The door to matrix products that give the same bits on every machine.

May import: numpy, the checks and the compiled module beside it. Must not: know instructions or formats.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tx8fast._kernels import product as _product
from tx8fast._kernels._checks import check_status, require

Singles = npt.NDArray[np.float32]

#: f64 that one vector of this machine holds; the result does not depend on it
MOST_LANES = _product.most_lanes()


def single_product(a: Singles, b: Singles, lanes: int = MOST_LANES) -> Singles:
    """Return a @ b, (m, k) by (k, n), f32: products exact, added in f64 with k ascending, rounded to f32 once.

    Any strides. lanes: 2, or `MOST_LANES`; how many columns are worked on at a time, for tests."""
    kernel = "product"
    require(kernel, a.dtype == b.dtype == np.float32, f"operands are {a.dtype} and {b.dtype}, f32 required")
    require(kernel, a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0], f"shapes {a.shape} and {b.shape} do not fit")
    require(kernel, lanes in (2, MOST_LANES), f"{lanes} lanes, 2 or {MOST_LANES} required")
    (m, k), n = a.shape, b.shape[1]
    out = np.empty((m, n), np.float32)
    left, right = np.empty((-(-m // 4) * 4, k)), np.empty((k, 2 * lanes))
    check_status(kernel, _product.product(a, b, lanes, out, left, right))
    return out
