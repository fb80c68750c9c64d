"""Software pipeline of a group: overlaps the iterations of nested loops by retraction.

May import: schedule.stages. Must not: place buffers or know durations.

Serial order is the order of the script with all loops unrolled. Two ops are ordered if they touch the same copy
of a buffer and one of them writes; this one rule covers dependences, the reuse of a copy some iterations later, the
order of partial sums, and in-place results (back-end notes 12.2). An ordered op runs in a strictly later step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tx8fast.schedule.stages import Item, LoopOp, Repeat, Value

Cell = tuple[str, int]  # value that owns the bytes, copy
Values = Mapping[str, Value]
MAX_SHIFT = 8  # iterations that one round of a folded loop may advance


@dataclass(frozen=True, slots=True)
class Work:
    """One op in one iteration. iteration, trips: index and count of each loop around it, outermost first;
    reads, writes: the buffer copies of its values in the order of the op."""

    op: LoopOp
    iteration: tuple[int, ...]
    trips: tuple[int, ...]
    reads: tuple[Cell, ...]
    writes: tuple[Cell, ...]

    @property
    def copy(self) -> int:
        """Buffer index: the copy of the first result, of the first operand if there is no result."""
        return (*self.writes, *self.reads, ("", 0))[0][1]


@dataclass(frozen=True, slots=True)
class Step:
    """Ops that run at the same time, those of earlier iterations first."""

    works: tuple[Work, ...]

    @property
    def engines(self) -> frozenset[str]:
        return frozenset(w.op.engine for w in self.works)

    def slots(self) -> dict[str, list[tuple[str, tuple[int, ...], int]]]:
        """Return engine -> [(op name, iteration, buffer index)] in execution order."""
        table: dict[str, list[tuple[str, tuple[int, ...], int]]] = {}
        for w in self.works:
            table.setdefault(w.op.engine, []).append((w.op.name, w.iteration, w.copy))
        return table


def make_work(op: LoopOp, iteration: tuple[int, ...], trips: tuple[int, ...], values: Values) -> Work:
    """Return an op instance; copy of a value = number of its iteration modulo its copies."""

    def cell(name: str) -> Cell:
        v = values[name]
        number = 0
        for i, n in zip(iteration[: v.depth], trips, strict=False):
            number = number * n + i
        return v.memory, number % v.bufs

    return Work(op, iteration, trips, tuple(map(cell, op.reads)), tuple(map(cell, op.writes)))


def shifted(step: Step, level: int, by: int, values: Values) -> Step:
    """Return a step with the index of loop `level` advanced for all ops inside that loop."""

    def move(w: Work) -> Work:
        if len(w.iteration) <= level:
            return w
        i = w.iteration
        return make_work(w.op, (*i[:level], i[level] + by, *i[level + 1 :]), w.trips, values)

    return Step(tuple(map(move, step.works)))


def can_parallel(x: Step, y: Step) -> bool:
    """Say whether two steps may be one: no engine in common, no order between their ops."""
    return get_retract([x], [y]) == 1


def get_retract(prev: Sequence[Step], after: Sequence[Step]) -> int:
    """Return the largest r for which after[k] may join prev[len(prev) - r + k] for all k < r.

    Order between ops only limits r from above; a clash of engines may hide a larger r that is valid, so the search goes
    downwards from that limit.
    """
    n = len(prev)
    limit = min(n, len(after))
    written: dict[Cell, int] = {}  # last step of `prev` that does so
    touched: dict[Cell, int] = {}
    for j in range(n - limit, n):
        for w in prev[j].works:
            touched.update(dict.fromkeys(w.reads, j))
            written.update(dict.fromkeys(w.writes, j))
            touched.update(dict.fromkeys(w.writes, j))
    for k in range(limit):
        for w in after[k].works:
            ordered = [
                *(written[c] for c in w.reads if c in written),
                *(touched[c] for c in w.writes if c in touched),
            ]
            if ordered:
                limit = min(limit, k + n - max(ordered) - 1)
    before, later = [s.engines for s in prev[n - limit :]], [s.engines for s in after[:limit]]
    for r in range(limit, 0, -1):
        if all(a.isdisjoint(b) for a, b in zip(before[limit - r :], later, strict=False)):
            return r
    return 0


def do_retract(prev: list[Step], after: Sequence[Step], r: int) -> None:
    """Append `after` to `prev` in place, its first r steps merged into the last r of `prev`."""
    start = len(prev) - r
    for k in range(r):
        prev[start + k] = Step(prev[start + k].works + after[k].works)
    prev.extend(after[r:])


def pipeline(script: Sequence[Item], values: Values, trips: tuple[int, ...] = ()) -> list[Step]:
    """Return the steps of a script with all loops unrolled and overlapped.

    Plain steps follow each other as given; retraction happens between iterations and behind a loop. `trips` are the counts
    of the loops around the script. Time: steps times the longest retraction.
    """
    done: list[Step] = []
    behind_loop = False
    for item in script:
        is_loop = isinstance(item, Repeat)
        more = _overlap(item, values, trips) if isinstance(item, Repeat) else [_first(item, values, trips)]
        do_retract(done, more, get_retract(done, more) if behind_loop else 0)
        behind_loop = is_loop
    return done


def _first(ops: Sequence[LoopOp], values: Values, trips: tuple[int, ...]) -> Step:
    return Step(tuple(make_work(op, (0,) * len(trips), trips, values) for op in ops))


def _overlap(loop: Repeat, values: Values, trips: tuple[int, ...]) -> list[Step]:
    # The order between ops depends only on differences of iterations, so one body serves for all of them.
    body = pipeline(loop.body, values, (*trips, loop.times))
    done = list(body)
    for i in range(1, loop.times):
        after = [shifted(s, len(trips), i, values) for s in body]
        do_retract(done, after, get_retract(done, after))
    return done


@dataclass(frozen=True)
class Folded:
    """A steady state: round i runs `body` with the index of loop `level` advanced by i * shift."""

    body: tuple[Step | Folded, ...]
    times: int
    level: int
    shift: int


def fold(steps: Sequence[Step], values: Values, same_copies: bool = False, level: int = 0) -> list[Step | Folded]:
    """Return the compact form: prologue, steady state, epilogue, each folded further inside.

    With `same_copies` every round uses the same buffer copies, so that addresses are constants in the code; else the
    copy is selected by the iteration. `unfold` gives the steps back. Time: steps times MAX_SHIFT per loop.
    """
    if all(len(w.iteration) <= level for s in steps for w in s.works):
        return list(steps)
    best = (0, 0, 0, 0, 0)  # steps saved, minus period, start, times, shift
    at = {_signature(s): t for t, s in enumerate(steps)}
    unit = math.lcm(*(v.bufs for v in values.values())) if same_copies else 1
    for shift in range(unit, max(unit, MAX_SHIFT) + 1, unit):
        periods = [at.get(_signature(shifted(s, level, shift, values)), t) - t for t, s in enumerate(steps)]
        start = 0
        for t in range(1, len(steps) + 1):
            if t < len(steps) and periods[t] == periods[start]:
                continue
            period = periods[start]
            times = (t - start) // period + 1 if period > 0 else 1
            best = max(best, ((times - 1) * period, -period, start, times, shift))
            start = t
    saved, period, start, times, shift = best
    if not saved:
        return fold(steps, values, same_copies, level + 1)
    first_end, end = start - period, start - period * times
    body = fold(steps[start:first_end], values, same_copies, level + 1)
    return [*fold(steps[:start], values, same_copies, level), Folded(tuple(body), times, level, shift),
            *fold(steps[end:], values, same_copies, level)]  # fmt: skip


def unfold(items: Sequence[Step | Folded], values: Values) -> list[Step]:
    """Return the steps of a compact form."""
    steps: list[Step] = []
    for item in items:
        if isinstance(item, Step):
            steps.append(item)
        else:
            body = unfold(item.body, values)
            steps += [shifted(s, item.level, i * item.shift, values) for i in range(item.times) for s in body]
    return steps


def _signature(step: Step) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((w.op.name, w.iteration) for w in step.works)
