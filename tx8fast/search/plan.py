"""The Plan artifact: how one op is cut over tiles and time.

May import: lower, isa, machine, errors. Must not: know how plans are found or used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from tx8fast import isa
from tx8fast.errors import InternalError
from tx8fast.lower.base import ALIGN_BYTES, Access, Lowering, round_up
from tx8fast.lower.transfer import Descriptor, clip, part_bytes
from tx8fast.machine import Machine

LOOK_AHEAD = 2  # steps between a load of a staged nest and its use, at most


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

    @cached_property
    def trips(self) -> tuple[int, ...]:
        """Slices per factor."""
        return tuple([-(-a // b) for a, b in zip(self.shard, self.slices, strict=True)])


def reloads(low: Lowering, plan: Plan, factors: frozenset[int]) -> int:
    """How often a buffer that depends on `factors` is filled during the whole loop nest."""
    times = total = 1
    for f in plan.order:
        total *= plan.trips[f]
        if f in factors and plan.trips[f] > 1:
            times = total
    return times


class LoopStep(NamedTuple):
    """One slice of a tile's loop nest. lo, hi: factor ranges; load: reads that must be loaded for it; copy: buffer
    copy of every access, reads then writes; first, last: of a reduction; done: slices completed before."""

    lo: tuple[int, ...]
    hi: tuple[int, ...]
    load: tuple[int, ...]
    copy: tuple[int, ...]
    first: bool
    last: bool
    done: int


def loop_slices(low: Lowering, plan: Plan, lo: Sequence[int], hi: Sequence[int]) -> Iterator[LoopStep]:
    """Yield the slices of the loop nest over [lo, hi) that have work, outermost factor slowest; loads and copies are
    left open."""
    lists = [[(a, min(a + plan.slices[f], hi[f])) for a in range(lo[f], hi[f], plan.slices[f])] for f in plan.order]
    for f in low.backward:
        lists[plan.order.index(f)].reverse()
    n_outer = sum(not low.reduce[f] for f in plan.order)  # reductions come last
    place = [plan.order.index(f) for f in range(len(lists))]
    inner = list(itertools.product(*lists[n_outer:]))
    for done, outer in enumerate(itertools.product(*lists[:n_outer])):
        points = [(*outer, *x) for x in inner]
        ranges = [(tuple([x[i][0] for i in place]), tuple([x[i][1] for i in place])) for x in points]
        if low.skipping:
            ranges = [r for r in ranges if not low.skips(*r)]
        for i, (a, b) in enumerate(ranges):
            yield LoopStep(a, b, (), (), i == 0, i + 1 == len(ranges), done)


def loop_steps(low: Lowering, plan: Plan, copies: Sequence[int], lo: Sequence[int], hi: Sequence[int],
               limit: int | None = None) -> list[LoopStep]:  # fmt: skip
    """Return the steps of a tile's range [lo, hi), at most `limit`; copies: buffers per access, reads then writes."""
    n_read = len(low.reads)
    filled = [0] * len(copies)
    seen: dict[tuple[int, int], tuple] = {}  # (access, its copy if kept) -> what it holds
    summed = [f for f in plan.order if low.reduce[f]]
    steps: list[LoopStep] = []
    for a, b, _, _, first, last, done in itertools.islice(loop_slices(low, plan, lo, hi), limit):
        load = []
        turn = 0  # of the reduction
        for f in summed if plan.kept else ():
            turn = turn * plan.trips[f] + (a[f] - lo[f]) // plan.slices[f]
        for k in range(n_read):
            key = low.content(k, a, b)
            place = (k, turn if k in plan.kept else 0)
            if key != seen.get(place) and (k not in low.rare or low.needs(k, a, b)):
                seen[place] = key
                filled[k] += 1
                if k not in plan.held:
                    load.append(k)
        copy = [0 if n == 1 else max(0, filled[k] - (k < n_read)) % n for k, n in enumerate(copies)]
        for k in plan.kept:
            copy[k] = turn
        steps.append(LoopStep(a, b, tuple(load), tuple(copy), first, last, done))
        if last:
            filled[n_read:] = [n + 1 for n in filled[n_read:]]
    return steps


def staged_loads(low: Lowering, steps: Sequence[LoopStep]) -> tuple[list[list[tuple[int, int]]], list[list[int]]]:
    """Say when a staged nest issues its loads: per step the loads (step, access) that follow the second half of the
    step before, and the reads that must be loaded before its own first half, with nothing under way.

    A load goes out as soon as its buffer's last readers have been issued, at most LOOK_AHEAD steps before its use. A
    buffer whose last reader is the very step before has none to spare: both halves of that step come first."""
    early: list[list[tuple[int, int]]] = [[] for _ in steps]
    late: list[list[int]] = [[] for _ in steps]
    used: dict[tuple[int, int], int] = {}  # (access, copy) -> last step that reads it
    for i, s in enumerate(steps):
        for k in s.load if i else ():
            free = used.get((k, s.copy[k]), -1) + 1
            if free == i:
                if not s.first:
                    raise InternalError(f"{low.kind}: read {k} of step {i} has no second buffer inside a reduction")
                late[i].append(k)
            else:
                early[max(free, i - LOOK_AHEAD, 0)].append((i, k))
        for k, c in enumerate(s.copy):
            if k >= len(low.reads) or low.needs(k, s.lo, s.hi):
                used[k, c] = i
    return [sorted(x) for x in early], late


