"""Dense SPM runs as arrays: loads to f32, rounded stores, scalars and packed bits.

May import: numpy, numerics, isa.base. Must not: know any particular instruction.
Source: TX8 hardware manual 6.1-6.3: operands widen exactly to f32, results round once more.
"""

from __future__ import annotations

import numpy as np

from tx8fast.isa.base import dtype_of
from tx8fast.numerics.formats import (
    CODE_TO_DTYPE,
    float_to_int,
    mask_tf32,
    pack_bits,
    round_f32,
    unpack_bits,
)

_F32, _TF32 = 5, 6
_INT_CODES = frozenset({0, 1, 4, 8, 9, 10, 11, 12})


def raw(spm: np.ndarray, addr: int, n: int, fmt: int) -> np.ndarray:
    """Return a view of `n` elements of format `fmt` at SPM byte `addr`."""
    dt = dtype_of(fmt)
    return spm[addr : addr + n * dt.itemsize].view(dt)


def load(spm: np.ndarray, addr: int, n: int, fmt: int) -> np.ndarray:
    """Return `n` elements: floats as f32 (a view when stored so), integers as they are."""
    x = raw(spm, addr, n, fmt)
    if fmt == _F32 or fmt in _INT_CODES:
        return x
    return mask_tf32(x) if fmt == _TF32 else x.astype(np.float32)


def store(state, addr: int, x: np.ndarray, fmt: int, rnd: int = 0) -> None:
    """Round `x` to format `fmt` under mode `rnd` and write it at SPM byte `addr`."""
    dst = raw(state.spm, addr, len(x), fmt)
    if fmt in _INT_CODES and x.dtype.kind == "f":
        x = float_to_int(x, CODE_TO_DTYPE[fmt], rnd, state.seed())
    elif fmt == _TF32 or (rnd and fmt != _F32 and x.dtype.kind == "f"):
        x = round_f32(x, CODE_TO_DTYPE[fmt], rnd, state.seed() if rnd == 4 else 0)
    dst[...] = x


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


def load_bits(spm: np.ndarray, addr: int, n: int) -> np.ndarray:
    """Return `n` truth values of a packed bit vector."""
    return unpack_bits(spm[addr : addr + (n + 7) // 8], n)


def store_bits(spm: np.ndarray, addr: int, bits: np.ndarray) -> None:
    """Write packed truth values; bits of the last byte beyond the count stay unchanged."""
    n = len(bits)
    packed = pack_bits(bits)
    if n % 8:
        keep = 0xFF << (n % 8) & 0xFF
        packed[-1] |= spm[addr + n // 8] & keep
    spm[addr : addr + len(packed)] = packed
