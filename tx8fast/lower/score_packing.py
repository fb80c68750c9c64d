"""Operands of attention whose heads begin inside of channel blocks: made matrices in scratchpad, and keys and values once for all slices.

May import: lower.{base,emitter,links,transfer}. Must not: place buffers, know scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tx8fast.lower.access import Access
from tx8fast.lower.base import ALIGN_BYTES, NotLowerable, Slice, round_up
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.links import Link, LinkedAccess
from tx8fast.lower.transfer import Local, Move
from tx8fast.numerics.layout import block_size

KEYS = (1, 2)  # the operands that change with keys
ROWS_ONCE = 64  # rows of scores that one slice of a head has, so that its keys are packed for it alone
STAYS = 1 << 19  # bytes of a head's keys, or values, that are packed for all slices: a sixth of scratchpad


def head_units(operands: Sequence[tuple[Access, Sequence[Link]]], sizes: Sequence[int], rows: int) -> tuple[int, int]:
    """Return the factor of heads and how many of them fill whole channel blocks of queries, keys, values and results, given with their
    links. rows: those of a head's scores. Raises NotLowerable where that does not pay."""
    if rows > ROWS_ONCE:
        raise NotLowerable("keys and values that many rows look at stay packed")
    (_, keys, values, _), found = operands, {}
    for access, links in (keys, values):
        block = block_size(access.spec.dtype)
        for f, step in access.staggered.items():
            factor = links[f].factor
            found[factor] = max(found.get(factor, 1), block // math.gcd(block, step))
    if not all(access.staggered for access, _ in operands) or len(found) != 1:
        raise NotLowerable("not all operands have heads that begin inside of a block")
    head, unit = found.popitem()
    if head < 0 or sizes[head] == 1:
        raise NotLowerable("there is one head")
    return head, min(unit, sizes[head])


class Packing:
    """lanes: the accesses, over `LaneAccess`, by operand: queries, keys, values, 3 the result; keys: how many, the last factor."""

    def __init__(self, lanes: Mapping[int, LinkedAccess], keys: int) -> None:
        self.lanes, self.keys = lanes, keys

    def _matrix(self, j: int, lo: Sequence[int], hi: Sequence[int]) -> Local:
        return self.lanes[j].inner.matrix(*self.lanes[j].links.ranges(lo, hi))  # type: ignore[attr-defined]

    def _bytes(self, j: int, lo: Sequence[int], hi: Sequence[int]) -> int:
        return round_up(self._matrix(j, lo, hi).size_bytes, ALIGN_BYTES)

    def _whole(self, j: int, lo: Sequence[int], hi: Sequence[int]) -> int:
        """Return the bytes of the matrices of all keys or values of a slice's head, 0 if they are too large to stay."""
        size = self._bytes(j, (*lo[:-1], 0), (*hi[:-1], self.keys))
        return size if size <= STAYS else 0

    def scratch_bytes(self, lo: Sequence[int], hi: Sequence[int]) -> list[int]:
        """Bytes of the matrices of every operand: of keys and values all of a head, or two of a slice if they are too large."""
        copies = min(2, -(-self.keys // (hi[-1] - lo[-1])))
        return [
            (self._whole(j, lo, hi) or copies * self._bytes(j, lo, hi)) if j in KEYS else self._bytes(j, lo, hi)
            for j in self.lanes
        ]

    def form(self, lo: Sequence[int]) -> int:
        """Return what of a slice's place its instructions depend on: where packed keys lie."""
        return lo[-1] if any(j in self.lanes for j in KEYS) else 0

    def pack(self, em: Emitter, s: Slice, scratch: Sequence[int], dtype: str) -> Slice:
        """Return the slice with its operands as matrices; that of queries changes with their rows alone, those of keys that stay with
        what is loaded. scratch: of every operand."""
        places = [*s.reads[:3], *s.writes]
        every = s.hi[-1] - s.lo[-1] == self.keys
        for j, at in zip(self.lanes, scratch, strict=False):
            stays, places[j] = j in KEYS and (every or self._whole(j, s.lo, s.hi) > 0), at
            if j in KEYS and not every:  # behind the matrices of the keys before, or taking turns
                before = (*s.lo[:-1], 0), (*s.hi[:-1], s.lo[-1])
                places[j] += self._bytes(j, *before) if stays else s.parity % 2 * self._bytes(j, s.lo, s.hi)
            if j < 3 and (s.fresh if stays else j or s.first):
                self._fill(em, j, s, s, places[j], dtype)
        return replace(s, reads=[*places[:3], *s.reads[3:]], writes=places[3:])

    def _fill(self, em: Emitter, j: int, s: Slice, whole: Slice, at: int, dtype: str) -> None:
        """Make the matrix of what slice s has of operand j. whole: the slice that was loaded."""
        matrix = self._matrix(j, s.lo, s.hi)
        if matrix.elems > matrix.rows * matrix.cols:
            em.fill(at, 0.0, matrix.elems, dtype)
        for begin, to, moved in self._packing(j, s, whole):
            em.gather(s.reads[j] + begin, at + to, moved)

    def unpack(self, em: Emitter, s: Slice, matrix: int, whole: Slice) -> None:
        """Move a result's matrix to where its slice lies. whole: the slice that is stored."""
        for at, to, moved in self._packing(3, s, whole):
            back = [Move(m.dst, m.src, m.size, tuple([(b, a, n) for a, b, n in m.loops])) for m in moved]
            em.gather(matrix + to, s.writes[0] + at, back)

    def _packing(self, j: int, s: Slice, whole: Slice) -> Iterator[tuple[int, int, list[Move]]]:
        access, links = self.lanes[j].inner, self.lanes[j].links
        return access.packing(*links.ranges(s.lo, s.hi), links.ranges(whole.lo, whole.hi))  # type: ignore[attr-defined]


class HeadUnits(Packing):
    """Of slices with several heads, which are worked on one after the other. head: their factor.

    Heads that fill whole blocks together are loaded without a gap; keys and values of two of them are packed at a time."""

    def __init__(self, lanes: Mapping[int, LinkedAccess], keys: int, head: int) -> None:
        super().__init__(lanes, keys)
        self.head = head

    def _one(self, lo: Sequence[int], hi: Sequence[int], i: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        f, at = self.head, lo[self.head] + i
        return (*lo[:f], at, *lo[f + 1 :]), (*hi[:f], at + 1, *hi[f + 1 :])

    def count(self, lo: Sequence[int], hi: Sequence[int]) -> int:
        """Return the heads of a slice."""
        return hi[self.head] - lo[self.head]

    def scratch_bytes(self, lo: Sequence[int], hi: Sequence[int]) -> list[int]:
        n, one = self.count(lo, hi), self._one(lo, hi, 0)
        return [self._bytes(j, *one) * (min(2, n) if j in KEYS else n) for j in self.lanes]

    def each(self, s: Slice, own: Sequence[int]) -> Iterator[tuple[int, Slice]]:
        """Yield the heads of a slice, with scratch of their own. own: bytes that each has of the first buffers; of others, none."""
        for i in range(self.count(s.lo, s.hi)):
            lo, hi = self._one(s.lo, s.hi, i)
            mine = [at + i * n for at, n in zip(s.scratch, own, strict=False)]
            yield i, replace(s, lo=lo, hi=hi, scratch=[*mine, *s.scratch[len(own) :]])

    def pack_head(self, em: Emitter, s: Slice, i: int, whole: Slice, scratch: Sequence[int], dtype: str) -> Slice:
        """Return head i of a slice with its operands as matrices; queries are packed once for all keys."""
        places = [*s.reads[:3], *s.writes]
        for j, at in zip(self.lanes, scratch, strict=False):
            places[j] = at + (i % 2 if j in KEYS else i) * self._bytes(j, s.lo, s.hi)
            if j < 3 and (j or s.first):
                self._fill(em, j, s, whole, places[j], dtype)
        return replace(s, reads=[*places[:3], *s.reads[3:]], writes=places[3:])
