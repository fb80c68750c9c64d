"""The Plan artifact: how one op is cut over tiles and time.

May import: lower, isa, machine, errors. Must not: know how plans are found or used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.lower.base import ALIGN_BYTES, Access, Lowering, round_up
from tx8fast.lower.transfer import Descriptor, clip, part_bytes
from tx8fast.machine import Machine

#: the sets of tiles, as masks, that share one operand
Groups = tuple[int, ...]
CUTS = frozenset({"shard", "slices", "order"})  # fields of a plan from which `trips` and `fills` follow


@dataclass(frozen=True)
class Plan:
    """One choice per factor. Lengths in factor points.

    parts: pieces over tiles; shard: length per tile; slices: length per time slice; order: loop order, outermost
    first (reductions last); bufs: copies of a buffer that is loaded or stored more than once.
    """

    parts: tuple[int, ...]
    shard: tuple[int, ...]
    slices: tuple[int, ...]
    order: tuple[int, ...]
    bufs: int
    estimate_cycles: int
    spm_bytes: int
    bound: str
    candidates: int = 1
    shared: tuple[int, ...] = ()  # per read access: tiles that load it together and pass it on (1: alone)
    runner_up: Plan | None = None  # the second best of those that were tried
    held: frozenset[int] = frozenset()  # accesses (reads, then writes) that stay in scratchpad: not loaded, not stored
    kept: tuple[int, ...] = ()  # read accesses with a buffer per slice of the reduction: loaded when first needed

    @property
    def runner_up_cycles(self) -> int:
        """Cycles of the second best plan, 0 if there is none."""
        return self.runner_up.estimate_cycles if self.runner_up is not None else 0

    def but(self, **fields: Any) -> Plan:
        """Return the plan with other fields. What follows from shard, slices and order is kept if these are."""
        if CUTS & fields.keys():
            return replace(self, **fields)
        out = object.__new__(Plan)
        out.__dict__.update(self.__dict__, **fields)
        return out

    @cached_property
    def fills(self) -> dict[frozenset[int], int]:
        """What `reloads` found, by factors."""
        return {}

    @cached_property
    def trips(self) -> tuple[int, ...]:
        """Slices per factor."""
        return tuple([-(-a // b) for a, b in zip(self.shard, self.slices, strict=True)])


def reloads(low: Lowering, plan: Plan, factors: frozenset[int]) -> int:
    """How often a buffer that depends on `factors` is filled during the whole loop nest."""
    found = plan.fills.get(factors)
    if found is None:
        found = total = 1
        for f in plan.order:
            total *= plan.trips[f]
            if f in factors and plan.trips[f] > 1:
                found = total
        plan.fills[factors] = found
    return found


def count_steps(low: Lowering, plan: Plan) -> int:
    """Return the number of steps of the tile with the most work."""
    rest = math.prod(n for f, n in enumerate(plan.trips) if f not in low.skipping)
    return rest * low.working(*busiest(low, plan), plan.slices) if low.skipping else rest


def slices_above(low: Lowering, plan: Plan) -> int:
    """Return the number of steps of the tile with the most work if it is above `MAX_SLICES`, else 0."""
    if math.prod(plan.trips) <= MAX_SLICES:
        return 0
    steps = count_steps(low, plan)
    return steps if steps > MAX_SLICES else 0


def busiest(low: Lowering, plan: Plan) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the factor range of the tile with the most work: the first, or the last along factors of which it
    depends which slices have work."""
    pieces = [-(-s // d) for s, d in zip(low.sizes, plan.shard, strict=True)]
    lo = tuple(
        [(n - 1) * d if f in low.skipping else 0 for f, (n, d) in enumerate(zip(pieces, plan.shard, strict=True))]
    )
    return lo, tuple([min(a + d, s) for a, d, s in zip(lo, plan.shard, low.sizes, strict=True)])


def slice_bytes(low: Lowering, access: Access, plan: Plan) -> int:
    """Largest scratchpad footprint of an access over all slices (windows differ at the borders)."""
    return lens_bytes(low, access, plan.slices)


def lens_bytes(low: Lowering, access: Access, lens: tuple[int, ...]) -> int:
    """Largest scratchpad footprint of an access over all slices of such factor lengths."""
    own = tuple([lens[f] for f in access.sorted_factors])
    found = access.known_bytes.get(own)
    if found is None:
        if low.positional:
            found = access.local(tuple((0, d.extent(lens)) for d in access.dims)).size_bytes
        else:
            found = access.size_bytes((0,) * len(lens), lens)
        access.known_bytes[own] = found
    return found


def all_bytes(low: Lowering, lens: tuple[int, ...]) -> tuple[int, ...]:
    """Largest scratchpad footprint of every access, reads then writes, over all slices of such factor lengths."""
    found = low.known_slices.get(lens)
    if found is None:
        found = low.known_slices[lens] = tuple([lens_bytes(low, a, lens) for a in (*low.reads, *low.writes)])
    return found


def copies(low: Lowering, plan: Plan, k: int) -> int:
    """Return how many scratchpad buffers access k (reads, then writes) has: one if it is moved only once."""
    access = low.reads[k] if k < len(low.reads) else low.writes[k - len(low.reads)]
    return _copies(low, plan, k, reloads(low, plan, access.factors))


def _copies(low: Lowering, plan: Plan, k: int, times: int) -> int:
    """Return the buffers of access k, which is moved so many times."""
    if k in plan.kept:
        return math.prod(n for n, r in zip(plan.trips, low.reduce, strict=True) if r)
    if times == 1:
        return 1
    shared = k < len(plan.shared) and plan.shared[k] > 1
    return low.buffers(k, shared, max(plan.shared, default=1) > 1, plan.bufs)


MAX_SLICES = (
    1 << 17
)  # of a tile in one launch: each is some rows of code, and a minute goes by while so many are emitted
BUFS = 2  # copies of a buffer that is filled more than once
#: slices below this are cheaper to load by every tile than to agree on
SHARE_MIN_BYTES = 16384
LAG = 1.25  # longest setups by which they begin later
STAGGERED = 8  # fills of a shared operand from which on half of the tiles begin later


def sharers(low: Lowering, plan: Plan) -> tuple[int, ...]:
    """Return per read access how many tiles need the same slices in the same steps; 1 if they cannot go in step."""
    pieces = [-(-s // d) for s, d in zip(low.sizes, plan.shard, strict=True)]
    alone = (1,) * len(low.reads)
    if any([pieces[f] > 1 for f in low.skipping]):  # tiles that skip different slices are not in step
        return alone
    if low.staged and any([r and n > 1 for r, n in zip(low.reduce, plan.trips, strict=True)]):
        return alone  # slices of one result follow each other too closely to meet between them
    for f, n in enumerate(pieces):
        rest = low.sizes[f] - (n - 1) * plan.shard[f]
        if n != plan.parts[f] or -(-rest // plan.slices[f]) != plan.trips[f]:
            return alone
    counts, size = [], all_bytes(low, plan.slices)
    for k, access in enumerate(low.reads):
        count = math.prod([n for f, n in enumerate(pieces) if f not in access.factors]) if low.may_share(k) else 1
        large = count > 1 and size[k] >= SHARE_MIN_BYTES
        counts.append(count if large else 1)
    return tuple(counts)


def sharing_groups(low: Lowering, plan: Plan, k: int) -> Groups:
    """Return the sets of tiles that load read k together, that of tile 0 first."""
    own = low.reads[k].factors
    groups: dict[tuple, int] = {}
    for tile, point in enumerate(itertools.product(*map(range, plan.parts))):
        mine = tuple([x for f, x in enumerate(point) if f in own])
        groups[mine] = groups.get(mine, 0) | 1 << tile
    return tuple(groups.values())


def loaders(low: Lowering, plan: Plan) -> dict[int, tuple[int, int]]:
    """Return which of the tiles that share a read load it, per shared read: the first one's rank, and how many.

    Reads that change together are loaded by different tiles, in numbers that suit their sizes: one part to load and one
    message to send is cheaper for a tile than several small ones."""
    together: dict[frozenset[int], list[int]] = {}
    for k, g in enumerate(plan.shared):
        if g > 1:
            together.setdefault(low.reads[k].factors, []).append(k)
    found: dict[int, tuple[int, int]] = {}
    for reads in together.values():
        tiles = plan.shared[reads[0]]
        if len(reads) > tiles:
            found |= dict.fromkeys(reads, (0, tiles))
            continue
        sizes = all_bytes(low, plan.slices)
        count = _spread(tuple([sizes[k] for k in reads]), tiles)
        found |= {k: (sum(count[:i]), count[i]) for i, k in enumerate(reads)}
    return found


@lru_cache(maxsize=256)
def _spread(size: tuple[int, ...], tiles: int) -> tuple[int, ...]:
    """Return how many of the tiles load each of so many bytes: one at least, further ones where a tile has most to do."""
    count = [1] * len(size)
    for _ in range(tiles - len(size)):
        count[max(range(len(size)), key=lambda i: size[i] / count[i])] += 1
    return tuple(count)


def staging(low: Lowering, plan: Plan) -> list[tuple[tuple[int, ...], int, int]]:
    """Return the buffers of own parts: (the shared reads that take turns in them, bytes, copies). A tile loads a part of
    one of these reads."""
    parts: dict[tuple, list[int]] = {}
    of = loaders(low, plan)
    for k, (first, count) in of.items():
        key = (low.reads[k].factors,) if count < plan.shared[k] else (k, first)
        parts.setdefault(key, []).append(k)
    out = []
    for reads in parts.values():
        size = [round_up(all_bytes(low, plan.slices)[k], ALIGN_BYTES) for k in reads]
        stages = 2 if reloads(low, plan, low.reads[reads[0]].factors) > 1 else 1
        out.append((tuple(reads), max(part_bytes(n, of[k][1]) for k, n in zip(reads, size, strict=True)), stages))
    return out


def staggered(low: Lowering, plan: Plan) -> int:
    """Return by how many transfers more half of the tiles begin to load shared operands, 0 if all tiles go in step.

    Tiles in step set up their transfers all at the same time, and the DDR idles. Tiles that are behind by the longest
    setup load meanwhile; in a long nest this pays."""
    of = loaders(low, plan)
    often = [k for k, a in enumerate(low.reads) if reloads(low, plan, a.factors) >= STAGGERED]
    if not any(k in of for k in often):
        return 0
    machine = low.machine
    pages = max(slice_bytes(low, low.reads[k], plan) // of.get(k, (0, 1))[1] for k in often) // machine.chip.ddr_page
    setup_cycles = machine.rdma.startup + pages * machine.chip.ddr_page_penalty
    return math.ceil(LAG * setup_cycles / max(1, machine.rdma.startup))


def spm_items(low: Lowering, plan: Plan) -> list[tuple[str, int]]:
    """Return what a plan puts into scratchpad, with the bytes of all copies."""
    lo, hi = (0,) * len(plan.shard), plan.slices
    items = [(f"scratch {i}", b) for i, b in enumerate(low.scratch_bytes(lo, hi))]
    items += [(f"constant {i}", b) for i, b in enumerate(low.const_bytes())]
    items = [(name, round_up(b, ALIGN_BYTES)) for name, b in items]
    n_read = len(low.reads)
    for k, n, size in _buffers(low, plan):
        name = f"operand {k}" if k < n_read else f"result {k - n_read}"
        items.append((f"{name} ({n} copies)" if n > 1 else name, n * size))
    for reads, size, stages in staging(low, plan):
        items.append((f"own part of operand {', '.join(map(str, reads))}", stages * size))
    if _sums(low, plan):
        items.append(("partial sums", round_up(low.acc_bytes(lo, hi), ALIGN_BYTES)))
    return items


def _buffers(low: Lowering, plan: Plan) -> Iterator[tuple[int, int, int]]:
    """Yield access, copies, and bytes of a copy."""
    for k, (a, size) in enumerate(zip((*low.reads, *low.writes), all_bytes(low, plan.slices), strict=True)):
        yield k, _copies(low, plan, k, reloads(low, plan, a.factors)), round_up(size, ALIGN_BYTES)


def _sums(low: Lowering, plan: Plan) -> bool:
    """True if a reduction takes several slices."""
    return any([r and n > 1 for r, n in zip(low.reduce, plan.trips, strict=True)])


def spm_demand(low: Lowering, plan: Plan) -> int:
    """Bytes that a plan's buffers take when all of them are alive at once: the sum of `spm_items`."""
    return moved_bytes(low, plan) + work_bytes(low, plan)


def moved_bytes(low: Lowering, plan: Plan) -> int:
    """Bytes of the buffers from and to which slices are moved; `plan.bufs` matters to these alone."""
    return sum([n * size for _, n, size in _buffers(low, plan)])


def work_bytes(low: Lowering, plan: Plan) -> int:
    """Bytes of all other buffers."""
    own = sum([n * size for _, size, n in staging(low, plan)]) if max(plan.shared, default=1) > 1 else 0
    return own + _work_bytes(low, plan.slices, _sums(low, plan))


def ddr_cycles(low: Lowering, plan: Plan, machine: Machine) -> float:
    """Cycles that the DDR needs for a plan in which every tile loads for itself, halos of windows left out; 0 of a staged
    lowering, where slices may have no work and operands may stay."""
    if low.staged:
        return 0.0
    total = 0.0
    for access in (*low.reads, *low.writes):
        passes = reloads(low, plan, access.factors) / math.prod([plan.trips[f] for f in access.factors])
        tiles = math.prod([s / d if f in access.factors else -(-s // d)
                           for f, (s, d) in enumerate(zip(low.sizes, plan.shard, strict=True))])  # fmt: skip
        total += lens_bytes(low, access, plan.shard) * passes * tiles
    return total / machine.ddr_bytes_per_cycle


def least_demand(low: Lowering, lens: tuple[int, ...]) -> int:
    """Bytes that no plan with slices of such factor lengths goes below."""
    return sum(all_bytes(low, lens)) + _work_bytes(low, lens, False)


def _work_bytes(low: Lowering, lens: tuple[int, ...], sums: bool) -> int:
    """Bytes of what a slice's instructions work with besides operands and results."""
    key = (*lens, sums)
    found = low.known_bytes.get(key)
    if found is None:
        lo = (0,) * len(lens)
        sizes = [*low.scratch_bytes(lo, lens), *low.const_bytes(), *([low.acc_bytes(lo, lens)] * sums)]
        found = low.known_bytes[key] = sum([round_up(b, ALIGN_BYTES) for b in sizes])
    return found


def part_of(found: Sequence[Descriptor], rank: int, tiles: int) -> tuple[list[Descriptor], int, int, int]:
    """Return what tile `rank` (negative: none) of those that load a slice together loads of it: transfers to a buffer of its own, the part's
    start in the slice, its bytes, and the bytes of the whole slice."""
    total = max((d.spm + d.size_bytes for d in found), default=0)
    if rank < 0:
        return [], 0, 0, total
    size = part_bytes(total, tiles)
    a, b = min(total, rank * size), min(total, (rank + 1) * size)
    moved = [replace(c, spm=c.spm - a) for d in found for c in clip(d, a, b)]
    return moved, a, b - a, total


@lru_cache(maxsize=16)
def rows_cycles(machine: Machine, *names: str) -> int:
    """Return the cycles of instructions without fields one after the other, waiting for nothing."""
    rows = isa.rows([isa.make(name) for name in names])
    cycles, _ = isa.durations(machine, rows, np.zeros(len(rows), np.int64))
    return int((cycles + isa.issue_cycles(machine, rows)).sum())


def segment_cycles(plan: Plan, machine: Machine, barrier: bool) -> int:
    """Return the estimate of a group that ends with a barrier, as every plan does, or goes on without."""
    return plan.estimate_cycles - (0 if barrier else rows_cycles(machine, "barrier"))


@dataclass(frozen=True)
class TileRange:
    """Half-open factor range of one tile; empty in any factor means the tile idles."""

    lo: tuple[int, ...]
    hi: tuple[int, ...]

    @property
    def idle(self) -> bool:
        return any(a >= b for a, b in zip(self.lo, self.hi, strict=True))


def tile_ranges(low: Lowering, plan: Plan, n_tiles: int) -> list[TileRange]:
    """Return one range per tile; tiles beyond the number of parts idle.

    Tile t takes the shard whose coordinates are t written in the mixed radix of `plan.parts`, last factor fastest
    (back-end notes 2.3)."""
    return list(_tile_ranges(low.sizes, plan.parts, plan.shard, n_tiles))


@lru_cache(maxsize=1024)
def _tile_ranges(sizes: tuple[int, ...], parts: tuple[int, ...], shard: tuple[int, ...],
                 n_tiles: int) -> tuple[TileRange, ...]:  # fmt: skip
    none = (0,) * max(1, len(parts))
    ranges = []
    for coords in itertools.islice(itertools.product(*map(range, parts)), n_tiles):
        lo = tuple([min(k * d, s) for k, d, s in zip(coords, shard, sizes, strict=True)])
        hi = tuple([min(a + d, s) for a, d, s in zip(lo, shard, sizes, strict=True)])
        ranges.append(TileRange(lo, hi))
    return (*ranges, *[TileRange(none, none)] * (n_tiles - len(ranges)))


@dataclass(frozen=True)
class Planned:
    """A record's lowering with its plan, and why it fell to the kernel core (empty: an engine does it).

    Of a chain: `nests` are its parts; holds[i]: (access of nest i, access of nest i + 1) that have one buffer, which
    the second finds filled, or None; `low` is that of the first part and `plan` has the whole chain's figures."""

    low: Lowering
    plan: Plan
    reason: str
    nests: tuple[Planned, ...] = ()
    holds: tuple[tuple[int, int] | None, ...] = ()
