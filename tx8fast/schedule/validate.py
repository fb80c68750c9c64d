"""Checks a pipelined group by running it on symbols, sharing nothing with the code that made it.

May import: the data classes of schedule.stages and schedule.pipeline for types only. Must not: call pipeline,
lifetimes or alloc.

The script is run serially with unlimited buffers: every read then sees a known number of writes of its value.
The step list is run on memory made of byte ranges that hold such symbols; each read must find the same one.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tx8fast.schedule.pipeline import Step, Work
    from tx8fast.schedule.stages import Item, LoopOp, Value

Iteration = tuple[int, ...]
Ranges = Mapping[tuple[str, int], range]
Symbol = tuple[str, Iteration, int]  # value, its iteration, number of writes so far


def find_violations(script: Sequence[Item], values: Mapping[str, Value], steps: Sequence[Step],
                    places: Ranges | None = None, scratch: Ranges | None = None, limit: int = 20) -> list[str]:  # fmt: skip
    """Return one sentence per broken rule, at most `limit`; an empty list means that the steps are right.

    Rules: every op once per iteration; one op per engine and step, or loads of one load step; every read sees what
    it would see in serial order, written in an earlier step; nothing is overwritten in the step that uses it. With
    `places` ((value, copy) -> bytes) and `scratch` ((op, buffer index) -> bytes) memory is these bytes, otherwise
    each buffer copy is apart from all others.
    """
    serial = list(_serial(script, ()))
    found = [*_complete(serial, steps), *_slots(script, steps)]
    if found:
        return found[:limit]  # the memory check would only report consequences
    expected, found = _expected(serial, values)
    memory = _Memory(values, places, scratch)
    for v in values:
        if all(v not in op.writes for op, _ in serial):
            memory.preset(v, (v, (), 0))
    for t, step in enumerate(steps):
        if len(found) >= limit:
            break
        found += memory.run(t, step.works, expected)
    return found[:limit]


def _serial(items: Sequence[Item], iteration: Iteration) -> Iterator[tuple[LoopOp, Iteration]]:
    for item in items:
        if isinstance(item, tuple):
            yield from ((op, iteration) for op in item)
        else:
            for i in range(item.times):
                yield from _serial(item.body, (*iteration, i))


def _complete(serial: Sequence[tuple[LoopOp, Iteration]], steps: Sequence[Step]) -> Iterator[str]:
    have = Counter((w.op.name, w.iteration) for s in steps for w in s.works)
    want = Counter((op.name, i) for op, i in serial)
    for key in dict.fromkeys([*want, *have]):
        if want[key] != have[key]:
            yield f"{_at(*key)} runs {have[key]} times, {want[key]} required"


def _slots(script: Sequence[Item], steps: Sequence[Step]) -> Iterator[str]:
    load_step: dict[str, int] = {}
    todo: list[Item] = list(script)
    for n in itertools.count():
        if not todo:
            break
        item = todo.pop()
        if isinstance(item, tuple):
            load_step.update((op.name, n) for op in item)
        else:
            todo += item.body
    for t, step in enumerate(steps):
        by_engine: dict[str, list[Work]] = {}
        for w in step.works:
            by_engine.setdefault(w.op.engine, []).append(w)
        for engine, works in by_engine.items():
            if len(works) == 1:
                continue
            one_load = engine == "ld" and len({(load_step[w.op.name], w.iteration) for w in works}) == 1
            if not one_load:
                yield f"step {t}: engine {engine!r} has {', '.join(_at(w.op.name, w.iteration) for w in works)}"


def _expected(serial: Sequence[tuple[LoopOp, Iteration]], values: Mapping[str, Value]
              ) -> tuple[dict[tuple[str, Iteration], dict[str, Symbol]], list[str]]:  # fmt: skip
    """Return what every op must find in what it reads and in what it adds to, and reads that even serial order breaks."""
    writes: Counter[tuple[str, Iteration]] = Counter()
    written = {v for op, _ in serial for v in op.writes}
    table: dict[tuple[str, Iteration], dict[str, Symbol]] = {}
    wrong: list[str] = []
    for op, iteration in serial:
        need = table[op.name, iteration] = {}
        for v in op.reads:
            key = (v, iteration[: values[v].depth])
            need[v] = (*key, writes[key])
            if v in written and not writes[key]:
                wrong.append(f"{_at(op.name, iteration)} reads {v!r}, which nothing has written in serial order")
        for v in op.writes:
            key = (v, iteration[: values[v].depth])
            need[v] = (*key, writes[key])
            writes[key] += 1
    return table, wrong


class _Memory:
    """Byte ranges with the symbol each holds; a write clears every other symbol it touches."""

    def __init__(self, values: Mapping[str, Value], places: Ranges | None, scratch: Ranges | None) -> None:
        self.values, self.places, self.scratch = values, places, scratch or {}
        self.apart: dict[tuple[str, int], range] = {}
        self.held: dict[tuple[int, int], Symbol] = {}

    def where(self, value: str, copy: int) -> range:
        if self.places is not None:
            return self.places.get((value, copy), range(-1, 0))
        key = (self.values[value].owner or value, copy)
        return self.apart.setdefault(key, range(len(self.apart), len(self.apart) + 1))

    def preset(self, value: str, symbol: Symbol) -> None:
        at = self.where(value, 0)
        self.held[at.start, at.stop] = symbol

    def run(self, t: int, works: Sequence[Work], expected: Mapping[tuple[str, Iteration], Mapping[str, Symbol]]
            ) -> list[str]:  # fmt: skip
        """Check all reads of a step against memory as it was before, then do its writes."""
        found: list[str] = []
        reads: list[tuple[int, str, range]] = []
        writes: list[tuple[int, str, range, Symbol | None]] = []
        for k, w in enumerate(works):
            need = expected[w.op.name, w.iteration]
            for v, (_, copy) in zip(w.op.reads, w.reads, strict=True):
                reads.append((k, v, self.where(v, copy)))
            for v, (_, copy) in zip(w.op.writes, w.writes, strict=True):
                name, iteration, count = need[v]
                at = self.where(v, copy)
                if count:  # it adds to what is there
                    reads.append((k, v, at))
                writes.append((k, v, at, (name, iteration, count + 1)))
            if (at := self.scratch.get((w.op.name, w.copy))) is not None:
                writes.append((k, "", at, None))
            for v in (x[1] for x in (*reads, *writes) if x[0] == k and x[2].start < 0):
                found.append(f"step {t}: {v!r} of {_name(w)} has no place")
            for _, v, at in (r for r in reads if r[0] == k):
                if (have := self.held.get((at.start, at.stop))) != need[v]:
                    found.append(f"step {t}: {_name(w)} must read {need[v]}, finds {have}")
        for i, (k, v, at, _) in enumerate(writes):
            for k2, v2, other in (*reads, *(x[:3] for x in writes[:i])):
                if at.start < other.stop and other.start < at.stop and not self._allowed(k, v, at, k2, v2, other):
                    found.append(f"step {t}: {_name(works[k])} overwrites {v2 or 'scratch'!r} of {_name(works[k2])}")
        for _, _, at, symbol in writes:
            self.held = {p: s for p, s in self.held.items() if p[1] <= at.start or at.stop <= p[0]}
            if symbol is not None:
                self.held[at.start, at.stop] = symbol
        return found

    def _allowed(self, k: int, v: str, at: range, k2: int, v2: str, other: range) -> bool:
        """An op may overwrite its own operand where the result is meant to be in place."""
        if k != k2 or not v or not v2 or at.start != other.start:
            return False
        return (self.values[v].owner or v) == (self.values[v2].owner or v2)


def _at(name: str, iteration: Iteration) -> str:
    return f"{name}({', '.join(map(str, iteration))})"


def _name(w: Work) -> str:
    return _at(w.op.name, w.iteration)
