"""Convolution, transposed convolution and pooling over channel-last tensors of any spatial rank.

May import: numpy, the routine helpers. Must not: know layouts or instructions.
Features are [N, spatial.., C]; the kernel loop is over taps, every tap is one vectorised step.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.numerics.routines.activation import apply
from tx8fast.numerics.routines.contraction import accumulator, settled
from tx8fast.numerics.routines.support import (
    Arrays,
    Attrs,
    OutTypes,
    Routine,
    done,
    double,
    is_float,
    maximum,
    operand,
    optional,
    pair,
    product,
    wide,
)


def _padded(x: np.ndarray, lo: tuple[int, ...], hi: tuple[int, ...], value: float) -> np.ndarray:
    """Pad the spatial axes with `value`; a negative amount crops."""
    spatial = x.shape[1:-1]
    crop = tuple(slice(max(0, -a), n - max(0, -b)) for a, b, n in zip(lo, hi, spatial, strict=True))
    x = x[(slice(None), *crop)]
    lo, hi = tuple(max(0, a) for a in lo), tuple(max(0, b) for b in hi)
    if not any(lo) and not any(hi):
        return x
    grown = [a + n + b for a, n, b in zip(lo, x.shape[1:-1], hi, strict=True)]
    out = np.full((x.shape[0], *grown, x.shape[-1]), value, x.dtype)
    inner = tuple(slice(a, a + n) for a, n in zip(lo, x.shape[1:-1], strict=True))
    out[(slice(None), *inner)] = x
    return out


def _taps(
    kernel: tuple[int, ...],
    out: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Yield every kernel position with the strided window of the padded input it reads."""
    for tap in itertools.product(*(range(k) for k in kernel)):
        yield (
            tap,
            (
                slice(None),
                *(
                    slice(t * d, t * d + (o - 1) * s + 1, s)
                    for t, d, o, s in zip(tap, dilation, out, stride, strict=True)
                ),
            ),
        )


def _rows_product(x: np.ndarray, w: np.ndarray, exact: bool) -> np.ndarray:
    """Return x [.., C] times w [C, O] as one product."""
    return product(x.reshape(-1, x.shape[-1]), w, exact).reshape(*x.shape[:-1], w.shape[1])


def _group_product(x: np.ndarray, w: np.ndarray, groups: int, exact: bool) -> np.ndarray:
    """Return x [.., C] times one tap w [O, C / groups], group by group, as [.., O]."""
    if groups == 1:
        return _rows_product(x, w.T, exact)
    if w.shape[1] == 1:  # one input channel per group: an element-wise product
        each = w.shape[0] // groups
        spread = x if each == 1 else np.repeat(x, each, axis=-1)
        return spread * w[:, 0]
    ins, outs = w.shape[1], w.shape[0] // groups
    parts = [
        _rows_product(x[..., g * ins : (g + 1) * ins], w[g * outs : (g + 1) * outs].T, exact) for g in range(groups)
    ]
    return np.concatenate(parts, axis=-1)