def count_steps(low: Lowering, plan: Plan) -> int:
    """Return the number of steps of the tile with the most work."""
    rest = math.prod(n for f, n in enumerate(plan.trips) if f not in low.skipping)
    return rest * low.working(*busiest(low, plan), plan.slices) if low.skipping else rest


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
    found = access.known_bytes.get(lens)
    if found is None:
        if low.positional:
            found = access.local(tuple((0, d.extent(lens)) for d in access.dims)).size_bytes
        else:
            found = access.size_bytes((0,) * len(lens), lens)
        access.known_bytes[lens] = found
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


#: slices below this are cheaper to load by every tile than to agree on
SHARE_MIN_BYTES = 16384


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
    counts = []
    for k, access in enumerate(low.reads):
        count = math.prod([n for f, n in enumerate(pieces) if f not in access.factors]) if low.may_share(k) else 1
        large = count > 1 and access.size_bytes((0,) * len(pieces), plan.slices) >= SHARE_MIN_BYTES
        counts.append(count if large else 1)
    return tuple(counts)


def spm_items(low: Lowering, plan: Plan) -> list[tuple[str, int]]:
    """Return what a plan puts into scratchpad, with the bytes of all copies."""
    lo, hi = (0,) * len(plan.shard), plan.slices
    items = [(f"scratch {i}", b) for i, b in enumerate(low.scratch_bytes(lo, hi))]
    items += [(f"constant {i}", b) for i, b in enumerate(low.const_bytes())]
    items = [(name, round_up(b, ALIGN_BYTES)) for name, b in items]
    n_read = len(low.reads)
    for k, n, size, part in _buffers(low, plan):
        name = f"operand {k}" if k < n_read else f"result {k - n_read}"
        items.append((f"{name} ({n} copies)" if n > 1 else name, n * size))
        if part:
            items.append((f"own part of {name}", part))
    if _sums(low, plan):
        items.append(("partial sums", round_up(low.acc_bytes(lo, hi), ALIGN_BYTES)))
    return items


def _buffers(low: Lowering, plan: Plan) -> Iterator[tuple[int, int, int, int]]:
    """Yield access, copies, bytes of a copy, and bytes of a tile's own parts before they are shared."""
    for k, a in enumerate((*low.reads, *low.writes)):
        size = round_up(slice_bytes(low, a, plan), ALIGN_BYTES)
        times = reloads(low, plan, a.factors)
        part = 0
        if k < len(plan.shared) and plan.shared[k] > 1:
            part = part_bytes(size, plan.shared[k]) * (2 if times > 1 else 1)
        yield k, _copies(low, plan, k, times), size, part


def _sums(low: Lowering, plan: Plan) -> bool:
    """True if a reduction takes several slices."""
    return any([r and n > 1 for r, n in zip(low.reduce, plan.trips, strict=True)])


def spm_demand(low: Lowering, plan: Plan) -> int:
    """Bytes that a plan's buffers take when all of them are alive at once: the sum of `spm_items`."""
    buffers = sum([n * size + part for _, n, size, part in _buffers(low, plan)])
    return buffers + _work_bytes(low, plan.slices, _sums(low, plan))


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
    return sum([lens_bytes(low, a, lens) for a in (*low.reads, *low.writes)]) + _work_bytes(low, lens, False)


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
    """Return what tile `rank` of those that share a slice loads of it: transfers to a buffer of its own, the part's
    start in the slice, its bytes, and the bytes of the whole slice."""
    total = max((d.spm + d.size_bytes for d in found), default=0)
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
    total = math.prod(plan.parts)
    ranges = []
    for t in range(n_tiles):
        if t >= total:
            none = (0,) * max(1, len(plan.parts))
            ranges.append(TileRange(none, none))
            continue
        rest, coords = t, []
        for p in reversed(plan.parts):
            rest, k = divmod(rest, p)
            coords.append(k)
        coords.reverse()
        lo = tuple(min(k * d, s) for k, d, s in zip(coords, plan.shard, low.sizes, strict=True))
        hi = tuple(min(a + d, s) for a, d, s in zip(lo, plan.shard, low.sizes, strict=True))
        ranges.append(TileRange(lo, hi))
    return ranges


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
