"""Operands of attention whose heads begin inside of channel blocks: made matrices in scratchpad, and keys and values once for all slices.

May import: lower.{base,emitter,links,transfer}. Must not: place buffers, know scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tx8fast.lower.base import ALIGN_BYTES, Slice, round_up
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.links import LinkedAccess
from tx8fast.lower.transfer import Local, Move

KEYS = (1, 2)  # the operands that change with keys
STAYS = 1 << 19  # bytes of a head's keys, or values, that are packed for all slices: a sixth of scratchpad


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
        return [(self._whole(j, lo, hi) or copies * self._bytes(j, lo, hi)) if j in KEYS else self._bytes(j, lo, hi)
                for j in self.lanes]  # fmt: skip

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
                matrix = self._matrix(j, s.lo, s.hi)
                if matrix.elems > matrix.rows * matrix.cols:
                    em.fill(places[j], 0.0, matrix.elems, dtype)
                for begin, to, moved in self._packing(j, s):
                    em.gather(s.reads[j] + begin, places[j] + to, moved)
        return replace(s, reads=[*places[:3], *s.reads[3:]], writes=places[3:])

    def unpack(self, em: Emitter, s: Slice, matrix: int) -> None:
        """Move a result's matrix to where its slice lies."""
        for at, to, moved in self._packing(3, s):
            back = [Move(m.dst, m.src, m.size, tuple([(b, a, n) for a, b, n in m.loops])) for m in moved]
            em.gather(matrix + to, s.writes[0] + at, back)

    def _packing(self, j: int, s: Slice) -> Iterator[tuple[int, int, list[Move]]]:
        return self.lanes[j].inner.packing(*self.lanes[j].links.ranges(s.lo, s.hi))  # type: ignore[attr-defined]
