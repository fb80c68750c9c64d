"""Changes a placed table: single transfers to other steps, a load swapped with a later store, neighbouring steps merged.

May import: schedule.steps.*, errors. Must not: accept a change that has no placement.

Every change is tried on a copy with its lifetimes worked out anew and is kept only if the values still find addresses,
so what is returned is always placed (layer-group notes 11). A group of more than MAX_OPS ops has its steps merged only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tx8fast.errors import AllocationError
from tx8fast.schedule.steps.balance import Balance
from tx8fast.schedule.steps.cost import compute_cycles, moved_cycles, row_cycles
from tx8fast.schedule.steps.place import Memory, Placed, place
from tx8fast.schedule.steps.table import LOAD, Move, Row, Table, lifetimes

MAX_OPS = 100
COMFORT = 0.1  # share of a step that compute must exceed its transfers by to be left alone


@dataclass(frozen=True)
class Setting:
    """What placing a changed table needs besides the table."""

    memory: Memory
    size_bytes: Mapping[str, int]
    held: Collection[str] = ()
    multi: bool = True

    def place(self, table: Table) -> Placed | None:
        """Return the placement, or None if there is none."""
        try:
            return place(table, lifetimes(table, self.size_bytes), self.memory, self.held, self.multi)
        except AllocationError:
            return None


def combine(table: Table, setting: Setting) -> tuple[Table, Placed]:
    """Return the table after moves, swaps and merges with its placement. The sum of the steps' cycles never grows.

    Raises AllocationError if the table as given has no placement.
    """
    lives = lifetimes(table, setting.size_bytes)
    placed = place(table, lives, setting.memory, setting.held, setting.multi)
    if len(table.ops) < 2:
        return table, placed
    if len(table.ops) <= MAX_OPS:
        table = swap_transfers(move_transfers(table, setting), setting)
    table = merge_steps(table, setting)
    return table, setting.place(table) or placed


# ---------------------------------------------------------------- transfers


def may_move(table: Table, move: Move, a: int, b: int) -> bool:
    """Say whether a transfer in step a may go to step b, either way round.

    A load must not pass a reader of its value; a store must stay in the same turn of the loop behind the producer and
    before the next one.
    """
    rows = table.rows
    if not 0 <= b < len(rows) or a == b:
        return False
    between = range(a + 1, b + 1) if b > a else range(b, a)
    if move.kind == LOAD:
        return not any(rows[t].reads(move.value) for t in (*between, b))
    made = next((t for t, row in enumerate(rows) if row.writes(move.value)), -1)
    if made < 0 or rows[b].touches(move.value):
        return False
    return (a < made) == (b < made)


def move_transfers(table: Table, setting: Setting) -> Table:
    """Take one transfer out of every step that waits for its transfers, as long as that saves cycles and finds room."""
    for t in range(len(table.rows)):
        b = Balance(table, setting.multi)
        if not b.late(t):
            continue
        options = [
            (-b.profit(m, t, to), k, to)
            for k, m in enumerate(b.lists[t])
            if not m.held
            for to in range(len(table.rows))
            if may_move(table, m, t, to)
        ]
        profit, k, to = min(options, default=(0, 0, 0))
        if profit < 0:
            changed = moved(table, [(t, k, to)])
            if setting.place(changed) is not None:
                table = changed
    return table


def swap_transfers(table: Table, setting: Setting) -> Table:
    """Put a load later and a store earlier where that saves cycles: it shortens both lives."""
    for t in range(len(table.rows)):
        found = _swap(table, t, setting)
        table = table if found is None else found
    return table


def _swap(table: Table, t: int, setting: Setting) -> Table | None:
    rows = table.rows
    k = next((k for k, m in enumerate(rows[t].moves) if m.kind == LOAD and not m.held), None)
    if k is None:
        return None
    for to in range(len(rows) - 1, t, -1):
        if not may_move(table, rows[t].moves[k], t, to):
            continue
        for j, store in enumerate(rows[to].moves):
            if store.kind == LOAD or not may_move(table, store, to, t):
                continue
            changed = moved(table, [(t, k, to), (to, j, t)])
            before = row_cycles(rows[t], not setting.multi) + row_cycles(rows[to], not setting.multi)
            after = sum(row_cycles(changed.rows[x], not setting.multi) for x in (t, to))
            if after < before and setting.place(changed) is not None:
                return changed
    return None


def moved(table: Table, changes: Sequence[tuple[int, int, int]]) -> Table:
    """Return the table with transfers (step, index in it, new step) moved behind those of the new step."""
    lists = [list(row.moves) for row in table.rows]
    taken = {(t, k) for t, k, _ in changes}
    kept = [[m for k, m in enumerate(moves) if (t, k) not in taken] for t, moves in enumerate(lists)]
    for t, k, to in changes:
        kept[to].append(lists[t][k])
    return table.with_moves(kept)


# ---------------------------------------------------------------- steps


def merge_steps(table: Table, setting: Setting) -> Table:
    """Merge neighbouring steps while dependences and memory allow. Two steps that both compute well beyond their transfers
    are left alone: merging gains nothing there."""
    t = 0
    while t < len(table.rows) - 1:
        if not (_comfortable(table.rows[t], setting) and _comfortable(table.rows[t + 1], setting)):
            if may_merge(table, t):
                changed = merged(table, t)
                if setting.place(changed) is not None:
                    table, t = changed, 0
                    continue
        t += 1
    return table


def _comfortable(row: Row, setting: Setting) -> bool:
    compute = compute_cycles(row)
    moves = [m for m in row.moves if not (m.held and setting.multi)]
    return compute > 0 and compute - moved_cycles(moves) > COMFORT * compute


def may_merge(table: Table, t: int) -> bool:
    """Say whether steps t and t + 1 may be one: nothing of one feeds or overwrites what the other uses."""
    if t + 1 >= len(table.rows):
        return False
    first, second = table.rows[t], table.rows[t + 1]
    for a, b in ((first, second), (second, first)):
        for m in a.moves:
            if b.reads(m.value) if m.kind == LOAD else b.writes(m.value):
                return False
            if any(m.value == other.value and m.kind != other.kind for other in b.moves):
                return False
    return True


def merged(table: Table, t: int) -> Table:
    """Return the table with step t + 1 joined to step t."""
    first, second = table.rows[t], table.rows[t + 1]
    row = Row((*first.ops, *second.ops), (*first.moves, *second.moves))
    return replace(table, rows=(*table.rows[:t], row, *table.rows[t + 2 :]))
