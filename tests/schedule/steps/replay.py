"""Checks a table by running its rows on symbols, sharing nothing with the code that made it.

An oracle of the tests: it must not call assign, balance, place or lifetimes.

Stage k of slice i runs in round i + k. Within a row the ops run one after the other and all transfers beside them: a
transfer finds what was there before the row, and must not write what the row's ops or other transfers use, nor they what it uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tx8fast.schedule.steps.table import Row, StepOp, Table

Symbol = tuple[str, int]  # value, slice


def find_violations(
    ops: Sequence[StepOp], outputs: Collection[str], table: Table, slices: int = 1,
    places: Mapping[tuple[str, bool], range] | None = None, limit: int = 20,
) -> list[str]:  # fmt: skip
    """Return one sentence per broken rule, at most `limit`; none means that the table is right.

    Rules: every op once per slice, in order; every value from outside loaded before use, every output stored once per
    slice after it is made; nothing overwritten while it is needed; held values loaded once. `places`: (name,
    is scratch) -> bytes; without it every value has bytes of its own.
    """
    memory = _Memory(places)
    found: list[str] = []
    done: Counter[tuple[str, int]] = Counter()
    stored: Counter[Symbol] = Counter()
    outside = {v for op in ops for v in op.reads} - {v for op in ops for v in op.writes}
    held = {m.value for row in table.rows for m in row.moves if m.held}
    for n in range(slices + table.stages - 1):
        for t, row in enumerate(table.rows):
            found += _run(memory, row, (n, t), table.stages, slices, held, done, stored)
            if len(found) >= limit:
                return found[:limit]
    for op in ops:
        found += [
            f"{op.name} runs {done[op.name, i]} times for slice {i}" for i in range(slices) if done[op.name, i] != 1
        ]
    for v in sorted(outputs):
        found += [f"{v!r} is stored {stored[v, i]} times for slice {i}" for i in range(slices) if stored[v, i] != 1]
    loaded = Counter(m.value for row in table.rows for m in row.moves if m.kind == "load")
    found += [f"{v!r} is loaded by {loaded[v]} transfers" for v in sorted(outside) if loaded[v] != 1]
    return found[:limit]


def _run(memory: _Memory, row: Row, at: tuple[int, int], stages: int, slices: int, held: Collection[str],
         done: Counter, stored: Counter) -> list[str]:  # fmt: skip
    n, t = at
    where = f"round {n}, step {t}"
    found: list[str] = []
    used: list[tuple[str, range, bool]] = []  # by transfers: who, bytes, whether it writes
    late: list[tuple[range, Symbol]] = []

    def symbol(value: str, i: int) -> Symbol:
        return value, 0 if value in held else i

    def need(who: str, value: str, i: int) -> None:
        have, want = memory.held.get(value), symbol(value, i)
        if have != want:
            found.append(f"{where}: {who} needs {value!r} of slice {want[1]}, finds {have[1] if have else 'nothing'}")

    def use(who: str, span: range, writes: bool) -> None:
        for other, busy, wrote in used:
            if (writes or wrote) and span.start < busy.stop and busy.start < span.stop:
                found.append(f"{where}: {who} and {other} use the same bytes, one of them writes")

    for m in row.moves:
        i = n - (m.stage if stages > 1 else 0)
        if not 0 <= i < slices or (m.held and i):
            continue
        writes = m.kind != "store"
        who = f"the {m.kind} of {m.value!r}"
        use(who, memory.at(m.value), writes)
        used.append((who, memory.at(m.value), writes))
        if writes:
            late.append((memory.at(m.value), symbol(m.value, i)))
        else:
            need(who, m.value, i)
            stored[m.value, i] += 1
    i = n - (1 if stages > 1 else 0)
    for op in row.ops if 0 <= i < slices else ():
        done[op.name, i] += 1
        for v in op.reads:
            need(op.name, v, i)
            use(op.name, memory.at(v), False)
        own: list[tuple[range, Symbol | None]] = [(memory.at(v), (v, i)) for v in op.writes]
        if op.scratch_bytes and memory.places is not None:
            own.append((memory.places[op.name, True], None))
        for span, _ in own:
            use(op.name, span, True)
        spans = [memory.at(v) for v in op.reads] + [span for span, _ in own]
        for k, a in enumerate(spans):
            if any(a.start < b.stop and b.start < a.stop for b in spans[max(k + 1, len(op.reads)) :]):
                found.append(f"{where}: {op.name} overwrites its own bytes")
        for span, made in own:
            memory.write(span, made)
    for span, made in late:
        memory.write(span, made)
    return found


class _Memory:
    """Bytes with the value each range holds."""

    def __init__(self, places: Mapping[tuple[str, bool], range] | None) -> None:
        self.places = places
        self.apart: dict[str, range] = {}
        self.held: dict[str, Symbol] = {}

    def at(self, value: str) -> range:
        if self.places is not None:
            return self.places[value, False]
        return self.apart.setdefault(value, range(len(self.apart), len(self.apart) + 1))

    def write(self, span: range, made: Symbol | None) -> None:
        for v in [v for v in self.held if self.at(v).start < span.stop and span.start < self.at(v).stop]:
            del self.held[v]
        if made is not None:
            self.held[made[0]] = made
