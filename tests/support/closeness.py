"""Comparing simulated results with references: allowed error and a report of the first difference.

May import: numpy, numerics. Must not: run anything.
Source: TX8 hardware manual 6.5. Units in the last place refer to the result's format.
"""

from __future__ import annotations

import numpy as np

from tx8fast.numerics.formats import FLOATS
from tx8fast.records import dataclass

_MANTISSA_BITS = {
    "f16": 10,
    "bf16": 7,
    "f32": 23,
    "tf32": 10,
    "f64": 52,
    "f8e4m3fn": 3,
    "f8e5m2": 2,
}
_MIN_EXPONENT = {
    "f16": -14,
    "bf16": -126,
    "f32": -126,
    "tf32": -126,
    "f64": -1022,
    "f8e4m3fn": -6,
    "f8e5m2": -14,
}


def ulp(x: np.ndarray, dtype: str) -> np.ndarray:
    """Return the spacing of format `dtype` at |x| (f64); 0 for integer formats."""
    if dtype not in FLOATS:
        return np.zeros(np.shape(x))
    mag = np.abs(np.asarray(x, np.float64))
    exponent = np.frexp(np.where(np.isfinite(mag), mag, 0))[1] - 1
    exponent = np.maximum(np.where(mag == 0, _MIN_EXPONENT[dtype], exponent), _MIN_EXPONENT[dtype])
    return np.ldexp(1.0, exponent - _MANTISSA_BITS[dtype])


def contraction_bound(magnitude: np.ndarray, terms: int, expected: np.ndarray, dtype: str) -> np.ndarray:
    """Return the allowed error of sums of `terms` products; `magnitude` = sum |a b| per result."""
    return terms * 2.0**-24 * np.asarray(magnitude, np.float64) + ulp(expected, dtype)


@dataclass(frozen=True)
class Comparison:
    """`max_error` absolute; `mismatches` elements beyond their bound out of `size`."""

    name: str
    size: int
    mismatches: int
    max_error: float
    first: str

    @property
    def ok(self) -> bool:
        return self.mismatches == 0

    def __str__(self) -> str:
        if self.ok:
            return f"'{self.name}': {self.size} elements agree, largest error {self.max_error:.4g}"
        return f"'{self.name}': {self.mismatches} of {self.size} elements differ; {self.first}"


def compare(name: str, found: np.ndarray, expected: np.ndarray, bound) -> Comparison:
    """Compare arrays of one shape elementwise; `bound` is the allowed absolute error (scalar or array).

    NaN agrees with NaN, an infinity with the same infinity only.
    """
    if found.shape != expected.shape:
        text = f"found shape {found.shape}, expected {expected.shape}"
        return Comparison(name, expected.size, max(expected.size, 1), float("inf"), text)
    a, b = np.asarray(found).astype(np.float64), np.asarray(expected).astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.abs(a - b)
    error[(a == b) | (np.isnan(a) & np.isnan(b))] = 0
    error[np.isnan(error)] = np.inf
    limit = np.broadcast_to(np.asarray(bound, np.float64), error.shape)
    wrong = error > limit
    first = ""
    if wrong.any():
        at = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
        first = f"first at {list(at)}: found {a[at]:.8g}, expected {b[at]:.8g}, allowed error {limit[at]:.4g}"
    return Comparison(name, int(error.size), int(wrong.sum()), float(error.max(initial=0)), first)
