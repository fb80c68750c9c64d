"""Groups of several ops that share one loop nest; what lies between them never leaves scratchpad.

May import: the family files, graph_table, machine. Must not: decide which ops belong together.

The group's factors are those of its leading matrix product. Every member keeps its own lowering; a map says
which range of its factors a range of the group's factors means. Matrix products run on every step of the
reduction, the other members when it is complete. Intermediates have two copies so that the matrix engine can
start the next slice while the vector engine finishes this one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from operator import sub

from tx8fast.graph_table import GroupRecord
from tx8fast.lower.base import ALIGN_BYTES, Access, Lowering, NotLowerable, Slice, round_up
from tx8fast.lower.contraction import Contraction
from tx8fast.lower.convolution import as_product
from tx8fast.lower.elementwise import Elementwise
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.links import Link, LinkedAccess, Member, followed
from tx8fast.lower.movement import StoredDense
from tx8fast.lower.rotary import Rope
from tx8fast.lower.row_lead import RowLead
from tx8fast.lower.rows import Norm
from tx8fast.machine import Machine

NORMS = ("layernorm", "rmsnorm")
FOLLOWERS = {**dict.fromkeys(NORMS, Norm), "rope": Rope, "channel_norm": StoredDense}  # Elementwise of all other kinds
PRODUCTS = ("gemm", "contract", "conv")
COPIES = 2  # of each intermediate and of the members' scratch: neighbouring slices overlap


def _width(product: Contraction, lead: Contraction) -> int:
    """Return how many columns of the product one of the lead's stands for; all other factors are equal."""
    sizes, own = list(product.sizes), list(lead.sizes)
    if product.groups() != lead.groups() or len(sizes) != len(own):
        raise NotLowerable("products of a group must have equal factors")
    width = 1
    if sizes != own and len(lead.n) == 1:
        (f,) = lead.n
        width = sizes[f] // own[f]
        own[f] *= width
    if sizes != own:
        raise NotLowerable("products of a group must have equal factors, or columns in a whole ratio")
    return width


def _first_wire(record: GroupRecord, i: int) -> int:
    """Return the first member whose result op `i` reads. Raises NotLowerable if it reads none."""
    found = [w[1] for w in record.wires[i] if w is not None and w[0] == "op"]
    if not found:
        raise NotLowerable(f"{record.ops[i].kind} works on nothing that the group makes")
    return found[0]


