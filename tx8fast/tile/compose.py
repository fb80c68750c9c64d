"""What ranges of every member's factors a tile of a fused op means, from the factor rules of the members alone.

May import: graph_table, tile.coalesce. Must not: know kinds of ops, layouts or instructions.

Factors of several members that step through the same coordinates are one *class*. Classes are found wire by wire: the
producer's result dimension and the consumer's operand dimension are both mixed radices over factors, and from the minor end on
equal digits are one class; a digit that is a multiple of the other is cut in two. Where that is impossible - a window, a clipped
slice, digits that do not nest - the wire is a matter of coordinates: the consumer's box on the dimension, turned back into the
producer's digits.

A tile is a range of every class. What a member computes is the hull of what its readers and the outside want of it, so
a producer whose readers' windows overlap computes some elements on several tiles.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from tx8fast.graph_table import Dim, GroupRecord, OpRecord, Rule
from tx8fast.records import cached_property, dataclass
from tx8fast.tile.coalesce import coalesced

#: half-open; numbers, or arrays with an element per tile
Range = tuple[Any, Any]
Wire = tuple[str, int] | None


class NotComposable(Exception):
    """The ops have no loop nest in common. The message names op and dimension."""


@dataclass(frozen=True)
class FactorClass:
    """Factors that are one. kinds: their kinds in the members, each once, sorted; members: numbers of those that have it."""

    size: int
    kinds: str
    members: tuple[int, ...]


def digits(dim: Dim, sizes: Sequence[int]) -> list[int] | None:
    """Return the factors of which `dim` is the mixed radix, major to minor, those of size 1 left out; None if it is none:
    shifted, divided, with a window, or not covered by its factors."""
    if dim.full or dim.c0 or dim.den != 1:
        return None
    found, coefficient = [], 1
    for f, c in reversed(dim.terms):
        if sizes[f] == 1:
            continue
        if c != coefficient:
            return None
        found.append(f)
        coefficient *= sizes[f]
    return found[::-1] if coefficient == dim.size else None


class _Classes:
    """Digits by number: which are equal, and which were cut into (major, minor)."""

    def __init__(self) -> None:
        self.size: list[int] = []
        self.same: list[int] = []
        self.cut: dict[int, tuple[int, int]] = {}
        self.owners: list[set[int]] = []

    def new(self, size: int, owners: set[int]) -> int:
        self.size.append(size)
        self.same.append(len(self.same))
        self.owners.append(owners)
        return len(self.size) - 1

    def root(self, c: int) -> int:
        while self.same[c] != c:
            c = self.same[c]
        return c

    def leaves(self, c: int) -> list[int]:
        """Return the uncut digits that make up a digit, major to minor."""
        c = self.root(c)
        return [leaf for part in self.cut[c] for leaf in self.leaves(part)] if c in self.cut else [c]

    def unify(self, a: Sequence[int], b: Sequence[int]) -> bool:
        """Make two numbers, given by their digits, equal; False if their digits do not nest or would be one in one member."""
        x, y = ([leaf for c in side for leaf in self.leaves(c)] for side in (a, b))
        while x and y:
            i, j = x.pop(), y.pop()
            if i == j:
                continue
            least = min(self.size[i], self.size[j])
            if max(self.size[i], self.size[j]) % least or self.owners[i] & self.owners[j]:
                return False
            for side, c in ((x, i), (y, j)):
                if self.size[c] > least:
                    parts = self.new(self.size[c] // least, set(self.owners[c])), self.new(least, set(self.owners[c]))
                    self.cut[c] = parts
                    side.append(parts[0])
                    i, j = (parts[1], j) if c == i else (i, parts[1])
            keep, drop = min(i, j), max(i, j)
            self.same[drop] = keep
            self.owners[keep] |= self.owners[drop]
        return not x and not y


class Composition:
    """The classes of a fused op, and what a range of each of them means for every member.

    rules: of the members, neighbouring dimensions that all of them step through alike made one; by_class[i][j]: per dimension
    of operand j of member i, whether it is wired to a member whose result has the same digits there; factors[i][f]: the classes that are
    the digits of factor f of member i, major to minor. Raises NotComposable."""

    def __init__(self, record: GroupRecord | OpRecord, coalesce: bool = True) -> None:
        self.record = record
        if isinstance(record, OpRecord):
            ops, wires, self.outputs = (record,), (tuple(("in", j) for j in range(len(record.operands))),), (0,)
        else:
            ops, wires, self.outputs = record.ops, record.wires, record.outputs
        self.wires: tuple[tuple[Wire, ...], ...] = wires
        self.ops: tuple[OpRecord, ...] = ops
        without = [i for i, op in enumerate(ops) if op.rule is None]
        if without:
            raise NotComposable(f"{self.name(without[0])} has no factor rule")
        rules = tuple(op.rule for op in ops if op.rule is not None)
        self.rules: tuple[Rule, ...] = coalesced(rules, wires) if coalesce else rules
        found = _Classes()
        digit = [[found.new(n, {i}) for n in rule.sizes] for i, rule in enumerate(self.rules)]
        self.by_class = [[self._unify(found, digit, i, j) for j in range(len(own))] for i, own in enumerate(wires)]
        leaves = [[[c for c in found.leaves(d) if found.size[c] > 1] for d in own] for own in digit]
        number: dict[int, int] = {}
        for own in leaves:
            for c in (c for fs in own for c in fs):
                number.setdefault(c, len(number))
        self.factors = [[tuple(number[c] for c in fs) for fs in own] for own in leaves]
        self.sizes = [found.size[c] for c in number]

    def name(self, i: int) -> str:
        """Return what a message calls member i."""
        return f"{self.ops[i].kind} (op {i})"

    def _unify(self, found: _Classes, digit: list[list[int]], i: int, j: int) -> tuple[bool, ...]:
        wire, dims = self.wires[i][j], self.rules[i].ins[j] if j < len(self.rules[i].ins) else None
        if wire is None or dims is None or wire[0] != "op":
            return ()
        made = self.rules[wire[1]].outs[0]
        if len(made) != len(dims):
            raise NotComposable(
                f"{self.name(i)} sees {len(dims)} dimensions of what {self.name(wire[1])} makes with {len(made)}"
            )
        out = []
        for a, b in zip(made, dims, strict=True):
            x, y = digits(a, self.rules[wire[1]].sizes), digits(b, self.rules[i].sizes)
            ok = x is not None and y is not None and a.size == b.size
            out.append(ok and found.unify([digit[wire[1]][f] for f in x or ()], [digit[i][f] for f in y or ()]))
        return tuple(out)

    @cached_property
    def classes(self) -> tuple[FactorClass, ...]:
        """All classes, those of the first members first."""
        return tuple(
            FactorClass(
                n,
                "".join(sorted({own[c] for own in self.kinds if c in own})),
                tuple(i for i, own in enumerate(self.kinds) if c in own),
            )
            for c, n in enumerate(self.sizes)
        )

    @cached_property
    def result_classes(self) -> frozenset[int]:
        """Classes over which some result that leaves the group extends."""
        return frozenset(
            c for i in self.outputs for d in self.rules[i].outs[0] for f, _ in d.terms for c in self.factors[i][f]
        )

    @cached_property
    def kinds(self) -> tuple[dict[int, str], ...]:
        """By member, the kinds of its classes."""
        return tuple(
            [
                {c: rule.kinds[f] for f, fs in enumerate(own) for c in fs}
                for rule, own in zip(self.rules, self.factors, strict=True)
            ]
        )

    @cached_property
    def needs_whole(self) -> tuple[frozenset[int], ...]:
        """By member, the classes of which a result needs the full range."""
        return tuple([frozenset([c for c, kind in own.items() if kind == "W"]) for own in self.kinds])

    def boxes(
        self, lo: Sequence[Any], hi: Sequence[Any], whole: Sequence[Collection[int]] | None = None
    ) -> list[list[Range]]:
        """Return per member the range of each of its factors that the tile [lo, hi), per class, needs. whole: by member, the
        classes that it takes uncut, `needs_whole` if not given."""
        whole = self.needs_whole if whole is None else whole
        wanted: list[dict[int, Range]] = [{} for _ in self.rules]
        out: list[list[Range]] = [[] for _ in self.rules]
        for i in reversed(range(len(self.rules))):
            rule, mine = self.rules[i], wanted[i]
            stored = {f for d in rule.outs[0] for f, _ in d.terms}
            for f, fs in enumerate(self.factors[i]):
                for c in fs:
                    if c in whole[i]:
                        mine[c] = 0, self.sizes[c]
                    elif i in self.outputs or f not in stored:
                        mine[c] = _hull(mine.get(c), (lo[c], hi[c]))
            out[i] = [self._factor(fs, mine) for fs in self.factors[i]]
            for j, wire in enumerate(self.wires[i]):
                if wire is not None and wire[0] == "op" and self.by_class[i][j]:
                    self._want(wanted[wire[1]], i, j, wire[1], mine, out[i])
        return out

    def _factor(self, fs: Sequence[int], mine: dict[int, Range]) -> Range:
        """Return the hull of a number whose digits have these ranges."""
        a, b = 0, 1
        for c in fs:
            lo, hi = mine.get(c, (0, self.sizes[c]))
            a, b = a * self.sizes[c] + lo, (b - 1) * self.sizes[c] + hi
        return a, b

    def _want(
        self, wanted: dict[int, Range], i: int, j: int, source: int, mine: dict[int, Range], box: list[Range]
    ) -> None:
        """Add to what is wanted of member `source` what operand j of member i needs."""
        made = self.rules[source]
        dims = self.rules[i].ins[j]
        assert dims is not None
        for equal, out, dim in zip(self.by_class[i][j], made.outs[0], dims, strict=True):
            if equal:
                for f, _ in dim.terms:
                    for c in self.factors[i][f]:
                        wanted[c] = _hull(wanted.get(c), mine[c])
                continue
            own = [c for f in digits(out, made.sizes) or () for c in self.factors[source][f]]
            if math.prod(self.sizes[c] for c in own) != out.size:  # no radix: all of it
                own = [c for f, _ in out.terms for c in self.factors[source][f]]
                for c in own:
                    wanted[c] = 0, self.sizes[c]
                continue
            a, b = dim_range(dim, box)
            for c in reversed(own):  # minor digits first; those below one that changes are whole
                n = self.sizes[c]
                same = a // n == (b - 1) // n
                wanted[c] = _hull(wanted.get(c), (np.where(same, a % n, 0), np.where(same, (b - 1) % n + 1, n)))
                a, b = a // n, (b - 1) // n + 1


def dim_range(dim: Dim, box: Sequence[Range]) -> Range:
    """Return the coordinates of `dim` that a factor box touches; of arrays, one range per element."""
    if dim.full:
        return 0, dim.size
    a = b = dim.c0
    for f, c in dim.terms:
        lo, hi = box[f][0], box[f][1] - 1
        a, b = (a + c * lo, b + c * hi) if c > 0 else (a + c * hi, b + c * lo)
    a, b = np.maximum(a // dim.den, 0), np.minimum(b // dim.den + 1, dim.size)
    return a, np.maximum(a, b)


def _hull(a: Range | None, b: Range) -> Range:
    return b if a is None else (np.minimum(a[0], b[0]), np.maximum(a[1], b[1]))
