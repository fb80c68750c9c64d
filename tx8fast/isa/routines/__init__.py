"""The routines of the kernel core: C functions of the run-time library that do what no engine does.

May import: isa.routines, errors, numerics.formats. Must not: execute a routine: `host/csrc/routine_*.c` does, `numerics/routines` is
its oracle. Importing this module completes the registry.
"""

from tx8fast.isa.routines import values  # isort: skip - numbers follow the order of declarations
from tx8fast.isa.routines import images, moves, products, rows

from tx8fast.isa.routines import maps  # isort: skip
from tx8fast.isa.routines.base import (
    BY_CODE,
    CALLS_VERSION,
    ROUTINES,
    WHY,
    Call,
    Operand,
    Routine,
    call_of,
    words_of,
    work_of,
)
from tx8fast.isa.work import WORK, Work

__all__ = [
    "BY_CODE",
    "CALLS_VERSION",
    "ROUTINES",
    "WHY",
    "WORK",
    "Call",
    "Operand",
    "Routine",
    "Work",
    "call_of",
    "words_of",
    "work_of",
]
_FAMILIES = (values, moves, rows, products, images, maps)
