"""One tile's code of a `ConvStream`: loads, rounds of the engines, and the exchange of weights beside them.

May import: lower.stream, lower.transfer, isa. Must not: place buffers.

While the engines work on round g, the core prepares round g + 1:

    round g - 1 is finished on this tile       wait_worker (its window)
    own parts for g + 2 start loading          its staging was free two rounds ago
    all tiles have come this far               barrier_sub
    own parts for g + 1 go to all              send, recv

Rounds go through two register windows in turn. Rows of one window are ordered by the hardware, rows of the matrix engine by
its queue; any other conflict between the two windows is waited for (hardware manual 14, 15).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tx8fast import isa
from tx8fast.lower.base import Emitter
from tx8fast.lower.stream import ConvStream, Fill
from tx8fast.lower.transfer import PIECES, Descriptor, clip, part_bytes

LOADS = 1  # register window of part loads
WINDOWS = (0, 2)  # of even and odd rounds


class StreamCode:
    """Builds the code of the tile that is number `rank` of those at work. slot_base: DDR offset of each slot;
    `meet`: tiles must meet before the first message."""

    def __init__(self, low: ConvStream, base: int, rank: int, images: tuple[int, int], slot_base: Sequence[int],
                 meet: bool, memo: dict[tuple, np.ndarray]) -> None:  # fmt: skip
        self.low, self.base, self.rank, self.images, self.slot_base = low, base, rank, images, slot_base
        self.meet, self.memo = meet, memo
        self.out: list[np.ndarray] = []
        self.rounds = low.rounds
        self.mask = (1 << low.tiles) - 1
        self.pending: dict[int, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = {w: [] for w in WINDOWS}
        self.exchanged = 0

    def build(self, images: int, barrier: bool) -> list[np.ndarray]:
        """Return the rows for `images` rounds over all members, of which this tile may need fewer."""
        total = images * len(self.rounds)
        self._parts(0)
        self._inputs(0)
        self._private(0)
        self._add("wait")
        if total > 1:
            self._parts(1)
        self._exchange(0, self.meet)
        for g in range(total):
            self._round(g)
            if g + 1 < total:
                self._prepare(g, total)
        self._add("send_wait")
        self._add("wait")
        if barrier:
            self._add("barrier")
        return self.out

    # -- rounds -------------------------------------------------------------------------------------------------

    def _at(self, g: int) -> tuple[int, int, int]:
        """Return image, number within the image, and register window of round g."""
        image, r = divmod(g, len(self.rounds))
        return self.images[0] + image, r, WINDOWS[g % 2]

    def _active(self, image: int) -> bool:
        return image < self.images[1]

    def _round(self, g: int) -> None:
        image, r, window = self._at(g)
        if not self._active(image):
            return
        here = self.rounds[r]
        for p in range(here.begin, here.end):
            key = ("part", p, window)
            if key not in self.memo:
                em = Emitter()
                self.low.emit_part(em, p, self.base)
                self.memo[key] = _through(isa.rows(em.rows), window)
            self._ordered(self.memo[key], window)
        if r + 1 == len(self.rounds):
            k = len(self.low.reads)
            access = self.low.writes[0]
            source = ("op", len(self.low.stages) - 1)
            at = self.base + self.low.at["image", self.low.image(source)]
            self._ordered(self._dma(k, access.transfers((image,), (image + 1,)), at, "wdma", window), window)

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
        if not self._active(image):
            return
        for source, k in self.low.inputs.items():
            at = self.base + self.low.at["image", source]
            found = self.low.reads[k].transfers((image,), (image + 1,))
            self._ordered(self._dma(k, found, at, "rdma", window), window)

    def _private(self, g: int) -> None:
        image, r, window = self._at(g)
        if not self._active(image):
            return
        for fill in self.rounds[r].private:
            key = ("private", fill.key, window, image - self.images[0] if fill.planes else 0)
            if key not in self.memo:
                at = self.base + self.low.at["fill", fill.key]
                self.memo[key] = self._dma(fill.read, self._transfers(fill, image), at, "rdma", window)
            self._ordered(self.memo[key], window)

    # -- shared weights -----------------------------------------------------------------------------------------

    def _transfers(self, fill: Fill, image: int = 0) -> list[Descriptor]:
        p, j = fill.key
        i, lo, hi = self.low.parts[p]
        if fill.planes:
            lo, hi = (image, *lo[1:]), (image + 1, *hi[1:])
        return [d for d in self.low.stages[i].low.reads[j].transfers(lo, hi) if d.run_bytes]

    def _share(self, fill: Fill) -> tuple[int, int, int]:
        """Return first byte and bytes of this tile's part, and bytes of the whole."""
        size = part_bytes(fill.size_bytes, self.low.tiles)
        a = min(fill.size_bytes, self.rank * size)
        return a, min(fill.size_bytes, a + size) - a, fill.size_bytes

    def _parts(self, g: int) -> None:
        """Start loading this tile's parts of round g's weights into staging."""
        for fill in self.rounds[g % len(self.rounds)].shared:
            a, size, _ = self._share(fill)
            key = ("load", fill.key, self.rank)
            if key not in self.memo:
                found = [Descriptor(c.piece, c.ddr, c.spm - a, c.run_bytes, c.loops)
                         for d in self._transfers(fill) for c in clip(d, a, a + size)]  # fmt: skip
                at = self.base + self.low.at["part", fill.key]
                self.memo[key] = self._dma(fill.read, found, at, "rdma", LOADS)
            self.out.append(self.memo[key])

    def _exchange(self, g: int, meet: bool) -> None:
        """Send this tile's parts of round g's weights to all and wait for all parts."""
        shared = self.rounds[g % len(self.rounds)].shared
        if not shared:
            return
        monitor = self.exchanged % 2
        self.exchanged += 1
        if meet:
            self._add("barrier_sub", mask=self.mask)
        for fill in shared:
            a, size, _ = self._share(fill)
            if size:
                self._add("send", src=self.base + self.low.at["part", fill.key],
                          dst=self.base + self.low.at["fill", fill.key] + a, bytes=size, mask=self.mask,
                          monitor=monitor)  # fmt: skip
        self._add("recv", monitor=monitor, bytes=sum(f.size_bytes for f in shared))

    # -- rows ---------------------------------------------------------------------------------------------------

    def _add(self, name: str, **fields: int) -> None:
        self.out.append(isa.rows([isa.make(name, **fields)]))
        if name == "wait":
            self.pending = {w: [] for w in WINDOWS}

    def _wait_window(self, window: int) -> None:
        self._add("wait_worker", workers=1 << window)
        self.pending[window] = []

    def _ordered(self, rows: np.ndarray, window: int) -> None:
        """Append engine rows, behind a wait for the other window where the hardware would not order them."""
        if not len(rows):
            return
        mine = _facts(rows)
        (other,) = (w for w in WINDOWS if w != window)
        if any(_conflict(mine, old) for old in self.pending[other]):
            self._wait_window(other)
        self.pending[window].append(mine)
        self.out.append(rows)

    def _dma(self, k: int, found: Sequence[Descriptor], at: int, name: str, window: int) -> np.ndarray:
        rows = []
        for d in found:
            if not d.run_bytes:
                continue
            loops = [*d.loops, *((0, 1),) * (3 - len(d.loops))]
            fields = {f"{x}{i}": v for i, (s, n) in enumerate(loops) for x, v in (("s", s), ("n", n))}
            side = {"dst": at + d.spm} if name == "rdma" else {"src": at + d.spm}
            slot = PIECES * k + d.piece
            rows.append(isa.make(name, run_bytes=d.run_bytes, slot=slot, ddr=d.ddr - int(self.slot_base[slot]), op=0,
                                 worker=window, **fields, **side))  # fmt: skip
        return isa.rows(rows)


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
        return ((x[..., 0] < y[..., 1]) & (y[..., 0] < x[..., 1])).any((2, 3))

    touched = meet(a[2], b[2]) | meet(a[1], b[2]) | meet(a[2], b[1])
    return bool((touched & (a[0][:, None] != b[0][None, :])).any())
