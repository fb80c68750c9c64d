"""Layer, RMS and batch normalisation, softmax and rotary position embedding.

May import: numpy, the routine helpers. Must not: know layouts or instructions.
Arithmetic is in f64, sums one element after the other; results are rounded once.
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
    operand,
    optional,
    total,
)


def layernorm(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """(x - mean) / sqrt(variance + eps) over `axes`, then * gamma + beta (both broadcast)."""
    x = _by_head(double(operand(arrays, 0)), attrs)
    gamma, beta = optional(arrays, 1), optional(arrays, 2)
    axes = axes_of(attrs, x.ndim, (-1,))
    centred = x - _mean(x, axes)
    y = centred / np.sqrt(_mean(centred * centred, axes) + attrs.get("eps", 1e-5))
    y = y if gamma is None else y * double(gamma)
    y = y if beta is None else y + double(beta)
    return [done(y.reshape(operand(arrays, 0).shape), out_types)]


def rmsnorm(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """x / sqrt(mean(x^2) + eps) over `axes`, then * gamma (broadcast)."""
    x = _by_head(double(operand(arrays, 0)), attrs)
    gamma = optional(arrays, 1)
    axes = axes_of(attrs, x.ndim, (-1,))
    y = x / np.sqrt(_mean(x * x, axes) + attrs.get("eps", 1e-5))
    y = y if gamma is None else y * double(gamma)
    return [done(y.reshape(operand(arrays, 0).shape), out_types)]


def _mean(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return total(x, axes, True) / math.prod(x.shape[a] for a in axes)


def _by_head(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    """Return x with the channels of every head as a dimension of their own, if there are several heads."""
    heads = int(attrs.get("heads", 1))
    return x if heads == 1 else x.reshape(*x.shape[:-1], heads, -1)


def softmax(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """softmax(x * scale + mask) along `axis`, or its logarithm; a pred mask keeps where true."""
    x = double(operand(arrays, 0))
    mask = optional(arrays, 1)
    if not x.size:
        return [done(x, out_types)]
    z = x * attrs.get("scale", 1.0)
    if mask is not None:
        z = np.where(mask, z, -math.inf) if mask.dtype == np.bool_ else z + double(mask)
    axis = axis_of(attrs, z.ndim)
    z = z - np.max(z, axis=axis, keepdims=True)
    e = np.exp(z)
    whole = total(e, (axis,), True)
    y = z - np.log(whole) if attrs.get("log") else e / whole
    return [done(y, out_types)]


def batchnorm_inference(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """(x - mean) / sqrt(variance + eps) * scale + offset, vectors over the last axis."""
    x, scale, offset, mean, variance = (double(operand(arrays, i)) for i in range(5))
    factor = scale / np.sqrt(variance + attrs.get("eps", 1e-6))
    return [done((x - mean) * factor + offset, out_types)]


def rope(arrays: Arrays, attrs: Attrs, out_types: OutTypes) -> list[np.ndarray]:
    """x * cos + partner(x) * sin per head; the sin table carries the sign.

    x [.., S, heads * D], tables [.., S or 1, D]. Lanes from `rotary_dim` on are their own partners.
    Raises SimulationError on an unknown style or a width that `heads` does not divide.
    """
    x, cos, sin = (double(operand(arrays, i)) for i in range(3))
    heads, style = int(attrs.get("heads", 1)), str(attrs.get("style", "half"))
    if heads < 1 or x.shape[-1] % heads:
        raise SimulationError(f"rope: width {x.shape[-1]} is not divisible by {heads} heads")
    width = x.shape[-1] // heads
    lanes = int(attrs.get("rotary_dim", -1))
    lanes = width if lanes < 0 else lanes
    j, lane = np.arange(lanes), np.arange(width)
    if style == "half":
        partner = (j + lanes // 2) % lanes
    elif style == "interleaved":
        partner = j ^ 1
    else:
        raise SimulationError(f"rope: unknown style '{style}', expected half or interleaved")
    lane[:lanes] = partner
    split = x.reshape(*x.shape[:-1], heads, width)
    y = split * cos[..., None, :] + split[..., lane] * sin[..., None, :]
    return [done(y.reshape(x.shape), out_types)]


ROUTINES: dict[str, Routine] = {
    "layernorm": layernorm,
    "rmsnorm": rmsnorm,
    "softmax": softmax,
    "batchnorm_inference": batchnorm_inference,
    "rope": rope,
}
