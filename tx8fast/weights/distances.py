"""Learned rows per distance of query and key, as waves over the distances that a length has.

May import: numpy. Must not: read files; know the table.

2 n waves, n cosines and n sines of odd half turns, hold what any 2 n distances in a row do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Shape = tuple[int, ...]


def distance_rows(table: np.ndarray, far: np.ndarray, attrs: Mapping[str, Any]) -> np.ndarray:
    """Return the row of every distance in `far` of a table of 2 * `span` rows. Near distances have rows of their own, from half of the
    `buckets` on they share them by their logarithm, up to `farthest` (He et al. 2021)."""
    span, buckets, row = attrs["span"], attrs["buckets"], far
    if buckets:  # in f32, as the models were trained
        middle = buckets // 2
        size = np.where(np.abs(far) < middle, middle - 1, np.abs(far)).astype(np.float32)
        widest = np.log(np.float32((attrs["farthest"] - 1) / middle))
        shared = np.ceil(np.log(size / np.float32(middle)) / widest * np.float32(middle - 1)) + middle
        row = np.where(size <= middle, far, shared * np.sign(far)).astype(np.int64)
    return table[np.clip(row + span, 0, 2 * span - 1)]


def wave_rows(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """What a projection makes of the rows of distances, as waves, shape [blocks, 2 n, width]: factors of n cosines, then those of sines times
    `sign`, for every block of a `length`. sign -1: for blocks of queries, 1: of keys; their own place in the block is not counted.
    Inputs: the table, a norm's gains and biases unless `eps` is null, the projection [width, hidden] and its biases."""
    table, *norm, matrix, bias = (x.astype(np.float32) for x in inputs)
    (blocks, count, _), length, sign = shape, attrs["length"], attrs["sign"]
    block = length // blocks
    far = np.arange(1 - length, length)
    rows = distance_rows(table, far, attrs)
    if attrs["eps"] is not None:
        rows = rows - rows.mean(axis=1, keepdims=True)
        rows = (
            rows / np.sqrt(np.square(rows).mean(axis=1, keepdims=True) + np.float32(attrs["eps"])) * norm[0] + norm[1]
        )
    rows = (rows @ matrix.T + bias).astype(np.float64)
    first = (1 - length) if sign < 0 else (1 - block)  # as seen from the block's first place
    seen = np.zeros((count, rows.shape[1]))
    out = np.empty(shape, np.float32)
    turn = np.exp(-1j * math.pi / count * np.arange(count))[:, None]
    begin = np.exp(-1j * _angles(np.array([first]), count // 2)).T * math.sqrt(2.0 / count)
    for i in range(blocks):
        start = first - sign * i * block + length - 1
        seen[: length + block - 1] = rows[start : start + length + block - 1]
        waves = np.fft.fft(seen * turn, axis=0)[: count // 2] * begin
        out[i] = np.concatenate([waves.real, -sign * waves.imag])
    return out


def _angles(places: np.ndarray, waves: int) -> np.ndarray:
    """Return the angle of every wave at every place [places, waves]."""
    return places[:, None] * ((np.arange(waves) + 0.5) * (math.pi / waves))[None, :]


def waves(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """The waves at every place, shape [places, 2 n], of cosines and then sines, times `factor` / sqrt(n)."""
    angles = _angles(np.arange(shape[0]), shape[1] // 2)
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * (attrs["factor"] * math.sqrt(2.0 / shape[1]))


def wave_cos(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """The cosines by which a place turns waves, twice side by side, shape [places, 2 n]."""
    return np.tile(np.cos(_angles(np.arange(shape[0]), shape[1] // 2)), 2)


def wave_sin(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """The sines, with the sign of the rotation: first those of what is taken away, shape [places, 2 n]."""
    sine = np.sin(_angles(np.arange(shape[0]), shape[1] // 2))
    return np.concatenate([-sine, sine], axis=1)
