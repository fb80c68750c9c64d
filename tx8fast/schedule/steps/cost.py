"""Cycles of a group's steps: the slowest of compute and the DMA engines decides each of them.

May import: schedule.steps.table. Must not: change a table.
"""

from __future__ import annotations

from collections.abc import Iterable

from tx8fast.schedule.steps.table import Move, Row, Table


def moved_cycles(moves: Iterable[Move]) -> int:
    """Return the cycles of the engine that moves most."""
    busy: dict[str, int] = {}
    for m in moves:
        busy[m.engine] = busy.get(m.engine, 0) + m.cycles
    return max(busy.values(), default=0)


def row_cycles(row: Row, held: bool = False) -> int:
    """Return the cycles of one step in the steady state; `held` counts transfers of held values too."""
    return max(compute_cycles(row), moved_cycles(m for m in row.moves if held or not m.held))


def compute_cycles(row: Row) -> int:
    """Return the cycles of the step's ops."""
    return sum(op.cycles for op in row.ops)


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
            computes = stages == 1 or lowest <= 1 <= j
            fill += max(computes * compute_cycles(row), moved_cycles(m for _, m in moves))
        if slices > stages:
            steady += row_cycles(row)
        for j in range(first + 1, stages):
            fresh = [m for m in row.moves if m.stage >= j and not m.held]
            drain += max((j <= 1) * compute_cycles(row), moved_cycles(fresh))
    return fill + max(slices - stages, 0) * steady + drain
