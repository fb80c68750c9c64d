"""Hides the first loads of a group in the last steps of the group before it, and that one's last stores in its first steps.

May import: schedule.steps.*. Must not: change an address or a step.

Both groups must be pipelined in three stages: the loads of stage 0 in `down` and the stores of stage 2 in `up` are what
a border waits for. The result says in which step of the neighbour each of them is issued (layer-group notes 12).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field

from tx8fast.records import dataclass
from tx8fast.schedule.steps.table import LOAD, STORE, Life, Move, Table

FEW_SLICES = 2  # with so few a group is not long enough to hide anything in


@dataclass(frozen=True)
class Group:
    """A scheduled group. address: (name, is scratch) -> first byte; slices, batch_slices: how often it is cut, in all and by
    batch; rows_of: half-open row ranges of the slices of values that another group shares."""

    table: Table
    lives: tuple[Life, ...]
    address: Mapping[tuple[str, bool], int]
    slices: int
    batch_slices: int = 1
    rows_of: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    weights: frozenset[str] = frozenset()

    def span(self, life: Life) -> range:
        first = self.address[life.name, life.is_scratch]
        return range(first, first + life.size_bytes)

    def block(self, value: str) -> range:
        return next(self.span(v) for v in self.lives if v.name == value and not v.is_scratch)

    def loads_ahead(self, life: Life) -> bool:
        """True for a value that is loaded one round before it is used."""
        ahead = not life.is_scratch and any(m.value == life.name for m in self.transfers(LOAD, 0))
        return ahead and life.start > life.end

    def transfers(self, kind: str, stage: int) -> list[Move]:
        return [m for row in self.table.rows for m in row.moves if m.kind == kind and m.stage == stage]


def may_connect(up: Group, down: Group, value: str) -> bool:
    """Say whether `down` may load early what `up` stores: its first slice must not need what `up` makes last."""
    if up.batch_slices > 1 and down.batch_slices > 1:
        return True
    if (up.batch_slices > 1) != (down.batch_slices > 1):
        return False
    made, needed = up.rows_of.get(value, ()), down.rows_of.get(value, ())
    return len(made) > 1 and len(needed) > 1 and needed[0][1] <= made[-1][0]


def first_free_step(up: Group, value: str, block: range) -> int:
    """Return the earliest step of `up`'s last round from which on nothing alive touches the block and the value is not
    stored; the number of steps if there is none. In the last round nothing is loaded for a next slice."""
    n = len(up.table.rows)
    if up.slices <= FEW_SLICES:
        return n
    busy = [-1]
    for life in up.lives:
        if not _apart(up.span(life), block):
            busy.append(life.end if up.loads_ahead(life) else max(life.steps(n)))
    busy += [t for t, row in enumerate(up.table.rows) if any(m.kind == STORE and m.value == value for m in row.moves)]
    return max(busy) + 1


def last_free_step(down: Group, value: str, block: range) -> int:
    """Return the latest step of `down`'s first computing round up to which nothing alive touches the block and the value is
    not loaded; -1 if there is none. No earlier slice has left results in that round."""
    busy = [len(down.table.rows)]
    for life in down.lives:
        if not _apart(down.span(life), block):
            busy.append(0 if down.loads_ahead(life) else life.start)
    busy += [t for t, row in enumerate(down.table.rows) if any(m.kind == LOAD and m.value == value for m in row.moves)]
    return min(busy) - 1


def choose_step(slack: Sequence[int], cycles: int, steps: Iterable[int], clashes: Callable[[int], bool]) -> int:
    """Return the step of `steps`, in their order, that hides most of a transfer of `cycles`; ties: one without a bank
    conflict, then the one with the least slack left. -1 if no step has slack."""
    best, chosen = (0, False, 0), -1
    for t in steps:
        if slack[t] <= 0:
            continue
        rank = (min(cycles, slack[t]), not clashes(t), cycles - slack[t])
        if chosen < 0 or rank > best:
            best, chosen = rank, t
    return chosen


@dataclass(frozen=True)
class Hidden:
    """value -> step of the neighbour: loads of `down` issued in `up`, stores of `up` issued in `down`."""

    loads: Mapping[str, int]
    stores: Mapping[str, int]


def hide_transfers(up: Group, down: Group, bank_bytes: int = 0) -> Hidden:
    """Return which transfers between two neighbouring groups are hidden, and where."""
    if min(up.table.stages, down.table.stages) < 3:
        return Hidden({}, {})
    outputs = {m.value for row in up.table.rows for m in row.moves if m.kind == STORE}
    inputs = {m.value for row in down.table.rows for m in row.moves if m.kind == LOAD}
    loads = [
        m
        for m in down.transfers(LOAD, 0)
        if m.value in down.weights or m.value not in outputs or may_connect(up, down, m.value)
    ]
    stores = [m for m in up.transfers(STORE, 2) if m.value not in inputs or may_connect(up, down, m.value)]
    n = len(up.table.rows)

    def at_end(m: Move) -> range:
        return range(n - 1, first_free_step(up, m.value, down.block(m.value)) - 1, -1)

    def at_start(m: Move) -> range:
        return range(last_free_step(down, m.value, up.block(m.value)) + 1)

    in_up = _place(up, loads, down.block, at_end, (1, 2), bank_bytes)
    return Hidden(in_up, _place(down, stores, up.block, at_start, (0, 1), bank_bytes))


def _place(
    host: Group,
    moves: Sequence[Move],
    block: Callable[[str], range],
    steps: Callable[[Move], range],
    stages: Collection[int],
    bank: int,
) -> dict[str, int]:
    """Give each transfer a step of `host`; only stages that run at the border use up its slack."""
    chosen: dict[str, int] = {}
    slack: dict[str, list[int]] = {}
    for m in moves:
        if m.engine not in slack:
            slack[m.engine] = [
                row.cycles - sum(x.cycles for x in row.moves if x.engine == m.engine and x.stage in stages)
                for row in host.table.rows
            ]
        own = slack[m.engine]
        t = choose_step(own, m.cycles, steps(m), lambda t, b=block(m.value): _clashes(host, t, b, bank))
        if t >= 0:
            chosen[m.value] = t
            own[t] -= m.cycles
    return chosen


def _apart(a: range, b: range) -> bool:
    return a.stop <= b.start or b.stop <= a.start


def _clashes(host: Group, t: int, block: range, bank: int) -> bool:
    """True if the block shares a bank with what the ops of step t use."""
    if not bank or not len(block):
        return False
    mine = range(block.start // bank, (block.stop - 1) // bank + 1)
    row = host.table.rows[t]
    for life in host.lives:
        used = any(op.name == life.name for op in row.ops) if life.is_scratch else row.touches(life.name)
        span = host.span(life)
        if used and len(span) and not _apart(mine, range(span.start // bank, (span.stop - 1) // bank + 1)):
            return True
    return False
