"""What the analysis of padding asks of single ops and constants: where indices give places, what is never negative, what hides.

May import: ir, passes.padding_numbers, weights by interface. Must not: walk over a graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tx8fast.ir.core import Op, Value
from tx8fast.passes.padding_numbers import HIDDEN, Most
from tx8fast.weights.derived import MASK_VALUE

#: tail of an index vector: from n on every element is at least n
LATE = "late"
#: what a comparison gives of LATE, at one place or the other, and of an element below n
ORDER = {
    ("le", 0): 0.0,
    ("lt", 0): 0.0,
    ("gt", 0): 1.0,
    ("ge", 0): 1.0,
    ("le", 1): 1.0,
    ("lt", 1): 1.0,
    ("gt", 1): 0.0,
    ("ge", 1): 0.0,
}
Key = tuple[int, int | None]
#: so many rows show what windows and chunks of half as many do
SHOWN = 8


def looked_up(op: Op) -> frozenset[int]:
    """Return the dimensions of a table in which the places of rows are given."""
    if op.kind == "gather_nd":
        first = op.attrs["batch_dims"]
        return frozenset(range(first, first + op.operands[1].shape[-1]))
    return frozenset({op.attrs["axis"] % len(op.operands[0].shape) if op.kind == "gather" else 0})


def written(op: Op) -> frozenset[int]:
    """Return the dimensions of a scatter along which places are given."""
    if op.kind == "scatter":
        return frozenset({op.attrs["axis"] % len(op.result.shape)})
    return frozenset(range(len(op.result.shape)))


def lowest(v: Value) -> float:
    """Return what no element of a row is below that is meant to be seen: of probabilities zero, else what masks alone reach."""
    while v.op is not None and v.op.kind == "convert":
        v = v.op.operands[0]
    probable = v.op is not None and ((v.op.kind == "softmax" and not v.op.attrs["log"]) or v.op.kind == "sigmoid")
    return 0.0 if probable else MASK_VALUE["f16"] / 2


def shown(place: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a table that tells apart what this formula does in a table of any length: windows and chunks
    that do not fit into a short one would be missed."""
    attrs, sizes = place["attrs"], {n for n in place["shape"] if n > 1}
    if (
        place["expr"] not in ("causal_mask", "chunk_first")
        or attrs.get("offset")
        or attrs.get("ahead")
        or len(sizes) != 1
    ):
        return place
    wide = {k: min(attrs[k], SHOWN // 2) for k in ("window", "chunk") if attrs.get(k)}
    if all(wide[k] == attrs[k] for k in wide):
        return place
    return {**place, "attrs": {**attrs, **wide}, "shape": [SHOWN if n > 1 else 1 for n in place["shape"]]}


def tails_of(array: np.ndarray | None) -> dict[Key, Any]:
    """Facts that hold of a constant's elements from n on, for every n from 1."""
    if array is None or not array.size:
        return {}
    a = array.astype(np.float64)
    found: dict[Key, Any] = {}
    for axis in range(a.ndim):
        n = a.shape[axis]
        if n < 2:
            continue
        tail = np.moveaxis(a, axis, -1)[..., 1:]
        late = array.dtype.kind in "iu" and (np.moveaxis(a, axis, -1) >= np.arange(n)).all()
        alone = late and n == 2  # of one element it is not known whether the next is larger
        if (tail == tail.flat[0]).all() and not alone:
            found[axis, None] = float(tail.flat[0])
        elif late:
            found[axis, None] = LATE
        for row in range(a.ndim):
            if row != axis and a.shape[row] == n:
                columns = np.moveaxis(a, (row, axis), (-2, -1))[..., ~np.tri(n, dtype=bool)]
                if (columns == columns.flat[0]).all():
                    found[axis, row] = float(columns.flat[0])
                elif (columns <= HIDDEN).all():
                    found[axis, row] = Most(HIDDEN)
    return found
