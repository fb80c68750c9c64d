"""Convolutional networks with several tiles per image: each makes some of every result and sends it to the others.

May import: lower.stream, lower.chain, lower.rows_read, lower.transfer, machine. Must not: emit loads or messages (`spread_code`).

Where images are fewer than half the tiles, most would only look on. All tiles of an image have the whole of it in scratchpad, as in
a stream of whole images; of every member's result a tile makes a range of channels, or rows where channels are one block, with
weights that it alone needs. What it has made is one run of bytes, and goes to the others before the next member begins. Weights
are loaded two epochs ahead, in the order of their use. Images beyond a multiple of the tiles come after that multiple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tx8fast.errors import InfeasibleError
from tx8fast.graph_table import GroupRecord
from tx8fast.lower.access import Access
from tx8fast.lower.base import NotLowerable
from tx8fast.lower.chain import Source, place
from tx8fast.lower.planes import Outlet
from tx8fast.lower.rounds import Fill, Stream, Wish
from tx8fast.lower.rows_read import rows_read
from tx8fast.lower.spread_parts import Runs, SpreadParts
from tx8fast.lower.stream import LAYOUTS, LESS, ConvStream
from tx8fast.lower.transfer import Descriptor, clip
from tx8fast.machine import Machine
from tx8fast.records import dataclass

EPOCH_SHARE = 0.33  # of the room beside images, for the weights of one epoch: those of three are there at a time
EPOCH_BYTES = 1048576  # of them in one epoch, at most
FIRST_BYTES = 65536  # of them in the first one


@dataclass(frozen=True)
class Epoch:
    """Parts [begin, end), whose weights are loaded together."""

    begin: int
    end: int


class SpreadStream(SpreadParts):
    kind = "spread stream"

    def __init__(self, record: GroupRecord, machine: Machine) -> None:
        n = record.results[0].shape[0]
        rest = n % machine.n_tiles
        if not 0 < 2 * rest <= machine.n_tiles:
            raise NotLowerable("images are spread over tiles where half of these or more would have none")
        super().__init__(record, machine)
        self.before = ConvStream(record, machine, n - rest) if rest < n else None
        self.first = n - rest
        self.at_once = rest  # images
        self.per_image = machine.n_tiles // rest
        self.tiles = self.loaders = rest * self.per_image
        self.images_per_tile = 1

    @property
    def in_turn(self) -> list[Stream]:
        return [self] if self.before is None else [self.before, self]

    # -- parts ----------------------------------------------------------------------------------------------------

    def lay_out(self, name: str, cycles: Callable[[], int]) -> None:
        if not self.sharing:
            raise InfeasibleError(f"{name}: tiles of an image send each other what they make, and may share nothing")
        if self.before is not None:
            self.before.sharing = self.sharing
            self.before.lay_out(name, cycles)
        self.image_of = self._images()
        self.by_rows = [self._goes_by_rows(i) for i in range(len(self.stages))]
        self.turned = self._turned()
        for stage, by_rows in zip(self.stages, self.by_rows, strict=True):
            if stage.windowed:  # a band of rows is all there is of an image
                stage.low.window = replace(stage.low.window, resident=not by_rows)  # type: ignore[attr-defined]
        self.read = rows_read(self.stages, self._piece)
        alive = self._alive()
        need = max(alive)
        if need > self.capacity:
            raise InfeasibleError(f"{name}: images need {need:,} bytes of scratchpad, {self.capacity:,} are there")
        rooms = [EPOCH_SHARE * (self.capacity - n) for n in alive]
        for _ in range(LAYOUTS):
            self.parts = [(i, *r) for i in range(len(self.stages)) for r in self._divided(i, rooms[i])]
            self.filled = {p: p for p in range(len(self.parts))}
            self.owns = self._owns()
            self.fills = [self._fills(p) for p in range(len(self.parts))]
            self.epochs = self._epochs([rooms[i] for i, _, _ in self.parts])
            self.wishes = self._wishes()
            need, self.at = place(self.wishes)
            if need <= self.capacity:
                self.spm_bytes = max(need, self.before.spm_bytes if self.before is not None else 0)
                self.held_bytes = {name: size for name, size, _ in self.wishes}
                return
            for i in self._crowded(self.wishes):
                rooms[i] *= LESS
        raise InfeasibleError(
            f"{name}: images and weights need {need:,} bytes of scratchpad, {self.capacity:,} are there"
        )

    def beside(self) -> Iterator[tuple[np.ndarray, list[tuple]]]:
        return iter(())

    def move(self, phase: Mapping[tuple, int], turn_bytes: int) -> bool:
        return False

    # -- weights --------------------------------------------------------------------------------------------------

    def _fills(self, p: int) -> list[Fill]:
        stage = self.stages[self.parts[p][0]]
        size = lambda j: max(self._within(p, j, k, len(own)) for k, own in enumerate(self.owns[p]))  # noqa: E731
        return [Fill((p, j), k, size(j)) for j, k in stage.others.items()]

    def _epochs(self, most: Sequence[float]) -> list[Epoch]:
        """Return epochs of as many parts as may have their weights together; the first is short, for engines wait for it. most: by
        part, bytes of the weights of one epoch while it runs."""
        out: list[Epoch] = []
        begin = waiting = 0
        for p, fills in enumerate(self.fills):
            size = sum(f.size_bytes for f in fills)
            since = out[-2].begin if len(out) > 1 else 0
            if waiting and waiting + size > min(EPOCH_BYTES if out else FIRST_BYTES, *most[since : p + 1]):
                out.append(Epoch(begin, p))
                begin, waiting = p, 0
            waiting += size
        return [*out, Epoch(begin, len(self.parts))]

    def _wishes(self) -> list[Wish]:
        """Return (name, bytes, lifetimes in parts) of everything in scratchpad: weights arrive from two epochs before theirs on."""
        out: list[Wish] = []
        for source, (a, b) in self._image_lives([i for i, _, _ in self.parts]).items():
            out.append((("image", source), self._size(source), [(a, b + 1)]))
        for e, epoch in enumerate(self.epochs):
            begin = self.epochs[max(0, e - 2)].begin
            for p in range(epoch.begin, epoch.end):
                out += [(("fill", f.key), f.size_bytes, [(begin, p + 1)]) for f in self.fills[p]]
        for p, part in enumerate(self.parts):
            low = self.stages[part[0]].low
            sizes = [self._scratch(part[0], *r) for own in self.owns[p] for r in own]
            out += [(("scratch", p, j), max(s), [(p, p + 1)]) for j, s in enumerate(zip(*sizes, strict=True))]
            sums = [low.acc_bytes(*r) for own in self.owns[p] for r in own if self._blocks(p, r)]
            out += [(("sums", p), max(sums), [(p, p + 1)])] if sums else []
        return out

    def own_transfers(self, fill: Fill, image: int, k: int) -> list[Descriptor]:
        """Return how the k-th tile of an image fills what it needs for a part."""
        p, j = fill.key
        stage = self.stages[self.parts[p][0]]
        found = []
        for n, own in enumerate(self.owns[p][k]):
            if stage.planes >= 0:
                own = (image, *own[0][1:]), (image + 1, *own[1][1:])  # noqa: PLW2901
            at = self._within(p, j, k, n)
            found += [d._replace(spm=d.spm + at) for d in stage.low.reads[j].transfers(*own) if d.run_bytes]
        if not self.shares(fill):
            return found
        a, b = self.share(self.own_bytes(fill, k), *self.rank(fill, image - self.first, k))
        return [c for d in found for c in clip(d, a, b)]

    def shares(self, fill: Fill) -> bool:
        """True for weights of which tiles that need the same ones, if there are several, load a part each."""
        several = self.rank(fill, 0, 0)[1] > 1
        return several and self.stages[self.parts[fill.key[0]][0]].planes < 0 and self.sharable(fill.size_bytes)

    def rank(self, fill: Fill, m: int, k: int) -> tuple[int, int]:
        """Return which of how many tiles with the same weights the k-th one of the m-th image is."""
        p = fill.key[0]
        if not self.by_rows[self.parts[p][0]]:
            return m, self.at_once
        some = [bool(own) for own in self.owns[p]]  # a tile may have no rows, or none that is read
        return m * sum(some) + sum(some[:k]), self.at_once * sum(some)

    def shared_by(self, fill: Fill, k: int) -> list[int]:
        """Return the masks of tiles that share a fill, of those that the k-th tile of an image needs first."""
        p, each = fill.key[0], self.per_image
        every = range(self.at_once)
        if self.by_rows[self.parts[p][0]]:
            return [sum(1 << k + each * m for m in every for k, own in enumerate(self.owns[p]) if own)]
        masks = [sum(1 << n + each * m for m in every) for n, own in enumerate(self.owns[p]) if own or n == k]
        mine = sum(1 << k + each * m for m in every)
        return [mine, *(mask for mask in masks if mask != mine)]

    def image_bytes(self, source: Source) -> int:
        """Return the bytes of an image."""
        return self._size(source)

    def shared_fills(self) -> Iterator[Fill]:
        return (f for fills in self.fills for f in fills if self.shares(f))

    def all_fills(self) -> Iterator[Fill]:
        return (f for fills in self.fills for f in fills)

    def own_bytes(self, fill: Fill, k: int) -> int:
        """Return how much of a fill the k-th tile of an image needs."""
        p, j = fill.key
        return self._within(p, j, k, len(self.owns[p][k]))

    def loads(self, access: int, image: int, k: int) -> list[Descriptor]:
        """Return how the k-th tile loads its part of an image."""
        runs = [self.share(self.reads[access].size_bytes((image,), (image + 1,)), k, self.per_image)]
        return self._clipped(self.reads[access], image, runs)

    def stores(self, image: int, k: int) -> list[Descriptor]:
        """Return how the k-th tile stores what it has made of the result."""
        last = len(self.stages) - 1
        if isinstance(low := self.stages[last].low, Outlet):
            (planes,) = low.writes
            found = []
            for p in [p for p, part in enumerate(self.parts) if part[0] == last]:
                for lo, hi in self.owns[p][k]:
                    at = self.planes_at(planes, lo, hi)
                    stored = planes.transfers((image, *lo[1:]), (image + 1, *hi[1:]))
                    found += [d._replace(spm=d.spm + at) for d in stored if d.run_bytes]
            return found
        if self.alike(last):
            runs = [self.share(self.image_bytes(("op", last)), k, self.per_image)]
        else:
            runs = [r for p, part in enumerate(self.parts) if part[0] == last for r in self.runs(p, k)]
        return self._clipped(self.writes[0], image, runs)

    @staticmethod
    def _clipped(access: Access, image: int, runs: Runs) -> list[Descriptor]:
        found = [d for d in access.transfers((image,), (image + 1,)) if d.run_bytes]
        return [c for a, b in runs for d in found for c in clip(d, a, b)]
