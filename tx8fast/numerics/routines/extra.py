"""Routines of rarely used operations; sampling and recurrent nets have files of their own.

May import: numpy, the routine helpers. Must not: know layouts or instructions.
"""

from __future__ import annotations

import itertools

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.numerics import formats
from tx8fast.numerics.routines import recurrent, sampling
from tx8fast.numerics.routines.convolution import _Windows
from tx8fast.numerics.routines.support import (
    Arrays,
    Attrs,
    OutTypes,
    Routine,
    axis_of,
    done,
    double,
    is_float,
    operand,
    pair,
    total,
    wide,
)


def cumprod(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Running product along `axis`; `exclusive` starts at 1, `reverse` runs from the end."""
    x = operand(arrays, 0)
    x = double(x) if is_float(x) else x
    axis = axis_of(attrs, x.ndim)
    if attrs.get("reverse"):
        x = np.flip(x, axis)
    if attrs.get("exclusive"):
        head = np.ones_like(np.take(x, [0], axis))
        x = np.concatenate([head, np.delete(x, -1, axis)], axis)
    y = np.cumprod(x, axis)
    return [done(np.flip(y, axis) if attrs.get("reverse") else y, out_types)]


def bitcast(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """The same bits read as another format of the same width."""
    x = operand(arrays, 0)
    target = formats.np_dtype(out_types[0][1])
    if x.dtype.itemsize != target.itemsize:
        raise SimulationError(f"bitcast: {x.dtype} and {target} differ in width")
    return [np.ascontiguousarray(x).reshape(-1).view(target).reshape(x.shape)]


def det(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Determinants of the matrices in the last two axes."""
    x = double(operand(arrays, 0))
    matrices = x.reshape(-1, *x.shape[-2:])
    return [done(np.array([_det(m.copy()) for m in matrices]).reshape(x.shape[:-2]), out_types)]


def _det(a: np.ndarray) -> float:
    """Elimination with the first largest pivot of each column."""
    found = np.float64(1.0)
    for k in range(len(a)):
        pivot = k + int(np.argmax(np.abs(a[k:, k])))
        if pivot != k:
            a[[k, pivot]] = a[[pivot, k]]
            found = -found
        found = found * a[k, k]
        if a[k, k] != 0:
            for i in range(k + 1, len(a)):
                a[i, k:] -= (a[i, k] / a[k, k]) * a[k, k:]
    return found


def einsum(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Any sum of products over named axes: factors from left to right, terms one after the other as the letters first appear."""
    operands = [double(a) if is_float(a) else a for a in (operand(arrays, i) for i in range(len(arrays)))]
    left, _, out = str(attrs["equation"]).replace(" ", "").partition("->")
    letters = list(dict.fromkeys(out + left.replace(",", "")))
    product = None
    for term, x in zip(left.split(","), operands, strict=True):
        own = list(dict.fromkeys(term))
        x = np.einsum(f"{term}->{''.join(own)}", x)  # a diagonal, if a letter is repeated
        order = sorted(own, key=letters.index)
        x = x.transpose([own.index(c) for c in order])
        x = x.reshape([x.shape[order.index(c)] if c in order else 1 for c in letters])
        product = x if product is None else product * x
    assert product is not None
    axes = tuple(range(len(out), len(letters)))
    y = (total(product, axes, False) if is_float(product) else product.sum(axis=axes)) if axes else product
    return [done(np.broadcast_to(y, out_types[0][0]), out_types)]


def max_pool_indices(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Where each window of x [N, .., C] has its first largest value: the flat index in a channel-first tensor.

    `column_major` counts the spatial axes from the first, as if the planes were transposed.
    """
    x = wide(operand(arrays, 0))
    spatial = x.shape[1:-1]
    windows = _Windows(spatial, attrs)
    strides = [1] * len(spatial)
    order = range(len(spatial)) if attrs.get("column_major") else reversed(range(len(spatial)))
    step = 1
    for i in order:
        strides[i] = step
        step *= spatial[i]
    shape = (x.shape[0], *windows.out, x.shape[-1])
    best = np.full(shape, -np.inf if is_float(x) else np.iinfo(x.dtype).min, x.dtype)
    place = np.full(shape, -1, np.int64)
    for tap in itertools.product(*(range(k) for k in windows.kernel)):
        at, inside = [], np.ones(windows.out, bool)
        flat = np.zeros(windows.out, np.int64)
        for i, n in enumerate(spatial):
            p = np.arange(windows.out[i]) * windows.stride[i] + tap[i] * windows.dilation[i] - windows.lo[i]
            line = [-1 if d == i else 1 for d in range(len(spatial))]
            inside &= ((p >= 0) & (p < n)).reshape(line)
            at.append(np.clip(p, 0, n - 1).reshape(line))
            flat = flat + at[-1] * strides[i]
        value = x[(slice(None), *at)]
        better = inside[None, ..., None] & ((value > best) | (place < 0))
        best = np.where(better, value, best)
        place = np.where(better, flat[None, ..., None], place)
    planes = np.arange(x.shape[0]).reshape(-1, *[1] * (x.ndim - 1)) * x.shape[-1] + np.arange(x.shape[-1])
    return [done(place + planes * step, out_types)]


def col2im(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Add the columns [N, C * taps, windows] back to the image places they were taken from; sums of integers wrap."""
    x = operand(arrays, 0)
    x = double(x) if is_float(x) else wide(x)
    image, kernel = tuple(attrs["image"]), tuple(attrs["kernel"])
    rank = len(image)
    stride, dilation = pair(attrs, "stride", 1, rank), pair(attrs, "dilation", 1, rank)
    lo, hi = pair(attrs, "pad_lo", 0, rank), pair(attrs, "pad_hi", 0, rank)
    taps = int(np.prod(kernel))
    out = [
        (n + a + b - d * (k - 1) - 1) // s + 1
        for n, a, b, d, k, s in zip(image, lo, hi, dilation, kernel, stride, strict=True)
    ]
    channels = x.shape[1] // taps
    parts = x.reshape(x.shape[0], channels, taps, *out)
    full = np.zeros((x.shape[0], channels, *(n + a + b for n, a, b in zip(image, lo, hi, strict=True))), x.dtype)
    for i, tap in enumerate(itertools.product(*(range(k) for k in kernel))):
        window = tuple(
            slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, o, s in zip(tap, dilation, out, stride, strict=True)
        )
        full[(slice(None), slice(None), *window)] += parts[:, :, i]
    inner = tuple(slice(a, a + n) for a, n in zip(lo, image, strict=True))
    return [done(full[(slice(None), slice(None), *inner)], out_types)]


ROUTINES: dict[str, Routine] = {
    "cumprod": cumprod,
    "bitcast": bitcast,
    "det": det,
    "einsum": einsum,
    "max_pool_indices": max_pool_indices,
    "col2im": col2im,
    **sampling.ROUTINES,
    **recurrent.ROUTINES,
}
