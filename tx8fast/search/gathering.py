"""Plans of two neighbouring groups of which the second gathers what the tiles have of the first one's result.

May import: lower, tile, _kernels, search.{fitting, handover}. Must not: build chains, emit programs.

Rows stay with their tiles, columns go over the mesh instead of through DDR. Both plans have to fit each other, so neither
group's own best plan says much: of each the first few by the formulas are tried together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tx8fast.lower.access import Access
from tx8fast.lower.base import Lowering, round_up
from tx8fast.lower.transfer import spec_bytes
from tx8fast.search.handover import Nest, begins_right, columns_left, has_room, may_gather
from tx8fast.tile.sharing import sharers
from tx8fast.tile.tiling import Tiling

if TYPE_CHECKING:
    from tx8fast.search.memory import Memory

GRIDS = 3  # ways in which the group that leaves its result is cut over tiles
EACH = 2  # plans of each of them, of every lowering
TRIES = 3  # plans of the one that gathers it, of every lowering
LOOKED = 400  # plans looked at for either


def leaving(memory: Memory, a: Nest, ka: int) -> list[Tiling]:
    """Return plans that leave a result in scratchpad, its columns cut over tiles: a's own and the first few of several grids."""
    machine = memory.machine
    if spec_bytes(a.how.accesses[ka].spec) > (machine.spm_limit - machine.spm_base) * machine.n_tiles:
        return []
    own = aligned(leave(a.how, ka), ka)
    found = [own] if cut_columns(own, ka) and has_room(own) else []
    for low in memory.lowerings(a):
        rows, columns = _factors(low.writes[ka - len(low.reads)])
        for how in _candidates(memory, low, rows, lambda parts: np.prod(parts[:, columns], axis=1) > 1):  # noqa: B023
            how = aligned(leave(how, ka), ka)
            if len({x.plan.parts for x in found}) == GRIDS or not memory.look():
                break
            alike = [x.plan.slices for x in found if x.plan.parts == how.plan.parts]
            if len(alike) < EACH and how.plan.slices not in alike and has_room(how):
                found.append(how)
    return [memory.tiling(how.low, how.plan) for how in found]


def leave(how: Tiling, k: int) -> Tiling:
    """Return a plan with a buffer for every slice of its result k."""
    return how.but(kept=(*how.plan.kept, k))


def aligned(how: Tiling, k: int) -> Tiling:
    """Return the plan with slices of the columns of result k so long that each begins where an operand may, on every tile: of an odd
    number of rows, an even number of channel blocks; as it is if slices cannot be so long."""
    slices, units = how.plan.slices, how.low.units
    sliced = [f for f in how.accesses[k].factors if how.trips[f] > 1]
    if len(sliced) != 1 or begins_right(how, k):
        return how
    (f,) = sliced
    length = min(round_up(slices[f], 2 * units[f]), how.plan.shard[f])
    if length > how.low.max_len[f]:
        return how
    other = how.but(slices=(*slices[:f], length, *slices[f + 1 :]))
    other = other.but(shared=sharers(other))
    return other if begins_right(other, k) else how


def cut_columns(how: Tiling, k: int) -> bool:
    """True if tiles have different columns of result k."""
    return math.prod(how.pieces[f] for f in _factors(how.accesses[k])[1]) > 1


def gathered(memory: Memory, first: Tiling, ka: int, b: Nest, kb: int, leaves: Sequence[int] = ()) -> Tiling | None:
    """Return the cheapest of b's plans that gather as operand kb what the plan `first` leaves of its result ka, None if none was
    found. leaves: results that b leaves in turn."""
    if not may_gather(first.low, ka, b.how.low, kb):
        return None
    found = _gathering(memory, first, ka, b, kb, leaves)
    return min(found, key=lambda how: memory.cycles(how, frozenset(leaves)), default=None)


def _gathering(memory: Memory, first: Tiling, ka: int, b: Nest, kb: int, leaves: Sequence[int]) -> Iterator[Tiling]:
    """Yield plans of b whose sets of tiles have what they need from the plan `first`."""
    made = first.accesses[ka]
    own, across = _factors(made)
    columns = made.box(first.ranges[0].lo, first.ranges[0].hi)[-1][1]
    sets, tiles = (math.prod(first.pieces[f] for f in factors) for factors in (own, across))
    for low in memory.lowerings(b):
        seen: set[tuple] = set()
        rows, summed = _factors(low.reads[kb])
        rest = [f for f in range(len(low.sizes)) if f not in rows]

        def alike(
            parts: np.ndarray, rows: list[int] = rows, summed: list[int] = summed, rest: list[int] = rest
        ) -> np.ndarray:
            together = (np.prod(parts[:, rows], axis=1) == sets) & (np.prod(parts[:, rest], axis=1) == tiles)
            return together & (np.prod(parts[:, summed], axis=1) == 1)

        for how in _candidates(memory, low, rows, alike):
            if len(seen) == TRIES or not memory.look():
                break
            how = how.but(gathered=((kb, columns),), kept=(*how.plan.kept, *leaves))
            for k in leaves:
                how = aligned(how, k)
            form = how.plan.parts, how.plan.slices
            if form not in seen and has_room(how) and columns_left(first, ka, how, kb) == columns:
                seen.add(form)
                yield memory.tiling(low, how.plan)


def _factors(access: Access) -> tuple[list[int], list[int]]:
    """Return the factors of a matrix's rows, and those of its columns."""
    rows = {f for d in access.dims[:-1] for f, _ in d.terms}
    return sorted(rows), sorted(access.factors - rows)


def _candidates(
    memory: Memory, low: Lowering, rows: Sequence[int], wanted: Callable[[np.ndarray], np.ndarray]
) -> Iterator[Tiling]:
    """Yield the first LOOKED plans of all tiles whose slices have all of a tile's rows, in the order of the formulas. wanted: of
    parts (n, factors), which may be."""
    parts, slices, _, cycles, _, _ = memory.prices(low)
    whole = (np.prod(parts, axis=1) == memory.machine.n_tiles) & wanted(parts)
    for f in rows:
        whole &= parts[:, f] * slices[:, f] >= low.sizes[f]
    for i in np.flatnonzero(whole)[np.argsort(cycles[whole], kind="stable")][:LOOKED].tolist():
        if (how := memory.candidate(low, i)) is not None:
            yield how
