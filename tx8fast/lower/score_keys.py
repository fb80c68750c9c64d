"""How keys of attention lie in scratchpad, so that scores with the first ones of a slice are a product.

May import: lower.{base,emitter,links,transfer}, numerics. Must not: place buffers, know masks.

A matrix of keys is blocked by the values of a head: where these take several blocks, the first keys are no matrix of fewer rows.
Keys then lie in matrices of `CHUNK` keys, one behind the other, whose scores are the batches of one product.
"""

from __future__ import annotations

from collections.abc import Sequence

from tx8fast.lower.access import Access
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.links import Link, LinkedAccess
from tx8fast.lower.transfer import Descriptor, Local, clip
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import block_size

#: keys: a product's startup is a fifteenth of its cycles with 128 rows of heads of 128; a multiple of 128, so that scores of any number
#: of rows in any format are multiples of 256 bytes: batches of a product begin there, chunks' scores lie one right behind the other
CHUNK = 256
FEW = 5  # fewer chunks of keys that tiles share arrive together: tiles meet for each of them


class KeyChunks(LinkedAccess):
    """An operand with keys as rows, every `CHUNK` of which are loaded for themselves, so that what needs the first ones alone does not
    wait for the others. factor: the group's that runs over keys; apart: each chunk is a matrix of its own."""

    def __init__(self, inner: Access, links: Sequence[Link], factor: int, apart: bool) -> None:
        super().__init__(inner, links)
        self.factor, self.apart = factor, apart

    def transfers(self, lo: Sequence[int], hi: Sequence[int]) -> list[Descriptor]:
        begin, end = lo[self.factor], hi[self.factor]
        if end - begin <= CHUNK:
            return super().transfers(lo, hi)
        if not self.apart:
            return self._cut(super().transfers(lo, hi), end - begin, super().size_bytes(lo, hi))
        out, at = [], 0
        for key in range(begin, end, CHUNK):
            own = [list(x) for x in (lo, hi)]
            own[0][self.factor], own[1][self.factor] = key, min(key + CHUNK, end)
            out += [d._replace(spm=d.spm + at) for d in super().transfers(*own)]
            at += super().size_bytes(*own)
        return out

    def chunks(self, lo: Sequence[int], hi: Sequence[int]) -> int:
        count = -(-(hi[self.factor] - lo[self.factor]) // CHUNK)
        return count if count >= FEW else 1

    def chunk(self, lo: Sequence[int], hi: Sequence[int], i: int) -> list[tuple[int, int]]:
        begin, end = i * CHUNK, min((i + 1) * CHUNK, hi[self.factor] - lo[self.factor])
        if not self.apart:
            size, keys = super().size_bytes(lo, hi), hi[self.factor] - lo[self.factor]
            rows = [(a, (b - a) // keys) for a, b in self._blocks(keys, size)]
            return [(a + begin * row, a + end * row) for a, row in rows]
        first = super().size_bytes(lo, self._until(lo, hi, CHUNK))
        return [(i * first, i * first + super().size_bytes(lo, self._until(lo, hi, end - begin)))]

    def _until(self, lo: Sequence[int], hi: Sequence[int], keys: int) -> tuple[int, ...]:
        """Return the end of the range with so many keys."""
        return (*hi[: self.factor], lo[self.factor] + keys, *hi[self.factor + 1 :])

    def _blocks(self, keys: int, size: int) -> list[tuple[int, int]]:
        """Return where the channel blocks of a matrix of so many keys and bytes lie."""
        block = block_size(self.spec.dtype) * ITEM_BYTES[self.spec.dtype] * keys
        return [(at, min(at + block, size)) for at in range(0, size, block)]

    def _cut(self, found: Sequence[Descriptor], keys: int, size: int) -> list[Descriptor]:
        """Return the transfers of a matrix of so many keys and bytes in pieces of chunks."""
        ends, out = self._blocks(keys, size), []
        for key in range(0, keys, CHUNK):
            for at, end in ends:
                row = (end - at) // keys
                for d in found:
                    out += clip(d, at + key * row, at + min(key + CHUNK, keys) * row)
        return out


def scores_with(
    em: Emitter,
    left: int,
    right: int,
    out: int,
    rows: int,
    depth: int,
    keys: int,
    shown: int,
    chunked: bool,
    by_rows: bool,
    fmt: str,
) -> None:
    """out [rows, keys] = left [rows, depth] x keys, of which the first `shown` are needed: of chunks, whole ones are taken. by_rows:
    keys are columns of the right operand."""
    turned = int(by_rows)
    if not chunked:
        solid = by_rows or depth <= block_size(fmt)
        em.gemm(left=left, right=right, out=out, m=rows, k=depth, n=shown if solid else keys, r_trs=turned, fmt=fmt)
        return
    full = shown // CHUNK
    if full:
        em.gemm(left=left, right=right, out=out, m=rows, k=depth, n=CHUNK, batch_r=full, r_trs=turned, fmt=fmt)
    if full * CHUNK < shown:
        begin = full * CHUNK
        right += Local(begin, depth, fmt, True).size_bytes
        out += Local(rows, keys, fmt, True).offset(0, begin)
        em.gemm(left=left, right=right, out=out, m=rows, k=depth, n=min(CHUNK, keys - begin), r_trs=turned, fmt=fmt)
