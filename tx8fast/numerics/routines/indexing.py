"""Gathers, scatters and cache updates: operations whose addresses come from data.

May import: numpy, the routine helpers. Must not: know layouts or instructions.
Negative indices count from the end; an index outside the axis raises SimulationError.
"""

from __future__ import annotations

import math

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.numerics.routines.support import (
    Arrays,
    Attrs,
    OutTypes,
    Routine,
    axis_of,
    canonical,
    cast,
    done,
    maximum,
    minimum,
    operand,
    wide,
    wrapped_index,
)

_COMBINE = {"add": np.add, "mul": np.multiply, "max": maximum, "min": minimum}


def gather(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Slices of the table at `indices` along `axis`, whose place the index shape takes."""
    table, indices = operand(arrays, 0), operand(arrays, 1)
    axis = axis_of(attrs, table.ndim, 0)
    return [done(np.take(table, wrapped_index(indices, table.shape[axis], "gather"), axis), out_types)]


def embedding(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Rows of the table at `indices`."""
    table, indices = operand(arrays, 0), operand(arrays, 1)
    return [done(np.take(table, wrapped_index(indices, table.shape[0], "embedding"), 0), out_types)]


def gather_elements(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """x at its own position, except along `axis`, where `indices` (same rank) says."""
    x, indices = operand(arrays, 0), operand(arrays, 1)
    axis = axis_of(attrs, x.ndim, 0)
    at = _element_index(indices, x.shape, axis, "gather_elements")
    return [done(x[at], out_types)]


def _element_index(indices: np.ndarray, shape: tuple[int, ...], axis: int, what: str) -> tuple:
    """Return the full index arrays of an element-wise gather or scatter."""
    fixed = wrapped_index(indices, shape[axis], what)
    grid = list(np.ogrid[tuple(slice(0, n) for n in indices.shape)])
    grid[axis] = fixed
    return tuple(grid)


def _tuple_index(indices: np.ndarray, shape: tuple[int, ...], batch: int, what: str) -> tuple:
    """Return index arrays for index tuples in the last axis, after `batch` leading axes."""
    depth = indices.shape[-1]
    if batch + depth > len(shape):
        raise SimulationError(f"{what}: index tuples of {depth} after {batch} exceed rank {len(shape)}")
    rank = indices.ndim - 1
    lead = [np.arange(shape[b]).reshape([-1 if d == b else 1 for d in range(rank)]) for b in range(batch)]
    columns = [wrapped_index(indices[..., i], shape[batch + i], what) for i in range(depth)]
    return (*lead, *columns)


def gather_nd(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Slices of x at the index tuples in the last axis of `indices`, after `batch_dims` axes."""
    x, indices = operand(arrays, 0), operand(arrays, 1)
    batch = int(attrs.get("batch_dims", 0))
    return [done(x[_tuple_index(indices, x.shape, batch, "gather_nd")], out_types)]


def _combined(x: np.ndarray, at: tuple, updates: np.ndarray, how: str, dtype: str) -> np.ndarray:
    """Return a copy of `x` with `updates` put in at `at`; equal positions apply in order."""
    if how in ("set", "none"):
        y = cast(x, dtype).copy()
        y[at] = cast(updates, dtype)
        return y
    if how not in _COMBINE:
        raise SimulationError(f"scatter: unknown combine '{how}', expected set, {', '.join(_COMBINE)}")
    y = wide(x).copy()
    updates = np.broadcast_to(wide(updates).astype(y.dtype), y[at].shape)
    y = y.reshape(-1)
    where = np.arange(y.size).reshape(x.shape)[at].reshape(-1)
    for place, value in zip(where.tolist(), updates.reshape(-1), strict=True):  # rounded each time, as it is stored
        y[place] = wide(canonical(cast(_COMBINE[how](y[place], value), dtype), dtype))
    return cast(y, dtype).reshape(x.shape)


def scatter(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Operand with each update put at its own position, except along `axis`: at its index."""
    x, indices, updates = (operand(arrays, i) for i in range(3))
    axis = axis_of(attrs, x.ndim, 0)
    at = _element_index(indices, x.shape, axis, "scatter")
    how = str(attrs.get("combine", "set"))
    return [_combined(x, at, updates, how, out_types[0][1])]


def scatter_nd(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Operand with update slices put at the index tuples in the last axis of `indices`."""
    x, indices, updates = (operand(arrays, i) for i in range(3))
    at = _tuple_index(indices, x.shape, 0, "scatter_nd")
    how = str(attrs.get("combine", "set"))
    shape = indices.shape[:-1] + x.shape[indices.shape[-1] :]
    if updates.size != math.prod(shape):
        raise SimulationError(f"scatter_nd: updates {updates.shape}, required {shape}")
    return [_combined(x, at, updates.reshape(shape), how, out_types[0][1])]


def kv_update(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Cache with `new` written from element `position` on along `axis`."""
    cache, new, position = (operand(arrays, i) for i in range(3))
    axis = axis_of(attrs, cache.ndim, -2)
    first = int(position.reshape(-1)[0])
    end = first + new.shape[axis]
    if first < 0 or end > cache.shape[axis]:
        raise SimulationError(
            f"kv_update: writes [{first}, {end}) on axis {axis}, required within [0, {cache.shape[axis]})"
        )
    y = cast(cache, out_types[0][1]).copy()
    y[(slice(None),) * axis + (slice(first, end),)] = cast(new, out_types[0][1])
    return [y]


ROUTINES: dict[str, Routine] = {
    "gather": gather,
    "embedding": embedding,
    "gather_elements": gather_elements,
    "gather_nd": gather_nd,
    "scatter": scatter,
    "scatter_nd": scatter_nd,
    "kv_update": kv_update,
}
