"""The multicasts of a code as columns, one for every fill.

May import: nothing of tile. Must not: choose an order, know ops.

A *multicast* is three steps of the core. It waits until the tile's own parts are there; from then on the parts of the
next one may be loaded. Then, when nobody on this tile uses the target's bytes any more, it meets the other tiles and sends. While
messages are under way, the core issues other rows; then it receives. What rows of two register windows need of each other is waited
for where it stands then (hardware manual 15).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

Range = tuple[int, int]
#: byte ranges that a multicast reads, those of the parts, and that it writes, those of the targets
Reach = tuple[tuple[Range, ...], tuple[Range, ...]]


class Multicasts(NamedTuple):
    """Rows [begin, end) bring one fill each, in the nest's order, the last of which receives; all (n,) int64. sending, cycles: of the
    core, from the meeting until it has sent, and to the last byte; reach: which of `reaches` it has; loads (3, m): the rows that load
    own parts, by multicast, with the number of that and of the one that used their bytes before, -1: none."""

    begin: np.ndarray
    end: np.ndarray
    sending: np.ndarray
    cycles: np.ndarray
    reach: np.ndarray
    reaches: Sequence[Reach]
    loads: np.ndarray

    @property
    def count(self) -> int:
        return len(self.begin)

    def last(self, n: int) -> list[Reach]:
        """Return what the last n multicasts reach."""
        return [self.reaches[i] for i in self.reach[-n:].tolist()]

    def first_parts(self, n: int) -> np.ndarray:
        """Return the first row of every multicast that loads a part, n where there is none."""
        row, of, _ = self.loads
        first = np.full(self.count, n)
        first[of[::-1]] = row[::-1]  # of equal places the last one stays
        return first

    def moved(self, row: int, multicast: int, reach: int) -> Multicasts:
        """Return these where so many rows, multicasts and reaches are before them: a later nest's first parts are loaded as far ahead
        as all others."""
        at, of, sent = self.loads
        before = of - 2 + multicast if multicast else np.full(len(of), -1)
        loads = np.stack([at + row, of + multicast, np.where(sent >= 0, sent + multicast, np.maximum(before, -1))])
        return self._replace(begin=self.begin + row, end=self.end + row, reach=self.reach + reach, loads=loads)


def in_turn(made: Sequence[Multicasts]) -> Multicasts:
    """Return several as one."""
    begin, end, sending, cycles, reach = (np.concatenate([m[i] for m in made]) for i in range(5))
    reaches = [reach for m in made for reach in m.reaches]
    return Multicasts(begin, end, sending, cycles, reach, reaches, np.concatenate([m.loads for m in made], axis=1))


def no_multicasts() -> Multicasts:
    none = np.zeros(0, np.int64)
    return Multicasts(none, none, none, none, none, [], np.zeros((3, 0), np.int64))
