"""Readable twin of matrix products of f32.

May import: numpy for the one rounding. Must not: be fast, share code with the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def product(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]], n: int) -> list[list[np.float32]]:
    """Return a @ b: rows of `a` by the `n` columns of `b`, the values being f32 held as Python floats."""
    out = []
    for row in a:
        sums = [0.0] * n
        for j in range(n):
            for k, x in enumerate(row):
                sums[j] += x * b[k][j]  # f64, in which the product of two f32 is exact
        with np.errstate(all="ignore"):
            out.append([np.float32(s) for s in sums])
    return out
