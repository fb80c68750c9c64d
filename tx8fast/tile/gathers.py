"""Operands that tiles put together from what each of them has in scratchpad, as the nest before has left it.

May import: lower, tile.{nest, sharing, tiling}. Must not: choose plans, emit instructions.

Of the columns of a matrix the tiles of one set have equal shares, in the order of the tiles; all of them have all rows that they
need. Where a slice of columns is wanted, those that have some of them send these to all. Matrices are channel-blocked and cut
between blocks, so what is sent is one run of bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tx8fast.lower.access import Access
from tx8fast.tile.nest import LoopStep
from tx8fast.tile.sharing import Loaders
from tx8fast.tile.tiling import Tiling


def piece(access: Access, columns: int, rank: int, lo: Sequence[int], hi: Sequence[int]) -> tuple[int, int, int]:
    """Return what the tile of a rank has of a slice: where it begins in what the tile has, and in the slice, and its bytes; 0 of
    them if it has none. columns: those that every tile has."""
    *rows, (begin, end) = access.box(lo, hi)
    size = lambda n: access.local((*rows, (0, n))).size_bytes  # noqa: E731
    first, last = max(begin, rank * columns), min(end, (rank + 1) * columns)
    if first >= last:
        return 0, 0, 0
    return size(first - rank * columns), size(first - begin), size(last - first)


def loaders(tiling: Tiling, k: int, step: LoopStep) -> Loaders:
    """Return which of the tiles that share a read bring its slice of a step: the first one's rank, and how many."""
    columns = dict(tiling.plan.gathered).get(k, 0)
    if not columns:
        return tiling.loaders[k]
    begin, end = tiling.low.reads[k].box(step.lo, step.hi)[-1]
    return begin // columns, -(-end // columns) - begin // columns
