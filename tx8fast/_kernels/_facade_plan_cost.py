"""The door to the candidate pricing kernel.

May import: numpy, the checks and the compiled module beside it. Must not: know ops or machines.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tx8fast._kernels import plan_cost as _plan_cost
from tx8fast._kernels._checks import check_status, require
from tx8fast.records import dataclass

Array = npt.NDArray[Any]
#: order of the scalars in the kernel's `machine` argument
MACHINE_KEYS = (
    "total_bw",
    "port",
    "load_startup",
    "store_startup",
    "run_overhead",
    "page_penalty",
    "page",
    "ne_startup",
    "lanes",
    "passes",
    "ct_startup",
    "issue_compute",
    "issue_dma",
    "share_min",
    "exchange",
    "link_bytes",
)
MAX_FACTORS = 16
MAX_DIMS = 16
BOUNDS = ("matrix", "vector", "load", "store", "ddr", "issue", "noc")


@dataclass(frozen=True)
class PlanSpace:
    """One op's loop space as arrays. size, unit, reduce, role: (n_factors,); store .. block: (n_access,);
    dim_* CSR by access; term_* CSR by dimension; bytes, elements and cycles throughout."""

    size: Array
    unit: Array
    reduce: Array
    role: Array
    store: Array
    item: Array
    blocked: Array
    share: Array
    local_blocked: Array
    block: Array
    dim_ptr: Array
    dim_size: Array
    dim_reach: Array
    dim_full: Array
    term_ptr: Array
    term_fac: Array
    term_coef: Array
    machine: dict[str, float]
    bufs: int
    shared_bufs: int
    is_matrix: bool
    per_point: float
    scratch_per_point: float


def plan_costs(space: PlanSpace, parts: Array, slices: Array, inner: Array) -> tuple[Array, Array, Array]:
    """Return cycles (n,) float64, scratchpad bytes (n,) int64 and bound (n,) index into BOUNDS.

    parts, slices: (n, n_factors) int64 C-contiguous; inner: (n,) int64 index of the innermost parallel factor."""
    kernel = "plan_cost"
    nf = len(space.size)
    require(kernel, nf <= MAX_FACTORS, f"{nf} factors, at most {MAX_FACTORS} supported")
    require(kernel, parts.shape == slices.shape == (len(inner), nf), "candidate arrays differ in shape")
    require(
        kernel,
        not parts.size or int(min(parts.min(), slices.min())) >= 1,
        "parts and slices must be >= 1",
    )
    require(kernel, not len(inner) or -1 <= inner.min() <= inner.max() < nf, "inner factor out of range")
    widths = np.diff(space.dim_ptr)
    require(kernel, not len(widths) or int(widths.max()) <= MAX_DIMS, "too many dimensions")
    cycles = np.empty(len(inner), np.float64)
    size_bytes = np.empty(len(inner), np.int64)
    bound = np.empty(len(inner), np.int64)
    scalars = np.array([space.machine[k] for k in MACHINE_KEYS], np.float64)
    status = _plan_cost.plan_cost(
        space.size,
        space.unit,
        space.reduce,
        space.role,
        space.store,
        space.item,
        space.blocked,
        space.share,
        space.local_blocked,
        space.block,
        space.dim_ptr,
        space.dim_size,
        space.dim_reach,
        space.dim_full,
        space.term_ptr,
        space.term_fac,
        space.term_coef,
        scalars,
        space.bufs,
        space.shared_bufs,
        space.is_matrix,
        space.per_point,
        space.scratch_per_point,
        parts,
        slices,
        inner,
        cycles,
        size_bytes,
        bound,
    )
    check_status(kernel, status)
    return cycles, size_bytes, bound
