"""Expressions of what chips do together: every operand and result is one value per chip.

May import: numpy, graph_table, proof.expression, proof.cells. Must not: know routes or messages.

Chips are numbered row by row of the grid; `groups` lists them, one group of `parts` after the other, () is all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tx8fast.graph_table import OpRecord
from tx8fast.proof.expression import CONCRETE, NotExpressed, Scope, Value, elements, moved
from tx8fast.proof.expressions_movement import joined

Collective = Callable[[Scope, OpRecord, Sequence[Value]], list[Value]]


def _groups(op: OpRecord, n: int) -> list[list[int]]:
    groups, parts = op.attr("groups"), op.attr("parts")
    if not groups:
        return [list(range(n))]
    return [[c for c in groups[i : i + parts] if c != -1] for i in range(0, len(groups), parts)]


def _combined(scope: Scope, op: OpRecord, values: Sequence[Value]) -> Value:
    """Return the sum, maximum, minimum or product of the values of a group."""
    f, kind = scope.field, op.attr("combine")
    if all(isinstance(v, np.ndarray) for v in values):
        function = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}.get(kind)
    else:
        function = {"add": f.add, "mul": f.mul, "max": f.maximum, "min": f.minimum}.get(kind)
        values = [elements(scope, v) for v in values]
    if function is None:
        raise NotExpressed(f"{op.kind} with '{kind}'")
    made = values[0]
    for v in values[1:]:
        made = function(made, v)  # type: ignore[arg-type]
    return made


def _pieces(value: Value, dim: int, parts: int) -> list[Value]:
    size = value.shape[dim] // parts
    lead = (slice(None),) * (dim % len(value.shape))
    return [moved(value, lambda a, i=i: a[(*lead, slice(i * size, (i + 1) * size))]) for i in range(parts)]


def all_reduce(scope: Scope, op: OpRecord, values: Sequence[Value]) -> list[Value]:
    made = list(values)
    for group in _groups(op, len(values)):
        whole = _combined(scope, op, [values[c] for c in group])
        for c in group:
            made[c] = whole
    return made


def all_gather(scope: Scope, op: OpRecord, values: Sequence[Value]) -> list[Value]:
    made = list(values)
    for group in _groups(op, len(values)):
        whole = joined(scope, [values[c] for c in group], op.attr("dim"))
        for c in group:
            made[c] = whole
    return made


def reduce_scatter(scope: Scope, op: OpRecord, values: Sequence[Value]) -> list[Value]:
    made = list(values)
    for group in _groups(op, len(values)):
        pieces = _pieces(_combined(scope, op, [values[c] for c in group]), op.attr("dim"), len(group))
        for c, piece in zip(group, pieces, strict=True):
            made[c] = piece
    return made


def all_to_all(scope: Scope, op: OpRecord, values: Sequence[Value]) -> list[Value]:
    made = list(values)
    for group in _groups(op, len(values)):
        pieces = [_pieces(values[c], op.attr("split_dim"), len(group)) for c in group]
        for i, c in enumerate(group):
            made[c] = joined(scope, [own[i] for own in pieces], op.attr("concat_dim"))
    return made


def permute(scope: Scope, op: OpRecord, values: Sequence[Value]) -> list[Value]:
    """Chips that receive nothing hold zero."""
    pairs = op.attr("pairs")
    spec = op.results[0]
    zero: Value = np.zeros(spec.shape, CONCRETE.get(spec.dtype, np.int64))
    nothing = zero if spec.dtype in CONCRETE else scope.field.numbers(zero)
    source = dict(zip(pairs[1::2], pairs[::2], strict=True))
    return [values[source[c]] if c in source else nothing for c in range(len(values))]


def broadcast_dev(scope: Scope, op: OpRecord, values: Sequence[Value]) -> list[Value]:
    made = list(values)
    for group in _groups(op, len(values)):
        for c in group:
            made[c] = values[group[op.attr("root")]]
    return made


#: kind -> (one value per chip) -> one value per chip
COLLECTIVES: dict[str, Collective] = {
    f.__name__: f for f in (all_reduce, all_gather, reduce_scatter, all_to_all, permute, broadcast_dev)
}
