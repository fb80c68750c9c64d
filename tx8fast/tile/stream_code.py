"""The tiles' code of a stream: loads, rounds of the engines, and the exchange of weights beside them.

May import: lower.rounds, lower.transfer, tile, isa. Must not: place buffers.

While the engines work on round g, the core prepares round g + 1, whose weights are a fill (`tile.multicast`). Rounds go through two register windows in turn. Rows of one window are ordered by the hardware, rows of the matrix engine by
its queue; any other conflict between the two windows is waited for (hardware manual 14, 15).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tx8fast import isa
from tx8fast.lower.rounds import Fill, Move, Stream, Work
from tx8fast.lower.transfer import PIECES, Descriptor, clip, ddr_offsets
from tx8fast.records import dataclass
from tx8fast.tile import multicast
from tx8fast.tile.multicast import ENGINES, LOADS
from tx8fast.tile.sharing import Groups, Loaders
from tx8fast.tile.transfers import dma_rows


@dataclass(frozen=True)
class _Own:
    """Rows that differ from tile to tile: a tile loads its parts of `fills`, sends them, or waits for the others' parts. window:
    that of the round that reads them; readers: the tiles that do, as a mask."""

    kind: str
    fills: tuple[Fill, ...]
    monitor: int = 0
    window: int = LOADS
    readers: int = 0


class StreamCode:
    """Builds the code of tiles with `own` images each; DDR offsets are relative to the tile's first image.

    base: address of the arena; `images`: how many a tile with most of them has; `meet`: tiles must meet before the first
    message. What differs between tiles - the part of the weights that each loads and sends - is filled in by `for_tile`."""

    def __init__(self, low: Stream, base: int, own: int, images: int, meet: bool, barrier: bool) -> None:
        self.low, self.base, self.own = low, base, own
        self.memo: dict[tuple, np.ndarray] = {}
        self.found: dict[tuple, list[Descriptor]] = {}
        self.work: dict[int, list[Work | Move | Fill]] = {}
        self.out: list[np.ndarray | _Own] = []
        self.copies = multicast.copies_own(low.machine)
        self.rounds = low.rounds
        self.mask = (1 << low.loaders) - 1
        self.first = [at for a in (*low.reads, *low.writes) for at in ddr_offsets(a.spec, (0,) * len(a.spec.shape))]
        self.pending: dict[int, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = {w: [] for w in ENGINES}
        #: groups and loaders of their fills, bytes of these, and whether tiles meet before
        self.exchanges: list[tuple[tuple[Groups, ...], tuple[Loaders, ...], tuple[int, ...], bool]] = []
        self._build(images, meet, barrier)

    def _build(self, images: int, meet: bool, barrier: bool) -> None:
        total = images * len(self.rounds)
        self._parts(0)
        if self.own:
            for fill in self.low.resident:
                at = self.base + self.low.at["fill", fill.key]
                self._ordered(self._dma(fill.read, self.low.transfers(fill), at, "rdma", ENGINES[0]), ENGINES[0])
            self._ordered(_through(self.low.first_work(self.base), ENGINES[0]), ENGINES[0])
        self._inputs(0)
        self._private(0)
        self._add("wait_worker", workers=1 << LOADS)
        self._exchange(0, meet)
        for g in range(total):
            self._round(g)
            if g == 0 and total > 1:
                self._parts(1)  # not earlier: the queue is full of what the first round waits for
            if g + 1 < total:
                self._prepare(g, total)
        self._add("send_wait")
        self._add("wait")
        if barrier:
            self._add("barrier")

    def for_tile(self, rank: int) -> np.ndarray:
        """Return the code of the tile that is number `rank` of those at work."""
        made: dict[_Own, np.ndarray] = {}
        out = []
        for item in self.out:
            if isinstance(item, _Own):
                if item not in made:
                    made[item] = getattr(self, f"_{item.kind}")(item, rank)
                item = made[item]
            out.append(item.view(np.uint8))
        return np.concatenate(out).view(isa.RECORD)

    # -- rounds -------------------------------------------------------------------------------------------------

    def _at(self, g: int) -> tuple[int, int, int]:
        """Return image, number within the image, and register window of round g."""
        image, r = divmod(g, len(self.rounds))
        return image, r, ENGINES[g % 2]

    def _round(self, g: int) -> None:
        image, r, window = self._at(g)
        if image >= self.own:
            return
        if r not in self.work:
            self.work[r] = list(self.low.work(r, self.base))
        for item in self.work[r]:
            if isinstance(item, Move):
                rows = self._move(item, image, window)
            elif isinstance(item, Fill):
                at = self.base + self.low.at["fill", item.key]
                rows = self._dma(item.read, self.low.transfers(item, image), at, "rdma", window)
            else:
                key = (item.key, window)
                if key not in self.memo:
                    self.memo[key] = _through(item.rows.copy(), window)
                rows = self.memo[key]
            self._ordered(rows, window)

    def _move(self, move: Move, image: int, window: int) -> np.ndarray:
        n = len(self.low.reads)
        access = (*self.low.reads, *self.low.writes)[move.access]
        found = access.transfers((image, *move.lo), (image + 1, *move.hi))
        return self._dma(move.access, found, self.base + move.at, "rdma" if move.access < n else "wdma", window)

    def _prepare(self, g: int, total: int) -> None:
        window = self._at(g + 1)[2]
        self._add("send_wait")
        self._add("wait_worker", workers=1 << LOADS)
        self._wait_window(window)
        if g + 2 < total:
            self._parts(g + 2)
        self._private(g + 1)
        if (g + 1) % len(self.rounds) == 0:
            self._inputs(g + 1)
        self._exchange(g + 1, True)

    def _inputs(self, g: int) -> None:
        """Load the images that come from DDR."""
        image, _, window = self._at(g)
        if image >= self.own:
            return
        for move in self.low.image_loads():
            self._ordered(self._move(move, image, window), window)

    def _private(self, g: int) -> None:
        image, r, window = self._at(g)
        if image >= self.own:
            return
        for fill in self.rounds[r].private:
            key = ("private", fill.key, window)
            if key not in self.memo:
                at = self.base + self.low.at["fill", fill.key]
                self.memo[key] = self._dma(fill.read, self.low.transfers(fill), at, "rdma", window)
            self._ordered(self.memo[key], window)

    # -- shared weights -----------------------------------------------------------------------------------------

    def _share(self, fill: Fill, rank: int) -> tuple[int, int]:
        """Return the bytes [a, b) of a fill that a tile loads."""
        size = self.low.part_of(fill)
        return min(fill.size_bytes, rank * size), min(fill.size_bytes, (rank + 1) * size)

    def _parts(self, g: int) -> None:
        """Start loading the tile's parts of round g's weights into staging."""
        self.out += [_Own("load", (fill,)) for fill in self.rounds[g % len(self.rounds)].shared]

    def _load(self, own: _Own, rank: int) -> np.ndarray:
        (fill,) = own.fills
        a, b = self._share(fill, rank)
        key = ("shared", fill.key)
        if key not in self.found:
            self.found[key] = self.low.transfers(fill)
        found = [
            Descriptor(c.piece, c.ddr, c.spm - a, c.run_bytes, c.loops) for d in self.found[key] for c in clip(d, a, b)
        ]
        return self._dma(fill.read, found, self.base + self.low.at["part", fill.key], "rdma", LOADS)

    def _send(self, own: _Own, rank: int) -> np.ndarray:
        (fill,) = own.fills
        a, b = self._share(fill, rank)
        dst = self.base + self.low.at["fill", fill.key] + a
        src = self.base + self.low.at["part", fill.key]
        here = own.readers & 1 << rank
        copies = self.copies and here and a < b
        sent = isa.rows(multicast.send(src, dst, b - a, own.readers & ~here if copies else own.readers, own.monitor))
        if not copies:
            return sent
        copied = _through(isa.rows([multicast.copy(src, dst, b - a)]), own.window)
        return np.concatenate([sent.view(np.uint8), copied.view(np.uint8)]).view(isa.RECORD)

    def _receive(self, own: _Own, rank: int) -> np.ndarray:
        if not own.readers >> rank & 1:
            return isa.rows([])
        here = [self._share(f, rank) for f in own.fills] if self.copies else []
        size = sum(f.size_bytes for f in own.fills) - sum(b - a for a, b in here)
        return isa.rows([multicast.receive(own.monitor, size)])

    def _exchange(self, g: int, meet: bool) -> None:
        """Send the tile's parts of round g's weights to all that have such an image, and wait for all parts if it is one of these."""
        (image, _, window), shared = self._at(g), self.rounds[g % len(self.rounds)].shared
        if not shared:
            return
        each = self.low.images_per_tile
        readers = (1 << -(-(self.low.images - image) // each)) - 1  # others pass their parts on and keep none
        monitor = len(self.exchanges) % 2
        n = len(shared)
        sizes = tuple([f.size_bytes for f in shared])
        self.exchanges.append((((self.mask,),) * n, ((0, self.low.loaders),) * n, sizes, meet))
        if meet:
            self.out.append(isa.rows(multicast.meet([self.mask])))
        for fill in shared:
            self.out.append(_Own("send", (fill,), monitor, window, readers))
            if self.copies and image < self.own:
                src, dst = (self.base + self.low.at[name, fill.key] for name in ("part", "fill"))
                self.pending[window].append(_facts(isa.rows([multicast.copy(src, dst, self.low.part_of(fill))])))
                self.pending[window][-1][2][0, 0, 1] = dst + fill.size_bytes  # wherever the tile's part is
        self.out.append(_Own("receive", tuple(shared), monitor, window, readers))

    # -- rows ---------------------------------------------------------------------------------------------------

    def _add(self, name: str, **fields: int) -> None:
        self.out.append(isa.rows([isa.make(name, **fields)]))
        if name == "wait":
            self.pending = {w: [] for w in ENGINES}

    def _wait_window(self, window: int) -> None:
        self._add("wait_worker", workers=1 << window)
        self.pending[window] = []

    def _ordered(self, rows: np.ndarray, window: int) -> None:
        """Append engine rows, behind a wait for the other window where the hardware would not order them."""
        if not len(rows):
            return
        mine = _facts(rows)
        (other,) = (w for w in ENGINES if w != window)
        if any(_conflict(mine, old) for old in self.pending[other]):
            self._wait_window(other)
        self.pending[window].append(mine)
        self.out.append(rows)

    def _dma(self, k: int, found: Sequence[Descriptor], at: int, name: str, window: int) -> np.ndarray:
        slot = PIECES * k
        return isa.rows(dma_rows(name, found, at, slot, self.first[slot : slot + PIECES], window))


def _through(rows: np.ndarray, window: int) -> np.ndarray:
    rows["op"] = 0
    rows["worker"] = window
    return rows


def _facts(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return engines (n,), bytes read (n, 4, 2) and written (n, 2, 2) in scratchpad."""
    spans = isa.ranges(rows, np.maximum(rows["ddr"], 0))
    return isa.units(rows), spans["spm_read"], spans["spm_write"]


def _conflict(a: tuple[np.ndarray, np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray, np.ndarray]) -> bool:
    """Say whether rows of different engines share bytes that one of them writes."""

    def meet(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x, y = x[:, None, :, None], y[None, :, None, :]
        return np.any((x[..., 0] < y[..., 1]) & (y[..., 0] < x[..., 1]), (2, 3))

    touched = meet(a[2], b[2]) | meet(a[1], b[2]) | meet(a[2], b[1])
    return bool((touched & (a[0][:, None] != b[0][None, :])).any())
