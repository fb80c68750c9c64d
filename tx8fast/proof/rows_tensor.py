"""Meanings of rows on channel-blocked operands: reductions and pooling.

May import: numpy, proof. Must not: import meanings of isa.
Source: TX8 hardware manual 10.1, 10.2. Shapes are logical; padding lanes never take part.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.proof.cells import HIDDEN, Elements
from tx8fast.proof.meaning import Row, meaning
from tx8fast.proof.tile import Tile

#: axes of (n, h, w, c) by the field `dim`: C, W, H, HW
AXES = {0: (3,), 1: (2,), 2: (1,), 4: (1, 2)}


def _reduce(name: str):
    def run(tile: Tile, row: Row) -> None:
        dim, n, h, w, c = row.p[:5]
        if dim not in AXES:
            raise SimulationError(f"reduce: found dim {dim}, required 0 (C), 1 (W), 2 (H) or 4 (HW)")
        x = tile.load_blocked(row.spm[0], n, h * w, c, row.fmt).reshape(n, h, w, c)
        field = tile.field
        f = {"sum": field.sum, "avg": field.mean, "max": field.reduce_max, "min": field.reduce_min}[name]
        y = f(x, AXES[dim], True)
        tile.store_blocked(row.spm[1], y.reshape(n, y.shape[1] * y.shape[2], y.shape[3]), row.fmt)

    return run


for _name in ("sum", "avg", "max", "min"):
    meaning(f"reduce_{_name}")(_reduce(_name))


def windows(
    x: Elements, border: tuple[int, ...], kernel: tuple[int, int], step: tuple[int, int], hidden: bool
) -> list[Elements]:
    """Return the taps (n, oh, ow, c) of the windows of (n, h, w, c), row by row; outside of it: hidden, or zero."""
    top, bottom, left, right = border
    (ky, kx), (sy, sx) = kernel, step
    around = ((0, 0), (top, bottom), (left, right), (0, 0))
    p = np.pad(x.p, around, constant_values=HIDDEN if hidden else 0)
    padded = Elements(p, None if x.q is None else np.pad(x.q, around))
    _, h, w, _ = padded.shape
    oh, ow = (h - ky) // sy + 1, (w - kx) // sx + 1
    taps = [(y, z) for y in range(ky) for z in range(kx)]
    return [
        padded.at((slice(None), slice(y, y + (oh - 1) * sy + 1, sy), slice(z, z + (ow - 1) * sx + 1, sx)))
        for y, z in taps
    ]


def _pool(name: str):
    def run(tile: Tile, row: Row) -> None:
        n, h, w, c, top, bottom, left, right, kx, ky, sx, sy = row.p[:12]
        field = tile.field
        x = tile.load_blocked(row.spm[0], n, h * w, c, row.fmt).reshape(n, h, w, c)
        if name == "min":
            x = field.neg(x)
        taps = windows(x, (top, bottom, left, right), (ky, kx), (sy, sx), name in ("max", "min"))
        y = reduce(field.maximum if name in ("max", "min") else field.add, taps)
        if name == "min":
            y = field.neg(y)
        if name == "avg":
            y = field.mul(y, field.inverse_of(kx * ky))
        tile.store_blocked(row.spm[1], y.reshape(n, y.shape[1] * y.shape[2], c), row.fmt)

    return run


for _name in ("avg", "sum", "max", "min"):
    meaning(f"pool_{_name}")(_pool(_name))
