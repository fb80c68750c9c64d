"""A fused op: where in one loop nest each member runs, and which sums are open while slices come.

May import: graph_table, lower, tile.compose. Must not: know kinds of ops, choose anything.

Loops run over classes of factors: parallel ones, cut over tiles and slices, then the opened ones, whose slices some member
sums. A member runs at the level of the loops it depends on:

    once      on no loop
    prologue  before the slices of opened classes come: what they need whole, or what does not change with them
    body      with every slice
    epilogue  when the sums are complete
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from tx8fast.graph_table import GroupRecord, OpRecord
from tx8fast.lower.base import ALIGN_BYTES, Lowering, round_up
from tx8fast.lower.loops import least_room
from tx8fast.lower.transfer import spec_bytes
from tx8fast.records import cached_property, dataclass
from tx8fast.tile.compose import Composition

Level = Literal["once", "prologue", "body", "epilogue"]
Lens = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Reduction:
    """What `member` carries from slice to slice of class `cls`: sums, maxima, or of a whole factor that comes in slices both."""

    cls: int
    member: int
    combine: str  # of the member's rule, or "online"


class Members:
    """The members of a record: their kernels, and how they depend on each other whatever is opened.

    kernels: one per member, each with loops over its rule's factors; fixed: by member, the classes that its kernel takes in one piece. Raises NotComposable."""

    def __init__(self, record: GroupRecord | OpRecord, kernels: Sequence[Lowering]) -> None:
        self.comp = comp = Composition(record, coalesce=False)
        self.kernels = kernels
        n = len(kernels)
        self.sources = [[w[1] for w in own if w is not None and w[0] == "op"] for own in comp.wires]
        self.readers = [[j for j in range(n) if i in self.sources[j]] for i in range(n)]
        self.behind: list[set[int]] = [set() for _ in range(n)]  # all that a member depends on
        for i, own in enumerate(self.sources):
            self.behind[i] = set(own).union(*(self.behind[j] for j in own))
        self.fixed = [self._fixed(i) for i in range(n)]

    def _fixed(self, i: int) -> frozenset[int]:
        low, own = self.kernels[i], self.comp.factors[i]
        looped = {f for k, run in enumerate(low.loops.runs) for f in run if low.split[k] or low.shard[k]}
        return frozenset([c for f, classes in enumerate(own) if f not in looped for c in classes])

    @cached_property
    def smallest_first(self) -> list[int]:
        """The members in an order that needs little scratchpad."""
        return least_room([spec_bytes(op.results[0]) for op in self.comp.ops], self.sources)

    def opened(self) -> Iterator[frozenset[int]]:
        """Yield the sets of classes that may be opened: none, then those summed by members with equally many sums before them."""
        yield frozenset()
        sums = [
            frozenset(c for c, kind in own.items() if kind == "R") - fixed
            for own, fixed in zip(self.comp.kinds, self.fixed, strict=True)
        ]
        depth: list[int] = []
        for i, own in enumerate(self.sources):
            depth.append(max([depth[j] + bool(sums[j]) for j in own], default=0))
        for d in sorted(set(depth)):
            found = frozenset().union(*(sums[i] for i in range(len(sums)) if depth[i] == d))
            if found:
                yield found


