"""Moves views that split rows up, past ops that work on each row alone.

May import: ir, passes.base, passes.lift_match. Must not: add ops to a graph.

Exporters flatten [batch, seq, features] to rows around a linear layer and split the rows again behind it. Moved up, the
second view meets the first one and both are gone; no op works on anything but what it worked on before.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from tx8fast.ir.core import ELEMENTWISE, Op, Value
from tx8fast.ir.rewrite import Pattern, Rewriter, pattern
from tx8fast.passes.base import PatternPass
from tx8fast.passes.lift_match import reshaped, sole_user, static
from tx8fast.records import dataclass

_NORMS = ("rmsnorm", "layernorm")


def _rows(op: Op) -> tuple[int, ...] | None:
    """Return which operands of `op` have a row for each row of its only result, None if rows are not independent."""
    shape = op.result.shape
    if op.kind == "gemm":
        return (0,) if not op.attrs["trans_a"] and len(op.operands[1].shape) == 2 else None
    if op.kind in _NORMS:
        return (0,) if [a % len(shape) for a in op.attrs["axes"]] == [len(shape) - 1] else None
    if not op.has(ELEMENTWISE) or "shape" in op.attrs:
        return None
    full = tuple(i for i, v in enumerate(op.operands) if v.shape == shape)
    rest = [v for i, v in enumerate(op.operands) if i not in full]
    return full if full and all(v.shape in ((), shape[-1:]) for v in rest) else None


@pattern("reshape")
def _raise(op: Op, rw: Rewriter) -> bool:
    """reshape(f(y)) to more dimensions with the same last one becomes f(reshape(y))."""
    rows: Value = op.operands[0]
    made = rows.op
    if made is None or len(made.results) != 1 or not static(op.result, rows) or sole_user(rows) is not op:
        return False
    target = op.result.shape
    if len(rows.shape) != 2 or len(target) <= 2 or target[-1] != rows.shape[-1] or not static(*made.operands):
        return False
    moved = _rows(made)
    if moved is None:
        return False
    operands = [
        reshaped(rw, v, (*target[:-1], v.shape[-1]), made) if i in moved else v for i, v in enumerate(made.operands)
    ]
    attrs = _attrs(made)
    if made.kind in _NORMS:
        attrs["axes"] = (-1,)
    rw.replace_with(op, made.kind, *operands, **attrs)
    return True


def _worked_on(view: Op) -> Op | None:
    """The elementwise op that a view alone reads, of known shapes."""
    made = view.operands[0].op
    if made is None or not made.has(ELEMENTWISE) or "shape" in made.attrs or len(made.results) != 1:
        return None
    return made if sole_user(made.result) is view and static(view.result, made.result, *made.operands) else None


def _attrs(op: Op) -> dict[str, Any]:
    return {n: op.attrs[n] for n in op.info.attrs if n in op.attrs}


@pattern("reshape")
def _raise_heads(op: Op, rw: Rewriter) -> bool:
    """reshape(f(y)) that splits the first dimension, of items and heads together, becomes f(reshape(y)) for an elementwise f."""
    if (made := _worked_on(op)) is None:
        return False
    joint = made.result
    first, *rest = joint.shape or (1,)
    lead = op.result.shape[: len(op.result.shape) - len(rest)]
    if len(rest) < 2 or len(lead) < 2 or op.result.shape[len(lead) :] != tuple(rest) or math.prod(lead) != first:
        return False
    if not any(v.shape == joint.shape for v in made.operands):
        return False
    operands = []
    for v in made.operands:
        if len(v.shape) == len(joint.shape):
            split = lead if v.shape[0] == first else (1,) * len(lead)
            v = reshaped(rw, v, (*split, *v.shape[1:]), made)
        operands.append(v)
    rw.replace_with(op, made.kind, *operands, **_attrs(made))
    return True


@pattern("reshape")
def _raise_lanes(op: Op, rw: Rewriter) -> bool:
    """reshape(f(y, gains)) that joins the lanes of heads becomes f(reshape(y), reshape(gains)) for an elementwise f."""
    if (made := _worked_on(op)) is None:
        return False
    heads = made.result
    lanes = heads.shape[-2:]
    if len(heads.shape) < 3 or op.result.shape != (*heads.shape[:-2], math.prod(lanes)):
        return False
    gains = [v for v in made.operands if v.shape == lanes]
    if not gains or not all(v.shape in ((), lanes, heads.shape) for v in made.operands):
        return False
    operands = [reshaped(rw, v, (*v.shape[:-2], math.prod(lanes)), made) if v.shape else v for v in made.operands]
    rw.replace_with(op, made.kind, *operands, **_attrs(made))
    return True


@pattern("reshape", benefit=5)
def _chain(op: Op, rw: Rewriter) -> bool:
    """A view of a view; none at all if the shape is the first one's."""
    first = op.operands[0].op
    if first is None or first.kind != "reshape" or not static(op.result):
        return False
    rw.replace(op, [reshaped(rw, first.operands[0], op.result.shape, op)])
    return True


@dataclass(frozen=True)
class RaiseViews(PatternPass):
    """Lets rows of a batch keep their batch through linear layers, norms and elementwise ops."""

    name: ClassVar[str] = "raise-views"
    rounds: ClassVar[tuple[tuple[Pattern, ...], ...]] = ((_raise, _raise_heads, _raise_lanes, _chain),)
