"""Operands that several tiles load together: which, by whom, and when.

May import: lower, tile.tiling (types). Must not: emit instructions, know addresses.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tx8fast.lower.base import ALIGN_BYTES, round_up
from tx8fast.lower.transfer import part_bytes

if TYPE_CHECKING:
    from tx8fast.tile.tiling import Tiling

#: the sets of tiles, as masks, that share one operand
Groups = tuple[int, ...]
#: of the tiles that share one operand, the rank of the first one that loads a part of it, and their number
Loaders = tuple[int, int]

#: slices below this are cheaper to load by every tile than to agree on
SHARE_MIN_BYTES = 16384
LAG = 1.25  # longest setups by which they begin later
STAGGERED = 8  # fills of a shared operand from which on half of the tiles begin later


def sharers(tiling: Tiling) -> tuple[int, ...]:
    """Return per read access how many tiles need the same slices in the same steps; 1 if they cannot go in step."""
    low, plan, pieces = tiling.low, tiling.plan, tiling.pieces
    alone = (1,) * len(low.reads)
    # tiles that skip different slices are not in step
    if any([pieces[f] > 1 for f in low.skipping]) and not low.in_step(plan.slices):
        return alone
    for f, n in enumerate(pieces):
        rest = low.sizes[f] - (n - 1) * plan.shard[f]
        if n != plan.parts[f] or -(-rest // plan.slices[f]) != tiling.trips[f]:
            return alone
    counts = []
    for k, access in enumerate(low.reads):
        alike = low.may_share(k) and k not in plan.delivered
        count = math.prod([n for f, n in enumerate(pieces) if f not in access.factors]) if alike else 1
        large = count > 1 and tiling.slice_bytes[k] >= SHARE_MIN_BYTES
        counts.append(count if large else 1)
    return tuple(counts)


def groups(tiling: Tiling, k: int) -> Groups:
    """Return the sets of tiles that load read k together, that of tile 0 first."""
    return _groups(tiling.plan.parts, tiling.low.reads[k].factors)


@lru_cache(maxsize=256)
def _groups(parts: tuple[int, ...], own: frozenset[int]) -> Groups:
    """Return the sets of tiles that have the same ranges of the factors `own`."""
    found: dict[tuple, int] = {}
    for tile, point in enumerate(itertools.product(*map(range, parts))):
        mine = tuple([x for f, x in enumerate(point) if f in own])
        found[mine] = found.get(mine, 0) | 1 << tile
    return tuple(found.values())


LONG = 2  # parts as long as which a transfer holds up tiles: as many as a tile has room for
#: slices of a sum for every piece of a transfer at least, so that with pieces a slice's loads are at most a quarter more: of nine nests of
#: six language models half as many make two slower, by 0.3 and 0.8 %, and none faster
SPREAD = 4


def masks(tiling: Tiling) -> list[int]:
    """Return the sets of tiles that share a read with tile 0, as bit masks, each once."""
    return sorted({groups(tiling, k)[0] for k, g in enumerate(tiling.plan.shared) if g > 1})


def loaders(tiling: Tiling) -> dict[int, Loaders]:
    """Return which of the tiles that share a read load it, per shared read.

    Reads that change together are loaded by different tiles, in numbers that suit their sizes: one part to load and one
    message to send is cheaper for a tile than several small ones. What is gathered nobody loads: every tile has a part of it."""
    together: dict[frozenset[int], list[int]] = {}
    found: dict[int, Loaders] = {k: (0, tiling.plan.shared[k]) for k, _ in tiling.plan.gathered}
    for k, g in enumerate(tiling.plan.shared):
        if g > 1 and k not in found:
            together.setdefault(tiling.low.reads[k].factors, []).append(k)
    for reads in together.values():
        tiles = tiling.plan.shared[reads[0]]
        if len(reads) > tiles:
            found |= dict.fromkeys(reads, (0, tiles))
            continue
        count = _spread(tuple([tiling.slice_bytes[k] for k in reads]), tiles)
        found |= {k: (sum(count[:i]), count[i]) for i, k in enumerate(reads)}
    return found


@lru_cache(maxsize=256)
def _spread(size: tuple[int, ...], tiles: int) -> tuple[int, ...]:
    """Return how many of the tiles load each of so many bytes: one at least, further ones where a tile has most to do."""
    count = [1] * len(size)
    for _ in range(tiles - len(size)):
        count[max(range(len(size)), key=lambda i: size[i] / count[i])] += 1
    return tuple(count)


def staging(tiling: Tiling) -> list[tuple[tuple[int, ...], int, int]]:
    """Return the buffers of own parts: (the shared reads that take turns in them, bytes, copies). A tile loads a part of
    one of these reads."""
    parts: dict[tuple, list[int]] = {}
    reads, of, gathered = tiling.low.reads, tiling.loaders, dict(tiling.plan.gathered)
    for k, (first, count) in of.items():
        if k in gathered:
            continue
        key = (reads[k].factors,) if count < tiling.plan.shared[k] else (k, first)
        parts.setdefault(key, []).append(k)
    out = []
    for own in parts.values():
        begin, end = (0,) * len(tiling.plan.slices), tiling.plan.slices
        chunks = tiling.low.arrivals(own, begin, end)
        spans = [reads[k].chunk(begin, end, 0) if chunks > 1 else [(0, tiling.slice_bytes[k])] for k in own]
        size = [round_up(sum(b - a for a, b in s), ALIGN_BYTES) for s in spans]
        stages = 2 if tiling.fills(reads[own[0]].factors) > 1 or chunks > 1 else 1
        out.append((tuple(own), max(part_bytes(n, of[k][1]) for k, n in zip(own, size, strict=True)), stages))
    return out


def piece_bytes(tiling: Tiling, k: int) -> int:
    """Return the bytes of the pieces in which a result, or an operand that complete sums alone need, is moved; 0 if at once.

    Tiles wait for each other's parts in every slice of a sum, and a transfer as long as several parts holds up all of them. In pieces no
    longer than a part it goes beside them, if there are enough slices in which to do so."""
    low, part = tiling.low, max([n for _, n, _ in tiling.staging], default=0)
    if not part or not tiling.sums or k < len(low.reads) and k not in low.late:
        return 0
    pieces = tiling.slice_bytes[k] / part
    slices = max([n for n, r in zip(tiling.trips, low.reduce, strict=True) if r])
    return part if LONG < pieces <= slices / SPREAD else 0


def stagger(tiling: Tiling) -> int:
    """Return by how many transfers more half of the tiles begin to load shared operands, 0 if all tiles go in step.

    Tiles in step set up their transfers all at the same time, and the DDR idles. Tiles that are behind by the longest
    setup load meanwhile; in a long nest this pays."""
    machine = tiling.low.machine
    of = {k: loaders for k, loaders in tiling.loaders.items() if k not in dict(tiling.plan.gathered)}
    often = [k for k, a in enumerate(tiling.low.reads) if tiling.fills(a.factors) >= STAGGERED]
    if not any(k in of for k in often):
        return 0
    pages = max(tiling.slice_bytes[k] // of.get(k, (0, 1))[1] for k in often) // machine.chip.ddr_page
    setup_cycles = machine.rdma.startup + pages * machine.chip.ddr_page_penalty
    return math.ceil(LAG * setup_cycles / max(1, machine.rdma.startup))


def late_tiles(tiling: Tiling) -> int:
    """Return the tiles, as a mask, that are to load behind the others: every second set of those that share the operand
    that is filled most often, the smaller sets of several, so that nobody waits for them; the mesh's right half if all
    tiles are one set."""
    plan, machine = tiling.plan, tiling.low.machine
    shared = [k for k, g in enumerate(plan.shared) if g > 1]
    if not shared:
        return 0
    most = max(shared, key=lambda k: (tiling.fills(tiling.low.reads[k].factors), -plan.shared[k]))
    sets = groups(tiling, most)
    if len(sets) > 1:
        return sum(sets[1::2])
    width = machine.chip.tiles_x
    return sum(1 << t for t in range(machine.n_tiles) if 2 * (t % width) >= width)


def hidden_setup(fixed: np.ndarray, ddr_bytes: np.ndarray, share: float, port: float) -> np.ndarray:
    """Return the cycles of transfers' setups (fixed) that cost nothing where half of the tiles set up while the other half
    loads: what a tile's share of the DDR, in bytes per cycle, loses meanwhile it gets back as far as its port lets it."""
    return np.minimum(fixed, ddr_bytes * (1 / share - 1 / port)).astype(np.int64)