class FusedOp:
    """Members with the classes `opened`. whole: by member, the classes that it takes uncut; parallel: those cut over tiles."""

    def __init__(self, members: Members, opened: frozenset[int] = frozenset()) -> None:
        self.members, self.comp, self.opened = members, members.comp, opened
        kinds, n = self.comp.kinds, len(members.kernels)
        summed = {c for own in kinds for c, kind in own.items() if kind == "R"}
        self.parallel = self.comp.result_classes.difference(summed, *members.fixed)
        self.online = {i for i in range(n) if self._online(i)}
        self.whole: list[frozenset[int]] = [frozenset()] * n
        for i in reversed(range(n)):
            own = members.fixed[i] - opened if i in self.online else members.fixed[i]
            later = [self.whole[j] & kinds[i].keys() for j in members.readers[i]]
            self.whole[i] = frozenset().union(own, *later)
        #: by member, the opened classes of which it works on a slice at a time
        self.sliced = [opened & own.keys() - whole for own, whole in zip(kinds, self.whole, strict=True)]
        self.sums = [frozenset(c for c in own if kinds[i][c] == "R") for i, own in enumerate(self.sliced)]

    def _online(self, i: int) -> bool:
        """True for a member that needs an opened class whole, is made slice by slice, and can be rewritten with running sums:
        whoever reads it sums over that class."""
        need = self.opened & self.members.fixed[i]
        made = any(need & self.comp.kinds[j].keys() for j in self.members.sources[i])
        readers = self.members.readers[i]
        linear = all(
            self.comp.kinds[j].get(c) == "R" and self.comp.rules[j].combine == "add" for j in readers for c in need
        )
        return bool(need and made and readers and linear and self.members.kernels[i].online)

    @cached_property
    def reductions(self) -> tuple[Reduction, ...]:
        """What is carried from slice to slice."""
        out = [Reduction(c, i, self.comp.rules[i].combine) for i, own in enumerate(self.sums) for c in sorted(own)]
        return (*out, *(Reduction(c, i, "online") for i in sorted(self.online) for c in sorted(self.sliced[i])))

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The level of every member."""
        body = {i for i, own in enumerate(self.sliced) if own}
        return tuple([self._level(i, body) for i in range(len(self.sliced))])

    def _level(self, i: int, body: set[int]) -> Level:
        if i in body:
            return "body"
        if any(self.sums[j] for j in self.members.behind[i]):
            return "epilogue"
        if not self.parallel & self.comp.kinds[i].keys():
            return "once"
        if not body:
            return "body"
        return "prologue" if any(i in self.members.behind[j] for j in body) else "epilogue"

    # -- the least tile -----------------------------------------------------------------------------------------

    @cached_property
    def least(self) -> list[Lens]:
        """The range of every member's loops for the smallest tile: one unit of each class that is cut."""
        cut = self.parallel | self.opened
        size = self.comp.sizes
        lens = [1 if c in cut else n for c, n in enumerate(size)]
        for low, factors in zip(self.members.kernels, self.comp.factors, strict=True):
            for unit, run in zip(low.units, low.loops.runs, strict=True):
                for c in (c for f in reversed(run) for c in reversed(factors[f])):
                    lens[c] = max(lens[c], min(unit, size[c]))
                    unit = -(-unit // size[c])
        boxes = self.comp.boxes([0] * len(lens), lens, self.whole)
        return [low.loops.ranges(box) for low, box in zip(self.members.kernels, boxes, strict=True)]

    @cached_property
    def least_part(self) -> list[Lens]:
        """The range of every member's loops for the smallest part of the smallest tile: what a member makes for others may be
        made piece by piece, while what it reads from outside streams by."""
        out = []
        for low, (lo, hi) in zip(self.members.kernels, self.least, strict=True):
            may = [ok and not summed for ok, summed in zip(low.split, low.reduce, strict=True)]
            ends = [min(a + unit, b) if ok else b for a, b, ok, unit in zip(lo, hi, may, low.units, strict=True)]
            out.append((lo, tuple(ends)))
        return out

    def least_bytes(self, room: int) -> tuple[int, int]:
        """Return the bytes of scratchpad that the smallest tile needs, and the member that works when they are in use; of an order
        of members that needs at most `room` bytes if one is found."""
        found = max(self._in_use(range(len(self.whole))))
        return found if found[0] <= room else min(found, max(self._in_use(self.members.smallest_first)))

    def _in_use(self, order: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield bytes and member: what it reads from outside and works with, values that are still needed, open sums, constants."""
        kernels = self.members.kernels
        place = {i: t for t, i in enumerate(order)}
        last = [max([place[j] for j in readers], default=place[i]) for i, readers in enumerate(self.members.readers)]
        made = [
            _aligned(low.writes[0].size_bytes(*(self.least_part if self._passes(i, place) else self.least)[i]))
            for i, low in enumerate(kernels)
        ]
        body = [i for i, level in enumerate(self.levels) if level == "body"]
        for i, readers in enumerate(self.members.readers):
            if self.levels[i] in ("once", "prologue") and any(self.levels[j] == "body" for j in readers):
                last[i] = max([place[j] for j in body])  # the next slice needs it again
        kept = sum([_aligned(n) for low in kernels for n in low.const_bytes()])
        kept += sum([_aligned(kernels[r.member].acc_bytes(*self.least[r.member])) for r in self.reductions])
        for t, i in enumerate(order):
            low, part = kernels[i], self.least_part[i]
            own = [a.size_bytes(*part) for a, j in zip(low.reads, low.arguments(), strict=True) if self._outside(i, j)]
            live = sum([made[j] for j in order[:t] if last[j] >= t])
            dying = [j for j in self._overwritable(i) if last[j] == t and made[j] == made[i]]
            live += 0 if dying else made[i]
            yield kept + live + sum([_aligned(n) for n in (*own, *low.scratch_bytes(*part))]), i

    def _outside(self, i: int, j: int) -> bool:
        wire = self.comp.wires[i][j]
        return wire is not None and wire[0] == "in"

    def _passes(self, i: int, place: Mapping[int, int]) -> bool:
        """True if the next member alone reads member i's result, element by element: they take turns, part after part."""
        readers = self.members.readers[i]
        if len(readers) != 1 or place[readers[0]] != place[i] + 1 or i in self.comp.outputs:
            return False
        (j,) = readers
        wires = zip(self.comp.wires[j], self.comp.by_class[j], strict=True)
        alike = all([all(equal) for wire, equal in wires if wire == ("op", i)])
        return alike and not self.members.fixed[j] & self.comp.kinds[i].keys()

    def _overwritable(self, i: int) -> list[int]:
        """Members in whose results member i may write its own, if nobody reads them later."""
        low, wires = self.members.kernels[i], self.comp.wires[i]
        found = [wires[j] for k, j in enumerate(low.arguments()) if k in low.in_place]
        return [w[1] for w in found if w is not None and w[0] == "op" and w[1] not in self.comp.outputs]

    def dimension(self, i: int, c: int) -> str:
        """Return what a message calls class `c` of member i."""
        for f, own in enumerate(self.comp.factors[i]):
            if c in own:
                names = self.comp.rules[i].names
                return f"factor {names[f] if names else f} of {math.prod(self.comp.sizes[k] for k in own):,}"
        return f"{self.comp.sizes[c]:,} points"


def _aligned(n: int) -> int:
    return round_up(n, ALIGN_BYTES)
