"""Recognises gathers whose places are known and lie in order: they are slices.

May import: ir, passes.lift_match. Must not: read an index that the model computes, or drop an error of a place that is not there.
"""

from __future__ import annotations

import numpy as np

from tx8fast.ir.core import Op
from tx8fast.ir.rewrite import Pattern, Rewriter
from tx8fast.passes.lift_match import Constants, reshaped, static


def known_places(constants: Constants) -> Pattern:
    def apply(op: Op, rw: Rewriter) -> bool:
        """A gather of all combinations of some places of each axis, in order, repeated along others of its dimensions or not."""
        x, indices = op.operands
        known = constants.array(indices) if static(x, indices) else None
        if known is None or not known.size or op.attrs.get("batch_dims"):
            return False
        first = op.attrs["axis"] % len(x.shape) if op.kind == "gather" else 0
        places = known.astype(np.int64)[..., None] if op.kind == "gather" else known.astype(np.int64)
        sizes = np.array(x.shape[first : first + places.shape[-1]])
        places = np.where(places < 0, places + sizes, places)
        if (places < 0).any() or (places >= sizes).any():
            return False
        for axis in range(places.ndim - 1):
            once = places.take([0], axis)
            places = once if (places == once).all() else places
        columns = [np.unique(column) for column in places.reshape(-1, len(sizes)).T]
        steps = [int(c[1] - c[0]) if len(c) > 1 else 1 for c in columns]
        if any((np.diff(c) != step).any() for c, step in zip(columns, steps, strict=True)):
            return False
        grid = np.stack(np.meshgrid(*columns, indexing="ij"), -1)
        if grid.size != places.size or (grid.reshape(-1) != places.reshape(-1)).any():
            return False
        start, size, step = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
        for d, (c, n) in enumerate(zip(columns, steps, strict=True), first):
            start[d], size[d], step[d] = int(c[0]), len(c), n
        part = rw.insert("slice", x, before=op, start=start, size=size, step=step).result
        shape = (*x.shape[:first], *places.shape[:-1], *x.shape[first + len(sizes) :])
        part = reshaped(rw, part, shape, op)
        if shape != op.result.shape:
            part = rw.insert("broadcast", part, before=op, shape=op.result.shape).result
        rw.replace(op, [part])
        return True

    return Pattern("known-places", ("tx8be.gather", "tx8be.gather_nd"), apply)
