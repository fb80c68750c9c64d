"""Reductions, arg-reductions, sorting and scans.

May import: numpy, the routine helpers. Must not: know layouts or instructions.
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
    axes_of,
    axis_of,
    done,
    double,
    folded_product,
    is_float,
    operand,
    total,
    wide,
)

_LOGS = ("logsum", "logsumexp", "l2", "mean")


def _extreme(x: np.ndarray, op: str, axes: tuple[int, ...], keep: bool) -> np.ndarray:
    fn = np.max if op == "max" else np.min
    if all(x.shape[a] for a in axes):
        y = fn(x, axis=axes, keepdims=keep)
        if not is_float(x):
            return y
        # of zeros the larger one has no sign
        wanted = (x == 0) & (np.signbit(x) == (op == "min"))
        found = np.any(wanted, axis=axes, keepdims=keep)
        return np.where(y == 0, np.where(found == (op == "max"), x.dtype.type(0), -x.dtype.type(0)), y)
    if is_float(x):
        initial = -math.inf if op == "max" else math.inf
    elif x.dtype == np.bool_:
        initial = op == "min"
    else:
        limits = np.iinfo(x.dtype)
        initial = limits.min if op == "max" else limits.max
    return fn(x, axis=axes, keepdims=keep, initial=initial)


def _logsumexp(x: np.ndarray, axes: tuple[int, ...], keep: bool) -> np.ndarray:
    top = np.max(x, axis=axes, keepdims=True, initial=-math.inf)
    shift = np.where(np.isfinite(top), top, 0.0)
    y = np.log(total(np.exp(x - shift), axes, True)) + shift
    return y if keep else np.squeeze(y, axes)


def _sum(x: np.ndarray, axes: tuple[int, ...], keep: bool) -> np.ndarray:
    return np.sum(x, axis=axes, keepdims=keep)


def _product(x: np.ndarray, axes: tuple[int, ...], keep: bool) -> np.ndarray:
    return np.prod(x, axis=axes, keepdims=keep)


def reduce(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Reduce `axes` (empty: all) with `op`; floats accumulate in f64, one element after the other, integers wrap.

    Ops: add max min mul mean l1 l2 sumsq logsum logsumexp. Raises SimulationError on another.
    """
    x = wide(operand(arrays, 0))
    op, keep = str(attrs.get("op", "add")), bool(attrs.get("keepdims", True))
    axes = axes_of(attrs, x.ndim)
    if op in ("max", "min"):
        return [done(_extreme(x, op, axes, keep), out_types)]
    if is_float(x) or op in _LOGS:
        x = double(x)
    elif x.dtype == np.bool_:
        x = x.astype(np.int64)
    add, mul = (total, folded_product) if is_float(x) else (_sum, _product)
    if op == "add":
        y = add(x, axes, keep)
    elif op == "mul":
        y = mul(x, axes, keep)
    elif op == "mean":
        y = add(x, axes, keep) / math.prod(x.shape[a] for a in axes)
    elif op == "l1":
        y = add(np.abs(x), axes, keep)
    elif op == "sumsq":
        y = add(x * x, axes, keep)
    elif op == "l2":
        y = np.sqrt(add(x * x, axes, keep))
    elif op == "logsum":
        y = np.log(add(x, axes, keep))
    elif op == "logsumexp":
        y = _logsumexp(x, axes, keep)
    else:
        raise SimulationError(f"reduce: unknown op '{op}'")
    return [done(y, out_types)]


def arg_reduce(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Position of the extreme along `axis`; ties give the first, or the last if `select_last`."""
    x = wide(operand(arrays, 0))
    axis = axis_of(attrs, x.ndim, 0)
    fn = np.argmin if attrs.get("op", "max") == "min" else np.argmax
    if x.ndim == 0:
        return [done(np.zeros((), np.int64), out_types)]
    if not x.shape[axis]:
        raise SimulationError(f"arg_reduce: axis {axis} of shape {list(x.shape)} has no elements to choose from")
    if attrs.get("select_last"):
        y = x.shape[axis] - 1 - fn(np.flip(x, axis), axis=axis)
    else:
        y = fn(x, axis=axis)
    if attrs.get("keepdims", True):
        y = np.expand_dims(y, axis)
    return [done(y, out_types)]


def topk(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """The k largest (or smallest) values along `axis`, in order, and their positions (i64).

    Ties keep the lowest position first. Raises SimulationError if k exceeds the axis.
    """
    x = wide(operand(arrays, 0))
    axis, k = axis_of(attrs, x.ndim), int(attrs["k"])
    if not 0 <= k <= x.shape[axis]:
        raise SimulationError(f"topk: k = {k}, required 0..{x.shape[axis]} (size of axis {axis})")
    if attrs.get("largest", True):
        # a stable ascending sort of the mirrored axis, read backwards, keeps ties in order
        order = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
        order = x.shape[axis] - 1 - order
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    order = np.take(order, np.arange(k), axis)
    values = np.take_along_axis(x, order, axis)
    return [done(values, out_types), done(order, out_types, 1)]


def cumsum(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Running sum along `axis`; `exclusive` skips the own element, `reverse` runs backwards."""
    x = wide(operand(arrays, 0))
    axis = axis_of(attrs, x.ndim, 0)
    if x.ndim == 0:
        return [done(np.zeros_like(x) if attrs.get("exclusive") else x, out_types)]
    x = double(x) if is_float(x) else x
    x = np.flip(x, axis) if attrs.get("reverse") else x
    y = np.cumsum(x, axis=axis)
    if attrs.get("exclusive"):
        shifted = np.zeros_like(y)
        into, out_of = [slice(None)] * x.ndim, [slice(None)] * x.ndim
        into[axis], out_of[axis] = slice(1, None), slice(None, -1)
        shifted[tuple(into)] = y[tuple(out_of)]
        y = shifted
    return [done(np.flip(y, axis) if attrs.get("reverse") else y, out_types)]


ROUTINES: dict[str, Routine] = {
    "reduce": reduce,
    "arg_reduce": arg_reduce,
    "topk": topk,
    "cumsum": cumsum,
}
