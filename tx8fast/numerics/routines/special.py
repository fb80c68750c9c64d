"""Special functions that numpy lacks, evaluated in f64, and the constants of a shorter formula for programs.

May import: numpy. Must not: know formats or operations.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

#: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: erf(a) = 1 - (a1 t + .. + a5 t^5) exp(-a^2) with
#: t = 1 / (1 + p a), |error| <= 1.5e-7
ERF_P = 0.3275911
ERF_A = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)

_STEP = 1.0 / 64.0
_LIMIT = 6.0  # erf(6) rounds to 1 in f64
_ORDER = 8


@lru_cache(maxsize=1)
def _erf_table() -> np.ndarray:
    """Taylor coefficients of erf around every grid point, f64 [order + 1, points].

    The n-th derivative of erf is 2/sqrt(pi) exp(-x^2) (-1)^(n-1) H(n-1, x) with the Hermite
    recurrence H(n+1) = 2 x H(n) - 2 n H(n-1).
    """
    x = np.arange(int(_LIMIT / _STEP) + 2) * _STEP
    slope = 2.0 / math.sqrt(math.pi) * np.exp(-x * x)
    rows = [np.array([math.erf(v) for v in x]), slope]
    before, now = np.zeros_like(x), np.ones_like(x)
    for n in range(1, _ORDER):
        before, now = now, 2.0 * x * now - 2.0 * (n - 1) * before
        rows.append(slope * now * (-1) ** n / math.factorial(n + 1))
    return np.stack(rows)


def erf(x: np.ndarray) -> np.ndarray:
    """Return the error function of `x` (f64, any shape), error below 1e-15."""
    x = np.asarray(x, np.float64)
    table = _erf_table()
    size = np.minimum(np.abs(x), _LIMIT)
    with np.errstate(invalid="ignore"):
        index = np.rint(np.where(np.isnan(size), 0.0, size) / _STEP).astype(np.int64)
    offset = size - index * _STEP
    y = table[_ORDER][index]
    for row in table[_ORDER - 1 :: -1]:
        y = y * offset + row[index]
    return np.copysign(y, x)


def erfc(x: np.ndarray) -> np.ndarray:
    """Return 1 - erf of `x` (f64, any shape), exact to the last digits where it is small too."""
    x = np.asarray(x, np.float64)
    y = np.asarray(1.0 - erf(x))
    small = x > 0.5
    y[small] = [math.erfc(v) for v in x[small].tolist()]
    return y


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-x)) without overflow for either sign of `x` (f64)."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def softplus(x: np.ndarray) -> np.ndarray:
    """Return log(1 + exp(x)) without overflow (f64)."""
    return np.where(x > 0, x, np.where(x != x, x, 0.0)) + np.log1p(np.exp(-np.abs(x)))
