"""Interpolated reads: grid sampling, region pooling, deformable convolution. Tensors are [N, C, spatial..].

May import: numpy, the routine helpers. Must not: know layouts or instructions.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from tx8fast.numerics.routines.support import (
    Arrays,
    Attrs,
    OutTypes,
    Routine,
    done,
    double,
    operand,
    pair,
    total,
)

_CUBIC_A = -0.75


def _reflect(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """Mirror coordinates at both borders until they lie between them."""
    span = high - low
    if span <= 0:
        return np.full_like(x, low)
    away = np.abs(x - low)
    turns = np.floor(away / span)
    rest = away - turns * span
    return np.where(turns % 2 == 0, low + rest, high - rest)


def _tap_weights(fraction: np.ndarray, mode: str) -> list[tuple[int, np.ndarray]]:
    """Return (offset from the floor, weight) of every tap of one axis."""
    if mode == "linear":
        return [(0, 1.0 - fraction), (1, fraction)]
    a, taps = _CUBIC_A, []
    for offset in (-1, 0, 1, 2):
        t = np.abs(offset - fraction)
        near = ((a + 2) * t - (a + 3)) * t * t + 1
        far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
        taps.append((offset, np.where(t <= 1, near, np.where(t < 2, far, 0.0))))
    return taps


def _pixel(x: np.ndarray, places: list[np.ndarray], padding: str, align: bool) -> np.ndarray:
    """Read x [C, spatial..] at whole coordinates [P] per axis; outside by `padding`. Returns [C, P]."""
    inside = np.ones(places[0].shape, bool)
    at = []
    for p, n in zip(places, x.shape[1:], strict=True):
        if padding == "zeros":
            inside &= (p >= 0) & (p < n)
        elif padding == "reflection":
            low, high = (0.0, n - 1.0) if align else (-0.5, n - 0.5)
            p = np.trunc(_reflect(p.astype(np.float64), low, high))
        at.append(np.clip(p, 0, n - 1).astype(np.int64))
    return x[(slice(None), *at)] * inside


def sample(x: np.ndarray, coords: np.ndarray, mode: str, padding: str, align: bool) -> np.ndarray:
    """Interpolate x [C, spatial..] at coords [P, rank] (elements, in axis order). Returns [C, P]."""
    rank = coords.shape[1]
    if mode == "nearest":
        rounded = np.rint(coords)
        return 0.0 + _pixel(x, [rounded[:, i] for i in range(rank)], padding, align)  # no negative zero, as of sums
    floors = np.floor(coords)
    taps = [_tap_weights(coords[:, i] - floors[:, i], mode) for i in range(rank)]
    y = np.zeros((x.shape[0], coords.shape[0]))
    for choice in itertools.product(*taps):
        weight = math.prod(w for _, w in choice)
        places = [floors[:, i] + offset for i, (offset, _) in enumerate(choice)]
        y += weight * _pixel(x, places, padding, align)
    return y


def grid_sample(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """x [N, C, spatial..] at grid [N, out.., rank] of coordinates in [-1, 1], last axis first."""
    x, grid = double(operand(arrays, 0)), double(operand(arrays, 1))
    spatial, align = np.array(x.shape[2:]), bool(attrs.get("align"))
    rank = len(spatial)
    padding = str(attrs.get("padding", "zeros"))
    y = np.zeros((*x.shape[:2], math.prod(grid.shape[1:-1])))
    for i in range(x.shape[0]):
        g = grid[i].reshape(-1, rank)[:, ::-1]
        coords = (g + 1) / 2 * (spatial - 1) if align else ((g + 1) * spatial - 1) / 2
        if attrs.get("mode") == "cubic":
            pass  # its taps are clamped or mirrored one by one
        elif padding == "border":
            coords = np.clip(coords, 0, spatial - 1)
        elif padding == "reflection":
            low, high = (np.zeros(rank), spatial - 1.0) if align else (np.full(rank, -0.5), spatial - 0.5)
            columns = [_reflect(coords[:, k], float(low[k]), float(high[k])) for k in range(rank)]
            outside = (coords < low) | (coords > high)
            coords = np.where(outside, np.stack(columns, axis=1), coords)
        y[i] = sample(x[i], coords, str(attrs.get("mode", "linear")), padding, align)
    return [done(y.reshape(out_types[0][0]), out_types)]


def _corners(p: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (low, high, fraction) of coordinates clamped into [0, n - 1]."""
    p = np.maximum(p, 0.0)
    low = np.minimum(np.floor(p).astype(np.int64), n - 1)
    high = np.minimum(low + 1, n - 1)
    return low, high, np.where(low >= n - 1, 0.0, p - low)


