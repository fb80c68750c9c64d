"""Cycles of a group's steps: the fullest engine decides each of them.

May import: schedule.steps.table. Must not: change a table.
"""

from __future__ import annotations

from collections.abc import Iterable

from tx8fast.schedule.steps.table import Move, Row, StepOp, Table


def engine_cycles(ops: Iterable[StepOp], moves: Iterable[Move]) -> dict[str, int]:
    """Return engine -> cycles of what it does in one step."""
    busy: dict[str, int] = {}
    for x in (*ops, *moves):
        busy[x.engine] = busy.get(x.engine, 0) + x.cycles
    return busy


def row_cycles(row: Row, held: bool = False) -> int:
    """Return the cycles of one step in the steady state; `held` counts transfers of held values too."""
    return max(engine_cycles(row.ops, [m for m in row.moves if held or not m.held]).values(), default=0)


def compute_cycles(row: Row) -> int:
    """Return the cycles of the step's fullest compute engine."""
    return max(engine_cycles(row.ops, ()).values(), default=0)


def group_cycles(table: Table, slices: int) -> int:
    """Return the cycles of a group that runs `slices` slices: filling, steady state, draining (layer-group notes 3.2).

    The pipeline takes slices + stages - 1 rounds; a held transfer counts once.
    """
    stages = table.stages
    fill = steady = drain = 0
    first = max(stages - 1 - (slices - 1), 0)  # lowest stage that still runs in the last filling round
    for row in table.rows:
        counted: set[int] = set()
        for j in range(stages):
            lowest = max(j - (slices - 1), 0)
            moves = [
                (i, m)
                for i, m in enumerate(row.moves)
                if (stages == 1 or lowest <= m.stage <= j) and not (m.held and i in counted)
            ]
            counted.update(i for i, _ in moves)
            fill += _longest(row.ops if stages == 1 or lowest <= 1 <= j else (), [m for _, m in moves])
        if slices > stages:
            steady += row_cycles(row)
        for j in range(first + 1, stages):
            fresh = [m for m in row.moves if m.stage >= j and not m.held]
            drain += _longest(row.ops if j <= 1 else (), fresh)
    return fill + max(slices - stages, 0) * steady + drain


def _longest(ops: Iterable[StepOp], moves: Iterable[Move]) -> int:
    return max(engine_cycles(ops, moves).values(), default=0)
