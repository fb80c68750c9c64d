"""The Plan artifact: how one op is cut over tiles and time.

May import: lower. Must not: know how plans are found or used.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tx8fast.lower.base import ALIGN_BYTES, Access, Lowering, round_up


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
    runner_up_cycles: int = 0
    shared: tuple[int, ...] = ()  # per read access: tiles that load it together and pass it on (1: alone)

    @property
    def trips(self) -> tuple[int, ...]:
        return tuple(-(-a // b) for a, b in zip(self.shard, self.slices, strict=True))


def reloads(low: Lowering, plan: Plan, factors: frozenset[int]) -> int:
    """How often a buffer that depends on `factors` is filled during the whole loop nest."""
    times = total = 1
    for f in plan.order:
        total *= plan.trips[f]
        if f in factors and plan.trips[f] > 1:
            times = total
    return times


@dataclass(frozen=True, slots=True)
class LoopStep:
    """One slice of a tile's loop nest. lo, hi: factor ranges; load: reads that must be loaded for it; copy: buffer
    copy of every access, reads then writes; first, last: of a reduction; done: slices completed before."""

    lo: tuple[int, ...]
    hi: tuple[int, ...]
    load: tuple[int, ...]
    copy: tuple[int, ...]
    first: bool
    last: bool
    done: int


def loop_slices(plan: Plan, lo: Sequence[int], hi: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield the factor ranges of the loop nest over [lo, hi), outermost factor slowest."""
    lists = [[(a, min(a + plan.slices[f], hi[f])) for a in range(lo[f], hi[f], plan.slices[f])] for f in plan.order]
    place = [plan.order.index(f) for f in range(len(lists))]
    for point in itertools.product(*lists):
        yield tuple([point[i][0] for i in place]), tuple([point[i][1] for i in place])


def loop_steps(low: Lowering, plan: Plan, copies: Sequence[int], lo: Sequence[int], hi: Sequence[int],
               limit: int | None = None) -> list[LoopStep]:  # fmt: skip
    """Return the steps of a tile's range [lo, hi), at most `limit`; copies: buffers per access, reads then writes."""
    n_read = len(low.reads)
    own = [sorted(a.factors) for a in low.reads]
    red = [f for f in range(len(lo)) if low.reduce[f]]
    filled = [0] * len(copies)
    seen: list[tuple | None] = [None] * n_read
    steps: list[LoopStep] = []
    done = 0
    for a, b in itertools.islice(loop_slices(plan, lo, hi), limit):
        load = []
        for k in range(n_read):
            key = tuple([a[f] for f in own[k]])
            if key != seen[k]:
                seen[k] = key
                filled[k] += 1
                load.append(k)
        copy = [(filled[k] - (k < n_read)) % n for k, n in enumerate(copies)]
        first, last = all(a[f] == lo[f] for f in red), all(b[f] == hi[f] for f in red)
        steps.append(LoopStep(a, b, tuple(load), tuple(copy), first, last, done))
        if last:
            done += 1
            filled[n_read:] = [n + 1 for n in filled[n_read:]]
    return steps


def slice_bytes(low: Lowering, access: Access, plan: Plan) -> int:
    """Largest scratchpad footprint of an access over all slices (windows differ at the borders)."""
    if not low.positional:
        return access.size_bytes((0,) * len(plan.shard), plan.slices)
    return access.local(tuple((0, d.extent(plan.slices)) for d in access.dims)).size_bytes


def copies(low: Lowering, plan: Plan, k: int) -> int:
    """Return how many scratchpad buffers access k (reads, then writes) has: one if it is moved only once."""
    access = (*low.reads, *low.writes)[k]
    if reloads(low, plan, access.factors) == 1:
        return 1
    shared = k < len(plan.shared) and plan.shared[k] > 1
    return low.shared_copies if shared else plan.bufs


#: slices below this are cheaper to load by every tile than to agree on
SHARE_MIN_BYTES = 16384


def sharers(low: Lowering, plan: Plan, k: int) -> int:
    """Return how many tiles need the same slices of read access k in the same steps; 1 if they cannot go in step."""
    if not low.may_share(k):
        return 1
    access = low.reads[k]
    pieces = [-(-s // d) for s, d in zip(low.sizes, plan.shard, strict=True)]
    for f, n in enumerate(pieces):
        rest = low.sizes[f] - (n - 1) * plan.shard[f]
        if n != plan.parts[f] or -(-rest // plan.slices[f]) != plan.trips[f]:
            return 1
    if access.size_bytes((0,) * len(plan.shard), plan.slices) < SHARE_MIN_BYTES:
        return 1
    count = 1
    for f, n in enumerate(pieces):
        if f not in access.factors:
            count *= n
    return count


def part_bytes(size_bytes: int, tiles: int) -> int:
    """Bytes of a shared slice that each tile loads itself, in whole 256-byte lines."""
    return round_up(-(-size_bytes // tiles), ALIGN_BYTES)


@dataclass(frozen=True)
class Planned:
    """A record's lowering with its plan, and why it fell to the kernel core (empty: an engine does it)."""

    low: Lowering
    plan: Plan
    reason: str