def conv(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """act(conv(x, w) + bias): x [N, .., C], w [kernel.., O, C / groups]."""
    feature, weight, bias = operand(arrays, 0), operand(arrays, 1), optional(arrays, 2)
    rank, groups = weight.ndim - 2, int(attrs.get("groups", 1))
    if feature.ndim != rank + 2 or feature.shape[-1] != weight.shape[-1] * groups:
        raise SimulationError(f"conv: input {feature.shape} does not fit weight {weight.shape} in {groups} groups")
    stride, dilation = pair(attrs, "stride", 1, rank), pair(attrs, "dilation", 1, rank)
    lo, hi = pair(attrs, "pad_lo", 0, rank), pair(attrs, "pad_hi", 0, rank)
    kernel = weight.shape[:rank]
    terms = math.prod(kernel) * weight.shape[-1]
    x = _padded(accumulator(feature, terms), lo, hi, 0)
    w = accumulator(weight, terms)
    out = tuple(
        (n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[1:-1], kernel, stride, dilation, strict=True)
    )
    y = np.zeros((x.shape[0], *out, w.shape[-2]), np.result_type(x, w))
    for tap, window in _taps(kernel, out, stride, dilation):
        y += _group_product(x[window], w[tap], groups, not is_float(feature))
    y = settled(y, feature)
    if bias is not None:
        y = y + (wide(bias) if is_float(bias) else bias.astype(np.int64))
    return [done(apply(str(attrs.get("act", "none")), y, attrs), out_types)]


def conv_transpose(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Transposed convolution plus bias: x [N, .., C], w [kernel.., O / groups, C]."""
    feature, weight, bias = operand(arrays, 0), operand(arrays, 1), optional(arrays, 2)
    rank, groups = weight.ndim - 2, int(attrs.get("groups", 1))
    if feature.ndim != rank + 2 or feature.shape[-1] != weight.shape[-1]:
        raise SimulationError(f"conv_transpose: input {feature.shape} does not fit {weight.shape}")
    stride, dilation = pair(attrs, "stride", 1, rank), pair(attrs, "dilation", 1, rank)
    lo, hi = pair(attrs, "pad_lo", 0, rank), pair(attrs, "pad_hi", 0, rank)
    extra = pair(attrs, "out_pad", 0, rank)
    kernel, size = weight.shape[:rank], feature.shape[1:-1]
    terms = math.prod(kernel) * weight.shape[-1]
    x, w = accumulator(feature, terms), accumulator(weight, terms)
    full = [
        (n - 1) * s + d * (k - 1) + 1 + e for n, s, d, k, e in zip(size, stride, dilation, kernel, extra, strict=True)
    ]
    outs, ins = w.shape[-2], w.shape[-1] // groups
    y = np.zeros((x.shape[0], *full, outs * groups), np.result_type(x, w))
    for tap, window in _taps(kernel, size, stride, dilation):
        for g in range(groups):
            mine = slice(g * ins, (g + 1) * ins)
            part = _rows_product(x[..., mine], w[tap][:, mine].T, not is_float(feature))
            y[(*window, slice(g * outs, (g + 1) * outs))] += part
    y = settled(_padded(y, tuple(-v for v in lo), tuple(-v for v in hi), 0), feature)
    if bias is not None:
        y = y + (wide(bias) if is_float(bias) else bias.astype(np.int64))
    return [done(apply(str(attrs.get("act", "none")), y, attrs), out_types)]


class _Windows:
    """Geometry of a pooling: output extents, and padding that also covers a ceil-mode overhang."""

    def __init__(self, size: tuple[int, ...], attrs: Attrs) -> None:
        rank = len(size)
        self.size = size
        self.kernel = pair(attrs, "kernel", 1, rank)
        self.stride = pair(attrs, "stride", 1, rank)
        self.dilation = pair(attrs, "dilation", 1, rank)
        self.lo, self.hi = pair(attrs, "pad_lo", 0, rank), pair(attrs, "pad_hi", 0, rank)
        out, grow = [], []
        for i, n in enumerate(size):
            span = self.dilation[i] * (self.kernel[i] - 1) + 1
            room = n + self.lo[i] + self.hi[i] - span
            if attrs.get("ceil_mode"):
                count = -(-room // self.stride[i]) + 1
                # a window that would start behind the input and its leading padding is dropped
                count -= (count - 1) * self.stride[i] >= n + self.lo[i]
            else:
                count = room // self.stride[i] + 1
            out.append(count)
            grow.append(max(self.hi[i], (count - 1) * self.stride[i] + span - n - self.lo[i]))
        self.out, self.grow = tuple(out), tuple(grow)

    def taps(self) -> Iterator[tuple[slice, ...]]:
        for _, window in _taps(self.kernel, self.out, self.stride, self.dilation):
            yield window

    def counts(self, with_padding: bool) -> np.ndarray:
        """Return how many positions each window averages, shaped [out.., 1]."""
        total = np.ones((1,) * len(self.size))
        for i, n in enumerate(self.size):
            first = 0 if with_padding else self.lo[i]
            last = self.lo[i] + n + (self.hi[i] if with_padding else 0)
            at = np.arange(self.out[i])[:, None] * self.stride[i]
            at = at + np.arange(self.kernel[i]) * self.dilation[i]
            inside = ((at >= first) & (at < last)).sum(axis=1)
            total = total * inside.reshape([-1 if d == i else 1 for d in range(len(self.size))])
        return total[..., None]


def max_pool(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Largest value per window of x [N, .., C]; padding never wins."""
    x = wide(operand(arrays, 0))
    windows = _Windows(x.shape[1:-1], attrs)
    lowest = -math.inf if is_float(x) else np.iinfo(x.dtype).min
    x = _padded(x, windows.lo, windows.grow, lowest)
    y = np.full((x.shape[0], *windows.out, x.shape[-1]), lowest, x.dtype)
    for window in windows.taps():
        y = maximum(y, x[window])
    return [done(y, out_types)]


def avg_pool(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Mean per window of x [N, .., C]; `count_pad` counts padding positions in the divisor."""
    x = operand(arrays, 0)
    windows = _Windows(x.shape[1:-1], attrs)
    padded = _padded(double(x), windows.lo, windows.grow, 0)
    y = np.zeros((x.shape[0], *windows.out, x.shape[-1]))
    for window in windows.taps():
        y += padded[window]
    return [done(y / windows.counts(bool(attrs.get("count_pad"))), out_types)]


ROUTINES: dict[str, Routine] = {
    "conv": conv,
    "conv_transpose": conv_transpose,
    "max_pool": max_pool,
    "avg_pool": avg_pool,
}
