"""Where in scratchpad lies what a nest of a chain leaves for a later one.

May import: lower.base, machine, tile.tiling. Must not: choose what is left, place what a nest has for itself.

What is left lies at one end of the scratchpad, in the nest that makes it as in the one that finds it, and in those between. What comes
next goes to the other end, or behind what is still in use there; everything else of a nest has the room between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tx8fast.lower.base import ALIGN_BYTES, round_up
from tx8fast.machine import Machine
from tx8fast.records import dataclass
from tx8fast.tile.tiling import Stay, Tiling

Held = tuple[int, int]  # address and bytes
Span = tuple[int, int]  # address of the first byte, and of the one behind the last


@dataclass(frozen=True)
class Pins:
    """What is fixed in one nest. pinned: by access, where its buffers begin; left: by operand that is gathered, what tiles have of it;
    taken: everything that is in use, also by other nests; resident: operands that an earlier nest than the one before has left."""

    pinned: dict[int, int]
    left: dict[int, Held]
    taken: tuple[Held, ...]
    resident: frozenset[int]


@dataclass
class _Region:
    """Bytes in use from nest `first` to nest `last`, both included."""

    address: int
    size_bytes: int
    first: int
    last: int
    low_end: bool


class _Ends:
    """The regions at both ends of the scratchpad."""

    def __init__(self, machine: Machine) -> None:
        self.base, self.top = machine.spm_base, machine.spm_limit // ALIGN_BYTES * ALIGN_BYTES
        self.regions: list[_Region] = []
        self.low_end = True  # where the next one goes

    def take(self, size_bytes: int, first: int, last: int, low_end: bool) -> _Region:
        """Return a new region, behind those that are in use at the same time."""
        beside = [r for r in self.regions if r.low_end == low_end and r.first <= last and first <= r.last]
        if low_end:
            address = max([r.address + round_up(r.size_bytes, ALIGN_BYTES) for r in beside], default=self.base)
        else:
            address = min([r.address for r in beside], default=self.top) - size_bytes
        self.regions.append(_Region(address, size_bytes, first, last, low_end))
        return self.regions[-1]


def pins(
    nests: Sequence[Tiling], holds: Sequence[Sequence[tuple[int, int]]], stays: Sequence[Stay], machine: Machine
) -> list[Pins]:
    """Return of every nest of a chain what is fixed. holds and stays: as of a `Planned`."""
    found: dict[tuple[int, int], list[Stay]] = {}  # by nest and access of what stays
    for stay in stays:
        found.setdefault((stay.maker, stay.result), []).append(stay)
    own: list[dict[int, _Region]] = [{} for _ in nests]  # by access
    left: list[dict[int, Held]] = [{} for _ in nests]
    ends = _Ends(machine)

    def leave(i: int, k: int, last: int, low_end: bool) -> _Region:
        how = nests[i]
        readers = found.get((i, k), ())
        made = ends.take(how.copies[k] * how.slot_bytes(k), i, max([last, *[s.reader for s in readers]]), low_end)
        own[i][k] = made
        for s in readers:  # from which it may be handed on
            own[s.reader][s.operand] = made
        return made

    for i, how in enumerate(nests):
        hold = holds[i] if i < len(holds) else ()
        after = nests[i + 1] if hold else how
        sent = any(kb in after.plan.delivered for _, kb in hold)
        sources = [how.replaced.get(ka, ka) for ka, _ in hold]
        for ka in sorted({k for maker, k in found if maker == i} - {*own[i], *sources}):
            leave(i, ka, i, ends.low_end)
            ends.low_end = not ends.low_end
        if sent:  # from one end to the other, where the nest before may have anything
            for ka in sorted({*sources}):
                leave(i, ka, i, ends.low_end)
            for _, kb in hold:
                own[i + 1][kb] = ends.take(after.copies[kb] * after.slot_bytes(kb), i + 1, i + 1, not ends.low_end)
            continue
        for (_, kb), source in zip(hold, sources, strict=True):
            target = after.replaced.get(kb, kb)
            if source not in own[i]:  # else it is handed on where it lies
                leave(i, source, i + 1, ends.low_end)
                ends.low_end = not ends.low_end
            region = own[i][source]
            region.last = max(region.last, i + 1)
            if target in dict(after.plan.gathered):
                left[i + 1][target] = region.address, region.size_bytes
            else:
                own[i + 1][target] = region
    out = []
    for i in range(len(nests)):
        taken = [(r.address, r.size_bytes) for r in ends.regions if r.first <= i <= r.last]
        resident = frozenset(s.operand for s in stays if s.reader == i)
        out.append(Pins({k: r.address for k, r in own[i].items()}, left[i], tuple(sorted(taken)), resident))
    return out


def free_room(machine: Machine, taken: Iterable[Held]) -> Span:
    """Return the longest span in which nothing is taken."""
    best, begin = (machine.spm_base, machine.spm_base), machine.spm_base
    for address, size in [*sorted(taken), (machine.spm_limit, 0)]:
        if address - begin > best[1] - best[0]:
            best = begin, address
        begin = max(begin, address + round_up(size, ALIGN_BYTES))
    return best


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return the bytes of spans as disjoint ones, ascending."""
    found: list[Span] = []
    for lo, hi in sorted({(lo, hi) for lo, hi in spans if lo < hi}):
        if found and lo <= found[-1][1]:
            found[-1] = found[-1][0], max(hi, found[-1][1])
        else:
            found.append((lo, hi))
    return found
