"""Instructions as the event kernel needs them, made once for all plans that have them in common.

May import: isa, machine, tile.blocks. Must not: know plans.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from tx8fast import isa
from tx8fast.machine import Machine
from tx8fast.tile.blocks import Columns, no_rows


class Pool:
    """Numbered blocks of rows, each made once. Blocks asked for are made together by `fill`; rows that blocks have in
    common are worked out once.

    rows: the distinct ones; place: of the rows of all blocks among them; begin, size (n,): first of every block in
    `place`, and its rows."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.rows = no_rows(machine)
        self.place = self.begin = self.size = np.zeros(0, np.int64)
        self.number: dict[tuple, int] = {}
        self.wanted: list[Sequence[tuple]] = []
        self.known: dict[tuple, int] = {}  # row -> its place in `rows`

    def want(self, key: tuple, rows: Sequence[tuple]) -> int:
        """Return the number of a new block."""
        self.number[key] = number = len(self.begin) + len(self.wanted)
        self.wanted.append(rows)
        return number

    def fill(self) -> None:
        """Make what is wanted."""
        if not self.wanted:
            return
        known, before = self.known, len(self.known)
        place = [known.setdefault(row, len(known)) for rows in self.wanted for row in rows]
        new = list(itertools.islice(known, before, None))
        if new:
            self.rows = self.rows.followed_by(Columns(self.machine, isa.rows(new)))
        size = np.array([len(w) for w in self.wanted], np.int64)
        self.begin = np.concatenate([self.begin, np.cumsum(size) - size + len(self.place)])
        self.size = np.concatenate([self.size, size])
        self.place = np.concatenate([self.place, np.array(place, np.int64)])
        self.wanted = []
