"""Addresses for the values of a group's steps, away from banks that are busy at the same time.

May import: schedule.steps.table, errors. Must not: change steps.

Every round works out the lowest address of every value that has none yet and commits the lowest of all; order only breaks ties
(layer-group notes 7.2-7.5). A memory of one bank, or of banks interleaved below the size of a value, has no address that
avoids a busy bank: then `bank_bytes` is 0 and this is first fit by lowest address.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tx8fast.errors import AllocationError
from tx8fast.schedule.steps.table import Life, Move, Row, StepOp, Table, lives_meet

Span = tuple[int, int]  # bytes [first, last + 1)


@dataclass(frozen=True)
class Memory:
    """A scratchpad: its size, its banks of consecutive bytes (0: none), and the width values end on."""

    capacity_bytes: int
    bank_bytes: int = 0
    line_bytes: int = 256


@dataclass(frozen=True)
class Placed:
    """Addresses in the order of the lives, the highest byte used + 1, and whether held values kept their place for all
    slices; `conflicts`: lives for which no free bank was found."""

    addresses: tuple[int, ...]
    occupancy_bytes: int
    holds: bool
    conflicts: tuple[str, ...] = ()

    def utilisation(self, memory: Memory) -> float:
        return self.occupancy_bytes / memory.capacity_bytes


def place(
    table: Table, lives: Sequence[Life], memory: Memory, held: Collection[str] = (), multi: bool = False,
    allow_conflicts: bool = False,
) -> Placed:  # fmt: skip
    """Return an address for every life of `table`.

    `multi`: the group runs several slices; then a held value shares its bytes with nobody, unless all held values together
    reach the capacity, which cancels the holds. `allow_conflicts` places without regard to banks. Raises AllocationError if a value does
    not fit, naming what lies in its way.
    """
    kept = {v.name for v in lives if v.name in held and not v.is_scratch} if multi else set()
    if sum(v.size_bytes for v in lives if v.name in kept and not v.is_scratch) >= memory.capacity_bytes:
        kept = set()
    return _Placer(table, lives, memory, kept, allow_conflicts).run(bool(kept))


class _Placer:
    def __init__(self, table: Table, lives: Sequence[Life], memory: Memory, held: set[str], allow: bool) -> None:
        self.table, self.lives, self.memory, self.held = table, lives, memory, held
        self.allow = allow or not memory.bank_bytes
        self.steps = [v.steps(len(table.rows)) for v in lives]
        self.free: list[list[Span]] = [[(0, memory.capacity_bytes)] for _ in lives]
        self.busy_banks: list[set[int]] = [set() for _ in lives]
        self.computed, self.moved = self._conflict_sets()

    def run(self, holds: bool) -> Placed:
        n_steps = len(self.table.rows)
        area = [
            v.size_bytes * (n_steps if self._kept(v) else len(s)) for v, s in zip(self.lives, self.steps, strict=True)
        ]
        address = [-1] * len(self.lives)
        todo = [i for i, v in enumerate(self.lives) if v.size_bytes]
        conflicts: list[str] = []
        last = -1
        while todo:
            flags = self._flags()
            todo.sort(key=lambda i: (-(i in flags), -area[i], self.lives[i].start))
            best = -1
            for i in todo:
                if last >= 0:
                    self._exclude(i, last, address[last])
                at = self._lowest(i)
                if at < 0:
                    raise AllocationError(self._why(i, address))
                if best < 0 or at < address[best]:
                    best, address[i] = i, at
            if self._banks(best, address[best]) & self.busy_banks[best] and not self.allow:
                conflicts.append(self.lives[best].name)
            last = best
            self._forget(best)
            todo.remove(best)
        ends = [a + v.size_bytes for a, v in zip(address, self.lives, strict=True) if v.size_bytes]
        return Placed(tuple(max(a, 0) for a in address), max(ends, default=0), holds, tuple(conflicts))

    def _kept(self, v: Life) -> bool:
        return v.name in self.held and not v.is_scratch

    # ---- who is busy in a step

    def _related(self, i: int, op: StepOp, t: int) -> bool:
        """Say whether `op` uses life i in step t: makes it where it starts, reads it elsewhere."""
        v = self.lives[i]
        if t not in self.steps[i]:
            return False
        if v.is_scratch:
            return op.name == v.name
        return v.name in (op.writes if t == v.start else op.reads)

    def _transfers(self, i: int, moves: Sequence[Move]) -> bool:
        return not self.lives[i].is_scratch and any(m.value == self.lives[i].name for m in moves)

    def _conflict_sets(self) -> tuple[list[set[int]], list[set[int]]]:
        """Return per step the values its ops use and those in transfer; steps without ops have none."""
        values = [i for i, v in enumerate(self.lives) if not v.is_scratch]
        rows = self.table.rows
        computed = [{i for i in values if row.ops and row.touches(self.lives[i].name)} for row in rows]
        moved = [{i for i in values if row.ops and self._transfers(i, row.moves)} for row in rows]
        return computed, moved

    def _flags(self) -> set[int]:
        return set().union(*self.computed, *self.moved)

    def _forget(self, i: int) -> None:
        """Take a placed value out of the sets; a step without a partner left for its last value has no conflict."""
        for computed, moved in zip(self.computed, self.moved, strict=True):
            computed.discard(i)
            moved.discard(i)
            if not computed:
                moved.clear()
            elif len(computed) == 1 and not moved:
                computed.clear()

    # ---- what a placed value excludes

    def _exclude(self, i: int, r: int, address: int) -> None:
        """Take the banks and bytes of the value placed last from what life i may use."""
        if not self.allow and self._shares_a_step(i, r):
            self.busy_banks[i] |= self._banks(r, address)
        if lives_meet(self.lives[i], self.lives[r]) or self._kept(self.lives[i]) or self._kept(self.lives[r]):
            line = self.memory.line_bytes
            taken = (address, -(-(address + self.lives[r].size_bytes) // line) * line)
            self.free[i] = [s for s in cut(self.free[i], taken) if s[1] - s[0] >= self.lives[i].size_bytes]

    def _shares_a_step(self, i: int, r: int) -> bool:
        """True if an op uses both in one step, or an op uses one while the other is in transfer."""
        for t in self.steps[i]:
            row: Row = self.table.rows[t]
            mine = [op for op in row.ops if self._related(i, op, t)]
            if mine or self._transfers(i, row.moves):
                if any(self._related(r, op, t) for op in (mine or row.ops)):
                    return True
            if mine and self._transfers(r, row.moves):
                return True
        return False

    def _banks(self, i: int, address: int) -> set[int]:
        bank = self.memory.bank_bytes
        return set(range(address // bank, (address + self.lives[i].size_bytes - 1) // bank + 1)) if bank else set()

    def _lowest(self, i: int) -> int:
        """Return the lowest address in free banks, else in any, -1 if there is none."""
        size, bank = self.lives[i].size_bytes, self.memory.bank_bytes
        spans = [s for s in self.free[i] if s[1] - s[0] >= size]
        if not self.allow:
            clean = spans
            for b in self.busy_banks[i]:
                clean = cut(clean, (b * bank, (b + 1) * bank))
            spans = [s for s in clean if s[1] - s[0] >= size] or spans
        return spans[0][0] if spans else -1

    def _why(self, i: int, address: Sequence[int]) -> str:
        v = self.lives[i]
        others = [k for k, a in enumerate(address) if a >= 0 and k != i and lives_meet(v, self.lives[k])]
        others.sort(key=lambda k: -self.lives[k].size_bytes)
        listed = ", ".join(f"{self.lives[k].name} {self.lives[k].size_bytes:,}" for k in others[:8]) or "nothing"
        return (
            f"placing the values of a group's steps: no room for {v.name!r} of {v.size_bytes:,} bytes in "
            f"{self.memory.capacity_bytes:,}; placed beside it, in bytes: {listed}; more slices would help"
        )


def cut(spans: Sequence[Span], taken: Span) -> list[Span]:
    """Return the spans without the bytes of `taken`."""
    out = []
    for a, b in spans:
        if b <= taken[0] or taken[1] <= a:
            out.append((a, b))
            continue
        if a < taken[0]:
            out.append((a, taken[0]))
        if taken[1] < b:
            out.append((taken[1], b))
    return out
