"""Three-level strided byte runs: fields and envelopes.

May import: nothing. Must not: know any particular instruction.
Source: TX8 hardware manual 11.1, 13, 16.4. Level 0 is the innermost; strides are bytes, counts >= 1.
"""

from __future__ import annotations

#: fields of three levels: byte stride and count each, level 0 innermost
LEVELS = ("s0", "n0", "s1", "n1", "s2", "n2")
LEVEL_DEFAULTS = {"s0": 0, "n0": 1, "s1": 0, "n1": 1, "s2": 0, "n2": 1}


def envelope(size, levels):
    """Return bytes from the first to the last byte of the runs; `levels` = columns s0,n0,s1,n1,s2,n2."""
    s0, n0, s1, n1, s2, n2 = levels
    return size + (n0 - 1) * s0 + (n1 - 1) * s1 + (n2 - 1) * s2
