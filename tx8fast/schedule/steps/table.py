"""Rows of a group's steps and the lifetimes of its values on the loop.

May import: errors. Must not: choose a step for anything.

A group of T rows runs once per slice. A lifetime (start, end) counts both steps; end before start means that the value
lives over the loop's back edge: it is loaded for the next slice, or stored for the one before (layer-group notes 2.2, 6.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

LOAD, STORE = "load", "store"


@dataclass(frozen=True)
class StepOp:
    """One op of a group: values it reads and writes, cycles of one slice, private scratch."""

    name: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    cycles: int = 0
    scratch_bytes: int = 0


@dataclass(frozen=True)
class Move:
    """One transfer. stage: 0 for the next slice, 1 for this one, 2 for the one before; held: done for the first slice only,
    the value then stays."""

    kind: str
    value: str
    cycles: int = 0
    size_bytes: int = 0
    engine: str = "dma"
    stage: int = 1
    held: bool = False


@dataclass(frozen=True)
class Row:
    """What runs in one step: ops one after the other, transfers beside them."""

    ops: tuple[StepOp, ...] = ()
    moves: tuple[Move, ...] = ()

    def reads(self, value: str) -> bool:
        return any(value in op.reads for op in self.ops)

    def writes(self, value: str) -> bool:
        return any(value in op.writes for op in self.ops)

    def touches(self, value: str) -> bool:
        return self.reads(value) or self.writes(value)


@dataclass(frozen=True)
class Table:
    """The rows of a group and its number of pipeline stages, 1 or 3."""

    rows: tuple[Row, ...]
    stages: int = 1

    @property
    def ops(self) -> tuple[StepOp, ...]:
        return tuple(op for row in self.rows for op in row.ops)

    def with_moves(self, lists: Sequence[Sequence[Move]]) -> Table:
        """Return the table with other transfers, one list per row."""
        rows = tuple(replace(row, moves=tuple(m)) for row, m in zip(self.rows, lists, strict=True))
        return replace(self, rows=rows)


@dataclass(frozen=True)
class Life:
    """Scratchpad bytes of a value, or of an op's scratch, with the steps they are needed in."""

    name: str
    start: int
    end: int
    size_bytes: int = 0
    is_scratch: bool = False

    def steps(self, n_steps: int) -> tuple[int, ...]:
        """Return the steps in the order in which they pass."""
        if self.start <= self.end:
            return tuple(range(self.start, self.end + 1))
        return (*range(self.start, n_steps), *range(self.end + 1))

    def intervals(self, n_steps: int) -> tuple[tuple[int, int], ...]:
        """Return half-open intervals of the step number, for placement by `alloc`."""
        if self.start <= self.end:
            return ((self.start, self.end + 1),)
        return ((0, n_steps),) if self.start == self.end + 1 else ((0, self.end + 1), (self.start, n_steps))


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


def peak_bytes(lives: Iterable[Life], n_steps: int) -> list[int]:
    """Return the bytes alive in every step."""
    total = [0] * n_steps
    for life in lives:
        for t in life.steps(n_steps):
            total[t] += life.size_bytes
    return total
