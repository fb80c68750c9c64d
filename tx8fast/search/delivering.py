"""Plans of two neighbouring groups between which tiles send each other what the first one has made, whatever grids they have.

May import: lower, tile, _kernels, search.{cuts, fitting, gathering, handover}. Must not: build chains, emit programs.

Both nests are cut as suits them: products by rows and columns, attention by heads. A message costs the core as much as a thousand bytes
and more, so slices of the second nest that are those of the first one, or several of them, are worth looking for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tx8fast.lower import may_deliver
from tx8fast.lower.base import Lowering
from tx8fast.lower.transfer import spec_bytes
from tx8fast.search.cuts import nearly_all
from tx8fast.search.gathering import leave
from tx8fast.search.handover import Nest, begins_right, has_room
from tx8fast.tile import deliveries
from tx8fast.tile.sharing import sharers
from tx8fast.tile.tiling import Tiling

if TYPE_CHECKING:
    from tx8fast.search.memory import Memory

T = TypeVar("T")
Pairs = tuple[tuple[int, int], ...]
GRIDS = 3  # ways in which the group that leaves its results is cut over tiles
FORMS = 6  # plans of the next group that are looked at
TRIES = 2  # of them, those that are tried
LOOKED = 60  # plans of either that may be passed over


def may_send(a: Nest, b: Nest, pairs: Pairs) -> bool:
    """True if b's operands may come from what tiles have of a's results, whatever the plans are. What begins inside of channel blocks is
    a run of bytes per row."""
    low, n_read = a.how.low, len(a.how.low.reads)
    if not pairs or low.positional or len({ka for ka, _ in pairs}) < len(pairs):
        return False
    both = [(low.writes[ka - n_read], b.how.low.reads[kb]) for ka, kb in pairs]
    room = (low.machine.spm_limit - low.machine.spm_base) * low.machine.n_tiles
    alike = all(x.dims and x.spec == y.spec and not x.staggered for x, y in both)
    alike = alike and all(may_deliver(b.how.low, kb) for _, kb in pairs)
    return alike and sum(spec_bytes(x.spec) for x, _ in both) <= room


def sending(memory: Memory, a: Nest, kas: Sequence[int]) -> list[Tiling]:
    """Return plans that leave results in scratchpad: a's own and the first one of several grids."""
    found: list[Tiling] = []
    for low in memory.lowerings(a):
        own = [a.how] if low is a.how.low else []
        for how in (*own, *_again(memory.firsts, id(low), lambda low=low: _first(memory, low))):
            for k in kas:
                how = leave(how, k)
            if len(found) == GRIDS or not memory.look():
                break
            if how.plan.parts not in [x.plan.parts for x in found] and has_room(how) and _stays(how, kas):
                found.append(how)
    return [memory.tiling(how.low, how.plan) for how in found]


def _stays(how: Tiling, kas: Sequence[int]) -> bool:
    return all(k not in how.replaced and (how.copies[k] == 1 or begins_right(how, k)) for k in kas)


def received(memory: Memory, first: Tiling, pairs: Pairs, b: Nest, leaves: Sequence[int] = ()) -> Tiling | None:
    """Return the cheapest of b's plans to which tiles deliver what the plan `first` leaves, None if none was found. leaves: results that b
    leaves in turn."""
    kbs = tuple(sorted(kb for _, kb in pairs))
    found: list[tuple[int, Tiling]] = []
    looked = 0
    for low in memory.lowerings(b):
        key = id(low), low is b.how.low and b.how, kbs, leaves
        plans = _again(memory.firsts, key, lambda low=low: _receiving(memory, low, b, kbs, leaves))
        for how in plans if looked < FORMS else ():
            if not memory.look():
                break
            if how is not None:
                looked += 1
                took = memory.delivery(first, how, pairs)
                if took >= 0:
                    found.append((took, how))
                if looked == FORMS:
                    break
    found.sort(key=lambda t: t[0])
    best = [(took, memory.tiling(how.low, how.plan)) for took, how in found[:TRIES]]
    held = frozenset((*kbs, *leaves))
    return min(best, key=lambda t: t[0] + memory.cycles(t[1], held), default=(0, None))[1]


def _receiving(
    memory: Memory, low: Lowering, b: Nest, kbs: tuple[int, ...], leaves: Sequence[int]
) -> Iterator[Tiling | None]:
    """Yield a lowering's first plans with operands delivered, None for those that cannot have it so or are cut as one before."""
    seen: set[tuple] = set()
    for how in (
        *([b.how] if low is b.how.low else []),
        *_again(memory.firsts, id(low), lambda low=low: _first(memory, low)),
    ):
        form = how.plan.parts, how.plan.slices
        made: Tiling | None = None
        if form not in seen and not {*how.plan.kept} & {*kbs} and all(map(how.once, kbs)):
            how = how.but(delivered=kbs, gathered=(), kept=(*how.plan.kept, *leaves))
            how = how.but(shared=sharers(how))
            if has_room(how) and _stays(how, leaves):
                seen.add(form)
                made = how
        yield made


def delivery_cycles(memory: Memory, a: Tiling, b: Tiling, pairs: Pairs) -> int:
    """Return the cycles in which tiles deliver, -1 if that is not possible: they do not have all of it, or not at once room for what they
    have and what they get."""
    if not {kb for _, kb in pairs} <= {*b.plan.delivered} or not {ka for ka, _ in pairs} <= {*a.plan.kept}:
        return -1
    if (
        not (has_room(a) and has_room(b))
        or not _stays(a, [ka for ka, _ in pairs])
        or not all(map(b.once, b.plan.delivered))
    ):
        return -1
    at, ways = 0, []
    for ka, kb in pairs:
        ways.append((ka, kb, at, at + a.copies[ka] * a.slot_bytes(ka)))
        at = ways[-1][-1] + b.copies[kb] * b.slot_bytes(kb)
    if at > a.low.machine.spm_limit - a.low.machine.spm_base:
        return -1
    key = _form(a), _form(b), pairs
    if key not in memory.deliveries:
        found = [(_pieces(memory, a, ka), _pieces(memory, b, kb), source, target) for ka, kb, source, target in ways]
        made = deliveries.sent(found, a.low.machine.n_tiles)
        memory.deliveries[key] = -1 if made is None else deliveries.cycles(a.low.machine, made)
    return memory.deliveries[key]


def _form(how: Tiling) -> tuple:
    return id(how.low), how.plan.parts, how.plan.slices, how.plan.order


def _pieces(memory: Memory, how: Tiling, k: int) -> np.ndarray | None:
    key = *_form(how), k
    if key not in memory.pieces:
        memory.pieces[key] = deliveries.pieces(how, k)
    return memory.pieces[key]


def _again(known: dict[Any, Iterator], key: Any, make: Callable[[], Iterator[T]]) -> Iterator[T]:
    """Return an iterator from its beginning whose items are made once."""
    known[key], own = itertools.tee(known[key] if key in known else make())
    return own


def _first(memory: Memory, low: Lowering) -> Iterator[Tiling]:
    """Yield the first plans of all tiles in the order of the formulas."""
    parts, _, _, cycles, _, _ = memory.prices(low)
    whole = nearly_all(np.prod(parts, axis=1), memory.machine.n_tiles)
    for i in np.flatnonzero(whole)[np.argsort(cycles[whole], kind="stable")][:LOOKED].tolist():
        if (how := memory.candidate(low, i)) is not None:
            yield how
