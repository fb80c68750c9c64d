"""Post-processing of the matrix engine: the float path and the INT8 path.

May import: numpy. Must not: know memory or layouts.
Source: TX8 hardware manual 12.3, 12.4. The INT8 parameters travel in one integer field.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_LEAK = np.float32(0.01)
RELU, LEAKY_RELU = 1, 2


class Quant(NamedTuple):
    """`enabled`: run the INT8 path; shifts q0, q1 in 0..31; zero points of left, right and result."""

    enabled: bool
    q0: int
    q1: int
    zp_left: int
    zp_right: int
    zp_out: int


_NONE = Quant(False, 0, 0, 0, 0, 0)


def pack_quant(*, enabled: bool = True, q0=0, q1=0, zp_left=0, zp_right=0, zp_out=0) -> int:
    """Return the `quant` field: bit 0 enable, q0 and q1 5 bits each, three zero points 12 bits signed."""
    if not (0 <= q0 < 32 and 0 <= q1 < 32):
        raise ValueError(f"quantisation shifts q0 {q0}, q1 {q1}: required 0..31")
    word = int(enabled) | q0 << 1 | q1 << 6
    for k, zero in enumerate((zp_left, zp_right, zp_out)):
        if not -2048 <= zero < 2048:
            raise ValueError(f"zero point {zero}: required -2048..2047")
        word |= (zero & 0xFFF) << (11 + 12 * k)
    return word


def unpack_quant(word: int) -> Quant:
    """Return the parameters of a `quant` field; 0 means none."""
    if not word:
        return _NONE
    zeros = []
    for k in range(3):
        z = word >> (11 + 12 * k) & 0xFFF
        zeros.append(z - 4096 if z >= 2048 else z)
    return Quant(bool(word & 1), word >> 1 & 31, word >> 6 & 31, *zeros)


def quantised(acc: np.ndarray, scale: np.ndarray | None, q: Quant) -> np.ndarray:
    """Return int8 results of int32 sums `acc` (..., c) with per-channel 16-bit factors `scale` (c,)."""
    o16 = np.clip(acc.astype(np.int64) >> q.q1, -32768, 32767)
    factor = 1 if scale is None else scale.astype(np.int64)
    o9 = np.clip((o16 * factor) >> q.q0, -256, 255)
    return np.clip(o9 + q.zp_out, -128, 127).astype(np.int8)


def postprocess(acc, bias, scale_p, scale_n, act: int, enabled: bool) -> np.ndarray:
    """Return bias, scale by sign and activation applied to `acc` (..., c); int32 stays exact if nothing applies."""
    plain = bias is None and scale_p is None and scale_n is None and not act
    if plain or not enabled:
        return acc
    z = acc.astype(np.float32)
    if bias is not None:
        z = z + bias
    if scale_p is not None or scale_n is not None:
        one = np.float32(1)
        z = z * np.where(z >= 0, one if scale_p is None else scale_p, one if scale_n is None else scale_n)
    if act == RELU:
        z = np.maximum(z, np.float32(0))
    elif act == LEAKY_RELU:
        z = np.where(z < 0, z * _LEAK, z)
    return z
