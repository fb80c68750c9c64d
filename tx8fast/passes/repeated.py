"""Elements that are repeated within their dimensions, as images that are enlarged: a view, a broadcast and a view.

May import: ir, passes.lift_match. Must not: change numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from tx8fast.ir.core import Op, Value
from tx8fast.ir.rewrite import Rewriter
from tx8fast.passes.lift_match import made_by, static, used_once

Counts = tuple[int, ...]


def _apart(shape: Sequence[int], counts: Sequence[int], wide: bool) -> tuple[int, ...]:
    """Return the shape with a dimension behind each that is repeated."""
    return tuple([k for n, c in zip(shape, counts) for k in ((n, c if wide else 1) if c > 1 else (n,))])


def repeated(op: Op) -> tuple[tuple[Op, Op], Counts] | None:
    """Return the ops before one that alone serve it to repeat elements, and by dimension how often; None if it does not."""
    wide = made_by(op.operands[0], "broadcast") if op.kind == "reshape" else None
    view = None if wide is None else made_by(wide.operands[0], "reshape")
    if wide is None or view is None or not static(op.result, view.operands[0]):
        return None
    x, out = view.operands[0], op.result
    if len(x.shape) != len(out.shape) or 0 in x.shape or not (used_once(wide.result) and used_once(view.result)):
        return None
    counts = tuple([b // a for a, b in zip(x.shape, out.shape)])
    forms = view.result.shape == _apart(x.shape, counts, False) and wide.result.shape == _apart(x.shape, counts, True)
    return ((view, wide), counts) if forms and max(counts) > 1 else None


def repeat(rw: Rewriter, x: Value, counts: Counts, before: Op) -> Value:
    """Insert what repeats a value."""
    view = rw.insert("reshape", x, before=before, shape=_apart(x.shape, counts, False)).result
    wide = rw.insert("broadcast", view, before=before, shape=_apart(x.shape, counts, True)).result
    return rw.insert("reshape", wide, before=before, shape=tuple([n * c for n, c in zip(x.shape, counts)])).result
