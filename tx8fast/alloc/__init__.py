"""Placement of buffers in scratchpad and DDR: problem, solver, bound, independent validator, files.

May import: `machine`, `_kernels`, `errors`, numpy. Must not: know ops, graphs or schedules.
"""

from tx8fast.alloc.ddr import allocate_ddr, pack_banks
from tx8fast.alloc.lower_bound import lower_bound_bytes
from tx8fast.alloc.problem import Buffer, Placement, Problem, merge_intervals
from tx8fast.alloc.solve import solve
from tx8fast.alloc.validate import find_violations, validate

__all__ = [
    "Buffer",
    "Placement",
    "Problem",
    "allocate_ddr",
    "find_violations",
    "lower_bound_bytes",
    "merge_intervals",
    "pack_banks",
    "solve",
    "validate",
]
