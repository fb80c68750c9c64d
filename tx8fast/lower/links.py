"""How a member of a group sees the group's factors.

May import: graph_table, lower.base, lower.transfer. Must not: know kinds of ops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tx8fast.graph_table import Dim, Rule
from tx8fast.lower.access import Access
from tx8fast.lower.base import NotLowerable
from tx8fast.lower.transfer import Box, Descriptor
from tx8fast.records import cached_property, dataclass

Ranges = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Link:
    """One member factor in terms of the group's: [lo, hi) of `factor` times `width` divided by `scale`, or whole if
    factor < 0."""

    factor: int
    size: int
    scale: int = 1
    width: int = 1

    def range(self, lo: Sequence[int], hi: Sequence[int]) -> tuple[int, int]:
        if self.factor < 0:
            return 0, self.size
        if self.scale == self.width == 1:
            return lo[self.factor], hi[self.factor]
        a, b = lo[self.factor] * self.width, hi[self.factor] * self.width
        return min(a // self.scale, self.size), min(-(-b // self.scale), self.size)

    @property
    def factors(self) -> tuple[int, ...]:
        """The group's factors that say where the member's range lies."""
        return (self.factor,) if self.factor >= 0 else ()

    def solid(self, lo: Sequence[int], hi: Sequence[int]) -> bool:
        """Return whether the group's range [lo, hi) means every point of `range`, not only some."""
        return True

    def unit(self, own: int) -> int:
        """Return the least number of the group's points that are whole units of `own` points of the member."""
        return own * self.scale // math.gcd(own * self.scale, self.width)

    def most(self, own: int) -> int:
        """Return the most of the group's points of which none are more than `own` points of the member."""
        return own * self.scale // self.width


@dataclass(frozen=True)
class Folded(Link):
    """A factor of even size that the group has as two: points of `factor` count from the first one up, or, where `side` is 1, from the
    last one down. A range of `factor` is a range at either end, so that where later points have more work, equal ranges have equal work."""

    side: int = -1

    def range(self, lo: Sequence[int], hi: Sequence[int]) -> tuple[int, int]:
        a, b = lo[self.factor], hi[self.factor]
        if hi[self.side] - lo[self.side] > 1:
            return a, self.size - a
        return (self.size - b, self.size - a) if lo[self.side] else (a, b)

    @property
    def factors(self) -> tuple[int, ...]:
        return self.factor, self.side

    def solid(self, lo: Sequence[int], hi: Sequence[int]) -> bool:
        return hi[self.side] - lo[self.side] < 2 or 2 * hi[self.factor] == self.size


class Links(list[Link]):
    """All factors of a member, in its order, in terms of the group's."""

    @cached_property
    def equal(self) -> bool:
        """True if the member's factors are the group's first ones."""
        return all(k.factor == i and k.scale == k.width == 1 for i, k in enumerate(self))

    def ranges(self, lo: Sequence[int], hi: Sequence[int]) -> Ranges:
        """Return the member's factor range that the group's range [lo, hi) means."""
        if self.equal:
            return tuple(lo[: len(self)]), tuple(hi[: len(self)])
        pairs = [k.range(lo, hi) for k in self]
        return tuple([a for a, _ in pairs]), tuple([b for _, b in pairs])


def through(maker: Rule, reader: Rule, what: str) -> dict[int, int]:
    """Return the maker's factors by the reader's, which takes what it makes as its first operand. Raises NotLowerable if they
    see it, called `what`, differently."""
    made, seen = maker.outs[0], reader.ins[0] or ()
    if [len(d.terms) for d in made] != [len(d.terms) for d in seen]:
        raise NotLowerable(f"the two products see {what} differently")
    pairs = [
        (f, c, g, d) for a, b in zip(made, seen, strict=True) for (f, c), (g, d) in zip(a.terms, b.terms, strict=True)
    ]
    if any(c != d or maker.sizes[f] != reader.sizes[g] for f, c, g, d in pairs):
        raise NotLowerable(f"the two products see {what} differently")
    return {g: f for f, _, g, _ in pairs}


class LinkedAccess(Access):
    """A member's access seen over the group's factors."""

    def __init__(self, inner: Access, links: Sequence[Link]) -> None:
        super().__init__(inner.spec, inner.dims, inner.blocked)
        self.inner, self.links = inner, Links(links)
        self.factors = frozenset(g for f in inner.factors for g in links[f].factors)
        self.dims = tuple(linked_dim(d, links) for d in inner.dims)

    def box(self, lo: Sequence[int], hi: Sequence[int]) -> Box:
        return self.inner.box(*self.links.ranges(lo, hi))

    def chunks(self, lo: Sequence[int], hi: Sequence[int]) -> int:
        return self.inner.chunks(*self.links.ranges(lo, hi))

    def chunk(self, lo: Sequence[int], hi: Sequence[int], i: int) -> list[tuple[int, int]]:
        return self.inner.chunk(*self.links.ranges(lo, hi), i)

    def is_solid(self, lo: Sequence[int], hi: Sequence[int]) -> bool:
        own = all(self.links[f].solid(lo, hi) for f in self.inner.factors)
        return own and self.inner.is_solid(*self.links.ranges(lo, hi))

    def size_bytes(self, lo: Sequence[int], hi: Sequence[int]) -> int:
        return self.inner.size_bytes(*self.links.ranges(lo, hi))

    def transfers(self, lo: Sequence[int], hi: Sequence[int]) -> list[Descriptor]:
        return self.inner.transfers(*self.links.ranges(lo, hi))


def linked_dim(dim: Dim, links: Sequence[Link]) -> Dim:
    """Return a member's dimension over the group's factors."""
    own = [(links[f], c, c * links[f].width // links[f].scale or 1) for f, c in dim.terms]
    terms = tuple((k.factor, step) for k, _, step in own if k.factor >= 0)
    # a point of the group's factor is part of one of the member's, or several of them
    reach = dim.reach + sum(step - c if k.factor >= 0 else c * (k.size - 1) for k, c, step in own)
    return Dim(dim.size, terms, dim.c0, dim.den, dim.full, reach)
