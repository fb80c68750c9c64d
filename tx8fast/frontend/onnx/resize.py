"""Handlers of resampling: every axis is a gather (nearest) or a product with a constant matrix (linear, cubic).

May import: frontend.onnx.{node, shape}. Must not: touch protobufs beyond a node's attributes.
"""

from __future__ import annotations

import math

import numpy as np

from tx8fast.frontend.common import Tensor
from tx8fast.frontend.onnx.node import Handler, Node
from tx8fast.frontend.onnx.shape import RANK_LIMIT
from tx8fast.records import dataclass


@dataclass(frozen=True)
class Axis:
    """One resized axis: `size` -> `out` elements, `scale` as given or derived, region of interest in [0, 1]."""

    index: int
    size: int
    out: int
    scale: float
    start: float
    end: float


def _source(n: Node, a: Axis, mode: str, kind: type[np.floating]) -> np.ndarray:
    """Return the source coordinate of every output element [out], computed in f32 or f64."""
    y = np.arange(a.out, dtype=kind)
    scale, start, end = kind(a.scale), kind(a.start), kind(a.end)
    length = scale * kind(a.size)  # the output's length before it was cut to a whole number
    if mode == "half_pixel":
        return (y + 0.5) / scale - 0.5
    if mode == "asymmetric":
        return y / scale
    if mode == "align_corners":
        return np.zeros(a.out) if length == 1 else y * (a.size - 1) / (length - 1)
    if mode == "pytorch_half_pixel":
        return y if a.out == 1 else (y + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        return a.size / 2 * (1 - a.out / length) + (y + 0.5) / scale - 0.5
    if mode == "tf_crop_and_resize":
        first = start * (a.size - 1)
        if a.out == 1:
            return np.full(a.out, first + (end - start) * (a.size - 1) / 2)
        return first + y * (end - start) * (a.size - 1) / (a.out - 1)
    raise n.unsupported(f"coordinate transformation '{mode}' is not supported")


def _nearest(x: np.ndarray, mode: str, size: int) -> np.ndarray:
    x = x.astype(np.float64)  # x + 0.5 is exact then
    rounded = {
        "round_prefer_floor": np.ceil(x - 0.5),
        "round_prefer_ceil": np.floor(x + 0.5),
        "floor": np.floor(x),
        "ceil": np.ceil(x),
    }[mode]
    return np.clip(rounded, 0, size - 1).astype(np.int64)


def _kernel(mode: str, a: float):
    """Return (support, weight function of the distance)."""
    if mode == "linear":
        return 1.0, lambda t: np.maximum(0.0, 1.0 - t)

    def cubic(t: np.ndarray) -> np.ndarray:
        near = ((a + 2) * t - (a + 3)) * t * t + 1
        far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
        return np.where(t <= 1, near, np.where(t < 2, far, 0.0))

    return 2.0, cubic


def _matrix(x: np.ndarray, axis: Axis, mode: str, cubic_a: float, antialias: bool, exclude: bool) -> np.ndarray:
    """Return the interpolation weights [out, size]; taps outside count for the edge element unless excluded."""
    support, weight = _kernel(mode, cubic_a)
    stretch = max(1.0, 1.0 / axis.scale) if antialias else 1.0
    reach = math.ceil(support * stretch)
    taps = np.floor(x).astype(np.int64)[:, None] + np.arange(-reach, reach + 2)[None, :]
    w = weight(np.abs(taps - x[:, None]) / stretch)
    if exclude:
        w = np.where((taps < 0) | (taps >= axis.size), 0.0, w)
    total = w.sum(axis=1, keepdims=True)
    w = w / np.where(total == 0, 1.0, total)
    matrix = np.zeros((axis.out, axis.size))
    np.add.at(matrix, (np.arange(axis.out)[:, None], np.clip(taps, 0, axis.size - 1)), w)
    return matrix


def _axes(n: Node, x: Tensor, scales: list[float] | None, sizes: list[int] | None, roi: list[float]) -> list[Axis]:
    named = [n.norm_axis(a, x.rank) for a in n.attr("axes", range(x.rank))]
    given = scales if scales is not None else sizes
    if given is None or len(given) != len(named):
        raise n.bad(f"scales {scales} or sizes {sizes} do not fit {len(named)} axes")
    if sizes is not None:
        factors = [s / x.shape[a] for s, a in zip(sizes, named)]
        policy = n.attr("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            one = min(factors) if policy == "not_larger" else max(factors)
            factors = [one] * len(named)
            sizes = [int(one * x.shape[a] + 0.5) for a in named]
    else:
        factors = list(scales or [])
        # in f32, the scales' format: 3 times what f32 has of 5 / 3 is 5 in it, and less than that outside of it
        sizes = [int(np.floor(np.float32(f) * np.float32(x.shape[a]))) for f, a in zip(factors, named)]
    ends = roi if len(roi) == 2 * len(named) else [0.0] * len(named) + [1.0] * len(named)
    return [Axis(a, x.shape[a], sizes[i], factors[i], ends[i], ends[i + len(named)]) for i, a in enumerate(named)]


def _taken(n: Node, x: Tensor, axis: int, places: np.ndarray) -> Tensor:
    """Return elements of one axis: every so manieth one, or any, which are looked up."""
    count = len(places)
    step = int(places[1] - places[0]) if count > 1 else 1
    if count and step > 0 and np.array_equal(places, places[0] + step * np.arange(count)):
        return n.slice(x, axis, int(places[0]), count, step)
    return n.op("gather", x, n.const(places), axis=axis)


def _repeats(size: int, places: np.ndarray) -> int:
    """Return how often every element of an axis is taken, 0 if it is not that."""
    count = len(places) // size if size else 0
    return count if np.array_equal(places, np.repeat(np.arange(size), count)) else 0


def _repeated(n: Node, x: Tensor, counts: list[int]) -> Tensor:
    """Return a tensor with every element so many times, by axis."""
    axes = [i for i, c in enumerate(counts) if c > 1]
    if len(axes) > 1 and x.rank + len(axes) > RANK_LIMIT:
        for axis in axes:
            x = _repeated(n, x, [c if i == axis else 1 for i, c in enumerate(counts)])
        return x

    def apart(wide: bool) -> list[int]:
        return [k for size, c in zip(x.shape, counts) for k in ((size, c if wide else 1) if c > 1 else (size,))]

    many = n.broadcast(n.reshape(x, apart(False)), apart(True))
    return n.reshape(many, [size * c for size, c in zip(x.shape, counts)])


def _resample(n: Node, x: Tensor, axes: list[Axis], mode: str, coordinates: str) -> Tensor:
    outside: list[tuple[int, np.ndarray]] = []
    dtype, counts = x.dtype, [1] * x.rank
    for a in axes:
        crop = coordinates == "tf_crop_and_resize"
        n.bounded(a.out * (1 if mode == "nearest" else a.size), "the table of what is read")
        if a.out == a.size and math.isclose(a.scale, 1.0) and not (crop and (a.start, a.end) != (0.0, 1.0)):
            continue
        # where an element is taken or another one, f32 decides, as it does when scales become sizes
        where = _source(n, a, coordinates, np.float32 if mode == "nearest" else np.float64)
        if crop:
            hidden = (where < 0) | (where > a.size - 1)
            if hidden.any():
                outside.append((a.index, hidden))
        if mode == "nearest":
            places = _nearest(where, n.attr("nearest_mode", "round_prefer_floor"), a.size)
            if c := _repeats(a.size, places):
                counts[a.index] = c
            else:
                x = _taken(n, x, a.index, places)
            continue
        if not x.is_float:
            x = n.cast(x, "f32")
        matrix = _matrix(
            where,
            a,
            mode,
            float(n.attr("cubic_coeff_a", -0.75)),
            bool(n.attr("antialias", 0)),
            bool(n.attr("exclude_outside", 0)),
        )
        perm = [i for i in range(x.rank) if i != a.index] + [a.index]
        y = n.op("gemm", n.transpose(x, perm), n.const(matrix.T, x.dtype))
        x = n.transpose(y, [perm.index(i) for i in range(x.rank)])
    if max(counts, default=1) > 1:
        x = _repeated(n, x, counts)
    if outside:
        mask = np.zeros(x.shape, bool)
        for index, hidden in outside:
            mask |= hidden.reshape([-1 if i == index else 1 for i in range(x.rank)])
        x = n.op("select", n.const(mask), n.const(float(n.attr("extrapolation_value", 0.0)), x.dtype), x)
    return n.cast(x, dtype)


def _resize(n: Node) -> Tensor:
    x = n[0]
    mode = n.attr("mode", "nearest")
    if mode not in ("nearest", "linear", "cubic"):
        raise n.unsupported(f"mode '{mode}' is not supported")
    roi: list[float] = []
    if n.opset >= 11:
        coordinates = n.attr("coordinate_transformation_mode", "half_pixel")
        if coordinates == "tf_crop_and_resize":
            roi = [float(v) for v in n.static(1, "roi").reshape(-1)]
        scales = _floats(n, 2, "scales")
        sizes = n.ints(3, "sizes")
    else:
        coordinates, scales, sizes = "asymmetric", _floats(n, 1, "scales"), None
        n.attrs["nearest_mode"] = "floor"
    return _resample(n, x, _axes(n, x, scales or None, sizes or None, roi), mode, coordinates)


def _floats(n: Node, i: int, name: str) -> list[float] | None:
    return [float(v) for v in n.static(i, name).reshape(-1)] if n.has(i) else None


def _upsample(n: Node) -> Tensor:
    scales = _floats(n, 1, "scales") or [float(s) for s in n.attr("scales", [])]
    asked = n.attr("mode", "nearest")
    mode = {"nearest": "nearest", "linear": "linear", "bilinear": "linear"}.get(asked)
    if mode is None:
        raise n.unsupported(f"mode '{asked}' is not supported")
    axes = _axes(n, n[0], scales, None, [])
    if mode == "nearest":
        n.attrs["nearest_mode"] = "floor"
    return _resample(n, n[0], axes, mode, "asymmetric")


HANDLERS: tuple[Handler, ...] = (
    Handler("Resize", _resize, 10),
    Handler("Upsample", _upsample, 7, 9),
)
