"""Norms of every head's channels work on rows as products leave them.

May import: ir, passes.base, passes.lift_match, numerics.layout. Must not: choose layouts.

A model splits [.., heads * channels] into [.., heads, channels] to normalise the last dimension. In the blocked form the two have
different orders of bytes, so every such view costs passes over memory. Where the channels of a head are whole blocks the norm can
be told of the heads instead, and the view moves behind it, where it meets the one that puts the heads together again.
"""

from __future__ import annotations

from typing import ClassVar

from tx8fast.ir.core import Op
from tx8fast.ir.rewrite import Pattern, Rewriter, pattern
from tx8fast.numerics.layout import block_size
from tx8fast.passes.base import PatternPass
from tx8fast.passes.lift_match import made_by, reshaped, static
from tx8fast.records import dataclass


@pattern("rmsnorm", "layernorm")
def _heads(op: Op, rw: Rewriter) -> bool:
    """norm(reshape(x)) becomes reshape(norm(x, heads))."""
    view, shape = made_by(op.operands[0], "reshape"), op.result.shape
    if (
        view is None
        or not static(op.result, *view.operands)
        or [a % len(shape) for a in op.attrs["axes"]] != [len(shape) - 1]
    ):
        return False
    x, (*lead, heads, channels) = view.operands[0], (1, *shape)
    vectors = [v for v in op.operands[1:] if v is not None]
    if (
        op.attrs["heads"] != 1
        or heads == 1
        or x.shape[-1:] != (heads * channels,)
        or channels % block_size(op.result.dtype)
    ):
        return False
    if any(v.shape != (channels,) for v in vectors):
        return False
    rows = reshaped(rw, x, (*lead[1:], heads * channels), op)
    made = rw.insert(op.kind, rows, *op.operands[1:], before=op, axes=(-1,), eps=op.attrs["eps"], heads=heads).result
    rw.replace(op, [reshaped(rw, made, shape, op)])
    return True


@dataclass(frozen=True)
class NormHeads(PatternPass):
    """Lets norms of heads work on rows of all heads."""

    name: ClassVar[str] = "norm-heads"
    rounds: ClassVar[tuple[tuple[Pattern, ...], ...]] = ((_heads,),)
