"""Rows of a group's steps and the lifetimes of its values on the loop.

May import: nothing. Must not: choose a step for anything.

A group of T rows runs once per slice. A lifetime (start, end) counts both steps; end before start means that the value
lives over the loop's back edge: it is loaded for the next slice, or stored for the one before (layer-group notes 2.2, 6.4).
"""

from __future__ import annotations

from tx8fast.records import dataclass

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

    @property
    def cycles(self) -> int:
        """Cycles of the ops."""
        return sum(op.cycles for op in self.ops)


@dataclass(frozen=True)
class Table:
    """The rows of a group and its number of pipeline stages, 1 or 3."""

    rows: tuple[Row, ...]
    stages: int = 1


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
