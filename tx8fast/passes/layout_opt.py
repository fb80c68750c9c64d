"""Removes conversions between forms that achieve nothing.

May import: ir, passes.base, passes.layout_forms. Must not: change the form of anything but constants of rank 0 and 1.
Every rule erases a channel_norm, so the set comes to an end.
"""

from __future__ import annotations

from typing import ClassVar

from tx8fast.ir.core import Op
from tx8fast.ir.rewrite import Pattern, Rewriter, pattern
from tx8fast.passes.base import PatternPass
from tx8fast.passes.layout_forms import CONSTANTS
from tx8fast.records import dataclass


@pattern("channel_norm", benefit=3)
def _of_small_constant(op: Op, rw: Rewriter) -> bool:
    """A constant of rank 0 or 1 is the same in both forms but for its padding, which packing adds."""
    source = op.operands[0].op
    if source is None or source.kind not in CONSTANTS or source.result.type.rank > 1:  # type: ignore[attr-defined]
        return False
    if len(source.result.uses) > 1:
        return False
    source.attrs["mem_layout"] = "blocked" if op.attrs["to"] == "align" else "dense"
    rw.replace(op, [source.result])
    return True


@pattern("channel_norm", benefit=2)
def _inverse(op: Op, rw: Rewriter) -> bool:
    """There and back again."""
    inner = op.operands[0].op
    if inner is None or inner.kind != "channel_norm" or inner.attrs["to"] == op.attrs["to"]:
        return False
    rw.replace(op, [inner.operands[0]])
    return True


@pattern("channel_norm")
def _redundant(op: Op, rw: Rewriter) -> bool:
    """An earlier conversion of the same value in the same direction serves."""
    for other in op.operands[0].users:
        if other is op or other.kind != "channel_norm" or other.block is not op.block:
            continue
        if other.attrs["to"] == op.attrs["to"] and other.is_before(op):
            rw.replace(op, [other.result])
            return True
    return False


PATTERNS: tuple[Pattern, ...] = (_of_small_constant, _inverse, _redundant)


@dataclass(frozen=True)
class LayoutOpt(PatternPass):
    name: ClassVar[str] = "layout-opt"
    rounds: ClassVar[tuple[tuple[Pattern, ...], ...]] = (PATTERNS,)
