"""The tiles' code of a stream with several tiles per image: weights of one's own, and results that are gathered.

May import: lower.spread, lower.transfer, tile, isa. Must not: place buffers.

Engines work through one register window, loads of even and odd epochs through the two others. When a tile's engines are done with a
part, it meets the other tiles of its image, sends what it has made, and waits for what they have made; so whatever a part
touches is done with when the next one begins.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tx8fast import isa
from tx8fast.lower.chain import Source
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.spread import SpreadStream
from tx8fast.lower.spread_parts import Runs
from tx8fast.lower.transfer import PIECES, ddr_offsets
from tx8fast.tile import multicast
from tx8fast.tile.sharing import Groups, Loaders
from tx8fast.tile.transfers import dma_rows

WORK, EPOCHS = 0, (1, 2)  # register windows


class SpreadCode:
    """Builds the code of one tile after the other. base: the arena's address; starts: by tile, the first image that its DDR slots
    begin with."""

    def __init__(self, low: SpreadStream, base: int, starts: Sequence[int], barrier: bool) -> None:
        self.low, self.base, self.starts, self.barrier = low, base, starts, barrier
        each = low.per_image
        self.images = tuple([((1 << each) - 1) << each * m for m in range(low.at_once)])
        self.known: dict[tuple, list[list[tuple[int, int, tuple[int, ...]]]]] = {}
        self.all = (1 << low.tiles) - 1

    def for_tile(self, tile: int) -> np.ndarray:
        """Return the tile's code."""
        low = self.low
        self.tile = tile
        self.m, self.k = divmod(tile, low.per_image)
        self.image = low.first + self.m
        self.rows: list[np.ndarray] = []
        self.turn = 0  # exchanges so far: messages of neighbouring ones are counted apart
        self.exchanges: list[tuple[tuple[Groups, ...], tuple[Loaders, ...], tuple[int, ...], bool]] = []
        accesses = (*low.reads, *low.writes)
        self.slots = [
            at
            for a in accesses
            for at in ddr_offsets(a.spec, [x for x, _ in a.box((self.starts[tile],), (self.starts[tile] + 1,))])
        ]
        if self.m < low.at_once:
            self._build()
        self._add("wait")
        if self.barrier:
            self._add("barrier")
        return np.concatenate([r.view(np.uint8) for r in self.rows]).view(isa.RECORD)

    def _build(self) -> None:
        low = self.low
        for source, k in low.inputs.items():
            at = low.at["image", source]
            self._dma(k, low.loads(k, self.image, self.k), at, "rdma", WORK)
        for e in range(min(2, len(low.epochs))):
            self._load(e)
        for source in low.inputs:
            self._gather(source, [[low.share(low.image_bytes(source), k, low.per_image)] for k in range(low.per_image)])
        for e, epoch in enumerate(low.epochs):
            self._add("wait_worker", workers=1 << EPOCHS[e % 2] | 1 << WORK)
            self._pass_on(e)
            if e + 2 < len(low.epochs):
                self._load(e + 2)
            for p in range(epoch.begin, epoch.end):
                self._part(p)
        n = len(low.reads)
        at = low.at["image", low.image(("op", len(low.stages) - 1))]
        self._dma(n, low.stores(self.image, self.k), at, "wdma", WORK)

    def _part(self, p: int) -> None:
        low = self.low
        em = Emitter()
        low.emit_own(em, p, self.k, self.base)
        if em.rows:
            rows = isa.rows(em.rows)
            rows["op"] = 0
            rows["worker"] = WORK
            self.rows.append(rows)
        i = low.parts[p][0]
        if low.alike(i):
            return  # who needs it has made it
        if p + 1 == len(low.parts) or low.parts[p + 1][0] != i:
            of = [q for q, part in enumerate(low.parts) if part[0] == i]
            self._gather(("op", i), [[r for q in of for r in low.runs(q, k)] for k in range(low.per_image)])

    def _gather(self, source: Source, pieces: list[Runs]) -> None:
        """Send what the tile has of an image to the others that need it, and wait for theirs. pieces: by tile, what it has."""
        key = source, self.low.image(source)
        if key not in self.known:
            self.known[key] = self.low.takers(source, pieces)
        takers = self.known[key]
        if not any(takers):
            return
        at = self.base + self.low.at["image", self.low.image(source)]
        each, mask = self.low.per_image, self.images[self.m]
        self._add("wait_worker", workers=1 << WORK)
        self.rows.append(isa.rows(multicast.meet([mask])))
        for a, b, to in takers[self.k]:
            tiles = sum(1 << self.m * each + n for n in to)
            self.rows.append(isa.rows(multicast.send(at + a, at + a, b - a, tiles, self.turn % 2)))
        missing = [sum(b - a for runs in takers for a, b, to in runs if k in to) for k in range(each)]
        n = max(len(runs) for runs in takers)  # messages of a tile
        some = sum(bool(runs) for runs in takers)
        self._receive(missing[self.k], (self.images,) * n, ((0, some),) * n, (max(missing) // n + 1,) * n)

    def _receive(
        self, size: int, groups: tuple[Groups, ...], loaders: tuple[Loaders, ...], sizes: tuple[int, ...]
    ) -> None:
        if size:
            self.rows.append(isa.rows([multicast.receive(self.turn % 2, size)]))
            self.exchanges.append((groups, loaders, sizes, True))
        self._add("send_wait")
        self.turn += 1

    # -- weights --------------------------------------------------------------------------------------------------

    def _load(self, e: int) -> None:
        low = self.low
        for p in range(low.epochs[e].begin, low.epochs[e].end):
            for fill in low.fills[p]:
                found = low.own_transfers(fill, self.image, self.k)
                self._dma(fill.read, found, low.at["fill", fill.key], "rdma", EPOCHS[e % 2])

    def _pass_on(self, e: int) -> None:
        """Pass on what the tile has loaded of an epoch's weights to those that need the same ones."""
        low = self.low
        fills = [f for p in range(low.epochs[e].begin, low.epochs[e].end) for f in low.fills[p] if low.shares(f)]
        if not fills:
            return
        self.rows.append(isa.rows(multicast.meet([self.all])))
        missing = 0
        taken = [f for f in fills if low.own_bytes(f, self.k)]
        for fill in taken:
            mask, size = low.shared_by(fill, self.k)[0], low.own_bytes(fill, self.k)
            a, b = low.share(size, *low.rank(fill, self.m, self.k))
            here = self.base + low.at["fill", fill.key] + a
            self.rows.append(isa.rows(multicast.send(here, here, b - a, mask & ~(1 << self.tile), self.turn % 2)))
            missing += size - (b - a)
        groups = tuple([tuple(sorted(low.shared_by(f, self.k))) for f in taken])
        loaders = tuple([(0, low.rank(f, 0, 0)[1]) for f in taken])
        self._receive(missing, groups, loaders, tuple([f.size_bytes for f in taken]))

    # -- rows -----------------------------------------------------------------------------------------------------

    def _add(self, name: str, **fields: int) -> None:
        self.rows.append(isa.rows([isa.make(name, **fields)]))

    def _dma(self, k: int, found: list, at: int, name: str, window: int) -> None:
        slot = PIECES * k
        rows = dma_rows(name, found, self.base + at, slot, self.slots[slot : slot + PIECES], window)
        if rows:
            self.rows.append(isa.rows(rows))
