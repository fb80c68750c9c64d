"""How keys of attention lie in scratchpad, so that scores with the first ones of a slice are a product.

May import: lower.{base,emitter,links,transfer}, numerics. Must not: place buffers, know masks.

A matrix of keys is blocked by the values of a head: where these take several blocks, the first keys are no matrix of fewer rows.
Keys then lie in matrices of `CHUNK` keys, one behind the other, whose scores are the batches of one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tx8fast.lower.base import Access
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.links import Link, LinkedAccess
from tx8fast.lower.transfer import Descriptor, Local

CHUNK = 256  # keys: a product's startup is a fifteenth of its cycles with 128 rows of heads of 128


class KeyChunks(LinkedAccess):
    """An operand with keys as rows, in a slice every `CHUNK` of which are a matrix. factor: the group's that runs over keys."""

    def __init__(self, inner: Access, links: Sequence[Link], factor: int) -> None:
        super().__init__(inner, links)
        self.factor = factor

    def transfers(self, lo: Sequence[int], hi: Sequence[int]) -> list[Descriptor]:
        begin, end = lo[self.factor], hi[self.factor]
        out, at = [], 0
        for key in range(begin, end, CHUNK):
            own = [list(x) for x in (lo, hi)]
            own[0][self.factor], own[1][self.factor] = key, min(key + CHUNK, end)
            out += [replace(d, spm=d.spm + at) for d in super().transfers(*own)]
            at += super().size_bytes(*own)
        return out


def scores_with(em: Emitter, left: int, right: int, out: int, rows: int, depth: int, keys: int, shown: int, chunked: bool,
                by_rows: bool, fmt: str) -> None:  # fmt: skip
    """out [rows, keys] = left [rows, depth] x keys, of which the first `shown` are needed: of chunks, whole ones are taken. by_rows:
    keys are columns of the right operand."""
    one = dict(left=left, m=rows, k=depth, r_trs=int(by_rows), fmt=fmt)
    if not chunked:
        solid = by_rows or Local(1, depth, fmt, True).offset(0, depth - 1) < Local(2, depth, fmt, True).offset(1, 0)
        em.gemm(right=right, out=out, n=shown if solid else keys, **one)
        return
    full = shown // CHUNK
    if full:
        em.gemm(right=right, out=out, n=CHUNK, batch_r=full, **one)
    if full * CHUNK < shown:
        begin = full * CHUNK
        at, to = Local(begin, depth, fmt, True).size_bytes, Local(rows, keys, fmt, True).offset(0, begin)
        em.gemm(right=right + at, out=out + to, n=min(CHUNK, keys - begin), **one)
