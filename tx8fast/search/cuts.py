"""Which cuts of one op over tiles and time are looked at.

May import: lower, _kernels. Must not: price or choose anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tx8fast._kernels import enumerate_shardings
from tx8fast.lower.base import Lowering, round_up

MAX_SHARDINGS = 24
MAX_CANDIDATES = 60_000


def candidates(low: Lowering, n_tiles: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return parts, slices (n, n_factors) and the innermost parallel factor (n,), in a fixed order; read-only."""
    # what keeps operands reads more the finer its heads are cut: half the tiles may be enough to keep the DDR busy
    return _candidates(
        LoopSpace(low.sizes, low.units, low.shard, low.split, low.reduce, low.max_len),
        n_tiles,
        0.5 if low.keeps else 0.75,
    )


class LoopSpace(NamedTuple):
    """What the candidates of a lowering depend on; see `Lowering`."""

    sizes: tuple[int, ...]
    units: tuple[int, ...]
    shard: tuple[bool, ...]
    split: tuple[bool, ...]
    reduce: tuple[bool, ...]
    max_len: tuple[int, ...]


@lru_cache(maxsize=32)  # lowerings of neighbouring groups have the same loops
def _candidates(low: LoopSpace, n_tiles: int, least: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the candidates; least: the part of the best effective tiles that a sharding must reach."""
    nf = len(low.sizes)
    limit = [n_tiles if ok else 1 for ok in low.shard]
    vectors, eff, _ = enumerate_shardings(low.sizes, low.units, n_tiles, limit)
    good = [v for v, e in zip(vectors, eff, strict=True) if e >= eff[0] * least]
    good = list(
        {
            tuple(-(-s // -(-s // p)) for s, p in zip(low.sizes, v.tolist(), strict=True)): v for v in reversed(good)
        }.values()
    )[::-1][:MAX_SHARDINGS]
    good = [_in_step(low, v) for v in good]
    if not len(good):
        good = [np.ones(nf, np.int64)]
    free = [f for f in range(nf) if not low.reduce[f]]
    all_parts: list[np.ndarray] = []
    all_slices: list[np.ndarray] = []
    all_inner: list[np.ndarray] = []
    for v in good:
        lists = [
            slice_options(s, u, int(p), m, ok)
            for s, u, p, m, ok in zip(low.sizes, low.units, v, low.max_len, low.split, strict=True)
        ]
        while math.prod(len(x) for x in lists) > MAX_CANDIDATES // (2 * len(good)):
            longest = max(range(nf), key=lambda f: len(lists[f]))
            lists[longest] = lists[longest][:-1] if len(lists[longest]) > 2 else lists[longest][:1]
        grid = _grid(lists)
        whole = [min(round_up(-(-s // int(p)), u), s) for s, p, u in zip(low.sizes, v, low.units, strict=True)]
        loops = [f for f in free if lists[f][-1] < whole[f]] or [-1]
        for f in loops:
            keep = grid if f < 0 else grid[grid[:, f] < whole[f]] if f != loops[0] else grid
            all_slices.append(keep)
            all_parts.append(np.broadcast_to(v, keep.shape))
            all_inner.append(np.full(len(keep), f, np.int64))
    joined = [np.ascontiguousarray(np.concatenate(xs), dtype=np.int64) for xs in (all_parts, all_slices, all_inner)]
    for made in joined:
        made.setflags(write=False)
    parts, slices, inner = joined
    return parts, slices, inner


def _in_step(low: LoopSpace, parts: np.ndarray) -> np.ndarray:
    """Return as many parts as there are pieces where units leave hardly a tile without work: the others then share what they load."""
    shards = [min(round_up(-(-s // p), u), s) for s, p, u in zip(low.sizes, parts.tolist(), low.units, strict=True)]
    pieces = np.array([-(-s // max(1, n)) for s, n in zip(low.sizes, shards, strict=True)], np.int64)
    return pieces if nearly_all(np.prod(pieces), np.prod(parts)) else parts


def nearly_all(working: Any, tiles: Any) -> Any:
    """Say whether of so many tiles nine of ten have work: units may leave the last one none. Either may be an array."""
    return 10 * working >= 9 * tiles


def _grid(lists: Sequence[Sequence[int]]) -> np.ndarray:
    """Return all combinations (n, n_lists), the last list's values changing fastest."""
    n = rest = math.prod(map(len, lists))
    out = np.empty((n, len(lists)), np.int64)
    for f, values in enumerate(lists):
        before, rest = n // rest, rest // len(values)
        out[:, f].reshape(before, len(values), rest)[:] = np.array(values, np.int64)[:, None]
    return out


def slice_options(size: int, unit: int, parts: int, limit: int, splittable: bool) -> list[int]:
    """Slice lengths to try for one factor: the shard, then halves of it in whole units."""
    shard = min(round_up(-(-size // parts), unit), size)
    if not splittable:
        return [shard]
    options: list[int] = []
    n = shard
    while True:
        n = min(round_up(n, unit), shard)
        if n <= limit and (not options or n < options[-1]):
            options.append(n)
        if n <= unit:
            break
        n = -(-n // 2)
    return options or [min(limit, shard)]
