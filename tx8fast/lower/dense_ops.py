"""Groups of element-wise ops on dense tensors, as ops on rows of one channel block each: so many elements lie alike in both forms.

May import: lower.members, lower.elementwise, graph_table. Must not: decide which ops belong together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tx8fast.graph_table import GroupRecord, TensorSpec
from tx8fast.lower.elementwise import Elementwise
from tx8fast.lower.members import flat_record

COLUMNS = 64  # every format has as many in one block, so that rows lie one behind the other


def as_rows(record: GroupRecord) -> GroupRecord:
    """Return the group with its dense tensors as rows of a channel block; as it is if some op is no element-wise one of equal dense tensors
    and single elements, or they have no whole rows."""
    made = [op.results[0] for op in record.ops]
    read = [s for op in record.ops for s in op.operands if s is not None and math.prod(s.shape) > 1]
    count = math.prod(made[0].shape)
    if count % COLUMNS or not all(op.kind in Elementwise.takes for op in record.ops):
        return record
    if any(s.layout != "dense" or math.prod(s.shape) != count for s in (*read, *made)):
        return record

    def rows(spec: TensorSpec) -> TensorSpec:
        alone = math.prod(spec.shape) == 1
        return TensorSpec((), spec.dtype) if alone else TensorSpec((count // COLUMNS, COLUMNS), spec.dtype, "blocked")

    def each(specs: Sequence[TensorSpec | None]) -> tuple[TensorSpec | None, ...]:
        return tuple([None if s is None else rows(s) for s in specs])

    ops = [flat_record(op, each(op.operands), rows(out), "P") for op, out in zip(record.ops, made, strict=True)]
    return GroupRecord(tuple(ops), record.wires, each(record.operands), record.outputs)
