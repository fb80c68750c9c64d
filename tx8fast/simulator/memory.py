"""The chip's memories as byte arrays with bounds: one DDR, one scratchpad per tile.

May import: numpy, machine, errors. Must not: know programs or instructions.
"""

from __future__ import annotations

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.machine import DDR_BASE

#: a quiet NaN in every float format, and an implausible integer
POISON = 0xFF


class Ddr:
    """`size_bytes` of DDR from DDR_BASE on; pages are only taken when they are first written."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.data = np.zeros(max(size_bytes, 1), np.uint8)

    @property
    def end(self) -> int:
        """First byte address behind the memory."""
        return DDR_BASE + self.size_bytes

    def view(self, addr: int, nbytes: int) -> np.ndarray:
        """Return the bytes [addr, addr + nbytes) as a writable u8 view. Raises SimulationError if outside."""
        at = addr - DDR_BASE
        if at < 0 or nbytes < 0 or at + nbytes > self.size_bytes:
            raise SimulationError(
                f"accessing DDR: found bytes [{addr:#x}, {addr + nbytes:#x}), required within "
                f"[{DDR_BASE:#x}, {self.end:#x})"
            )
        return self.data[at : at + nbytes]

    def strided(self, addr: int, shape, strides, dtype: np.dtype) -> np.ndarray:
        """Return a writable array view at byte `addr`; strides in bytes, >= 0."""
        last = sum((n - 1) * s for n, s in zip(shape, strides)) if all(shape) else -dtype.itemsize
        window = self.view(addr, last + dtype.itemsize)
        return np.ndarray(tuple(shape), dtype, window, 0, tuple(strides))


def new_spm(machine) -> np.ndarray:
    """Return a zeroed scratchpad (u8)."""
    return np.zeros(machine.tile.spm_bytes, np.uint8)
