"""In which dimensions do an op's indices give places?

May import: ir. Must not: look at values.
"""

from __future__ import annotations

from tx8fast.ir.core import Op


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
