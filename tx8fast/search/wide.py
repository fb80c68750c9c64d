"""Ops with more operands than one launch works with, done in several steps.

May import: graph_table, lower. Must not: plan or group anything.

A concatenation puts some of its operands together, and then the parts: every element is moved once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tx8fast.graph_table import FunctionTable, GraphTable, OpRecord, Step, TensorSpec

#: operands of one step: each has buffers of its own in a trial's address space, 2 GiB in all (`search.trial.SPACE`)
MAX_OPERANDS = 120


def split_wide(table: GraphTable) -> None:
    """Replace concatenations of more than `MAX_OPERANDS` values by trees of them."""
    for fn in table.functions.values():
        fn.steps = [part for step in fn.steps for part in _split(fn, step)]


def _split(fn: FunctionTable, step: Step) -> Iterator[Step]:
    """Yield the steps that a step is done in, mostly itself alone."""
    record = step.record
    if not isinstance(record, OpRecord) or record.kind != "concat" or len(record.operands) <= MAX_OPERANDS:
        yield step
        return
    n = len(record.operands)
    count = min(-(-n // MAX_OPERANDS), MAX_OPERANDS)
    made: list[int] = []
    for i in range(count):
        a, b = i * n // count, (i + 1) * n // count
        made.append(len(fn.values))
        fn.values.append(_joined(record, a, b))
        part = replace(record, operands=record.operands[a:b], results=(fn.values[-1],), rule=None)
        inner = replace(step, name=f"{step.name}.{i}", inputs=step.inputs[a:b], outputs=(made[-1],), record=part)
        yield from _split(fn, inner)
    whole = replace(record, operands=tuple(fn.values[v] for v in made), rule=None)
    yield replace(step, inputs=tuple(made), record=whole)


def _joined(record: OpRecord, a: int, b: int) -> TensorSpec:
    """Return what operands [a, b) are together."""
    out = record.results[0]
    axis = record.attr("axis") % len(out.shape)
    length = sum(s.shape[axis] for s in record.operands[a:b] if s is not None)
    return replace(out, shape=(*out.shape[:axis], length, *out.shape[axis + 1 :]))
