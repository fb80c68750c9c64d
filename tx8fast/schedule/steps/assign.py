"""The first table of a group: every load one step ahead of its use, every store one behind, then three stages.

May import: schedule.steps.table. Must not: know cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from tx8fast.schedule.steps.table import LOAD, STORE, Move, Row, StepOp, Table

Transfer = Callable[[str, str], Move]


def assign_nearest(ops: Sequence[StepOp], outputs: Collection[str], transfer: Transfer = Move) -> list[Row]:
    """Return one row per op, with a row of loads before and a row of stores behind (layer-group notes 6.2).

    A value is loaded once, one row before its first reader, and stays; a result that leaves the group is stored one row
    behind its producer. The first row is left out if the first op loads nothing. `transfer(kind, value)` makes a transfer.
    """
    resident: set[str] = set()

    def loads(op: StepOp) -> tuple[Move, ...]:
        new = [v for v in dict.fromkeys(op.reads) if v not in resident]
        resident.update(new)
        return tuple(transfer(LOAD, v) for v in new)

    def stores(op: StepOp) -> tuple[Move, ...]:
        return tuple(transfer(STORE, v) for v in op.writes if v in outputs)

    rows = [Row((), first)] if (first := loads(ops[0])) else []
    for i, op in enumerate(ops):
        resident.update(op.writes)
        ahead = loads(ops[i + 1]) if i + 1 < len(ops) else ()
        rows.append(Row((op,), (*ahead, *(stores(ops[i - 1]) if i else ()))))
    return [*rows, Row((), stores(ops[-1]))]


def software_pipeline(rows: Sequence[Row]) -> Table:
    """Return three stages: while a slice is computed, the next one's first inputs are loaded and the last one's results
    stored (layer-group notes 6.3).

    The last row's stores go into the first op's row and the first row's loads into the last op's row, but for those
    whose value an op of that row touches or reads: they keep a row of their own. One op gives one stage.
    """
    n_ops = sum(bool(row.ops) for row in rows)
    if n_ops < 2:
        return Table(tuple(rows))
    first = () if rows[0].ops else rows[0].moves
    early = [replace(m, stage=0) for m in first]
    late = [replace(m, stage=2) for m in rows[-1].moves]
    body = list(rows[0 if rows[0].ops else 1 : -1])
    head, tail = body[0], body[-1]
    kept = [m for m in late if head.touches(m.value)]
    body[0] = replace(head, moves=(*head.moves, *(m for m in late if m not in kept)))
    again = [m for m in early if tail.reads(m.value)]
    body[-1] = replace(body[-1], moves=(*body[-1].moves, *(m for m in early if m not in again)))
    if kept:
        body.insert(0, Row((), tuple(kept)))
    if again:
        body.append(Row((), tuple(again)))
    return Table(tuple(body), 3)


def assign(ops: Sequence[StepOp], outputs: Collection[str], transfer: Transfer = Move) -> Table:
    """Return the pipelined table of a group."""
    return software_pipeline(assign_nearest(ops, outputs, transfer))
