"""The loops of a kernel: a view of its op's factor rule.

May import: graph_table. Must not: know ops or instructions.

A loop runs over one factor of the rule, or over neighbouring ones that are one for the kernel. Factors outside of all loops come
whole with every slice: a dimension that steps through them is wider by their length, and a dimension of nothing else comes whole.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from tx8fast.graph_table import Dim, Rule, TensorSpec

Runs = Sequence[Sequence[int]]  # per loop the rule's factors that it runs over, major to minor


class Loops:
    """sizes, kinds: of every loop; a loop is W or R if one of its factors is."""

    def __init__(self, rule: Rule, runs: Runs) -> None:
        self.rule, self.runs = rule, tuple([tuple(run) for run in runs])
        self.sizes = tuple([math.prod([rule.sizes[f] for f in run]) for run in self.runs])
        self.kinds = "".join([_kind([rule.kinds[f] for f in run]) for run in self.runs])
        self.of = {f: k for k, run in enumerate(self.runs) for f in run}

    def dim(self, dim: Dim) -> Dim:
        """Return a dimension of the rule over the loops."""
        if not dim.terms:
            return dim
        terms: dict[int, int] = {}
        reach = dim.reach
        for f, c in dim.terms:
            if f in self.of:
                k = self.of[f]
                terms[k] = min(c, terms.get(k, c))  # a step of the loop is one of its minor factor
            else:
                reach += c * (self.rule.sizes[f] - 1)
        if not terms:
            return Dim(dim.size, full=True)
        return Dim(dim.size, tuple(terms.items()), dim.c0, dim.den, reach=reach)

    def ranges(self, box: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the range of every loop that a range of each of the rule's factors touches."""
        lo, hi = [0] * len(self.runs), [1] * len(self.runs)
        for k, run in enumerate(self.runs):
            for f in run:
                n = self.rule.sizes[f]
                lo[k], hi[k] = lo[k] * n + int(box[f][0]), (hi[k] - 1) * n + int(box[f][1])
        return tuple(lo), tuple(hi)

    def dims(self, dims: Sequence[Dim]) -> tuple[Dim, ...]:
        return tuple([self.dim(d) for d in dims])

    def merged(self, spec: TensorSpec, dims: Sequence[Dim]) -> tuple[TensorSpec, tuple[Dim, ...]]:
        """Return a tensor whose neighbouring dimensions that one loop steps through, or none, are one."""
        found: list[tuple[int, ...]] = []  # (loop or -1, sizes)
        for d in dims:
            k = self.of.get(d.identity, -1) if d.identity is not None else -1
            if found and found[-1][0] == k:
                found[-1] = (*found[-1], d.size)
            else:
                found.append((k, d.size))
        sizes = [math.prod(own) for _, *own in found]
        made = [Dim(n, ((k, 1),)) if k >= 0 else Dim(n, full=True) for (k, *_), n in zip(found, sizes, strict=True)]
        return TensorSpec(tuple(sizes), spec.dtype, spec.layout), tuple(made)


def least_room(size: Sequence[int], needs: Sequence[Collection[int]]) -> list[int]:
    """Return values of `size` bytes in an order that keeps few of them alive: of those that may come, the smallest, among equals the one
    that frees most, then the one with most others behind it. needs: by value, those that must be there."""
    n = len(size)
    behind = [0] * n
    for t in reversed(range(n)):
        for i in needs[t]:
            behind[i] = max(behind[i], behind[t] + 1)
    readers = [{t for t in range(n) if i in needs[t]} for i in range(n)]
    order: list[int] = []
    while len(order) < n:
        done = set(order)
        ready = [t for t in range(n) if t not in done and done.issuperset(needs[t])]
        frees = {t: sum(size[i] for i in {*needs[t]} if readers[i] <= done | {t}) for t in ready}
        order.append(min(ready, key=lambda t: (size[t], -frees[t], -behind[t], t)))
    return order


def _kind(kinds: Sequence[str]) -> str:
    return next((k for k in "WR" if k in kinds), "P")
