"""One operand or result in DDR, and how a slice of it lies in scratchpad.

May import: graph_table, numerics, lower.transfer. Must not: know ops or plans.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from tx8fast.graph_table import Dim, TensorSpec
from tx8fast.lower.transfer import Box, Descriptor, Local, Strides, ddr_offsets, ddr_strides, descriptors
from tx8fast.numerics.layout import block_size, staggered
from tx8fast.records import cached_property


class Access:
    """One operand or result in DDR and how its slice lies in scratchpad: one matrix of all rows."""

    placed = False  # True: how much is loaded for a slice depends on where it lies
    loaded = True  # False: the kernel core reads it where it lies in DDR

    def __init__(self, spec: TensorSpec, dims: Sequence[Dim], blocked: bool) -> None:
        self.spec = spec
        self.dims = tuple(dims)
        self.blocked = blocked
        self.factors = frozenset(f for d in self.dims for f, _ in d.terms)
        self.known_bytes: dict[tuple[int, ...], int] = {}  # largest slice by lengths of its factors

    @cached_property
    def sorted_factors(self) -> tuple[int, ...]:
        """The factors in order; they are known once the access is made."""
        return tuple(sorted(self.factors))

    @cached_property
    def strides(self) -> Strides:
        """Those of the tensor in DDR."""
        return ddr_strides(self.spec)

    @cached_property
    def place(self) -> Callable[[Sequence[int]], Any]:
        """What picks, of a value per factor, those of the access's own factors."""
        return itemgetter(*self.sorted_factors) if self.factors else lambda _: ()

    @cached_property
    def staggered(self) -> dict[int, int]:
        """Factors by which a slice begins anywhere in a channel block, with their step: heads that are no whole blocks, nor equal
        parts of one."""
        block = block_size(self.spec.dtype) if self.spec.layout == "blocked" and self.dims else 1
        return {f: c for f, c in (self.dims[-1].terms if self.dims else ()) if staggered(c, block)}

    def box(self, lo: Sequence[int], hi: Sequence[int]) -> Box:
        return tuple([d.box(lo, hi) for d in self.dims])

    def is_solid(self, lo: Sequence[int], hi: Sequence[int]) -> bool:
        """True if the factor ranges mean every element of the box, not only some of its rows."""
        return all(d.is_solid(lo, hi) for d in self.dims)

    def form(self, lo: Sequence[int], hi: Sequence[int]) -> tuple:
        """Return what a slice's box has besides its place: lengths."""
        return tuple([hi[f] - lo[f] for f in self.sorted_factors])

    def most_bytes(self, lens: Sequence[int]) -> int:
        """Return the bytes of the largest slice of such factor lengths."""
        return self.size_bytes((0,) * len(lens), lens)

    def local(self, box: Box) -> Local:
        rows = math.prod([b - a for a, b in box[:-1]])
        cols = box[-1][1] - box[-1][0] if box else 1
        return Local(rows, cols, self.spec.dtype, self.blocked)

    def size_bytes(self, lo: Sequence[int], hi: Sequence[int]) -> int:
        return self.local(self.box(lo, hi)).size_bytes

    def chunks(self, lo: Sequence[int], hi: Sequence[int]) -> int:
        """Return of how many parts that may arrive one after the other a slice consists."""
        return 1

    def chunk(self, lo: Sequence[int], hi: Sequence[int], i: int) -> list[tuple[int, int]]:
        """Return the byte ranges of a slice that are its chunk i, ascending."""
        return [(0, self.size_bytes(lo, hi))]

    def origins(self, box: Box) -> tuple[int, int]:
        """Return the byte offsets in the DDR tensor where the box begins in either piece of it."""
        return ddr_offsets(self.spec, [a for a, _ in box], self.strides)

    def transfers(self, lo: Sequence[int], hi: Sequence[int]) -> list[Descriptor]:
        box = self.box(lo, hi)
        local = self.local(box)
        strides, acc = [], 1
        for a, b in reversed(box[:-1]):
            strides.append(acc)
            acc *= b - a
        if not local.rows or not local.cols:
            return []
        return descriptors(self.spec, box, local, strides[::-1])
