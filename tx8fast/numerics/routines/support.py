"""Helpers that every routine family uses: widening, casting, axes, index checks.

May import: numpy, tx8fast.numerics.formats, tx8fast._kernels, tx8fast.errors. Must not: hold any operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tx8fast._kernels import single_product
from tx8fast.errors import SimulationError
from tx8fast.numerics import formats

Arrays = Sequence[np.ndarray | None]
Attrs = Mapping[str, Any]
OutTypes = Sequence[tuple[Sequence[int], str]]
Routine = Callable[[Arrays, Attrs, OutTypes], list[np.ndarray]]


def is_float(x: np.ndarray) -> bool:
    """Tell if `x` holds floats, the narrow formats of ml_dtypes included."""
    return x.dtype.kind in "fV"  # ml_dtypes registers its floats under kind V


def operand(arrays: Arrays, index: int) -> np.ndarray:
    """Return required operand `index`. Raises SimulationError if it is missing."""
    if index >= len(arrays) or arrays[index] is None:
        raise SimulationError(f"running a routine: operand {index} is missing")
    return np.asarray(arrays[index])


def optional(arrays: Arrays, index: int) -> np.ndarray | None:
    """Return operand `index`, or None if it was not given."""
    found = arrays[index] if index < len(arrays) else None
    return None if found is None else np.asarray(found)


def wide(x: np.ndarray) -> np.ndarray:
    """Return `x` in the format it is computed in: narrow floats as f32, the rest unchanged."""
    x = np.asarray(x)
    return x.astype(np.float32) if is_float(x) and x.dtype.itemsize < 4 else x


def double(x: np.ndarray) -> np.ndarray:
    """Return `x` as f64, in which transcendental functions are evaluated before one rounding."""
    return np.asarray(x).astype(np.float64)


def product(a: np.ndarray, b: np.ndarray, exact: bool = False) -> np.ndarray:
    """Return a @ b, batches broadcast, the same on every machine: products are added in f64 with the summed index ascending; of f32
    they are exact, and the sum is rounded once. Integers are exact, those that f64 holds (`exact`) as well."""
    if exact or a.dtype != b.dtype or a.dtype not in (np.float32, np.float64):
        return np.matmul(a, b)
    if a.dtype == np.float64:
        return _in_order(a, b)
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    left, right = (np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (a, b))
    out = np.empty((*lead, a.shape[-2], b.shape[-1]), np.float32)
    for at in np.ndindex(lead):
        out[at] = single_product(left[at], right[at])
    return out


def _in_order(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a @ b of f64, terms added one after the other."""
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = np.zeros((*lead, a.shape[-2], b.shape[-1]))
    for k in range(a.shape[-1]):
        out += a[..., :, k : k + 1] * b[..., k : k + 1, :]
    return out


def total(x: np.ndarray, axes: tuple[int, ...], keep: bool) -> np.ndarray:
    """Return the sum over `axes` of floats, added one after the other in the order of the elements."""
    return _folded(x, axes, keep, np.add, 0.0)


def folded_product(x: np.ndarray, axes: tuple[int, ...], keep: bool) -> np.ndarray:
    """Return the product over `axes` of floats, multiplied one after the other in the order of the elements."""
    return _folded(x, axes, keep, np.multiply, 1.0)


def _folded(x: np.ndarray, axes: tuple[int, ...], keep: bool, ufunc: np.ufunc, nothing: float) -> np.ndarray:
    axes = tuple(sorted(a % x.ndim for a in axes)) if x.ndim else ()
    kept = [a for a in range(x.ndim) if a not in axes]
    shape = [x.shape[a] for a in kept]
    rows = x.transpose([*kept, *axes]).reshape([*shape, math.prod(x.shape[a] for a in axes)])
    y = ufunc.accumulate(rows, axis=-1)[..., -1] if rows.shape[-1] else np.full(shape, nothing, x.dtype)
    return y.reshape([1 if a in axes else n for a, n in enumerate(x.shape)]) if keep else y


