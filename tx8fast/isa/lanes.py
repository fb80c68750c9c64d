"""Scalar operands: values to raw patterns and back.

May import: numpy, numerics, isa.base. Must not: know any particular instruction.
Source: TX8 hardware manual 6.1-6.3: operands widen exactly to f32, results round once more.
"""

from __future__ import annotations

import numpy as np

from tx8fast.isa.base import dtype_of
from tx8fast.numerics.formats import (
    CODE_TO_DTYPE,
    mask_tf32,
    round_f32,
)

_F32, _TF32 = 5, 6
_INT_CODES = frozenset({0, 1, 4, 8, 9, 10, 11, 12})


def scalar(pattern: int, fmt: int):
    """Return the value of a raw scalar pattern (low bits) in format `fmt`, floats as f32."""
    dt = dtype_of(fmt)
    value = np.array([pattern & 0xFFFFFFFF], np.uint32).view(np.uint8)[: dt.itemsize].view(dt)
    if fmt in _INT_CODES:
        return value[0]
    value = value.astype(np.float32)
    return (mask_tf32(value) if fmt == _TF32 else value)[0]


def scalar_pattern(value: float, fmt: int) -> int:
    """Return the raw pattern (unsigned, at most 32 bits) of `value` rounded to format `fmt`."""
    stored = np.asarray(round_f32(np.array([value], np.float32), CODE_TO_DTYPE[fmt]))
    return int.from_bytes(stored.tobytes(), "little")
