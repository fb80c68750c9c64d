"""A product whose followers finish its sums in bands of columns, where an operand from outside is, such as a residual.

May import: lower.{base, contraction, emitter, fused}, graph_table, machine. Must not: decide when this is better.

A slice of a product with a cut reduction has partial sums, and beside them the result's slice and the slice of what is added
to it. Here the complete sums stay where partial ones are; some columns of them at a time are rounded into a small buffer and worked
on, and the result takes the place of the operand. The bytes of a whole result are free for longer slices of the reduction, of
which fewer read and write the sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tx8fast.graph_table import GroupRecord
from tx8fast.lower.access import Access
from tx8fast.lower.base import NotLowerable, Slice
from tx8fast.lower.contraction import Contraction
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.fused import Fused
from tx8fast.lower.members import Member
from tx8fast.lower.transfer import Local
from tx8fast.machine import Machine

COLUMNS = 128  # of a band: two channel blocks, so that the vector engine's startup is little of its time
SUM = "f32"  # format of partial sums


class Banded(Fused):
    """One product and members that work on any columns, the last of which may work where it reads an operand."""

    def __init__(self, record: GroupRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        self.rounded = self.members[0].low.writes[0].spec.dtype
        if self.rounded == SUM:
            raise NotLowerable("sums that are not rounded need no bands")
        self.column = self._column()
        self.replaced = {len(self.reads): self._place()}
        self.beside = {k for m in self.members[1:] for kind, k in m.sources if kind == "in"}  # what followers read

    def _column(self) -> int:
        """Return the factor of which bands are parts. Raises NotLowerable."""
        lead, followers = self.lead, self.members[1:]
        if not isinstance(lead, Contraction) or self.products != [0] or self.prepared >= 0 or self.closing >= 0:
            raise NotLowerable("bands are of the sums of one product")
        if len(lead.n) != 1 or self.writes[0].dims[-1].terms != ((lead.n[0], 1),) or not any(self.reduce):
            raise NotLowerable("bands are parts of the result's last dimension")
        if not followers or self.record.outputs != (len(self.record.ops) - 1,):
            raise NotLowerable("the last member's result alone leaves the group")
        if COLUMNS % self.units[lead.n[0]] or not self.split[lead.n[0]]:
            raise NotLowerable("members work on any columns")
        return lead.n[0]

    def _place(self) -> int:
        """Return the read access where the result will be. Raises NotLowerable."""
        last, out = self.members[self.record.outputs[0]], self.writes[0]
        for at in last.low.in_place:
            kind, k = last.sources[at]
            uses = sum([m.sources.count(("in", k)) for m in self.members])
            if (
                kind == "in"
                and uses == 1
                and (self.reads[k].spec.dtype, self.reads[k].dims) == (out.spec.dtype, out.dims)
            ):
                return k
        raise NotLowerable("the last member works in the place of no operand")

    def _overwritten(self, user: Member) -> int:
        return -1 if user is self.members[self.record.outputs[0]] else super()._overwritten(user)

    def _whole(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> bool:
        """True for a slice of the whole reduction: it has no partial sums, and is finished at once."""
        return all(b - a == n for a, b, n, r in zip(lo, hi, self.sizes, self.reduce, strict=True) if r)

    def _band(self, lo: tuple[int, ...], hi: tuple[int, ...], first: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the ranges of the band that begins at a column."""
        f = self.column
        end = min(first + COLUMNS, hi[f])
        return (*lo[:f], first, *lo[f + 1 :]), (*hi[:f], end, *hi[f + 1 :])

    def scratch_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> list[int]:
        return super().scratch_bytes(*((lo, hi) if self._whole(lo, hi) else self._band(lo, hi, lo[self.column])))

    def emit(self, em: Emitter, s: Slice) -> None:
        if self._whole(s.lo, s.hi):
            super().emit(em, s)
            return
        self._emit(em, replace(s, stays=True), True)
        for part, sums in self._bands(s) if s.last else ():
            own = self._matrix(part)
            em.cvt(sums, self.home(0, part), own.elems, SUM, self.rounded)
            self._emit(em, part, False)

    def _matrix(self, s: Slice) -> Local:
        """Return how a slice's sums lie."""
        count = lambda own: math.prod([s.hi[f] - s.lo[f] for f in own])  # noqa: E731
        return Local(count(self.lead.m), count(self.lead.n), SUM, True)  # type: ignore[attr-defined]

    def _bands(self, s: Slice) -> Iterator[tuple[Slice, int]]:
        """Yield every band, with the addresses of its part of operands and results, and that of its sums."""
        f = self.column
        all_sums = self._matrix(s)
        for i, first in enumerate(range(s.lo[f], s.hi[f], COLUMNS)):
            lo, hi = self._band(s.lo, s.hi, first)
            sums = all_sums.offset(0, first - s.lo[f])
            reads = [
                x + self._offset(a, s, first) if k in self.beside else x
                for k, (x, a) in enumerate(zip(s.reads, self.reads, strict=True))
            ]
            writes = [s.writes[0] + self._offset(self.writes[0], s, first)]
            yield replace(s, lo=lo, hi=hi, reads=reads, writes=writes, parity=i), s.acc + sums

    def _offset(self, access: Access, s: Slice, first: int) -> int:
        """Return where a band begins in a slice's part of an operand or the result, in bytes."""
        return (
            access.local(access.box(s.lo, s.hi)).offset(0, first - s.lo[self.column])
            if self.column in access.factors
            else 0
        )
