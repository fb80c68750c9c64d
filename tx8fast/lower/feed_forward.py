"""Feed-forward in scratchpad: product, activation and second product of some rows and a range of the hidden channels.

May import: lower.base, lower.emitter, lower.contraction, lower.elementwise, lower.fused, lower.rows. Must not: place buffers.

    H  = x W1[:, n] (+ b1[n])     front: matrix engine; of a gated layer two such products
    H  = act(H)                   back: vector engine, while the next slice's front runs
    y += H W2[n, :]               back: matrix engine, summed in f32
    y (+ b2), residual, norm      back of the last range of hidden channels

The left operand stays while the hidden channels pass; H never leaves scratchpad. The weights are the same for all rows:
tiles that work on different rows load them together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tx8fast.graph_table import GroupRecord
from tx8fast.lower.base import Access, Lowering, NotLowerable, Slice
from tx8fast.lower.contraction import Contraction
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.fused import Fused
from tx8fast.lower.links import Link, through
from tx8fast.lower.members import NORMS
from tx8fast.lower.sequences import BINARY, UNARY
from tx8fast.machine import Machine

PRODUCTS = ("gemm", "contract")
BETWEEN = frozenset({*BINARY, *UNARY, "swiglu", "convert"})
AFTER = BETWEEN.union(NORMS)
MAX_OPS = 7  # of a group
TURNS = 3  # copies of what lies between the halves: a slice's second half ends up to two slices after its first


def second_product(kinds: Sequence[str]) -> int:
    """Return the place of the second product of a feed-forward, or -1 if these ops are none."""
    places = [i for i, kind in enumerate(kinds) if kind in PRODUCTS]
    if len(kinds) > MAX_OPS or len(places) < 2 or places[:-1] != list(range(len(places) - 1)):
        return -1
    second = places[-1]
    between, after = kinds[len(places) - 1 : second], kinds[second + 1 :]
    return second if between and BETWEEN.issuperset(between) and AFTER.issuperset(after) else -1


def is_feed_forward(record: GroupRecord) -> bool:
    """True if the second product reads what the group makes, not what comes in."""
    second = second_product([op.kind for op in record.ops])
    return second >= 0 and any(wire is not None and wire[0] == "op" for wire in record.wires[second])


class FeedForward(Fused):
    """Group factors: the rows', then the hidden channels, a reduction. Columns of the result are never cut."""

    kind = "feed forward"
    turns = TURNS
    lags = True

    def __init__(self, record: GroupRecord, machine: Machine) -> None:
        Lowering.__init__(self, record, machine)
        self._begin()
        self.second = second_product([op.kind for op in record.ops])
        if self.second < 0 or min(record.outputs) < self.second:
            raise NotLowerable("not the shape of a feed-forward")
        first, second = Contraction(record.ops[0], machine), Contraction(record.ops[self.second], machine)
        self.first, self.product = first, second
        self._check(first, second)
        factors = [*first.m, *first.n]
        self.index = {f: i for i, f in enumerate(factors)}
        products = []
        for i, op in enumerate(record.ops):
            if i == self.second:
                self.index = self._match(record)
                self._add(i, second, self._mapped([Link(f, n) for f, n in enumerate(second.sizes)]))
            elif op.kind in PRODUCTS:
                low = Contraction(op, machine)
                if low.sizes != first.sizes or low.groups() != first.groups():
                    raise NotLowerable("products of a feed-forward must have equal factors")
                self._add(i, low, self._mapped([Link(f, n) for f, n in enumerate(low.sizes)]))
                products.append(i)
            else:
                self._follow(i, op)
        self.members += self.blocked
        self.products = products
        if [k for k, _ in self.members[self.second].sources].count("op") != 1 or any(
            kind == "op" for i in products for kind, _ in self.members[i].sources
        ):
            raise NotLowerable("only the second product's left operand is made in the group")
        self.writes = [self.members[i].result(record.ops[i].results[0]) for i in record.outputs]
        n = len(factors) - 1
        sizes = [first.sizes[f] for f in factors]
        units, most, _ = self._limits([1] * len(factors), [first.max_len[f] for f in factors])
        self.set_factors(sizes, units, [True] * n + [False], [True] * (n + 1), [False] * n + [True], most)
        self.late_reads = {k for i, m in enumerate(self.members) if i not in products
                           for kind, k in m.sources if kind == "in"}  # fmt: skip

    def _check(self, first: Contraction, second: Contraction) -> None:
        if any(p.swapped or p.l_trs or p.lone or p.batch for p in (first, second)):
            raise NotLowerable("a feed-forward takes row-major rows and one matrix of weights")
        if not first.m or len(first.n) != 1 or len(second.k) != 1:
            raise NotLowerable("a feed-forward has rows and one hidden dimension")
        whole = [math.prod(first.sizes[f] for f in first.k), math.prod(second.sizes[f] for f in second.n)]
        if not first.fits([1] * len(first.sizes)) or max(whole) > max(first.max_len):
            raise NotLowerable("rows are longer than one instruction can read or write")

    def _match(self, record: GroupRecord) -> dict[int, int]:
        """Return the group's factors by the second product's, found through the hidden values' dimensions."""
        if record.wires[self.second][0] is None or record.wires[self.second][0][0] != "op":  # type: ignore[index]
            raise NotLowerable("the second product does not read the hidden values")
        seen = through(self.first.rule, self.product.rule, "the hidden values")
        found = {g: self.index[f] for g, f in seen.items()}
        if [found.get(g) for g in (*self.product.m, *self.product.k)] != list(range(len(self.index))):
            raise NotLowerable("the two products order rows differently")
        return found

    def _form(self, wire: int, access: Access) -> tuple:
        """What came in may also be added to the result: one buffer if it lies in scratchpad as the first product reads
        it."""
        form = super()._form(wire, access)
        if not self.reads or wire != self.args[0] or access.spec != self.reads[0].spec:
            return form
        n = self.first.sizes
        rows = [n[f] for f in self.first.m]
        boxes = [([0] * (len(rows) + 1), [min(size, x) for x in rows] + [1]) for size in (2, 16, max(rows))]
        same = all(access.transfers(*b) == self.reads[0].transfers(*b) for b in boxes)
        return next(form for form, k in self.forms.items() if k == 0)[:-1] if same else form

    def _mapped(self, links: Sequence[Link]) -> list[Link]:
        """Return links to the lead's factors as links to the group's; what is not one of them stays whole."""
        return [Link(self.index.get(k.factor, -1), k.size, k.scale) for k in links]

    def buffers(self, k: int, shared: bool, sharing: bool, bufs: int) -> int:
        if not sharing:
            return bufs
        n = len(self.reads)
        if k >= n or len(self.sizes) - 1 not in self.reads[k].factors:
            return 1  # changes with the rows, when nothing else is under way
        return TURNS if k in self.late_reads else 2

    def fits(self, lens: Sequence[int]) -> bool:
        return math.prod(lens[:-1]) <= max(self.first.max_len)

    def slice_form(self, lo: Sequence[int], hi: Sequence[int]) -> tuple:
        return Lowering.slice_form(self, lo, hi)

    def acc_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> int:
        return self.product.acc_bytes(*self.members[self.second].ranges(lo, hi))

    def _copies(self, i: int) -> int:
        """What comes after the second product is there once: between results nothing is under way."""
        return TURNS if i < self.second else 1

    def _slice(self, i: int, s: Slice, parts: Slice) -> Slice | None:
        if i < self.second:
            return parts
        if i == self.second:
            parts.acc, parts.first, parts.last = s.acc, s.first, s.last
            return parts
        return parts if s.last else None

    def back(self, em: Emitter, s: Slice) -> None:
        self._emit(em, s, False)

    def ops_per_point(self) -> float:
        """The busier engine's cycles per row and hidden channel."""
        first, second = self.first, self.product
        depth = math.prod(first.sizes[f] for f in first.k)
        width = math.prod(second.sizes[f] for f in second.n)
        macs = len(self.products) * depth + width
        matrix = macs / self.machine.peak_macs_per_cycle(first.reads[0].spec.dtype) * self.machine.n_tiles
        own = [m.low.ops_per_point() for m in self.members]
        vector = sum(x for i, x in enumerate(own) if len(self.products) <= i < self.second)
        vector += sum(own[self.second + 1 :]) * width / self.sizes[-1]
        return max(matrix, vector)
