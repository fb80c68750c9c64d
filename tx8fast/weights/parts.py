"""Weights of which chips that share a model hold a part each.

May import: weights.table. Must not: read tensor bytes, or know what a weight is for.
"""

from __future__ import annotations

from tx8fast.weights.table import DerivedSource, Weight, WeightTable


def add_shared(
    table: WeightTable, key: str, whole: str, dim: int, blocks: int, parts: int, sharing: int, chips: int
) -> Weight:
    """Add entry `key`, of which each of `chips` holds a part of the entry `whole`: dimension `dim` consists of `blocks`, and of every one chip c
    of each `sharing` neighbours has part c * parts // sharing of `parts`."""
    w = table[whole]
    wide = [*w.shape[:dim], blocks, w.shape[dim] // blocks, *w.shape[dim + 1 :]]
    take = [n // parts if i == dim + 1 else n for i, n in enumerate(wide)]
    shape = tuple(n // parts if i == dim else n for i, n in enumerate(w.shape))
    sources = {}
    for chip in range(chips):
        part = chip % sharing * parts // sharing
        start = [part * take[i] if i == dim + 1 else 0 for i in range(len(wide))]
        steps = [["reshape", wide], ["slice", start, take], ["reshape", list(shape)]]
        sources[chip] = DerivedSource("view", {"steps": steps}, (whole,))
    return table.add_per_chip(key, sources, shape, w.dtype)
