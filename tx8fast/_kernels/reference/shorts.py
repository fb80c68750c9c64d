"""Readable twin of conversions to 16-bit floats.

May import: struct, math. Must not: be fast, share code with the kernel.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence


def halves(x: Sequence[int]) -> list[int]:
    """Return the patterns of f16 nearest to values of f32 given as patterns, ties to even."""
    out = []
    for bits in x:
        (value,) = struct.unpack("<f", struct.pack("<I", bits))
        sign, payload = bits >> 31 << 15, bits >> 13 & 0x3FF
        if math.isnan(value):
            out.append(sign | 0x7C00 | (payload or 1))
        elif abs(value) >= 65520.0:  # half a unit above the largest
            out.append(sign | 0x7C00)
        else:
            out.append(int.from_bytes(struct.pack("<e", value), "little"))
    return out


def looked_up(x: Sequence[int], table: Sequence[int]) -> list[int]:
    """Return `table[i]` for every i of `x`."""
    return [table[i] for i in x]
