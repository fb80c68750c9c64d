"""Scheduled groups for the time-step tests: loads one step ahead, stores one behind, in three stages, at the lowest free addresses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from tx8fast.schedule.steps.table import LOAD, STORE, Life, Move, Row, StepOp, Table

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


def lives_meet(a: Life, b: Life) -> bool:
    """Say whether two lifetimes share a step."""
    a_wraps, b_wraps = a.start > a.end, b.start > b.end
    if a_wraps and b_wraps:
        return True
    if a_wraps or b_wraps:
        wrap, line = (a, b) if a_wraps else (b, a)
        return line.start <= wrap.end or wrap.start <= line.end
    return a.start <= b.end and b.start <= a.end


def lifetimes(table: Table, size_bytes: Mapping[str, int] | None = None) -> list[Life]:
    """Return one life per value and per op with scratch, in the order of their first definition by stage.

    Stages are followed in order, not steps: that is what makes the end of a value that is loaded for the next
    slice come before its start. A value that nothing reads or stores lives in its own step. Values without a
    size in `size_bytes` take that of their transfer, else 0.
    """
    spans: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    scratch: list[Life] = []
    for stage in range(table.stages):
        for t, row in enumerate(table.rows):
            if table.stages == 1 or stage == 1:
                for op in row.ops:
                    for v in op.reads:
                        if v in spans:
                            spans[v][1] = t
                    for v in op.writes:
                        spans[v] = [t, t]
                    if op.scratch_bytes:
                        scratch.append(Life(op.name, t, t, op.scratch_bytes, True))
            for m in row.moves:
                if table.stages > 1 and m.stage != stage:
                    continue
                sizes.setdefault(m.value, m.size_bytes)
                if m.kind == LOAD:
                    spans[m.value] = [t, t]
                elif m.value in spans:
                    spans[m.value][1] = t
    known = size_bytes or {}
    return [*(Life(v, a, b, known.get(v, sizes.get(v, 0))) for v, (a, b) in spans.items()), *scratch]


def addresses(lives: Sequence[Life]) -> dict[tuple[str, bool], int]:
    """Return the lowest bytes for every life, one after the other by start."""
    placed: list[tuple[Life, int]] = []
    for life in sorted(lives, key=lambda v: v.start):
        at = 0
        for other, a in sorted(placed, key=lambda p: p[1]):
            if lives_meet(life, other) and a < at + life.size_bytes:
                at = max(at, a + other.size_bytes)
        placed.append((life, at))
    return {(v.name, v.is_scratch): at for v, at in placed}
