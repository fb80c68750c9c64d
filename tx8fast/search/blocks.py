"""Instructions as the event kernel needs them, made once for all plans that have them in common.

May import: isa, machine, tile.{blocks, fill_rows}. Must not: know plans.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from tx8fast import isa
from tx8fast.machine import Machine
from tx8fast.tile.blocks import Columns, no_rows
from tx8fast.tile.fill_rows import ranges


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

    def moved(
        self, block: np.ndarray, shift: np.ndarray, distances: np.ndarray, space: int
    ) -> tuple[Columns, np.ndarray]:
        """Return what the rows of blocks cost and touch, those of equal blocks and shifts once, and which of them each row is, one
        block after the other. shift: of every block, the row of `distances` (n, spaces) that says how far ranges move in each space of
        `space` bytes."""
        alike, number = np.unique(block * len(distances) + shift, return_inverse=True)
        own, shift = np.divmod(alike, len(distances))
        size = self.size[own]
        at, of = ranges(self.begin[own], self.begin[own] + size)
        plain = self.rows.of(self.place[at])
        for touched in (plain.read, plain.write):
            touched += distances[shift[of][:, None], touched[..., 0] // space][..., None]
        first = (np.cumsum(size) - size)[number]
        return plain, ranges(first, first + size[number])[0]
