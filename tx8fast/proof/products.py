"""Products of matrices modulo a prime, exact through float64.

May import: numpy. Must not: know elements' states or rows.

Residues are centred, so a product of two is at most (m / 2)^2 and a chunk of 2^53 / (m / 2)^2 terms sums exactly in a
float64 whatever the order in which a library adds; chunks are joined as 64-bit integers.
"""

from __future__ import annotations

import numpy as np


def terms(modulus: int) -> int:
    """Return how many products of centred residues add up exactly in float64."""
    return (1 << 53) // (modulus // 2) ** 2


def centred(a: np.ndarray, modulus: int) -> np.ndarray:
    """Return residues in [0, modulus) as float64 in [-modulus / 2, modulus / 2]."""
    x = a.astype(np.float64)
    np.subtract(x, modulus, out=x, where=x > modulus // 2)
    return x


def matmul(a: np.ndarray, b: np.ndarray, modulus: int) -> np.ndarray:
    """Return a @ b modulo `modulus`: (..., m, k) by (..., k, n) of uint32 residues, batch axes broadcast."""
    left, right, step = centred(a, modulus), centred(b, modulus), terms(modulus)
    total = None
    for at in range(0, a.shape[-1], step):
        part = np.matmul(left[..., at : at + step], right[..., at : at + step, :]).astype(np.int64)
        total = part if total is None else np.add(total, part, out=total)
    if total is None:
        shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        return np.zeros(shape, np.uint32)
    return np.remainder(total, modulus, out=total).astype(np.uint32)