def roi_align(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Average or maximum of interpolated samples per bin of every region (x1, y1, x2, y2)."""
    x, rois, batch = double(operand(arrays, 0)), double(operand(arrays, 1)), operand(arrays, 2)
    (ph, pw), ratio = tuple(attrs["out"]), int(attrs.get("ratio", 0))
    half, scale = bool(attrs.get("half_pixel", True)), float(attrs.get("scale", 1.0))
    y = np.zeros((rois.shape[0], x.shape[1], ph, pw))
    for r, roi in enumerate(rois):
        x1, y1, x2, y2 = roi[:4] * scale - (0.5 if half else 0.0)
        width, height = x2 - x1, y2 - y1
        if not half:
            width, height = max(width, 1.0), max(height, 1.0)
        ny = ratio if ratio > 0 else math.ceil(height / ph)
        nx = ratio if ratio > 0 else math.ceil(width / pw)
        if ny < 1 or nx < 1:
            continue
        rows = y1 + (np.arange(ph)[:, None] + (np.arange(ny) + 0.5) / ny) * height / ph
        cols = x1 + (np.arange(pw)[:, None] + (np.arange(nx) + 0.5) / nx) * width / pw
        h, w = x.shape[2:]
        seen = ((rows >= -1) & (rows <= h)).reshape(-1)[:, None] & ((cols >= -1) & (cols <= w)).reshape(-1)
        y0, y1_, fy = _corners(rows.reshape(-1), h)
        x0, x1_, fx = _corners(cols.reshape(-1), w)
        plane = x[int(batch[r])]
        parts = [
            plane[:, a[:, None], b[None, :]] * (wa[:, None] * wb[None, :]) * seen
            for (a, wa), (b, wb) in itertools.product(((y0, 1 - fy), (y1_, fy)), ((x0, 1 - fx), (x1_, fx)))
        ]
        if attrs.get("mode", "avg") == "avg":
            bins = (((parts[0] + parts[1]) + parts[2]) + parts[3]).reshape(-1, ph, ny, pw, nx)
            y[r] = total(bins, (2, 4), False) / (ny * nx)
        else:  # the largest weighted corner, as the operator's definition has it
            bins = np.max(np.stack(parts), axis=0).reshape(-1, ph, ny, pw, nx)
            y[r] = bins.max(axis=(2, 4)) + 0.0  # without negative zeros
    return [done(y, out_types)]


def max_roi_pool(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Maximum per bin of every region (batch, x1, y1, x2, y2) of whole elements, both ends included."""
    x, rois = double(operand(arrays, 0)), double(operand(arrays, 1))
    (ph, pw), scale = tuple(attrs["out"]), float(attrs.get("scale", 1.0))
    h, w = x.shape[2:]
    y = np.zeros((rois.shape[0], x.shape[1], ph, pw))
    for r, roi in enumerate(rois):
        x1, y1, x2, y2 = (int(math.floor(v * scale + 0.5)) for v in roi[1:5])
        bin_h, bin_w = max(y2 - y1 + 1, 1) / ph, max(x2 - x1 + 1, 1) / pw
        for i, j in itertools.product(range(ph), range(pw)):
            rows = slice(*(min(max(int(v) + y1, 0), h) for v in (math.floor(i * bin_h), math.ceil((i + 1) * bin_h))))
            cols = slice(*(min(max(int(v) + x1, 0), w) for v in (math.floor(j * bin_w), math.ceil((j + 1) * bin_w))))
            part = x[int(roi[0]), :, rows, cols]
            y[r, :, i, j] = part.max(axis=(1, 2)) if part.size else 0.0
    return [done(y, out_types)]


def deform_conv(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """Convolution whose taps read at shifted places: x [N, C, H, W], w [O, C/g, Kh, Kw], offset [N, 2*og*taps, ..]."""
    x, w, offset, bias, mask = (double(operand(arrays, i)) for i in range(5))
    groups, per = int(attrs.get("groups", 1)), int(attrs.get("offset_groups", 1))
    stride, dilation, lo = (pair(attrs, k, d, 2) for k, d in (("stride", 1), ("dilation", 1), ("pad_lo", 0)))
    n, channels = x.shape[:2]
    kernel, out = w.shape[2:], offset.shape[2:]
    taps = math.prod(kernel)
    offset, mask = offset.reshape(n, per, taps, 2, *out), mask.reshape(n, per, taps, *out)
    rows = np.arange(out[0])[:, None] * stride[0] - lo[0]
    cols = np.arange(out[1])[None, :] * stride[1] - lo[1]
    read = np.zeros((n, channels, taps, *out))
    each = channels // per
    for b, g, (t, (ky, kx)) in itertools.product(
        range(n), range(per), enumerate(itertools.product(range(kernel[0]), range(kernel[1])))
    ):
        py = rows + ky * dilation[0] + offset[b, g, t, 0]
        px = cols + kx * dilation[1] + offset[b, g, t, 1]
        coords = np.stack([py.reshape(-1), px.reshape(-1)], axis=1)
        mine = slice(g * each, (g + 1) * each)
        value = sample(x[b, mine], coords, "linear", "zeros", True).reshape(each, *out)
        read[b, mine, t] = value * mask[b, g, t]
    read = read.reshape(n, groups, channels // groups, taps, *out)
    weight = w.reshape(groups, w.shape[0] // groups, w.shape[1], taps)
    y = np.zeros((n, groups, weight.shape[1], *out))
    for c, t in itertools.product(range(weight.shape[2]), range(taps)):
        y += read[:, :, None, c, t] * weight[None, :, :, c, t, None, None]
    y = y.reshape(n, w.shape[0], *out)
    return [done(y + bias.reshape(1, -1, 1, 1), out_types)]


ROUTINES: dict[str, Routine] = {
    "grid_sample": grid_sample,
    "roi_align": roi_align,
    "max_roi_pool": max_roi_pool,
    "deform_conv": deform_conv,
}
