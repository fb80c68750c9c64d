"""Where the buffers of a group lie in scratchpad.

May import: lower, tile.{emit, phases, pins, tiling}, alloc, machine, program.model. Must not: choose plans, emit instructions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from tx8fast.alloc import Buffer, Problem, solve
from tx8fast.errors import AllocationError
from tx8fast.lower.base import ALIGN_BYTES, Lowering, round_up
from tx8fast.program.model import SCRATCH
from tx8fast.tile.emit import Addresses
from tx8fast.tile.phases import beside, forms, phases, slice_rows, turn_bytes
from tx8fast.tile.pins import Pins, Span, free_room
from tx8fast.tile.tiling import TileRange, Tiling

#: what is gained if buffers can be filled before the nest before is over: those that tiles load alone, those that they send to, and those
#: of the parts that they send
OTHERS, TARGETS, PARTS, NOTHING = 1, 2, 3, 4


NONE = Pins({}, {}, (), frozenset())  # nothing is fixed


def access_arguments(low: Lowering) -> list[int]:
    """Return the segment's argument of every access, reads and then writes."""
    return [*low.arguments(), *(len(low.record.operands) + j for j in range(len(low.writes)))]


def buffer_table(buffers: Iterable[tuple[int, int, int]]) -> np.ndarray:
    """Return a segment's buffer table from (address, bytes, argument) of every buffer."""
    return np.array(sorted(set(buffers)), np.int32).reshape(-1, 3)


