"""Handlers of signal and image operators: windows, Fourier transforms, grids and regions.

May import: frontend.onnx.node. Must not: touch protobufs beyond a node's attributes.
A Fourier transform of known length is a product with a constant matrix.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tx8fast.frontend.common import Tensor, np_type
from tx8fast.frontend.onnx.node import Handler, Node
from tx8fast.frontend.onnx.reader import dtype_of


def _window(*coefficients: float):
    """A sum of cosines a0 - a1 cos(2 pi n / N) + a2 cos(4 pi n / N)."""

    def run(n: Node) -> Tensor:
        size = n.bounded(int(n.number(0, "size")), "the window")
        dtype = dtype_of(n.attr("output_datatype", 1), n.where)
        steps = size if n.attr("periodic", 1) else size - 1
        angle = 2 * math.pi * np.arange(size) / max(steps, 1)
        values = sum((-1) ** k * c * np.cos(k * angle) for k, c in enumerate(coefficients))
        # no window is negative: where a sum is 0 but for rounding, its root must not be NaN
        return n.const(np.maximum(values, 0).astype(np_type(dtype)), dtype)

    return run


def _mel_weights(n: Node) -> Tensor:
    bins, length, rate = (int(n.number(i, "parameter")) for i in range(3))
    n.bounded((length // 2 + 1) * bins, "the table of weights")
    if rate < 1:
        raise n.bad(f"the sample rate is {rate}, required 1 or more")
    low, high = (float(n.number(i, "edge frequency")) for i in (3, 4))
    dtype = dtype_of(n.attr("output_datatype", 1), n.where)
    edges = np.array([low, high])
    mel_low, mel_high = 2595 * np.log10(1 + edges / 700)
    mels = np.arange(bins + 2) * ((mel_high - mel_low) / (bins + 2)) + mel_low
    points = (((length + 1) * (700 * (10 ** (mels / 2595) - 1))) // rate).astype(int)
    weights = np.zeros((length // 2 + 1, bins))
    for i in range(bins):
        left, peak, right = points[i : i + 3]
        if peak == left:
            weights[peak, i] = 1
        else:
            weights[left : peak + 1, i] = (np.arange(left, peak + 1) - left) / (peak - left)
        if right > peak:
            weights[peak:right, i] = (right - np.arange(peak, right)) / (right - peak)
    return n.const(weights.astype(np_type(dtype)), dtype)


def _fourier(n: Node, x: Tensor, axis: int, length: int, inverse: bool, onesided: bool) -> Tensor:
    """Transform [..., axis, ..., 1 or 2] (last: real, imaginary); `length` cuts or extends the axis with zeros."""
    given = x.shape[axis]
    complex_in = x.shape[-1] == 2
    n.bounded(length * length, "the matrix of the transform")
    spectrum = np.fft.fft(np.eye(length), axis=0)  # [frequency, time]
    if inverse and onesided:
        return _inverse_real(n, x, axis, length)
    matrix = np.conj(spectrum) / length if inverse else spectrum
    rows = length // 2 + 1 if onesided else length
    used = min(given, length)
    matrix = matrix[:rows, :used].T  # [time, frequency]
    x = n.slice(x, axis, 0, used)
    moved, back = _last(x.rank - 1, axis)
    parts = [n.transpose(n.reshape(n.slice(x, x.rank - 1, i, 1), x.shape[:-1]), moved) for i in range(x.shape[-1])]
    cos, sin = n.const(matrix.real, x.dtype), n.const(matrix.imag, x.dtype)
    real, imaginary = n.op("gemm", parts[0], cos), n.op("gemm", parts[0], sin)
    if complex_in:
        real = n.op("sub", real, n.op("gemm", parts[1], sin))
        imaginary = n.op("add", imaginary, n.op("gemm", parts[1], cos))
    done = [n.transpose(t, back) for t in (real, imaginary)]
    return n.concat([n.reshape(t, (*t.shape, 1)) for t in done], done[0].rank)


def _inverse_real(n: Node, x: Tensor, axis: int, length: int) -> Tensor:
    """From half a spectrum back to a real signal: the missing half is the conjugate of the given one."""
    rows = length // 2 + 1
    used = min(x.shape[axis], rows)
    basis = [np.fft.irfft(np.eye(rows) * unit, n=length, axis=1)[:used] for unit in (1.0, 1.0j)]  # [frequency, time]
    x = n.slice(x, axis, 0, used)
    moved, back = _last(x.rank - 1, axis)
    total: Any = None
    for i in range(x.shape[-1]):
        part = n.transpose(n.reshape(n.slice(x, x.rank - 1, i, 1), x.shape[:-1]), moved)
        y = n.op("gemm", part, n.const(basis[i], x.dtype))
        total = y if total is None else n.op("add", total, y)
    done = n.transpose(total, back)
    return n.reshape(done, (*done.shape, 1))


def _last(rank: int, axis: int) -> tuple[list[int], list[int]]:
    """Return the permutation that puts `axis` last, and the one that undoes it."""
    perm = [i for i in range(rank) if i != axis] + [axis]
    return perm, [perm.index(i) for i in range(rank)]


def _dft(n: Node) -> Tensor:
    x = n[0]
    inverse, onesided = bool(n.attr("inverse", 0)), bool(n.attr("onesided", 0))
    if n.opset >= 20:
        axis = int(n.number(2, "axis")) if n.has(2) else -2
    else:
        axis = n.attr("axis", 1)
    axis = n.norm_axis(axis, x.rank)
    if n.has(1):
        length = int(n.number(1, "dft_length"))
    else:
        length = 2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis]
    flat = x if x.rank >= 3 else n.reshape(x, (1, *x.shape))
    y = _fourier(n, flat, axis + flat.rank - x.rank, length, inverse, onesided)
    return y if flat is x else n.reshape(y, y.shape[1:])


def _stft(n: Node) -> Tensor:
    """Frames are gathered, weighted by the window and transformed."""
    x, step = n[0], int(n.number(1, "frame_step"))
    x = x if x.rank == 3 else n.reshape(x, (*x.shape, 1))
    if not n.has(2) and not n.has(3):
        raise n.bad("neither a window nor frame_length is given")
    length = int(n.number(3, "frame_length")) if n.has(3) else n[2].shape[0]
    count = 1 + (x.shape[1] - length) // step
    n.bounded(count * length, "the table of frames")
    places = np.arange(count)[:, None] * step + np.arange(length)[None, :]
    frames = n.op("gather", x, n.const(places.astype(np.int64)), axis=1)
    if n.has(2):
        frames = n.op("mul", frames, n.reshape(n[2], (length, 1)))
    return _fourier(n, frames, 2, length, False, bool(n.attr("onesided", 1)))


def _grid_sample(n: Node) -> Tensor:
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(n.attr("mode", "linear"), n.attr("mode", "linear"))
    flags = {"mode": mode, "padding": n.attr("padding_mode", "zeros"), "align": bool(n.attr("align_corners", 0))}
    return n.op("grid_sample", n[0], n[1], **flags)


def _roi_align(n: Node) -> Tensor:
    shift = n.attr("coordinate_transformation_mode", "half_pixel" if n.opset >= 16 else "output_half_pixel")
    return n.op(
        "roi_align",
        n[0],
        n[1],
        n.cast(n[2], "i64"),
        mode=n.attr("mode", "avg"),
        half_pixel=shift == "half_pixel",
        out=(n.attr("output_height", 1), n.attr("output_width", 1)),
        ratio=n.attr("sampling_ratio", 0),
        scale=float(n.attr("spatial_scale", 1.0)),
    )


def _max_roi_pool(n: Node) -> Tensor:
    return n.op(
        "max_roi_pool", n[0], n[1], out=tuple(n.required("pooled_shape")), scale=float(n.attr("spatial_scale", 1.0))
    )


def _col2im(n: Node) -> Tensor:
    image, block = n.listed(1, "image_shape"), n.listed(2, "block_shape")
    rank = len(image)
    pads = n.attr("pads", [0] * 2 * rank)
    return n.op(
        "col2im",
        n[0],
        image=tuple(image),
        kernel=tuple(block),
        stride=tuple(n.attr("strides", [1] * rank)),
        dilation=tuple(n.attr("dilations", [1] * rank)),
        pad_lo=tuple(pads[:rank]),
        pad_hi=tuple(pads[rank:]),
    )


def _affine_grid(n: Node) -> Tensor:
    """Base coordinates in [-1, 1] times the transposed transforms."""
    theta, size = n[0], n.listed(1, "size")
    spatial = size[2:]
    n.bounded(math.prod(spatial) * (len(spatial) + 1), "the grid")
    lines = []
    for length in spatial:
        step = np.linspace(-1, 1, length) if n.attr("align_corners", 0) else (2 * np.arange(length) + 1) / length - 1
        lines.append(step)
    planes = np.meshgrid(*lines, indexing="ij")[::-1]  # x first
    base = np.stack([*planes, np.ones(spatial)], axis=-1).reshape(-1, len(spatial) + 1)
    y = n.op("gemm", n.const(base, theta.dtype), theta, trans_b=True)
    return n.reshape(y, (size[0], *spatial, len(spatial)))


HANDLERS: tuple[Handler, ...] = (
    Handler("HannWindow", _window(0.5, 0.5), 17),
    Handler("HammingWindow", _window(25 / 46, 21 / 46), 17),
    Handler("BlackmanWindow", _window(0.42, 0.5, 0.08), 17),
    Handler("MelWeightMatrix", _mel_weights, 17),
    Handler("DFT", _dft, 17),
    Handler("STFT", _stft, 17),
    Handler("GridSample", _grid_sample, 16),
    Handler("RoiAlign", _roi_align, 10),
    Handler("MaxRoiPool", _max_roi_pool),
    Handler("Col2Im", _col2im, 18),
    Handler("AffineGrid", _affine_grid, 20),
)
