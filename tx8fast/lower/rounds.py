"""What streams have in common: rounds of work, each with the weights that must be there for it.

May import: lower.base, lower.transfer, machine. Must not: know members, place buffers.

A stream's factors begin with the images (or sequences), of which every tile keeps its own in scratchpad. A round is what
becomes possible with one set of weights; while the engines work on a round, the next one's weights arrive.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field

import numpy as np

from tx8fast.lower.base import Lowering
from tx8fast.lower.transfer import Descriptor, part_bytes
from tx8fast.records import dataclass

SHARE_MIN_BYTES = 16384  # weights below this are cheaper to load by every tile than to agree on
FEWEST_ROUNDS = 3  # for several images in a row: what round r + 2 needs is on its way during round r

Wish = tuple[tuple, int, list[tuple[int, int]]]  # name, bytes, half-open lifetimes in places of work


@dataclass(frozen=True)
class Fill:
    """A weight, a vector or planes of the input, or what a part needs of them. key: (part, operand of its member)."""

    key: tuple[int, int]
    read: int
    size_bytes: int


@dataclass
class Round:
    """Work [begin, end) and what has to be loaded for it: by all tiles together, and by each for itself."""

    begin: int
    end: int
    shared: list[Fill] = field(default_factory=list)
    private: list[Fill] = field(default_factory=list)


@dataclass(frozen=True)
class Move:
    """A transfer of one image's data. access: reads, then writes; lo, hi: factor ranges behind the image; at: in the arena."""

    access: int
    lo: tuple[int, ...]
    hi: tuple[int, ...]
    at: int


@dataclass(frozen=True)
class Work:
    """Instructions; those with equal keys are equal."""

    key: tuple
    rows: np.ndarray


class Stream(Lowering, ABC):
    """The part of a stream that its code builder and its plan need."""

    chains = False  # type: ignore[assignment]
    exchanges = True
    n_images: int
    rounds: list[Round]
    at: dict[tuple, int]  # offsets in the arena: ("fill", key), ("part", key), and what the subclass adds
    held_bytes: dict[tuple, int]  # of everything in `at`
    spm_bytes = 0
    resident: tuple[Fill, ...] = ()  # loaded once, before the first round
    images: int  # that the tiles have
    per_image = 1  # tiles

    @property
    def in_turn(self) -> list[Stream]:
        """The streams that the launch runs one after the other, each on the images behind those of the one before."""
        return [self]

    def spread_over_tiles(self, images: int) -> None:
        """Find how many of so many images each tile has. Whether tiles without one are worth it is a matter of price; they load weights for
        the others, so that fewer images do not wait longer for these."""
        self.images_per_tile = -(-images // self.machine.n_tiles)
        self.tiles = -(-images // self.images_per_tile)
        self.loaders = self.machine.n_tiles
        self.images = images
        self.capacity = self.machine.spm_limit - self.machine.spm_base

    @abstractmethod
    def lay_out(self, name: str, cycles: Callable[[], int]) -> None:
        """Cut and place everything, in the way that takes the fewest `cycles` if there are several. Raises InfeasibleError
        if it does not fit."""

    def beside(self) -> Iterator[tuple[np.ndarray, list[tuple]]]:
        """Yield instructions at the arena's address 0, and the names of what is there while they run; of streams that can
        `move` what is there."""
        return iter(())

    def move(self, phase: Mapping[tuple, int], turn_bytes: int) -> bool:
        """Place everything anew, what is named in `phase` at such an offset modulo `turn_bytes`; False, and nothing is moved, where
        that does not fit."""
        return False

    @abstractmethod
    def transfers(self, fill: Fill, image: int = -1) -> list[Descriptor]:
        """Return how a fill comes from DDR; `image`: the one whose planes it is of."""

    @abstractmethod
    def first_work(self, base: int) -> np.ndarray:
        """Return instructions that run once, before all others; `base` is the arena's address."""

    @abstractmethod
    def image_loads(self) -> list[Move]:
        """Return what of an image is loaded before its first round."""

    @abstractmethod
    def work(self, r: int, base: int) -> Iterator[Work | Move | Fill]:
        """Yield what the engines do in round r of an image; a fill: planes of the image that are loaded then."""

    def shared_fills(self) -> Iterator[Fill]:
        """Yield the fills that several tiles load together."""
        for here in self.rounds:
            yield from here.shared

    def all_fills(self) -> Iterator[Fill]:
        """Yield all fills."""
        yield from self.resident
        for here in self.rounds:
            yield from (*here.shared, *here.private)

    def sharable(self, size_bytes: int) -> bool:
        """True for weights that the tiles load together."""
        return self.loaders > 1 and self.sharing and size_bytes >= SHARE_MIN_BYTES

    def part_of(self, fill: Fill) -> int:
        """Bytes of the part of a shared fill that one tile loads."""
        return part_bytes(fill.size_bytes, self.loaders)

    @property
    def too_short(self) -> bool:
        """True if there are too few rounds to stream weights for one image after the other."""
        return self.images_per_tile > 1 and len(self.rounds) < FEWEST_ROUNDS

    def span(self, first: int, last: int) -> list[tuple[int, int]]:
        """Lifetimes of rounds first .. last; beyond the ends lie the rounds of the images before and after."""
        n = len(self.rounds)
        inside = [(self.rounds[max(0, first)].begin, self.rounds[min(n - 1, last)].end)]
        if self.images_per_tile > 1:
            inside += [(self.rounds[first].begin, self.rounds[-1].end)] if first < 0 else []
            inside += [(0, self.rounds[last - n].end)] if last >= n else []
        return inside


def divide(rounds: list[Round]) -> None:
    """Cut rounds of several parts until there are enough for one image after the other: the new ones need no more weights."""
    while len(rounds) < FEWEST_ROUNDS:
        n, longest = max(enumerate(rounds), key=lambda r: (r[1].end - r[1].begin, -r[0]))
        if longest.end - longest.begin < 2:
            return
        middle = (longest.begin + longest.end) // 2
        rounds.insert(n + 1, Round(middle, longest.end))
        longest.end = middle
