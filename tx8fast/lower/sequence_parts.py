"""How the members of a stream of sequences are cut, in which order the parts come, and which bytes they need.

May import: lower.sequence_members, the family files. Must not: place bytes.

A part is some columns of a band of a member's result. Each comes right before the first that needs it: heads of attention one
after the other, what follows band by band, so that only one band's hidden values exist at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tx8fast.lower.attention import Attention
from tx8fast.lower.chain import Source
from tx8fast.lower.contraction import Contraction
from tx8fast.lower.elementwise import Elementwise
from tx8fast.lower.rounds import Fill
from tx8fast.lower.sequence_members import Member, Members
from tx8fast.lower.transfer import Local
from tx8fast.records import dataclass


@dataclass(frozen=True)
class Part:
    """Columns [first, last) of a band of a member's result; head: of attention, its factors but band and keys."""

    member: int
    band: int
    first: int
    last: int
    head: tuple[int, ...] = ()


class Parts(Members):
    """The parts for a given height of bands (`band_rows`)."""

    band_rows: int

    def _cut(self, round_bytes: int) -> bool:
        """Cut the members into parts and put these in order; False if values and weights alone do not fit."""
        self.n_bands = -(-self.positions // self.band_rows)
        self.sizes_bytes: dict[tuple, int] = {}
        self._find_steps(round_bytes)
        self.parts = self._in_order()
        self._find_fills(round_bytes)
        return self._least_bytes() <= self.capacity

    def _least_bytes(self) -> int:
        """Bytes of values and weights alive at one time when parts run one after the other: a set of weights arrives while
        the one before it is used."""
        lives: dict[tuple, tuple[int, int]] = {}
        before = 0
        for n, part in enumerate(self.parts):
            names = self._part_values(part)
            key = self.filled.get((n, 1))
            if key is not None:
                lives.setdefault(("fill", key), (before, n))
                before = key[0]
                names.append(("fill", key))
            for name in names:
                lives[name] = lives.get(name, (n, n))[0], n
        alive = [0] * (len(self.parts) + 1)
        for name, (a, b) in lives.items():
            alive[0 if name[0] == "value" and name[1][0] == "in" else a] += self._size(name)
            alive[b + 1] -= self._size(name)
        return int(np.cumsum(alive).max())

    def _find_steps(self, round_bytes: int) -> None:
        """Choose how many columns a part of each member has, and how many of a value share a buffer."""
        self.whole = {m.images[j] for m in self.members if isinstance(m.low, Attention) for j in (1, 2)}
        if self.n_bands == 1:
            self.whole = set()
        self.grain: dict[Source, int] = {}  # none: all columns
        for m in self.members:
            low, result = m.low, ("op", m.result)
            heads = {self._head_width(u, j) for u in self.members for j, s in u.images.items() if s == result}
            if isinstance(low, Contraction):
                block = max(low.units[f] for f in low.n)
                one = low.reads[1].size_bytes(*self._columns(m, 0, block))
                m.step = max(1, round_bytes // one) * block
                if result in self.whole:  # a band of more columns would not lie together
                    m.step = block
                if len(heads) == 1 and 0 not in heads:
                    (self.grain[result],) = heads
                    m.step = min(m.step, self.grain[result])
            elif isinstance(low, Elementwise):
                steps = {self._maker(s).step for s in m.images.values() if s[0] == "op"} - {0}
                m.step = steps.pop() if len(steps) == 1 else 0
        for m in self.members[:-1]:
            users = [u for u in self.members if ("op", m.result) in u.images.values()]
            if m.step and all(isinstance(u.low, Elementwise) and u.step == m.step for u in users):
                self.grain["op", m.result] = m.step

    def _head_width(self, m: Member, j: int) -> int:
        """Columns of a head in read access j of attention, 0 for other members."""
        if not isinstance(m.low, Attention):
            return 0
        a, b = m.low.reads[j].box(*self._head_range(m.low, self._all_heads(m.low)[0], 0, 1))[-1]
        return b - a

    def _rows(self, band: int) -> tuple[int, int]:
        return band * self.band_rows, min((band + 1) * self.band_rows, self.positions)

    def _columns(self, m: Member, first: int, last: int, band: int = 0) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Factor ranges of columns of a band of a member other than attention."""
        low = m.low
        a, b = self._rows(band)
        if isinstance(low, Contraction):
            lo, hi = [0] * len(low.sizes), list(low.sizes)
            for f, x, y in zip((*low.m, *low.n), (0, a, first), (1, b, last), strict=True):
                lo[f], hi[f] = x, y
            return tuple(lo), tuple(hi)
        return (0, a, first), (1, b, last)

    def _range(self, part: Part) -> tuple[tuple[int, ...], tuple[int, ...]]:
        m = self.members[part.member]
        if isinstance(m.low, Attention):
            return self._head_range(m.low, part.head, *self._rows(part.band))
        return self._columns(m, part.first, part.last, part.band)

    # -- order of the parts ---------------------------------------------------------------------------------------

    def _all_parts(self, i: int) -> list[Part]:
        m = self.members[i]
        bands = range(self.n_bands)
        if isinstance(m.low, Attention):
            return [
                Part(i, b, *m.low.writes[0].box(*self._head_range(m.low, head, 0, self.positions))[-1], head)
                for head in self._all_heads(m.low)
                for b in bands
            ]
        width = self._spec(("op", m.result)).shape[-1]
        step = m.step or width
        return [Part(i, b, c, min(c + step, width)) for b in bands for c in range(0, width, step)]

    def _needs(self, part: Part) -> Iterator[tuple[Source, int, int, int]]:
        """Yield value, band (-1: all), first and last column of what a part reads."""
        m = self.members[part.member]
        for j, source in m.images.items():
            if isinstance(m.low, Attention):
                a, b = m.low.reads[j].box(*self._range(part))[-1]
                yield source, -1 if j else part.band, a, b
            elif isinstance(m.low, Elementwise):
                yield source, part.band, part.first, part.last
            else:
                yield source, part.band, 0, self._spec(source).shape[-1]

    def _ends_phase(self, i: int) -> bool:
        """True for attention, for the last member, and where products follow that read of what is made until then only
        member i's result: all bands come so far before any goes on."""
        if i + 1 == len(self.members) or isinstance(self.members[i].low, Attention):
            return True
        later = {s for m in self.members[i + 1 :] for s in m.images.values()}
        alone = all(s == ("op", self.members[i].result) or s[0] == "op" and self.by_result[s[1]] > i for s in later)
        return alone and isinstance(self.members[i + 1].low, Contraction)

    def _in_order(self) -> list[Part]:
        """Return the parts, each right before the first that needs it: heads of attention one after the other, what
        follows band by band."""
        made = [self._all_parts(i) for i in range(len(self.members))]
        out: list[Part] = []
        done: set[Part] = set()

        def run(part: Part) -> None:
            if part in done:
                return
            done.add(part)
            for (kind, t), band, first, last in self._needs(part):
                if kind == "op":
                    for p in made[self.by_result[t]]:
                        if band in (-1, p.band) and p.first < last and first < p.last:
                            run(p)
            out.append(part)

        for i in range(len(self.members)):
            if self._ends_phase(i):
                for part in made[i]:
                    run(part)
        return out

    def _find_fills(self, round_bytes: int) -> None:
        """Say which parts share the weights of an earlier one: those that come before other weights fill a round."""
        self.fills: dict[tuple[int, int], Fill] = {}
        self.filled: dict[tuple[int, int], tuple[int, int]] = {}  # (part, operand) -> key of its fill
        recent: dict[tuple, tuple[tuple[int, int], int]] = {}
        total = 0
        for n, part in enumerate(self.parts):
            m = self.members[part.member]
            if not isinstance(m.low, Contraction):
                continue
            what = (part.member, part.first)
            key, at = recent.get(what, ((n, 1), -round_bytes))
            if total - at >= round_bytes:
                key = (n, 1)
                size = m.low.reads[1].size_bytes(*self._range(part))
                self.fills[key] = Fill(key, m.others[1], size)
                recent[what] = key, total
                total += size
            self.filled[n, 1] = key
        vectors = sorted(
            {
                k
                for m in self.members
                for j, k in m.others.items()
                if not self._streams(m, j) and not isinstance(m.low, Attention)
            }
        )
        self.resident = tuple(Fill((-1, k), k, self.reads[k].size_bytes((0,), (1,))) for k in vectors)

    def _mask(self, n: int) -> tuple:
        """Name of the mask's bytes that part n reads: parts next to each other may read the same."""
        low = self.members[self.parts[n].member].low
        box = low.reads[3].box(*self._range(self.parts[n]))
        return "mask", self.parts[n].member, box

    @staticmethod
    def _streams(m: Member, j: int) -> bool:
        return isinstance(m.low, Contraction) and j == 1

    # -- bytes ----------------------------------------------------------------------------------------------------

    def _value(self, source: Source, band: int, first: int) -> tuple:
        """Name of the bytes of a value."""
        grain = self.grain.get(source, 0)
        return "value", source, -1 if source in self.whole else band, first // grain * grain if grain else -1

    def _value_local(self, name: tuple) -> Local:
        _, source, band, first = name
        spec = self._spec(source)
        a, b = (0, self.positions) if band < 0 else self._rows(band)
        width = spec.shape[-1]
        if first >= 0:
            width = min(self.grain[source], width - first)
        return Local(b - a, width, spec.dtype, True)

    def _result(self, part: Part) -> tuple:
        return self._value(("op", self.members[part.member].result), part.band, part.first)

    def _part_values(self, part: Part) -> list[tuple]:
        return [self._value(s, part.band, first) for s, _, first, _ in self._needs(part)] + [self._result(part)]

    def _size(self, name: tuple) -> int:
        if name not in self.sizes_bytes:
            self.sizes_bytes[name] = self._size_of(name)
        return self.sizes_bytes[name]

    def _size_of(self, name: tuple) -> int:
        kind = name[0]
        if kind == "value":
            return self._value_local(name).size_bytes
        if kind == "fill":
            n, k = name[1]
            return self.fills[name[1]].size_bytes if n >= 0 else self.reads[k].size_bytes((0,), (1,))
        if kind == "mask":
            return self.members[name[1]].low.reads[3].local(name[2]).size_bytes
        if kind == "const":
            return self.members[name[1]].low.const_bytes()[name[2]]
        return self.members[self.parts[name[1]].member].low.scratch_bytes(*self._range(self.parts[name[1]]))[name[2]]
