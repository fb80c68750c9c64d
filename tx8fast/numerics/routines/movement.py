"""Operations that move or create values without computing on them.

May import: numpy, the routine helpers. Must not: know layouts or instructions.
"""

from __future__ import annotations

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.numerics.formats import np_dtype
from tx8fast.numerics.routines.support import (
    Arrays,
    Attrs,
    OutTypes,
    Routine,
    axis_of,
    cast,
    done,
    operand,
)


def identity(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """The operand itself: a change of byte layout or of memory, not of logical values."""
    return [done(operand(arrays, 0), out_types)]


def transpose(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Result axis i is operand axis perm[i]; without perm the axes are reversed."""
    return [done(np.transpose(operand(arrays, 0), attrs.get("perm") or None), out_types)]


def reshape(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Same elements in row-major order under the result's shape."""
    return [done(operand(arrays, 0).reshape(tuple(out_types[0][0])), out_types)]


def broadcast(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """The operand repeated along new or unit axes up to the result's shape."""
    return [done(np.broadcast_to(operand(arrays, 0), tuple(out_types[0][0])), out_types)]


def concat(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Operands joined along `axis`."""
    parts = [cast(operand(arrays, i), out_types[0][1]) for i in range(len(arrays))]
    return [np.concatenate(parts, axis=axis_of(attrs, parts[0].ndim, 0))]


def slice_(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """size[i] elements per axis from start[i] on, step[i] apart; steps may be negative."""
    x = operand(arrays, 0)
    start, size = attrs["start"], attrs["size"]
    step = attrs.get("step") or (1,) * x.ndim
    index = []
    for axis, (first, count, by) in enumerate(zip(start, size, step, strict=True)):
        end = first + count * by
        low, high = (first, end - by) if by > 0 else (end - by, first)
        if count and (low < 0 or high >= x.shape[axis]):
            raise SimulationError(f"slice: axis {axis} reads [{low}, {high}], required within [0, {x.shape[axis]})")
        index.append(slice(first, end if end >= 0 else None, by) if count else slice(0, 0))
    return [done(x[tuple(index)], out_types)]


def pad(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Grow every axis by lo and hi elements; negative amounts crop.

    Modes: constant (with `value`), edge, reflect (border not repeated), wrap.
    """
    x, mode = operand(arrays, 0), str(attrs.get("mode", "constant"))
    lo, hi = tuple(attrs["lo"]), tuple(attrs["hi"])
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise SimulationError(f"pad: unknown mode '{mode}'")
    for axis, (before, after) in enumerate(zip(lo, hi, strict=True)):
        keep = np.arange(max(0, -before), x.shape[axis] - max(0, -after))
        before, after = max(0, before), max(0, after)
        if mode != "constant":
            if not keep.size and before + after:
                raise SimulationError(f"pad: axis {axis} of shape {list(x.shape)} has nothing to repeat, mode '{mode}'")
            keep = np.pad(keep, (before, after), mode=mode)  # type: ignore[call-overload]
        if keep.size != x.shape[axis] or mode != "constant":
            x = np.take(x, keep, axis)
    if mode == "constant":
        lo, hi = tuple(max(0, v) for v in lo), tuple(max(0, v) for v in hi)
        grown = [a + n + b for a, n, b in zip(lo, x.shape, hi, strict=True)]
        value = cast(np.array(float(attrs.get("value", 0.0))), out_types[0][1])
        out = np.full(grown, value, np_dtype(out_types[0][1]))
        out[tuple(slice(a, a + n) for a, n in zip(lo, x.shape, strict=True))] = x
        x = out
    return [done(x, out_types)]


def trilu(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Upper (or lower) triangle of the last two axes, diagonal `k`; the rest is zero."""
    x, k = operand(arrays, 0), int(attrs.get("k", 0))
    rows, cols = np.arange(x.shape[-2])[:, None], np.arange(x.shape[-1])
    keep = cols - rows >= k if attrs.get("upper", True) else cols - rows <= k
    return [done(np.where(keep, x, np.zeros((), x.dtype)), out_types)]


def iota(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Position along `axis` at every element of the result's shape."""
    shape, dtype = tuple(out_types[0][0]), out_types[0][1]
    axis = axis_of(attrs, len(shape), 0)
    steps = cast(np.arange(shape[axis] if shape else 1), dtype)
    if not shape:
        return [steps.reshape(())]
    steps = steps.reshape([-1 if d == axis else 1 for d in range(len(shape))])
    return [np.broadcast_to(steps, shape).copy()]


ROUTINES: dict[str, Routine] = {
    "channel_norm": identity,
    "load_var": identity,
    "store_var": identity,
    # the caller passes the value of the constant: only it holds the table
    "load_const": identity,
    "transpose": transpose,
    "reshape": reshape,
    "broadcast": broadcast,
    "concat": concat,
    "slice": slice_,
    "pad": pad,
    "trilu": trilu,
    "iota": iota,
}
