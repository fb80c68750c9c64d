"""Which rows of a tile's code bring every fill, and the cycles of its multicast.

May import: tile.{fills, gathers, multicast, order, sharing, tiling}. Must not: emit instructions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tx8fast.tile import gathers, multicast, sharing
from tx8fast.tile.fills import Multicasts, Reach, no_multicasts
from tx8fast.tile.order import Order
from tx8fast.tile.tiling import Tiling


class Brought(NamedTuple):
    """What a block of rows sends and receives: byte ranges, and the bytes of every read that then have arrived."""

    reach: Reach
    arriving: tuple[int, ...]


class FillRows:
    """The fills of tiles of one form. parts: of every action that loads a part, its number, the fill and the address; passes: of those where
    tiles meet or pass parts on, the number, the fill and whether they only meet; brought: by block that passes parts on."""

    def __init__(
        self,
        tiling: Tiling,
        order: Order,
        parts: Sequence[tuple[int, int, int]],
        passes: Sequence[tuple[int, int, bool]],
        brought: Mapping[int, Brought],
    ) -> None:
        self.tiling, self.brought = tiling, brought
        self.parts, self.passes = (np.array(places, np.int64).reshape(-1, 3).T for places in (parts, passes))
        met = np.zeros(len(order.fills), np.int64)
        met[self.passes[1][self.passes[2] == 1]] = 1
        number: dict[tuple, int] = {}  # reads of a fill, and which tiles load each
        loaders: dict[tuple, tuple] = {}  # step and reads of a fill -> which tiles load them
        for f in order.fills:
            if (f.step, f.changed) not in loaders:
                loaders[f.step, f.changed] = tuple(
                    [gathers.loaders(tiling, k, order.steps[f.step_of(k)]) for k in f.changed]
                )
            number.setdefault((f.changed, loaders[f.step, f.changed]), len(number))
        self.kinds = list(number)
        # what times depend on besides what arrives: twice the kind, and one more if tiles meet before
        kind = [number[f.changed, loaders[f.step, f.changed]] for f in order.fills]
        self.timed_as = 2 * np.array(kind, np.int64) + met
        self.known: dict[tuple[int, tuple[int, ...]], tuple[int, int]] = {}

    def of(self, block: np.ndarray, begin: np.ndarray) -> Multicasts:
        """Return the multicasts of a tile. block, begin: of every action, its block and first row."""
        if not len(self.timed_as):
            return no_multicasts()
        place, fill, meets = self.passes
        first, end = np.full(len(self.timed_as), begin[-1]), np.zeros(len(self.timed_as), np.int64)
        np.minimum.at(first, fill, begin[place])
        end[fill] = begin[place + 1]  # of equal fills the last place stays, that of the exchange
        passing = np.zeros(len(self.timed_as), np.int64)
        passing[fill[meets == 0]] = block[place[meets == 0]]
        blocks, reach = np.unique(passing, return_inverse=True)
        made = [self.brought[n] for n in blocks.tolist()]
        # fills alike take the same time
        alike, like = np.unique(self.timed_as * len(made) + reach, return_inverse=True)
        found = [self._times(x // len(made), made[x % len(made)].arriving) for x in alike.tolist()]
        sending, cycles = np.array(found, np.int64).T[:, like]
        return Multicasts(first, end, sending, cycles, reach, [b.reach for b in made], self._loads(begin))

    def _loads(self, begin: np.ndarray) -> np.ndarray:
        """Return `Multicasts.loads` of a tile."""
        place, fill, staging = self.parts[:, begin[self.parts[0] + 1] > begin[self.parts[0]]]
        turn = np.argsort(staging, kind="stable")
        again = staging[turn[1:]] == staging[turn[:-1]]
        sent = np.full(len(place), -1)
        sent[turn[1:][again]] = fill[turn[:-1][again]]
        turn = np.argsort(fill, kind="stable")
        row, of = ranges(begin[place[turn]], begin[place[turn] + 1])
        return np.stack([row, fill[turn][of], sent[turn][of]])

    def _times(self, timed_as: int, arriving: tuple[int, ...]) -> tuple[int, int]:
        """Return the cycles from the meeting, if tiles meet, until all have sent, and to the arrival of so many bytes of each read of a
        fill everywhere."""
        key = timed_as, arriving
        if key not in self.known:
            changed, loaders = self.kinds[timed_as // 2]
            groups = tuple([sharing.groups(self.tiling, k) for k in changed])
            of = multicast.exchanges(self.tiling.low.machine).of(groups, loaders)
            self.known[key] = of.times(arriving, bool(timed_as % 2))
        return self.known[key]


def ranges(begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return all numbers of the ranges [begin, end), one after the other, and which range each is of."""
    size = end - begin
    of = np.repeat(np.arange(len(size)), size)
    return np.arange(len(of)) + (begin - np.cumsum(size) + size)[of], of
