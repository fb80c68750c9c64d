"""The spaces the search walks: shardings of one op over tiles, and finer and finer splits in time.

May import: `_kernels`, `errors`, numpy. Must not: cost or choose anything.
Source: back-end notes 11.1 (shardings) and 11.3 (splits).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tx8fast._kernels import enumerate_shardings

Vector = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ShardingLevel:
    """Shardings that keep about `2**factor` tiles busy, best first; `effective_tiles` is parallel to them."""

    factor: int
    shardings: tuple[Vector, ...]
    effective_tiles: tuple[int, ...]


def alignment_base(length: int, block: int = 64) -> int:
    """Return the smallest useful piece of a channel dimension in elements.

    It is `block` (64, or 128 for one-byte types) when the length reaches that, else the smallest
    power of two that is at least 4 and at least the length.
    """
    if length >= block:
        return block
    return 1 << (max(4, length) - 1).bit_length()


def shardings(
    shape: Sequence[int],
    max_sharding: int,
    *,
    align_channels: bool = True,
    block: int = 64,
    n_first: bool = False,
    limit: Sequence[int] | None = None,
    legal: Callable[[Vector], bool] | None = None,
) -> tuple[ShardingLevel, ...]:
    """Return the ways to cut a result of `shape` over `max_sharding` tiles, in levels of falling use.

    The uncut vector is always among the candidates. `limit` is the most parts per dimension (1 =
    must not be cut); `legal` drops vectors that the op's own rule refuses. The result may be empty
    when `legal` refuses all.
    """
    base = [1] * len(shape)
    if align_channels and shape:
        base[-1] = alignment_base(shape[-1], block)
    vectors, effective, factors = enumerate_shardings(shape, base, max_sharding, limit, n_first)
    levels: dict[int, tuple[list[Vector], list[int]]] = {}
    for row, eff, factor in zip(vectors.tolist(), effective.tolist(), factors.tolist()):
        vector = tuple(row)
        if legal is None or legal(vector):
            rows, effs = levels.setdefault(factor, ([], []))
            rows.append(vector)
            effs.append(eff)
    return tuple(ShardingLevel(f, tuple(rows), tuple(effs)) for f, (rows, effs) in levels.items())


def next_split(
    split: Vector,
    shard: Sequence[int],
    minimum: Sequence[int],
    n_first: bool = False,
    allowed: Sequence[bool] | None = None,
) -> Vector | None:
    """Return the next finer split of a shard, or None when every allowed dimension is exhausted.

    The first dimension that can still be cut (from the last backwards; from the first when
    `n_first`) gets twice its parts, at most ceil(shard / minimum).
    """
    dims = range(len(shard)) if n_first else range(len(shard) - 1, -1, -1)
    for d in dims:
        most = -(-shard[d] // minimum[d])
        if split[d] < most and (allowed is None or allowed[d]):
            return (*split[:d], min(2 * split[d], most), *split[d + 1 :])
    return None


def split_states(
    shard: Sequence[int],
    minimum: Sequence[int],
    n_first: bool = False,
    allowed: Sequence[bool] | None = None,
) -> Iterator[Vector]:
    """Yield splits from the uncut shard to the finest: 1 + sum of ceil(log2(ceil(shard / minimum))) states."""
    state: Vector | None = (1,) * len(shard)
    while state is not None:
        yield state
        state = next_split(state, shard, minimum, n_first, allowed)
