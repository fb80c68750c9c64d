"""Results that stay in scratchpad for a later nest of their chain than the next one: hidden values that are added again, above all.

May import: lower, tile, search.{handover, memory}. Must not: build chains, emit programs.

A tile that has made all of an operand itself, where the later nest looks for it, need not load it; if nobody else reads it, it is not
stored either. Whether that is so say the transfers that neither nest makes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tx8fast.lower import may_deliver
from tx8fast.search.gathering import aligned
from tx8fast.search.handover import Nest, begins_right, overwritten
from tx8fast.tile import deliveries
from tx8fast.tile.pins import free_room, pins
from tx8fast.tile.sharing import sharers
from tx8fast.tile.tiling import Stay, Tiling

Hold = tuple[tuple[int, int], ...]


def stays_of(path: Sequence[Nest], holds: Sequence[Hold]) -> tuple[Stay, ...]:
    """Return what stays by the plans of a chain: operands that are there before their nest and that the nest before does not send."""
    out = []
    for j, b in enumerate(path):
        sent = {kb for _, kb in holds[j - 1]} if j else set()
        out += [s for kb in b.how.plan.delivered if kb not in sent and (s := _stay(path, j, kb)) is not None]
    return tuple(out)


def with_stays(path: Sequence[Nest], holds: Sequence[Hold], fit: Callable[[Nest, Nest, Hold], bool]) -> list[Nest]:
    """Return the nests with plans for which all stays that can, as long as there is room. fit: whether two neighbours still hand over
    what they do."""
    out = list(path)
    for j, b in enumerate(path):
        there = {kb for _, kb in holds[j - 1]} if j else set()
        for kb in range(len(b.how.low.reads)):
            if kb in there or (stay := _stay(path, j, kb)) is None:
                continue
            how = out[j].how.but(delivered=tuple(sorted((*out[j].how.plan.delivered, kb))))
            how = aligned(how.but(shared=sharers(how)), kb)
            tried = [*out[:j], replace(out[j], how=how), *out[j + 1 :]]
            beside = [n for n in (j - 1, j) if n < len(holds)]
            if (
                _is_there(out[stay.maker].how, stay, how)
                and all(fit(tried[n], tried[n + 1], holds[n]) for n in beside)
                and have_room(tried, holds)
            ):
                out = tried
    return out


def may_stay(path: Sequence[Nest], holds: Sequence[Hold]) -> bool:
    """True if all that plans find is there, and there is room for it."""
    found = stays_of(path, holds)
    wanted = sum(
        len({*b.how.plan.delivered} - {kb for _, kb in hold}) for b, hold in zip(path, ((), *holds), strict=True)
    )
    right = len(found) == wanted and all(_is_there(path[s.maker].how, s, path[s.reader].how) for s in found)
    return right and (not found or have_room(path, holds))


def _stay(path: Sequence[Nest], j: int, kb: int) -> Stay | None:
    """Return which result of an earlier nest than the one before operand kb of nest j is, None if it is none, or read twice."""
    v = path[j].values[kb]
    for i in range(j - 1):
        if v in path[i].step.outputs and path[j].reads_of(v) == [kb]:
            return Stay(i, len(path[i].how.low.reads) + path[i].step.outputs.index(v), j, kb)
    return None


def _is_there(a: Tiling, stay: Stay, b: Tiling) -> bool:
    """True if every tile has made what it reads, where it looks for it."""
    ka, kb = stay.result, stay.operand
    if not may_deliver(b.low, kb) or not b.once(kb) or {kb} & {*b.plan.kept, *dict(b.plan.gathered)}:
        return False
    if ka in a.replaced or kb in b.replaced.values() or a.copies[ka] != a.fills(a.accesses[ka].factors):
        return False
    if a.slot_bytes(ka) * a.copies[ka] < b.slot_bytes(kb) * b.copies[kb]:
        return False
    if any(how.copies[k] > 1 and not begins_right(how, k) for how, k in ((a, ka), (b, kb))):
        return False
    return deliveries.stays_there(deliveries.pieces(a, ka), deliveries.pieces(b, kb, close=True))


def have_room(path: Sequence[Nest], holds: Sequence[Hold]) -> bool:
    """True if every nest of a chain has room for its own buffers beside all that other nests have left, and leaves it there."""
    nests, machine, stays = [n.how for n in path], path[0].how.low.machine, stays_of(path, holds)
    places = pins(nests, holds, stays, machine)
    for how, fixed in zip(nests, places, strict=True):
        lo, hi = free_room(machine, fixed.taken)
        own = sum([how.copies[k] * how.slot_bytes(k) for k in fixed.pinned])
        if how.moved_bytes() + how.work_bytes() - own > hi - lo:
            return False
        if any(a < machine.spm_base or a + size > machine.spm_limit for a, size in fixed.taken):
            return False
    for stay in stays:  # nests before the reader that look at it, too, leave it as it is
        at = places[stay.maker].pinned[stay.result]
        for n in range(stay.maker + 1, stay.reader):
            if any(k in overwritten(nests[n]) for k, a in places[n].pinned.items() if a == at):
                return False
    for i, hold in enumerate(holds):  # what is sent, where it goes, and what is in use before and after
        if any(kb in nests[i + 1].plan.delivered for _, kb in hold):
            ends = {(i, ka) for ka, _ in hold} | {(i + 1, kb) for _, kb in hold}
            spans = {(places[n].pinned[k], nests[n].copies[k] * nests[n].slot_bytes(k)) for n, k in ends}
            found = sorted(spans | {*places[i].taken} & {*places[i + 1].taken})
            if any(a + size > b for (a, size), (b, _) in zip(found, found[1:], strict=False)):
                return False
    return True
