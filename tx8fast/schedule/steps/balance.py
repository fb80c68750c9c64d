"""Moves transfers out of steps that wait for them into steps with room to spare.

May import: schedule.steps.table, schedule.steps.cost. Must not: know addresses.

Slack of an engine in a step is what the step computes minus what the engine moves. Loads may only go to earlier steps and
stores to later ones, which shortens nobody's life; the way there may hand over to another transfer (layer-group notes
6.5-6.7). Every profit is the change of the two steps' lengths, over all engines.
"""

from __future__ import annotations

from dataclasses import dataclass

from tx8fast.schedule.steps.cost import compute_cycles
from tx8fast.schedule.steps.table import LOAD, Move, Table


@dataclass(frozen=True)
class Choice:
    """A transfer to move, where to, what it saves in cycles, and the byte-steps it costs."""

    move: Move
    to: int
    profit: int
    area: int


class Balance:
    """A table while its transfers move. `multi`: the group has several slices, so that held transfers cost nothing in the
    steady state."""

    def __init__(self, table: Table, multi: bool = True) -> None:
        self.table, self.multi = table, multi
        self.rows = table.rows
        self.compute = [compute_cycles(row) for row in self.rows]
        self.lists = [list(row.moves) for row in self.rows]
        engines = sorted({m.engine for moves in self.lists for m in moves})
        self.slack = {e: list(self.compute) for e in engines}
        for t, moves in enumerate(self.lists):
            for m in moves:
                self.slack[m.engine][t] -= self.cost(m)

    def cost(self, m: Move) -> int:
        return 0 if m.held and self.multi else m.cycles

    def length(self, t: int, engine: str = "", change: int = 0) -> int:
        """Return the cycles of step t if `engine` had `change` more to move."""
        short = min((s[t] - (change if e == engine else 0) for e, s in self.slack.items()), default=0)
        return self.compute[t] - min(short, 0)

    def profit(self, m: Move, t: int, to: int) -> int:
        """Return the cycles saved by taking `m` out of step t, where it is counted, into another step."""
        c = self.cost(m)
        before = self.length(t) + self.length(to)
        return before - self.length(t, m.engine, -c) - self.length(to, m.engine, c)

    def way(self, m: Move, t: int) -> range:
        """Return the steps that `m`, now in step t, may go to, nearest first."""
        if m.kind == LOAD:
            stop = next((q + 1 for q in range(t, -1, -1) if self.rows[q].reads(m.value)), 0)
            return range(t - 1, stop - 1, -1)
        stop = next((q - 1 for q in range(t, len(self.rows)) if self.rows[q].writes(m.value)), len(self.rows) - 1)
        return range(t + 1, stop + 1)

    def best(self, t: int) -> Choice | None:
        """Return the most profitable move out of step t; ties: less area, then list order, then the nearer step."""
        found: Choice | None = None
        for m in self.lists[t]:
            for q in self.way(m, t):
                if m.kind != LOAD and self.rows[q].touches(m.value):
                    continue
                if self.slack[m.engine][q] <= 0:
                    continue
                profit, area = self.profit(m, t, q), m.size_bytes * (abs(q - t) + 1)
                if profit > (found.profit if found else 0) or (found and profit == found.profit and area < found.area):
                    found = Choice(m, q, profit, area)
        return found

    def bubble(self, choice: Choice, t: int) -> None:
        """Carry the chosen transfer towards its step, one step at a time. At every step the transfer that gains most from
        going on takes over; if none gains, the one that arrived stays."""
        m, at = choice.move, t
        for q in self.way(m, t):
            self._shift(m, at, q)
            if q == choice.to:
                return
            if m.kind == LOAD or not self.rows[q].touches(m.value):
                m = self._next(m, q, choice.to)
                if m is None:
                    return
            at = q

    def _next(self, arrived: Move, q: int, to: int) -> Move | None:
        best, chosen, least = 0, None, arrived.size_bytes
        for y in self.lists[q]:
            if y.kind != arrived.kind or to not in self.way(y, q):
                continue
            if y.kind != LOAD and self.rows[to].touches(y.value):
                continue
            profit = self.profit(y, q, to)
            if profit > best or (profit == best and y.size_bytes < least):
                best, chosen, least = profit, y, y.size_bytes
        return chosen

    def _shift(self, m: Move, a: int, b: int) -> None:
        self.lists[b].append(m)
        self.slack[m.engine][b] -= self.cost(m)
        self.lists[a].remove(m)
        self.slack[m.engine][a] += self.cost(m)

    def late(self, t: int) -> bool:
        return any(s[t] < 0 for s in self.slack.values())

    def run(self) -> Table:
        """Return the table with transfers balanced. A step left late by a passing transfer is looked at again."""
        t = 0
        while t < len(self.rows):
            choice = self.best(t) if self.late(t) else None
            if choice is None:
                t += 1
                continue
            self.bubble(choice, t)
            t = min(t, next((q for q in range(t) if self.late(q) and self.best(q)), t))
        return self.table.with_moves(self.lists)


def balance(table: Table, multi: bool = True) -> Table:
    """Return the table with its transfers moved to steps that have room. The sum of the steps' cycles never grows."""
    balanced = Balance(table, multi).run()
    return balanced
