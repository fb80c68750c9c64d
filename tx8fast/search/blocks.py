"""Instructions as the event kernel needs them, made once for all plans that have them in common.

May import: isa, machine, _kernels. Must not: know plans.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np

from tx8fast import isa
from tx8fast._kernels._facade_events import KIND_WAIT, KIND_WAIT_WORKER
from tx8fast.machine import Machine

#: what the event kernel calls them; sends are over when the tiles that wait for them are released
SYNC_KINDS = {"wait": KIND_WAIT, "wait_worker": KIND_WAIT_WORKER, "send_wait": KIND_WAIT_WORKER}


@dataclass(frozen=True)
class Block:
    """What the event kernel needs of rows. read (n, 4, 2), write (n, 2, 2) in scratchpad; arg (n, 3): what a wait
    waits for."""

    kind: np.ndarray
    issue: np.ndarray
    fixed: np.ndarray
    ddr_bytes: np.ndarray
    read: np.ndarray
    write: np.ndarray
    arg: np.ndarray

    @classmethod
    def of(cls, machine: Machine, rows: np.ndarray) -> Block:
        address = np.maximum(rows["ddr"], 0)
        families = list(isa.by_family(rows))
        fixed, ddr_bytes = isa.durations(machine, rows, address, families)
        read, written = isa.spm_ranges(rows, families)
        issue = np.asarray(isa.issue_cycles(machine, rows, families), np.int64)
        kind = isa.units(rows).astype(np.uint8)
        arg = np.zeros((len(rows), 3), np.int64)
        for name, code in SYNC_KINDS.items():
            own = rows["opcode"] == isa.INSTRUCTIONS[name].OPCODE
            kind[own] = code
            if name == "wait_worker":
                arg[own, 0] = rows["p"][own, 0]
        return cls(kind, issue, np.asarray(fixed, np.int64), np.asarray(ddr_bytes, np.int64), read, written,
                   arg)  # fmt: skip

    def take(self, at: np.ndarray) -> Block:
        return Block(*[getattr(self, f.name)[at] for f in fields(self)])

    @staticmethod
    def join(parts: Sequence[Block]) -> Block:
        return Block(*[np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Block)])


@lru_cache(maxsize=4)
def _no_rows(machine: Machine) -> Block:
    return Block.of(machine, isa.rows([]))


class Pool:
    """Numbered blocks of rows, each made once. Blocks asked for are made together by `fill`; rows that blocks have in
    common are worked out once.

    rows: the distinct ones; place: of the rows of all blocks among them; begin, size (n,): first of every block in
    `place`, and its rows."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.rows = _no_rows(machine)
        self.place = self.begin = self.size = np.zeros(0, np.int64)
        self.number: dict[tuple, int] = {}
        self.wanted: list[Sequence[tuple]] = []
        self.known: dict[tuple, int] = {}  # row -> its place in `rows`
        self.pauses: dict[tuple, int] = {}  # rows in which the kernel core is busy, and nothing else -> cycles

    def want(self, key: tuple, rows: Sequence[tuple]) -> int:
        """Return the number of a new block."""
        self.number[key] = number = len(self.begin) + len(self.wanted)
        self.wanted.append(rows)
        return number

    def pause(self, key: tuple, cycles: int) -> int:
        """Return the number of a new block in which the kernel core does something else."""
        row = isa.make("wait_worker", workers=0, op=cycles)  # not an op of any program: what tells pauses apart
        if row not in self.known:
            self.pauses[row] = cycles
        return self.want(key, [row])

    def fill(self) -> None:
        """Make what is wanted."""
        if not self.wanted:
            return
        known, before = self.known, len(self.known)
        place = [known.setdefault(row, len(known)) for rows in self.wanted for row in rows]
        new = list(itertools.islice(known, before, None))
        if new:
            rows = Block.of(self.machine, isa.rows(new))
            for row, cycles in self.pauses.items():
                rows.issue[known[row] - before], rows.fixed[known[row] - before] = cycles, 0
            self.rows, self.pauses = Block.join([self.rows, rows]), {}
        size = np.array([len(w) for w in self.wanted], np.int64)
        self.begin = np.concatenate([self.begin, np.cumsum(size) - size + len(self.place)])
        self.size = np.concatenate([self.size, size])
        self.place = np.concatenate([self.place, np.array(place, np.int64)])
        self.wanted = []
