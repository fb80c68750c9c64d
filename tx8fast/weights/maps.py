"""Constants of maps of images: places as waves, and convolutions that hold the norm of channels behind them.

May import: numpy. Must not: read files; know the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Shape = tuple[int, ...]


def sine_places(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """Sines and cosines in turn of the row, then of the column, of every place of a map of `rows` rows, shape [places, width]; the last row
    and column are a whole turn of the first wave, the others are slower, down to one of 10000 (Carion et al. 2020)."""
    rows, (places, width) = attrs["rows"], shape
    columns, lanes = places // rows, np.arange(width // 2)
    found = []
    for n in (rows, columns):
        turn = np.arange(1, n + 1) / (n + 1e-6) * 2 * math.pi
        angle = turn[:, None] / 10000.0 ** (lanes // 2 * 2 / len(lanes))
        found.append(np.where(lanes % 2, np.cos(angle), np.sin(angle)))
    return np.concatenate([np.repeat(found[0], columns, axis=0), np.tile(found[1], (rows, 1))], axis=1)


def place_waves(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """Sines, then cosines, of every place from `first` on, shape [places, width]: the first wave turns by one radian per place, and over
    `over` waves they grow 10000 times as long (Vaswani et al. 2017, with the two kinds apart)."""
    places, width = shape
    angle = np.arange(attrs["first"], attrs["first"] + places)[:, None] * 10000.0 ** (
        -np.arange(width // 2) / attrs["over"]
    )
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


def _scale(gain: np.ndarray, variance: np.ndarray, eps: float) -> np.ndarray:
    return gain.astype(np.float32) / np.sqrt(variance.astype(np.float32) + np.float32(eps))


def normed_kernel(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """A convolution's weight [out, in, row, column] times what the norm behind it multiplies its channels by, shape [row, column, out, in];
    inputs: the weight, the norm's gain and variance."""
    kernel, gain, variance = inputs
    return (kernel.astype(np.float32) * _scale(gain, variance, attrs["eps"])[:, None, None, None]).transpose(2, 3, 0, 1)


def norm_shift(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """What a norm adds to its channels; inputs: its gain, variance, bias and mean."""
    gain, variance, bias, mean = inputs
    return bias.astype(np.float32) - mean.astype(np.float32) * _scale(gain, variance, attrs["eps"])
