"""Three-level strided byte runs: views and envelopes.

May import: numpy. Must not: know any particular instruction.
Source: TX8 hardware manual 11.1, 13, 16.4. Level 0 is the innermost; strides are bytes, counts >= 1.
"""

from __future__ import annotations

import numpy as np

#: fields of three levels: byte stride and count each, level 0 innermost
LEVELS = ("s0", "n0", "s1", "n1", "s2", "n2")
LEVEL_DEFAULTS = {"s0": 0, "n0": 1, "s1": 0, "n1": 1, "s2": 0, "n2": 1}


def copy(
    dst: np.ndarray,
    dst_addr: int,
    dst_levels,
    src: np.ndarray,
    src_addr: int,
    src_levels,
    size: int,
) -> None:
    """Copy runs of `size` bytes; levels are (s0, n0, s1, n1, s2, n2) and both have equally many runs.

    The copy moves words as wide as size and all strides allow.
    """
    s0, n0, s1, n1, s2, n2 = src_levels
    t0, j0, t1, j1, t2, j2 = dst_levels
    low = size | s0 | s1 | s2 | t0 | t1 | t2
    width = 8 if not low & 7 else 4 if not low & 3 else 2 if not low & 1 else 1
    kind = f"u{width}"
    a = np.ndarray((n2, n1, n0, size // width), kind, src, src_addr, (s2, s1, s0, width))
    b = np.ndarray((j2, j1, j0, size // width), kind, dst, dst_addr, (t2, t1, t0, width))
    b[...] = a if a.shape == b.shape else a.reshape(b.shape)


def envelope(size, levels):
    """Return bytes from the first to the last byte of the runs; `levels` = columns s0,n0,s1,n1,s2,n2."""
    s0, n0, s1, n1, s2, n2 = levels
    return size + (n0 - 1) * s0 + (n1 - 1) * s1 + (n2 - 1) * s2