class Fused(Lowering):
    """Matrix products of equal extent, or with columns in whole ratios, followed by members on their results: element-wise,
    rotary, whole rows. A normalisation of the products' left operand may come before them."""

    kind = "fused"
    overlaps = True
    deferred = True

    def __init__(self, record: GroupRecord, machine: Machine, resident: bool = False) -> None:
        super().__init__(record, machine)
        self._begin()
        self.twin = resident
        led = record.ops[0].kind in NORMS
        if led:
            self._check_lead()
            resident, self.prepared = True, 0
        products = [as_product(op) if op.kind == "conv" else op for op in record.ops]
        if None in products:
            raise NotLowerable("a convolution with a window leads a group of its own kind")
        made = {i: Contraction(products[i], machine, resident=resident)  # type: ignore[arg-type]
                for i, op in enumerate(record.ops) if op.kind in PRODUCTS}  # fmt: skip
        if not made or any(
            w is not None and w[0] == "op" and not (led and w[1] == 0) for i in made for w in record.wires[i]
        ):
            raise NotLowerable("matrix products lead a group, and read nothing that it makes")
        self.lead = lead = min(made.values(), key=lambda low: math.prod(low.sizes))
        base: list[Contraction] = []  # the product that every member follows
        if lead.batch and any(lead.sizes[f] > 1 for f in lead.batch):
            raise NotLowerable("a batched product has no row-major result slice")
        whole: set[int] = set()  # factors that a member needs uncut
        for i, op in enumerate(record.ops):
            leads = led and i == 0
            product = lead if leads else made[i] if i in made else base[_first_wire(record, i)]
            base.append(product)
            low: Lowering
            if i in made or leads:
                low = RowLead(op, machine, product) if leads else product
                links = [Link(f, n) for f, n in enumerate(low.sizes)]
            else:
                low = FOLLOWERS.get(op.kind, Elementwise)(op, machine)
                links, uncut = followed(low, product.writes[0].dims)
                whole |= uncut
            width = _width(product, lead)
            self._add(i, low, [replace(k, width=width) if width > 1 and k.factor in lead.n else k for k in links])
        self.products = [i for i, m in enumerate(self.members) if isinstance(m.low, Contraction)]
        self.writes = [LinkedAccess(self.members[i].low.writes[0], self.members[i].links) for i in record.outputs]
        units = list(lead.units)
        for m in self.members:
            for link, u in zip(m.links, m.low.units, strict=True):
                if link.factor >= 0:
                    units[link.factor] = max(units[link.factor], min(link.unit(u), lead.sizes[link.factor]))
        shard, split = ([ok and f not in whole for f, ok in enumerate(x)] for x in (lead.shard, lead.split))
        # a slice is one matrix of all rows only if its columns are those of the result's last dimension
        columns = {d.identity for d in lead.writes[0].dims[:-1]}.intersection(lead.n)
        limit = [
            1 if f in columns and len(self.products) < len(self.members) else n for f, n in enumerate(lead.max_len)
        ]
        self.set_factors(lead.sizes, units, shard, split, lead.reduce, self._limited(limit, units))

    def _limited(self, most: Sequence[int], units: Sequence[int]) -> list[int]:
        """Return the most points of a slice that all members can work on; most: those of the group's factors otherwise.
        Raises NotLowerable where a member takes less than there always are."""
        out = list(most)
        for m in self.members:
            for link, own, size in zip(m.links, m.low.max_len, m.low.sizes, strict=True):
                if link.factor >= 0:
                    out[link.factor] = min(out[link.factor], link.most(own))
                elif size > own:
                    raise NotLowerable(f"{size} points stay together, and a member takes {own} at most")
        if any(n < unit for n, unit in zip(out, units, strict=True)):
            raise NotLowerable("slices that one member needs whole are more than another one takes")
        return out

    def _begin(self) -> None:
        self.members: list[Member] = []
        self.args: list[int] = []
        self.forms: dict[tuple, int] = {}
        self._known_bytes: dict[tuple, tuple[list[int], int]] = {}
        self._known_acc: dict[tuple, list[int]] = {}

    def _check_lead(self) -> None:
        """A normalisation that leads works in the buffer from which the products read."""
        users = [(op.kind in PRODUCTS, at) for op, wires in zip(self.record.ops, self.record.wires, strict=True)
                 for at, wire in enumerate(wires) if wire == ("op", 0)]  # fmt: skip
        n_products = sum(op.kind in PRODUCTS for op in self.record.ops)
        if 0 in self.record.outputs or users != [(True, 0)] * n_products:
            raise NotLowerable("a normalisation leads products whose left operand it makes, and nothing else")

    def _add(self, index: int, low: Lowering, links: list[Link]) -> None:
        sources: list[tuple[str, int]] = []
        wires = self.record.wires[index]
        for access, operand in zip(low.reads, low.arguments(), strict=True):
            wire = wires[operand]
            assert wire is not None
            if wire[0] == "op":
                sources.append(("op", wire[1]))
                continue
            form = self._form(wire[1], access, links)
            if form not in self.forms:  # members that read one operand alike share its buffer
                self.forms[form] = len(self.reads)
                self.reads.append(self._access(access, links))
                self.args.append(wire[1])
            sources.append(("in", self.forms[form]))
        self.members.append(Member(low, links, sources))

    def _form(self, wire: int, access: Access, links: Sequence[Link]) -> tuple:
        """Return what tells apart how members read the group's operand `wire`."""
        return wire, type(access), access.dims, access.blocked, tuple(links[f] for f in access.sorted_factors)

    def _access(self, access: Access, links: Sequence[Link]) -> Access:
        return LinkedAccess(access, links)

    def arguments(self) -> list[int]:
        return self.args

    def fits(self, lens: Sequence[int]) -> bool:
        zero = (0,) * len(lens)
        found = ((self.members[i], self.members[i].ranges(zero, lens)) for i in self.products)
        return all(m.low.fits([b - a for a, b in zip(lo, hi, strict=True)]) for m, (lo, hi) in found)

    # -- buffers: two copies each of every member's scratch, then of the intermediates ------------------------------

    def _owner(self, i: int) -> int:
        """The member in whose result buffer member i writes: an element-wise op may work in place on one operand."""
        users = [j for j, m in enumerate(self.members) if ("op", i) in m.sources]
        if i in self.record.outputs or len(users) != 1:
            return i
        user = self.members[users[0]]
        same = user.low.writes[0].spec.dtype == self.members[i].low.writes[0].spec.dtype
        if not same or isinstance(user.low, Contraction) or user.sources.count(("op", i)) > 1:
            return i
        if isinstance(user.low, Elementwise) and self._overwritten(user) != i:
            return i
        return self._owner(users[0])

    def _overwritten(self, user: Member) -> int:
        """The member whose result an element-wise member overwrites, or -1: of several only the first may share."""
        dtype = user.low.writes[0].spec.dtype
        for j in user.low.in_place:  # type: ignore[attr-defined]
            kind, k = user.sources[j]
            users = sum(("op", k) in m.sources for m in self.members)
            if kind == "op" and users == 1 and k not in self.record.outputs \
                    and self.members[k].low.writes[0].spec.dtype == dtype:  # fmt: skip
                return k
        return -1

    @cached_property
    def _owners(self) -> list[int]:
        """The owner of every member's result."""
        return [self._owner(i) for i in range(len(self.members))]

    @cached_property
    def _inner(self) -> list[int]:
        """Members that need a buffer of their own inside the group."""
        own = [i for i, owner in enumerate(self._owners) if i not in self.record.outputs and owner == i]
        return own[1:] if self.prepared >= 0 else own

    @cached_property
    def _counts(self) -> list[tuple[int, int]]:
        """Scratch buffers and constants of every member."""
        zero = (0,) * len(self.units)
        return [(len(m.low.scratch_bytes(*m.ranges(zero, self.units))), len(m.low.const_bytes())) for m in self.members]

    def _copies(self, i: int) -> int:
        """Copies of member i's scratch and of its intermediate result."""
        return 1 if i == 0 and self.prepared >= 0 else COPIES

    def slice_form(self, lo: Sequence[int], hi: Sequence[int]) -> tuple:
        return self.lead.slice_form(lo, hi)

    def scratch_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> list[int]:
        sizes: list[int] = []
        for i in range(len(self.members)):
            sizes += self._member_bytes(i, lo, hi)[0] * self._copies(i)
        for i in self._inner:
            sizes += [self._member_bytes(i, lo, hi)[1]] * self._copies(i)
        return sizes

    def _member_bytes(self, i: int, lo: tuple[int, ...], hi: tuple[int, ...]) -> tuple[list[int], int]:
        """Bytes of a member's scratch, and of its result."""
        m = self.members[i]
        own_lo, own_hi = m.ranges(lo, hi)
        key = (i, own_lo, own_hi) if self.positional else (i, *map(sub, own_hi, own_lo))
        found = self._known_bytes.get(key)
        if found is None:
            size = m.low.writes[0].size_bytes(own_lo, own_hi)
            found = self._known_bytes[key] = m.low.scratch_bytes(own_lo, own_hi), size
        return found

    def const_bytes(self) -> list[int]:
        return [b for m in self.members for b in m.low.const_bytes()]

    def prologue(self, em: Emitter, consts: Sequence[int]) -> None:
        rest = list(consts)
        for m in self.members:
            n = len(m.low.const_bytes())
            m.low.prologue(em, rest[:n])
            rest = rest[n:]

    def acc_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> int:
        return sum(self._acc_sizes(lo, hi))

    def _acc_sizes(self, lo: Sequence[int], hi: Sequence[int]) -> list[int]:
        """Bytes of every product's partial sums."""
        key = tuple(map(sub, hi, lo))
        found = self._known_acc.get(key)
        if found is None:
            own = [self.members[i] for i in self.products]
            sizes = [round_up(m.low.acc_bytes(*m.ranges(lo, hi)), ALIGN_BYTES) for m in own]
            found = self._known_acc[key] = sizes
        return found

    def front(self, em: Emitter, s: Slice) -> None:
        """The matrix products, and what prepares their left operand."""
        self._emit(em, s, True)

    def back(self, em: Emitter, s: Slice) -> None:
        """The other members, when the reduction is complete."""
        if s.last:
            self._emit(em, s, False)

    def _emit(self, em: Emitter, s: Slice, products: bool) -> None:
        for i in self._sequence():
            if (i in self.products or i == 0 and self.prepared >= 0) != products:
                continue
            m, (scratch, n, const, c) = self.members[i], self._places[i]
            lo, hi = m.ranges(s.lo, s.hi)
            scratch += n * (s.parity % self._copies(i))
            reads = [s.reads[k] if kind == "in" else self._home(k, s) for kind, k in m.sources]
            made = self._slice(i, s, Slice(lo, hi, reads, [self._home(i, s)], s.scratch[scratch : scratch + n],
                                           s.consts[const : const + c], parity=s.parity))  # fmt: skip
            if made is not None:
                m.low.emit(em, made)

    @cached_property
    def _places(self) -> list[tuple[int, int, int, int]]:
        """First scratch buffer and their number, first constant and their number, of every member."""
        out, scratch, const = [], 0, 0
        for i, (n, c) in enumerate(self._counts):
            out.append((scratch, n, const, c))
            scratch, const = scratch + n * self._copies(i), const + c
        return out

    @cached_property
    def _inner_places(self) -> dict[int, int]:
        """First scratch buffer of every intermediate result."""
        at = sum(n * self._copies(i) for i, (n, _) in enumerate(self._counts))
        copies = [self._copies(i) for i in self._inner]
        return {i: at + sum(copies[:j]) for j, i in enumerate(self._inner)}

    def _home(self, i: int, s: Slice) -> int:
        """Return where member i's result is in slice s."""
        i = self._owners[i]
        if i in self._inner_places:
            return s.scratch[self._inner_places[i] + s.parity % self._copies(i)]
        if i == 0 and self.prepared >= 0:
            return s.reads[self.prepared]
        return s.writes[self.record.outputs.index(i)]

    def _sequence(self) -> Sequence[int]:
        """Members in the order of their instructions."""
        return range(len(self.members))

    def _slice(self, i: int, s: Slice, own: Slice) -> Slice | None:
        """Return what member i does in slice s, `own` with its place in the reduction; None if nothing."""
        if i == 0 and self.prepared >= 0 and not s.fresh:
            return None
        own.first, own.last = s.first, s.last
        if i in self.products and s.acc:
            own.acc = s.acc + sum(self._acc_sizes(s.lo, s.hi)[: self.products.index(i)])
        return own

    def ops_per_point(self) -> float:
        """Matrix cycles per point, and vector cycles shared over the reduction's length."""
        lead = self.lead
        depth = 1
        for f in lead.k:
            depth *= lead.sizes[f]
        per_point = [math.prod(k.width / k.scale for k in m.links) for m in self.members]
        vector = sum(m.low.ops_per_point() * n for i, (m, n) in enumerate(zip(self.members, per_point, strict=True))
                     if i not in self.products and (i or self.prepared < 0))  # fmt: skip
        return sum(per_point[i] for i in self.products) / self.machine.peak_macs_per_cycle(lead.reads[0].spec.dtype) * self.machine.n_tiles \
            + vector / depth  # fmt: skip
