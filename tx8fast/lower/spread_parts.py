"""Which part of every result of a stream each of several tiles of an image makes, and what it needs of the others.

May import: lower.stream, lower.chain, lower.transfer. Must not: place bytes, know weights' loads.

A tile makes a range of channels, or some rows of all channels: of many channels and few rows the one, of few channels and many rows
the other keeps more tiles and the matrix engine busy. Of an image with several blocks of channels a band of rows is no image of its
own, so its blocks are summed one after the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tx8fast.errors import InfeasibleError
from tx8fast.graph_table import GroupRecord
from tx8fast.lower.access import Access
from tx8fast.lower.base import ALIGN_BYTES, round_up
from tx8fast.lower.chain import PSUM, Source
from tx8fast.lower.channel_moves import ChannelMoves
from tx8fast.lower.convolution import ACC
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.planes import Intake, Planes
from tx8fast.lower.stream import ConvStream, Part, Ranges
from tx8fast.lower.transfer import Local, part_bytes
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import block_size

LEAST_ROWS = 64  # positions below which an instruction of the matrix engine waits for its weights
Runs = list[tuple[int, int]]  # of bytes


class SpreadParts(ConvStream):
    """The parts for `per_image` tiles."""

    by_rows: list[bool]  # members of which tiles have rows
    turned: list[int]
    owns: list[list[list[Ranges]]]  # by part and tile

    def _prepared(self, record: GroupRecord) -> GroupRecord:
        return record

    def alike(self, i: int) -> bool:
        """True for a member that every tile makes whole."""
        low = self.stages[i].low
        return low.in_lines or not (low.shard[1] or low.shard[2])

    def _goes_by_rows(self, i: int) -> bool:
        """True where the matrix engine has less work if tiles have rows of all channels than if they have channels of all rows."""
        stage, low = self.stages[i], self.stages[i].low
        lo, hi = stage.ranges((0, stage.shape[1]))
        if isinstance(low, Planes) or not low.shard[2]:
            return low.shard[1]
        units = -(-hi[2] // low.units[2])
        one = (*hi[:2], min(low.units[2], hi[2]), *hi[3:])
        block = block_size(low.writes[0].spec.dtype)
        sums = any(low.reduce)  # over channels of the image, one block after the other
        if not low.shard[1] or any(
            b - a > block for x in (*([] if sums else low.reads[:1]), low.writes[0]) for a, b in [x.box(lo, one)[-1]]
        ):
            return False
        last = ((*lo[:2], (units - 1) * low.units[2], *lo[3:]), hi)
        if sums and not self._begins_aligned(i, [(lo, one), last]):
            return False
        width = stage.shape[2] if stage.windowed else 1
        band = self._band(i) * width
        return max(band, LEAST_ROWS) * units <= max(hi[1] * width, LEAST_ROWS) * -(-units // self.per_image)

    def _begins_aligned(self, i: int, found: Sequence[Ranges]) -> bool:
        """True if the weights of every block of channels that is summed begin where an instruction can read them."""
        weights, block = self.stages[i].low.reads[1], block_size(self.stages[i].low.writes[0].spec.dtype)
        places = [weights.local(weights.box(*own)).offset(0, block) for own in found if own[1][3] > block]
        return not any(at % ALIGN_BYTES for at in places)

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
        unit = stage.low.units[1] if stage.windowed or isinstance(stage.low, Intake) else stage.shape[2]
        return round_up(-(-rows // self.per_image), unit)

    def _piece(self, i: int) -> int:
        return self._band(i) if self.by_rows[i] else self.stages[i].low.sizes[1]

    def _divided(self, i: int, most: float) -> Iterator[Ranges]:
        """Yield the parts of a member: few enough channels or positions for one instruction, and few enough weights for one epoch, as
        far as channels can be cut."""
        stage, low = self.stages[i], self.stages[i].low
        lo, hi = stage.ranges((0, stage.shape[1]))
        f = 2 if self._units(i, lo, hi) > 1 else 1
        cut = lambda r, x: (*r[:f], x, *r[f + 1 :])  # noqa: E731
        steps = -(-hi[f] // low.units[f])
        few = 1 if self.by_rows[i] else self.per_image
        last = 0  # parts of a length that was looked at are the same again
        for pieces in range(1, steps + 1):
            step = -(-steps // pieces) * low.units[f]
            if step == last:
                continue
            last = step
            found = [(cut(lo, a), cut(hi, min(a + step, hi[f]))) for a in range(0, hi[f], step)]
            enough = math.inf if self._units(i, *found[0]) <= few else most
            if all(self._taken(i, p, enough) for p in found):  # the first one is the longest
                yield from found
                return
        raise InfeasibleError(f"{low.kind}: instructions take no part of an image that small")

    def _taken(self, i: int, part: Ranges, most: float) -> bool:
        """True if one instruction takes what each tile makes of a part, whose weights have `most` bytes at most."""
        stage, low = self.stages[i], self.stages[i].low
        for k in range(self.per_image):
            own = self._own((i, *part), k)
            if any(b - a > n for r in own for a, b, n in zip(*r, low.max_len, strict=True)):
                return False
            if sum([low.reads[j].size_bytes(*r) for j in stage.others for r in own]) > most:
                return False
        return True

    def _units(self, i: int, lo: tuple[int, ...], hi: tuple[int, ...]) -> int:
        """Return of how many parts of channels a range of a member consists."""
        low = self.stages[i].low
        return -(-(hi[2] - lo[2]) // low.units[2]) if low.shard[2] else 1

    def _own(self, part: Part, k: int) -> list[Ranges]:
        """Return what the k-th tile of an image makes of a part, each one run of bytes: some channels, or some rows of all channels,
        block by block."""
        i, lo, hi = part
        low = self.stages[i].low
        if self.alike(i):
            return [(lo, hi)]
        units, unit = self._units(i, lo, hi), low.units[2]
        if self.by_rows[i]:
            band = self._band(i)
            a, b = max(lo[1], k * band), min((k + 1) * band, hi[1])
            if a >= b or not self.is_read(i, a, b):
                return []
            if not low.shard[2]:
                return [((lo[0], a, *lo[2:]), (hi[0], b, *hi[2:]))]
            ends = [min(lo[2] + n * unit, hi[2]) for n in range(units + 1)]
            return [((lo[0], a, x, *lo[3:]), (hi[0], b, y, *hi[3:])) for x, y in itertools.pairwise(ends)]
        each = -(-units // self.per_image) * unit
        k = (k - self.turned[i]) % self.per_image
        a, b = lo[2] + k * each, min(lo[2] + (k + 1) * each, hi[2])
        return [((*lo[:2], a, *lo[3:]), (*hi[:2], b, *hi[3:]))] if a < b else []

    def _owns(self) -> list[list[list[Ranges]]]:
        """Return what every tile makes of every part; of what all make whole, those that read it or store some of it."""
        last = len(self.stages) - 1
        tiles = range(self.per_image)
        readers: dict[int, set[int]] = {
            last: {k for k in tiles if len({*self.share(self._size(("op", last)), k, self.per_image)}) > 1}
        }
        out = []
        for part in reversed(self.parts):
            i = part[0]
            own = [self._own(part, k) if not self.alike(i) or k in readers.get(i, ()) else [] for k in tiles]
            for kind, u in self.stages[i].images.values():
                if kind == "op":
                    readers.setdefault(u, set()).update([k for k in tiles if own[k]])
            out.append(own)
        return out[::-1]

    @staticmethod
    def share(size_bytes: int, rank: int, tiles: int) -> tuple[int, int]:
        """Return the bytes [a, b) of `size_bytes` that are one tile's part."""
        part = part_bytes(size_bytes, tiles)
        return min(size_bytes, rank * part), min(size_bytes, (rank + 1) * part)

    # -- what tiles need of each other ----------------------------------------------------------------------------

    def runs(self, p: int, k: int) -> Runs:
        """Return the runs of bytes [a, b) of the image that the k-th tile makes in part p."""
        i = self.parts[p][0]
        return _runs(self._local(("op", i)), [(self.stages[i].low.writes[0], own, False) for own in self.owns[p][k]])

    def needs(self, source: Source, k: int) -> Runs:
        """Return the runs of bytes of an image that the k-th tile reads."""
        users = {(u, j) for u, s in enumerate(self.stages) for j, x in s.images.items() if x == source}
        found = []
        for p, (i, _, _) in enumerate(self.parts):
            for j in (j for u, j in users if u == i):
                low = self.stages[i].low
                access = low.writes[0] if j == PSUM else low.reads[j]
                behind = (
                    self.stages[i].windowed and j != PSUM and not self.by_rows[i]
                )  # rows behind the last window, too
                found += [(access, own, behind) for own in self.owns[p][k]]
        return _runs(self._local(source), found)

    def takers(self, source: Source, pieces: Sequence[Runs]) -> list[list[tuple[int, int, tuple[int, ...]]]]:
        """Return, by tile, the runs [a, b) that it has of an image and the other tiles that need some of each. pieces: by tile, what it
        has."""
        needs = [self.needs(source, k) for k in range(self.per_image)]
        return [
            [
                (a, b, to)
                for a, b in runs
                if (
                    to := tuple([n for n, need in enumerate(needs) if n != k and any(a < d and c < b for c, d in need)])
                )
            ]
            for k, runs in enumerate(pieces)
        ]

    def _within(self, p: int, j: int, k: int, n: int) -> int:
        """Return where in a fill begins what the k-th tile's n-th range of a part needs."""
        read = self.stages[self.parts[p][0]].low.reads[j]
        return sum(round_up(read.size_bytes(*own), ALIGN_BYTES) for own in self.owns[p][k][:n])

    # -- code -----------------------------------------------------------------------------------------------------

    def _address(self, source: Source, access: Access, lo: Sequence[int], hi: Sequence[int]) -> int:
        if access.blocked:
            return super()._address(source, access, lo, hi)
        return self.at["image", self.image(source)] + self.planes_at(access, lo, hi)

    @staticmethod
    def planes_at(access: Access, lo: Sequence[int], hi: Sequence[int]) -> int:
        """Return where in a tile's planes, of which it has nothing but its own positions, some channels begin."""
        return lo[2] * (hi[1] - lo[1]) * ITEM_BYTES[access.spec.dtype]

    def emit_own(self, em: Emitter, p: int, k: int, base: int) -> None:
        """Emit what the k-th tile makes of a part; `base` is the arena's address."""
        stage = self.stages[self.parts[p][0]]
        if isinstance(stage.low, ChannelMoves):
            self._move_channels(em, p, k, base)
            return
        for n, own in enumerate(self.owns[p][k]):
            s = self.slice_of(p, base, own, {j: self._within(p, j, k, n) for j in stage.others})
            blocks = self._blocks(p, own)
            if not blocks:
                stage.low.emit(em, s)
                continue
            weight, sums = stage.low.reads[1].local(stage.low.reads[1].box(*own)), base + self.at["sums", p]
            for a, b in blocks:
                lo, hi = (*own[0][:3], a), (*own[1][:3], b)
                reads = [
                    base + self._address(stage.images[0], stage.low.reads[0], lo, hi),
                    s.reads[1] + weight.offset(0, a),
                    *s.reads[2:],
                ]
                at = replace(s, lo=lo, hi=hi, reads=reads, last=(a, b) == blocks[-1])
                if a:
                    at = replace(at, acc=sums, first=False, addend_dtype=ACC)
                stage.low.convolve(em, at, "conv", reads[1], s.writes[0] if at.last else sums)  # type: ignore[attr-defined]

    def _move_channels(self, em: Emitter, p: int, k: int, base: int) -> None:
        """Emit the rows of several blocks that the k-th tile puts together or takes apart, in whole images."""
        i = self.parts[p][0]
        images = [image for _, image in sorted(self.stages[i].images.items())]
        *sources, out = [base + self.at["image", self.image(image)] for image in (*images, ("op", i))]
        for (_, first, *_), (_, end, *_) in self.owns[p][k]:
            self.stages[i].low.emit_within(em, sources, out, (first, end))  # type: ignore[attr-defined]

    def _blocks(self, p: int, own: Ranges) -> list[tuple[int, int]]:
        """Return the ranges of channels that are summed one after the other: blocks, of whose rows a tile has some."""
        i = self.parts[p][0]
        low = self.stages[i].low
        hi, block = own[1], block_size(low.writes[0].spec.dtype)
        if not self.by_rows[i] or not any(low.reduce) or hi[3] <= block:
            return []
        return [(c, min(c + block, hi[3])) for c in range(0, hi[3], block)]


def _runs(local: Local, found: Sequence[tuple[Access, Ranges, bool]]) -> Runs:
    """Return the bytes of an image that factor ranges of accesses mean, in runs; with True all rows from the first one on."""
    out: Runs = []
    block = block_size(local.dtype)
    for access, own, behind in found:
        _, *middle, (first, last) = access.box(*own)
        row, end, step = 0, 0, 1
        for (a, b), dim in zip(reversed(middle), reversed(access.dims[1:-1]), strict=True):
            row, end, step = row + a * step, end + (b - 1) * step, step * dim.size
        end = local.rows - 1 if behind else end
        for c in range(first // block * block, last, block):
            out.append((local.offset(row, c), 2 * local.offset(end, c) - local.offset(end - 1, c)))
    merged: Runs = []
    for a, b in sorted(set(out)):
        if merged and a <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(b, merged[-1][1])
        else:
            merged.append((a, b))
    return merged