def maximum(a: np.ndarray, b: np.ndarray | float) -> np.ndarray:
    """Return the larger one; NaN if there is one; of zeros the positive one."""
    y = np.maximum(a, b)
    return np.where((y == 0) & (a == b), a + b, y) if is_float(y) else y


def minimum(a: np.ndarray, b: np.ndarray | float) -> np.ndarray:
    """Return the smaller one; NaN if there is one; of zeros the negative one."""
    y = np.minimum(a, b)
    return np.where((y == 0) & (a == b), -(-a + -b), y) if is_float(y) else y


_QUIET = {
    "f64": 0x7FF8 << 48,
    "f32": 0x7FC00000,
    "tf32": 0x7FC00000,
    "f16": 0x7E00,
    "bf16": 0x7FC0,
    "f8e4m3fn": 0x7F,
    "f8e5m2": 0x7E,
}


def canonical(y: np.ndarray, dtype: str) -> np.ndarray:
    """Return `y` (format `dtype`) with every NaN as the one that computing leaves."""
    if dtype not in _QUIET:
        return y
    strange = np.isnan(y)
    if not strange.any():
        return y
    y = np.array(y)
    y.view(f"u{y.dtype.itemsize}")[strange] = _QUIET[dtype]
    return y


def cast(y: np.ndarray, dtype: str) -> np.ndarray:
    """Return `y` stored as format `dtype`: floats nearest even, float to int cut and saturated,
    integer to integer keeps the low bits, anything to pred is `!= 0`."""
    y = np.asarray(y)
    if dtype == "pred":
        return y if y.dtype == np.bool_ else y != 0
    if dtype in formats.INTS:
        if is_float(y):
            return formats.float_to_int(y, dtype, formats.TOWARD_ZERO)
        return formats.convert(y, "i64" if y.dtype != np.uint64 else "u64", dtype)
    if dtype == "f64":
        return y.astype(np.float64)
    if dtype in ("bf16", "f16", "f32") and y.dtype == formats.np_dtype(dtype):
        return y
    return formats.round_f32(y.astype(np.float32), dtype)


def done(y: np.ndarray, out_types: OutTypes, index: int = 0) -> np.ndarray:
    """Return result `index` cast to its output format."""
    return cast(y, out_types[index][1])


def axis_of(attrs: Attrs, rank: int, default: int = -1) -> int:
    """Return attribute `axis` as a non-negative axis of a tensor of `rank` dimensions."""
    axis = int(attrs.get("axis", default))
    if not -rank <= axis < max(rank, 1):
        raise SimulationError(f"running a routine: axis {axis} is outside rank {rank}")
    return axis % rank if rank else 0


def axes_of(attrs: Attrs, rank: int, default: Sequence[int] = ()) -> tuple[int, ...]:
    """Return attribute `axes` as sorted non-negative axes; an empty list means all axes."""
    axes = tuple(attrs.get("axes", default))
    return tuple(sorted({int(a) % rank for a in axes})) if axes else tuple(range(rank))


def pair(attrs: Attrs, key: str, default: int, rank: int) -> tuple[int, ...]:
    """Return per-spatial-dimension attribute `key`; missing or empty gives `default` everywhere."""
    found = attrs.get(key)
    if found is None or found == () or found == []:
        return (default,) * rank
    return (int(found),) * rank if isinstance(found, int) else tuple(int(v) for v in found)


def wrapped_index(index: np.ndarray, size: int, what: str) -> np.ndarray:
    """Return `index` with negative entries counted from the end.

    Raises SimulationError naming the first entry outside [-size, size).
    """
    index = np.asarray(index).astype(np.int64)
    bad = (index < -size) | (index >= size)
    if bad.any():
        first = int(index[bad].reshape(-1)[0])
        raise SimulationError(
            f"{what}: {int(bad.sum())} indices out of range, first {first}, required [-{size}, {size})"
        )
    return np.where(index < 0, index + size, index)
