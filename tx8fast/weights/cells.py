"""Constants of an image whose patches stand cell by cell: angles of their rows and columns, masks of windows, stretched positions.

May import: numpy. Must not: read files; know the table.

`attrs` of all: `grid`, rows and columns of patches, and `merge`, those of a cell; `side`, where cells stand window by window, those of a window in
cells, 0 = row by row of cells; `turned`: column by column of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Shape = tuple[int, ...]


def _places(attrs: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return row and column of every patch, in the order in which patches stand."""
    (rows, columns), merge, side = attrs["grid"], attrs["merge"], attrs.get("side") or 0
    place = np.arange(rows * columns).reshape(rows // merge, merge, columns // merge, merge)
    place = place.transpose((2, 0, 1, 3) if attrs.get("turned") else (0, 2, 1, 3))
    if side:
        shape = (rows // merge // side, side, columns // merge // side, side, merge, merge)
        place = place.reshape(shape).transpose(0, 2, 1, 3, 4, 5)
    return np.divmod(place.reshape(-1), columns)


def _angles(attrs: Mapping[str, Any], width: int) -> np.ndarray:
    """Return the angle of every pair of lanes [patches, width / 2]: half of them turn by the row, the others by the column."""
    freq = float(attrs["theta"]) ** -(np.arange(0, width // 2, 2) / (width // 2))
    return np.concatenate([place[:, None] * freq for place in _places(attrs)], axis=1)


def cell_cos(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """Cosines of the rotation of every patch, shape [patches, width of a head]."""
    return np.tile(np.cos(_angles(attrs, shape[1])), 2)


def cell_sin(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """Sines with the sign of the rotation, shape [patches, width of a head]."""
    sine = np.sin(_angles(attrs, shape[1]))
    return np.concatenate([-sine, sine], axis=1)


def cell_mask(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """0 where two patches are in the same window of `window` x `window` cells, else `value`, shape [patches, patches]."""
    size = attrs["window"] * attrs["merge"]
    row, column = (place // size for place in _places(attrs))
    together = (row[:, None] == row[None, :]) & (column[:, None] == column[None, :])
    return np.where(together, np.float32(0), np.float32(attrs["value"]))


def cell_places(inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: Shape) -> np.ndarray:
    """A learned square of positions [side * side, hidden] stretched to the image corner to corner, bilinear, shape [patches, hidden]."""
    side = int(round(inputs[0].shape[0] ** 0.5))
    table = inputs[0].astype(np.float32).reshape(side, side, -1)
    (row, above), (column, left) = (
        _between(place, n, side) for place, n in zip(_places(attrs), attrs["grid"], strict=True)
    )
    corners = [
        (table[r, c], a * b)
        for r, a in ((row, 1 - above), (np.minimum(row + 1, side - 1), above))
        for c, b in ((column, 1 - left), (np.minimum(column + 1, side - 1), left))
    ]
    return sum((rows * share[:, None] for rows, share in corners), np.zeros(shape, np.float32))


def _between(place: np.ndarray, count: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest row of the table before every place of `count`, and how far behind it that is; in f32, as the models were trained."""
    at = place.astype(np.float32) * np.float32(side - 1) / np.float32(max(count - 1, 1))
    first = np.floor(at)
    return first.astype(np.int64), at - first
