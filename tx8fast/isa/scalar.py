"""The scalar unit of the instruction controller: one function of one value, into a result register.

May import: numpy, isa.base, isa.functions, isa.lanes, isa.vector (cost). Must not: touch memory.
Source: TX8 hardware manual 2, 8.1. The published runtime has no caller for it, and the compiler does not emit it. The
manual gives no cost: a vector row of one element is assumed. The result goes to `state.wb` = (value pattern, 0).
"""

from __future__ import annotations

import numpy as np

from tx8fast.isa import functions as fn
from tx8fast.isa.base import COMPUTED, FORMAT_BYTES, Instruction, declare
from tx8fast.isa.vector import FACTOR_KINDS, ct_time, factors

FIRST = 0x580
NAMES = ("recip", "sqrt", "sin", "cos", "log2", "pow2")
_FACTOR = {name: FACTOR_KINDS.index(factor) for _, name, factor in fn.UNARY}


class Scalar(Instruction):
    """Apply a function to `value`, the raw pattern of a number in the instruction's format (low bits)."""

    UNIT = "scalar"
    FORMATS = COMPUTED
    REGS = 3  # control word, value, destination
    FIELDS_P = ("value",)

    @staticmethod
    def cycles(machine, r):
        kind = np.array([_FACTOR[name] for name in NAMES])[r["opcode"] - FIRST]
        return ct_time(machine, FORMAT_BYTES[r["fmt"]] * factors(machine)[kind], False)


for _k, _name in enumerate(NAMES):
    declare(Scalar, FIRST + _k, f"scalar_{_name}")
