"""Parameters of the matrix engine's INT8 path, which travel in one integer field.

May import: nothing. Must not: know memory or layouts.
Source: TX8 hardware manual 12.4.
"""

from __future__ import annotations

from typing import NamedTuple


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
