"""Convolutional networks with several tiles per image: each makes some of every result and sends it to the others.

May import: lower.stream, lower.chain, lower.transfer, machine. Must not: emit loads or messages (`spread_code`).

Where images are fewer than half the tiles, most would only look on. All tiles of an image have the whole of it in scratchpad, as in
a stream of whole images; of every member's result a tile makes a range of channels, or rows where channels are one block, with
weights that it alone needs. What it has made is one run of bytes, and goes to the others before the next member begins. Weights
are loaded two epochs ahead, in the order of their use. Images beyond a multiple of the tiles come after that multiple.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tx8fast.errors import InfeasibleError
from tx8fast.graph_table import GroupRecord
from tx8fast.lower.base import ALIGN_BYTES, NotLowerable, round_up
from tx8fast.lower.chain import PSUM, Source, place
from tx8fast.lower.convolution import ACC
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.rounds import Fill, Stream, Wish
from tx8fast.lower.stream import LAYOUTS, LESS, ConvStream, Part, Ranges
from tx8fast.lower.transfer import LINE_BYTES, Descriptor, clip, part_bytes
from tx8fast.machine import Machine
from tx8fast.numerics.layout import block_size
from tx8fast.records import dataclass

EPOCH_SHARE = 0.33  # of the room beside images, for the weights of one epoch: those of three are there at a time
EPOCH_BYTES = 524288  # of them in one epoch, at most
FIRST_BYTES = 65536  # of them in the first one
LEAST_ROWS = 64  # positions below which an instruction of the matrix engine waits for its weights


@dataclass(frozen=True)
class Epoch:
    """Parts [begin, end), whose weights are loaded together."""

    begin: int
    end: int


class SpreadStream(ConvStream):
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

    def _prepared(self, record: GroupRecord) -> GroupRecord:
        return record

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
        need = 0
        rooms = [EPOCH_SHARE * (self.capacity - n) for n in self._alive()]
        for _ in range(LAYOUTS):
            self.parts = [(i, *r) for i in range(len(self.stages)) for r in self._divided(i, rooms[i])]
            self.filled = {p: p for p in range(len(self.parts))}
            self.owns = [[self._own(part, k) for k in range(self.per_image)] for part in self.parts]
            self.fills = [self._fills(p) for p in range(len(self.parts))]
            self.epochs = self._epochs([rooms[i] for i, _, _ in self.parts])
            self.wishes = self._wishes()
            need, self.at = place(self.wishes)
            if need <= self.capacity:
                self.spm_bytes = max(need, self.before.spm_bytes if self.before is not None else 0)
                self.held_bytes = {name: size for name, size, _ in self.wishes}
                self.gathered = [self._is_gathered(i) for i in range(len(self.stages))]
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

    def _goes_by_rows(self, i: int) -> bool:
        """True where the matrix engine has less work if tiles have rows of all channels than if they have channels of all rows."""
        stage, low = self.stages[i], self.stages[i].low
        lo, hi = stage.ranges((0, stage.shape[1]))
        if stage.planes >= 0 or not low.shard[2]:
            return low.shard[1]
        units = -(-hi[2] // low.units[2])
        one = (*hi[:2], min(low.units[2], hi[2]), *hi[3:])
        block = block_size(low.writes[0].spec.dtype)
        sums = any(low.reduce)  # over channels of the image, one block after the other
        if not low.shard[1] or any(
            b - a > block for x in (*([] if sums else low.reads[:1]), low.writes[0]) for a, b in [x.box(lo, one)[-1]]
        ):
            return False
        width = stage.shape[2] if stage.windowed else 1
        band = self._band(i) * width
        return max(band, LEAST_ROWS) * units <= max(hi[1] * width, LEAST_ROWS) * -(-units // self.per_image)

    def _turned(self) -> list[int]:
        """Return by member which tile has the first channels: where these are few, others than of the member before, so that all tiles
        load weights."""
        out, at = [], 0
        for i, stage in enumerate(self.stages):
            out.append(at)
            units = self._units(i, *stage.ranges((0, stage.shape[1])))
            if not self.by_rows[i]:
                at = (at + -(-units // -(-units // self.per_image))) % self.per_image
        return out

    def _band(self, i: int) -> int:
        """Return how many rows of a member's result a tile makes, as positions where its factor is these."""
        stage = self.stages[i]
        rows = stage.ranges((0, stage.shape[1]))[1][1]
        unit = stage.low.units[1] if stage.windowed or stage.planes >= 0 else stage.shape[2]
        return round_up(-(-rows // self.per_image), unit)

    def _divided(self, i: int, most: float) -> Iterator[Ranges]:
        """Yield the parts of a member: few enough channels or positions for one instruction, and few enough weights for one epoch."""
        low = self.stages[i].low
        lo, hi = self.stages[i].ranges((0, self.stages[i].shape[1]))
        pieces = 1
        while True:
            found = self._pieces(i, lo, hi, pieces)
            own = [self._own((i, *p), k) for p in found for k in range(self.per_image)]
            fields = all(b - a <= n for rs in own for r in rs for a, b, n in zip(*r, low.max_len, strict=True))
            size = max(sum(low.reads[j].size_bytes(*r) for j in self.stages[i].others for r in rs) for rs in own)
            if fields and (size <= most or self._units(i, *found[0]) <= (1 if self.by_rows[i] else self.per_image)):
                yield from found
                return
            if len(found) < pieces:
                raise InfeasibleError(f"{low.kind}: instructions take no part of an image that small")
            pieces += 1

    def _pieces(self, i: int, lo: tuple[int, ...], hi: tuple[int, ...], n: int) -> list[Ranges]:
        low = self.stages[i].low
        f = 2 if self._units(i, lo, hi) > 1 else 1
        step = round_up(-(-hi[f] // n), low.units[f])
        cut = lambda r, x: (*r[:f], x, *r[f + 1 :])  # noqa: E731
        return [(cut(lo, a), cut(hi, min(a + step, hi[f]))) for a in range(0, hi[f], step)]

    def _units(self, i: int, lo: tuple[int, ...], hi: tuple[int, ...]) -> int:
        """Return of how many parts of channels a range of a member consists."""
        low = self.stages[i].low
        return -(-(hi[2] - lo[2]) // low.units[2]) if low.shard[2] else 1

    def _own(self, part: Part, k: int) -> list[Ranges]:
        """Return what the k-th tile of an image makes of a part, each one run of bytes: some channels, or some rows of all channels,
        block by block."""
        i, lo, hi = part
        low = self.stages[i].low
        if not (low.shard[1] or low.shard[2]):
            return [(lo, hi)]
        units, unit = self._units(i, lo, hi), low.units[2]
        if self.by_rows[i]:
            band = self._band(i)
            a, b = max(lo[1], k * band), min((k + 1) * band, hi[1])
            if a >= b:
                return []
            if not low.shard[2]:
                return [((lo[0], a, *lo[2:]), (hi[0], b, *hi[2:]))]
            ends = [min(lo[2] + n * unit, hi[2]) for n in range(units + 1)]
            return [((lo[0], a, x, *lo[3:]), (hi[0], b, y, *hi[3:])) for x, y in itertools.pairwise(ends)]
        each = -(-units // self.per_image) * unit
        k = (k - self.turned[i]) % self.per_image
        a, b = lo[2] + k * each, min(lo[2] + (k + 1) * each, hi[2])
        return [((*lo[:2], a, *lo[3:]), (*hi[:2], b, *hi[3:]))] if a < b else []

    def runs(self, p: int, k: int) -> list[tuple[int, int]]:
        """Return the runs of bytes [a, b) of the image that the k-th tile makes in part p."""
        i = self.parts[p][0]
        low, local = self.stages[i].low, self._local(("op", i))
        out = []
        for own in self.owns[p][k]:
            _, *middle, (first, last) = low.writes[0].box(*own)
            row, end, step = 0, 0, 1
            for (a, b), dim in zip(reversed(middle), reversed(low.writes[0].dims[1:-1]), strict=True):
                row, end, step = row + a * step, end + (b - 1) * step, step * dim.size
            if not middle or end + 1 - row == local.rows:
                out.append((local.offset(0, first), local.offset(0, last) if last < local.cols else local.size_bytes))
            else:
                out.append((local.offset(row, first), local.offset(end + 1, first)))
        return out

    def _is_gathered(self, i: int) -> bool:
        """True if some tile needs more of a member's result than it makes itself."""
        stage = self.stages[i]
        users = [(u, j) for u, s in enumerate(self.stages) for j, x in s.images.items() if x == ("op", i)]
        if not (stage.low.shard[1] or stage.low.shard[2]):
            return False
        return not users or not all(self._has(i, u, j) for u, j in users)

    def _has(self, i: int, u: int, j: int) -> bool:
        """True if every tile makes of member i what it needs of it for member u, as its image j."""
        user = self.stages[u]
        if not self.by_rows[i] or not self.by_rows[u]:
            return False
        if self.stages[i].windowed != user.windowed and self.stages[i].shape[2] > 1:
            width = self.stages[i].shape[2]
        else:
            width = 1
        for k in range(self.per_image):
            band = self._band(u)
            rows = user.ranges((0, user.shape[1]))[1][1]
            a, b = min(k * band, rows), min((k + 1) * band, rows)
            if a >= b:
                continue
            c, d = user.needs(j, (a, b))
            mine = self._band(i)
            size = self.stages[i].ranges((0, self.stages[i].shape[1]))[1][1]
            x, y = min(k * mine, size), min((k + 1) * mine, size)
            if width > 1:  # positions on one side, rows on the other
                if user.windowed:
                    c, d = c * width, d * width
                else:
                    x, y = x * width, y * width
            if not x <= c <= d <= y:
                return False
        return True

    def emit_own(self, em: Emitter, p: int, k: int, base: int) -> None:
        """Emit what the k-th tile makes of a part; `base` is the arena's address."""
        stage = self.stages[self.parts[p][0]]
        for n, own in enumerate(self.owns[p][k]):
            s = self.slice_of(p, base, own, {j: self._within(p, j, k, n) for j in stage.others})
            blocks = self._blocks(p, own)
            if not blocks:
                stage.low.emit(em, s)
                continue
            weight, sums = stage.low.reads[1].local(stage.low.reads[1].box(*own)), base + self.at["sums", p]
            for a, b in blocks:
                lo, hi = (*own[0][:3], a), (*own[1][:3], b)
                reads = [base + self._address(stage.images[0], stage.low.reads[0], lo, hi),
                         s.reads[1] + weight.offset(0, a), *s.reads[2:]]  # fmt: skip
                at = replace(s, lo=lo, hi=hi, reads=reads, last=(a, b) == blocks[-1])
                if a:
                    at = replace(at, acc=sums, first=False, addend_dtype=ACC)
                stage.low.convolve(em, at, "conv", reads[1], s.writes[0] if at.last else sums)  # type: ignore[attr-defined]

    def _blocks(self, p: int, own: Ranges) -> list[tuple[int, int]]:
        """Return the ranges of channels that are summed one after the other: blocks, of whose rows a tile has some."""
        i = self.parts[p][0]
        low = self.stages[i].low
        (lo, hi), block = own, block_size(low.writes[0].spec.dtype)
        if not self.by_rows[i] or not any(low.reduce) or hi[3] <= block:
            return []
        return [(c, min(c + block, hi[3])) for c in range(0, hi[3], block)]

    # -- weights --------------------------------------------------------------------------------------------------

    def _fills(self, p: int) -> list[Fill]:
        stage = self.stages[self.parts[p][0]]
        size = lambda j: max(self._within(p, j, k, len(own)) for k, own in enumerate(self.owns[p]))  # noqa: E731
        return [Fill((p, j), k, size(j)) for j, k in stage.others.items()]

    def _within(self, p: int, j: int, k: int, n: int) -> int:
        """Return where in a fill begins what the k-th tile's n-th range of a part needs."""
        read = self.stages[self.parts[p][0]].low.reads[j]
        return sum(round_up(read.size_bytes(*own), ALIGN_BYTES) for own in self.owns[p][k][:n])

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
        """True for weights of which tiles that need the same ones load a part each."""
        i = self.parts[fill.key[0]][0]
        several = self.at_once > 1 or self.by_rows[i]
        return several and self.stages[i].planes < 0 and self.sharable(fill.size_bytes)

    def rank(self, fill: Fill, m: int, k: int) -> tuple[int, int]:
        """Return which of how many tiles with the same weights the k-th one of the m-th image is."""
        p = fill.key[0]
        if not self.by_rows[self.parts[p][0]]:
            return m, self.at_once
        some = sum(bool(own) for own in self.owns[p])  # the last ones may have no rows
        return m * some + k, self.at_once * some

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

    @staticmethod
    def share(size_bytes: int, rank: int, tiles: int) -> tuple[int, int]:
        """Return the bytes [a, b) of `size_bytes` that are one tile's part."""
        part = part_bytes(size_bytes, tiles)
        return min(size_bytes, rank * part), min(size_bytes, (rank + 1) * part)

    def image_transfers(self, access: int, image: int, k: int) -> list[Descriptor]:
        """Return how the k-th tile moves its part of an image between DDR and scratchpad. access: reads, then writes."""
        a = (*self.reads, *self.writes)[access]
        box = (image,), (image + 1,)
        lo, hi = self.share(a.size_bytes(*box), k, self.per_image)
        return [c for d in a.transfers(*box) if d.run_bytes for c in clip(d, lo, hi)]