class Buffers:
    """Scratchpad addresses of every buffer copy of a group; equal for all tiles but as `on` says. fixed: buffers, and what other nests
    of the chain have left; the others lie where nothing is taken. A result that takes an operand's buffers has none that could be pinned.
    tails: what is in use when the nest before ends, the earlier the more."""

    def __init__(
        self, tiling: Tiling, fixed: Pins = NONE, tails: Iterable[Sequence[Span]] = (), meet: bool = False
    ) -> None:
        pinned, left = fixed.pinned, fixed.left
        low, plan, machine, size_bytes = tiling.low, tiling.plan, tiling.low.machine, tiling.slice_bytes
        zero = (0,) * len(plan.shard)
        items: list[Buffer] = []
        first: list[int] = []  # of every kind of buffer, its first copy: copies are alike
        empty: set[int] = set()  # of every item without bytes, its number
        once = all(t == 1 for t in tiling.trips)
        # load at step 0, compute at 1, store at 2; in a loop every buffer is alive throughout
        life = {"load": (0, 2), "opening": (1, 2), "scratch": (1, 2), "sums": (1, 2), "store": (1, 3), "const": (0, 2)}
        if not once:
            life = dict.fromkeys(life, (0, 2))

        owners: list[tuple[int, ...]] = []  # of every item, the arguments whose slices it holds
        ahead: list[int] = []  # of every item, how much is gained if it is filled while the nest before is not over

        def want(
            kind: str, size: int, copies: int = 1, of: tuple[int, ...] = (SCRATCH,), later: bool = False, gain: int = 0
        ) -> None:
            first.append(len(items))
            if not size:
                empty.update(range(len(items), len(items) + copies))
            for i in range(copies):
                ahead.append(gain if i == 0 or gain == PARTS else 0)
                label = "later" if later and i else kind
                items.append(Buffer(f"{label}{len(items)}", (life[kind],), max(size, 1), ALIGN_BYTES))
                owners.append(of)

        argument, gathered = access_arguments(low), dict(plan.gathered)
        both = {taken: (argument[taken], argument[k]) for k, taken in tiling.replaced.items()}
        for k, n in enumerate(tiling.copies):
            if k not in pinned and k not in tiling.replaced:
                kind = "load" if k < len(low.reads) else "store"
                shared = k < len(plan.shared) and plan.shared[k] > 1
                theirs = k >= len(low.reads) or k in plan.held or k in gathered or (shared and meet)
                gain = 0 if theirs else TARGETS if shared else OTHERS
                want(kind, size_bytes[k], n, both.get(k, (argument[k],)), later=k in tiling.behind, gain=gain)
        for reads, size, n in tiling.staging:
            want("load", size, n, tuple([argument[k] for k in reads]), gain=PARTS)
        scratch, consts = low.scratch_bytes(zero, plan.slices), low.const_bytes()
        for i, size in enumerate(scratch):
            want("opening" if i < low.opening else "scratch", size)
        for size in consts:
            want("const", size)
        if tiling.sums:
            want("sums", low.acc_bytes(zero, plan.slices))
        bytes_of = {k: tiling.copies[k] * round_up(size_bytes[k], ALIGN_BYTES) for k in pinned}
        between = free_room(machine, fixed.taken)
        ways = [items]
        if tiling.opens:  # where there is no other room, what prepares an operand is over when slices begin
            # first fit stacks those, which begin later than all others, on top of these
            part = {"opening": ((1, 2),), "scratch": ((2, 3),), "later": ((2, 3),)}
            ways.append([replace(i, lifetimes=part.get(i.label.rstrip("0123456789"), ((0, 3),))) for i in items])
        if empty:  # they have an address of their own, unless there is room for everything else alone
            ways += [[replace(i, lifetimes=()) if n in empty else i for n, i in enumerate(way)] for way in ways]

        def named(addresses: Sequence[int]) -> Addresses:
            it = iter(addresses)
            access: list[list[int]] = []
            for k, n in enumerate(tiling.copies):
                own = k not in pinned and k not in tiling.replaced
                access.append(
                    [next(it) for _ in range(n)]
                    if own
                    else [pinned[k] + c * bytes_of[k] // n for c in range(n)]
                    if k in pinned
                    else access[tiling.replaced[k]]
                )
            staging: dict[int, list[int]] = {}
            for reads, _, n in tiling.staging:
                staging |= dict.fromkeys(reads, [next(it) for _ in range(n)])
            inner, fixed = [next(it) for _ in scratch], [next(it) for _ in consts]
            return Addresses(
                access, staging, inner, fixed, next(it) if tiling.sums else 0, {k: a for k, (a, _) in left.items()}
            )

        addresses, least, tail = _ahead(ways, ahead, between, tails)
        #: whether something of the nest may come while the nest before is not over
        self.early = least <= PARTS
        ways = [_begun(way, ahead, least, between, tail) for way in ways]
        addresses = _phased(tiling, ways, first, addresses, named(addresses), between)
        self.at = named(addresses)
        self.tiling = tiling
        #: results that a nest behind this one finds where they are, with all slices in one run, and what it finds so itself
        self.runs = [k for k in plan.kept if k >= len(low.reads) and k in pinned] + sorted(fixed.resident)
        table = [(a, i.size_bytes, o) for a, i, own in zip(addresses, items, owners, strict=True) for o in own]
        table += [(a, bytes_of[k], of) for k, a in pinned.items() for of in both.get(k, (argument[k],))]
        table += [(a, size, argument[k]) for k, (a, size) in left.items()]
        self.table = buffer_table(table)
        self.peak = max([a + size for a, size, _ in table], default=machine.spm_base) - machine.spm_base

    def on(self, r: TileRange) -> Addresses:
        """Return the addresses on a tile with such a range: where it has fewer rows than others, slices of what stays lie closer together."""
        if not self.runs:
            return self.at
        access = list(self.at.access)
        for k in self.runs:
            access[k] = [access[k][0] + c * self.tiling.pitch(k, r) for c in range(len(access[k]))]
        return replace(self.at, access=access)


def _placed(ways: Sequence[Sequence[Buffer]], room: Span) -> list[int]:
    """Return the address of every buffer, alive as the first of several ways says that leaves room for all. Raises AllocationError."""
    for n, items in enumerate(ways):
        try:
            return [o + room[0] for o in solve(Problem(tuple(items), room[1] - room[0])).offsets]
        except AllocationError:
            if n + 1 == len(ways):
                raise
    return []


def _begun(items: Sequence[Buffer], ahead: Sequence[int], least: int, room: Span, tail: Sequence[Span]) -> list[Buffer]:
    """Return buffers that are alive before the nest begins if they gain `least`, and behind them what of the nest before is."""
    begun = [
        replace(i, lifetimes=((-1, i.lifetimes[0][1]),)) if gain >= least and i.lifetimes else i
        for i, gain in zip(items, ahead, strict=True)
    ]
    spans = [(max(lo, room[0]) - room[0], min(hi, room[1]) - room[0]) for lo, hi in tail]
    return begun + [Buffer(f"tail{lo}", ((-1, 0),), hi - lo, fixed=lo) for lo, hi in spans if lo < hi]


def _ahead(
    ways: Sequence[Sequence[Buffer]], ahead: Sequence[int], room: Span, tails: Iterable[Sequence[Span]]
) -> tuple[list[int], int, Sequence[Span]]:
    """Return the address of every buffer, and from which gain on they are where nothing is any more when the nest before ends, which is
    so early as its tail says."""
    for tail in tails:
        for least in (gain for gain in (OTHERS, TARGETS, PARTS) if gain in ahead):
            try:
                begun = [_begun(way, ahead, least, room, tail) for way in ways]
                return _placed(begun, room)[: len(ahead)], least, tail
            except AllocationError:
                continue
    return _placed(ways, room), NOTHING, ()


def _phased(
    tiling: Tiling,
    ways: Sequence[Sequence[Buffer]],
    first: Sequence[int],
    plain: list[int],
    at: Addresses,
    room: Span,
) -> list[int]:
    """Return addresses at which the streams of one instruction meet least in the banks; those of `plain` (named `at`) where
    the bytes that this takes are not there: the buffers with the least traffic go without a phase first."""
    items = ways[0][: len(plain)]
    if not items:
        return plain
    machine = tiling.low.machine
    kinds = [(plain[k], items[k].size_bytes) for k in first]
    rows = slice_rows(tiling, at)
    chosen = phases(machine, forms(machine, rows, kinds), beside(machine, rows, kinds))
    kind_of = np.searchsorted(first, np.arange(len(items)), "right") - 1
    whole = math.lcm(turn_bytes(machine), ALIGN_BYTES)
    for wanted in range(len(chosen), 0, -1):
        phase = {k: p for k, p in chosen[:wanted]}
        own = [phase.get(int(kind), -1) for kind in kind_of]
        wide = [
            [
                i if p < 0 else replace(i, size_bytes=p + i.size_bytes, align_bytes=whole)
                for i, p in zip(way, [*own, *[-1] * (len(way) - len(own))], strict=True)
            ]
            for way in ways
        ]
        try:
            return [a + max(p, 0) for a, p in zip(_placed(wide, room), own, strict=False)]
        except AllocationError:
            continue
    return plain
