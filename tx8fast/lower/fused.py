"""Groups of several ops that share one loop nest; what lies between them never leaves scratchpad.

May import: the family files, lower.{links, members}, graph_table, machine. Must not: decide which ops belong together.

The group's factors are those of the op that leads it: a matrix product, a convolution with a window, a look-up of rows. Every
member keeps its own lowering; a map says which range of its loops a range of the group's factors means. Leading members run on
every step of the reduction, the others when it is complete. Intermediates have two copies so that the matrix engine can start
the next slice while the vector engine finishes this one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from operator import sub

from tx8fast.graph_table import GroupRecord, OpRecord
from tx8fast.lower.base import ALIGN_BYTES, Access, Lowering, NotLowerable, Slice, round_up
from tx8fast.lower.contraction import Contraction
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.links import Link
from tx8fast.lower.lookup import Lookup, TableRows
from tx8fast.lower.members import NORMS, PRODUCTS, Follower, Linked, Member, Rows, Source, follower, into_blocks, leader
from tx8fast.lower.row_lead import RowLead
from tx8fast.machine import Machine

COPIES = 2  # of each intermediate and of the members' scratch: neighbouring slices overlap
FEW_USES = 4  # of a row: putting it into blocks each time takes less than loading its blocks one by one


def _width(own: Lowering, lead: Lowering) -> int:
    """Return how many columns of a leading member one of the lead's stands for; all other factors are equal."""
    sizes, width = list(lead.sizes), 1
    if not isinstance(own, Contraction) or not isinstance(lead, Contraction):
        alike = type(own) is type(lead) is Lookup and own.writes[0].dims == lead.writes[0].dims
    else:
        alike = own.groups() == lead.groups() and len(sizes) == len(own.sizes)
        if alike and len(lead.n) == 1:
            (f,) = lead.n
            width = own.sizes[f] // sizes[f]
            sizes[f] *= width
    if own is not lead and not (alike and sizes == list(own.sizes)):
        raise NotLowerable("leading ops of a group must have equal factors, products columns in a whole ratio")
    return width


class Fused(Lowering):
    """Leading ops of equal extent, or products with columns in whole ratios, followed by members on their results. A normalisation
    of the products' left operand may come before them."""

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
        leaders = {i: low for i, op in enumerate(record.ops) if (low := leader(op, machine, resident)) is not None}
        if not leaders or any(
            w is not None and w[0] == "op" and not (led and w[1] == 0) for i in leaders for w in record.wires[i]
        ):
            raise NotLowerable("products or look-ups lead a group, and read nothing that it makes")
        self.lead = lead = min(leaders.values(), key=lambda low: math.prod(low.sizes))
        self.kind, self.positional = lead.leads, lead.positional
        if isinstance(lead, Contraction) and any(lead.sizes[f] > 1 for f in lead.batch):
            raise NotLowerable("a batched product has no row-major result slice")
        equal = [Link(f, n) for f, n in enumerate(lead.sizes)]
        for i, op in enumerate(record.ops):
            if led and i == 0:
                self._add(i, RowLead(op, machine, lead), equal)  # type: ignore[arg-type]
            elif i not in leaders:
                self._follow(i, op)
            elif (width := _width(leaders[i], lead)) > 1:
                wide = set(lead.n)  # type: ignore[attr-defined]
                self._add(i, leaders[i], [Link(f, n, width=width if f in wide else 1)
                                          for f, n in enumerate(leaders[i].sizes)])  # fmt: skip
            else:
                self._add(i, leaders[i], equal)
        self.members += self.blocked
        self.products = [i for i in leaders if not isinstance(leaders[i], Lookup)]
        self.deferred = bool(self.products)
        self.writes = [self.members[i].result(record.ops[i].results[0]) for i in record.outputs]
        most = list(lead.max_len)
        if len(leaders) < len(record.ops) and isinstance(lead, Contraction):
            # a slice is one matrix of all rows only if its columns are those of the result's last dimension
            for f in {f for d in lead.writes[0].dims[:-1] for f, _ in d.terms}.intersection(lead.n):
                most[f] = 1
        units, most, whole = self._limits(lead.units, most)
        shard, split = ([ok and f not in whole for f, ok in enumerate(x)] for x in (lead.shard, lead.split))
        self.set_factors(lead.sizes, units, shard, split, lead.reduce, most)

    def _begin(self) -> None:
        self.members: list[Member] = []
        self.blocked: list[Follower] = []  # operands from outside that are put into blocks: members behind the ops
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

    # -- members ----------------------------------------------------------------------------------------------------

    def _add(self, i: int, low: Lowering, links: list[Link]) -> None:
        """Add a member whose loops are factors of the group."""
        wires = self.record.wires[i]
        member = Linked(low, links, [])
        for access, operand in zip(low.reads, low.arguments(), strict=True):
            kind, k = wires[operand]
            beside = wires[low.numbers] if isinstance(access, TableRows) else None  # type: ignore[attr-defined]
            member.sources.append((kind, k) if kind == "op" else self._read(k, member.access(access), beside))
        if isinstance(low, Lookup):
            low.number_by(member.sources[low.numbers][1])
        self.members.append(member)

    def _follow(self, i: int, op: OpRecord) -> None:
        """Add a member that works on what others make."""
        wires = self.record.wires[i]
        before = [self.members[w[1]].made for w in wires if w is not None and w[0] == "op"]
        if not before or any(made != before[0] for made in before):
            raise NotLowerable(
                f"{op.kind} works on nothing that the group makes, or on results of different dimensions"
            )
        member = follower(op, self.machine, Rows(op.results[0].shape, before[0]))
        for k, operand in enumerate(member.low.arguments()):
            kind, source = wires[operand]
            member.sources.append((kind, source) if kind == "op" else self._outside(source, member, k))
        self.members.append(member)

    def _outside(self, wire: int, member: Follower, k: int) -> Source:
        """Return where a follower finds an operand from outside. Dense rows that are used few times are loaded as they lie in DDR, with
        long runs, and put into blocks in scratchpad."""
        spec, rows = self.record.operands[wire], member.rows
        if not member.flat or spec.layout == "blocked" or not rows.flat[0] > rows.uses(spec) <= FEW_USES:
            return self._read(wire, member.access(k, spec))
        source = self._read(wire, rows.access(spec, False))
        known = [j for j, m in enumerate(self.blocked) if m.sources == [source]]
        if not known:
            self.blocked.append(Follower(into_blocks(rows.flat, spec.dtype, self.machine), rows, True, [source]))
        return "op", len(self.record.ops) + (known[0] if known else len(self.blocked) - 1)

    def _read(self, wire: int, access: Access, beside: object = None) -> Source:
        """Return the group's read access of operand `wire`; members that read it alike share its buffer. beside: what else tells
        them apart."""
        form = (*self._form(wire, access), beside)
        if form not in self.forms:
            self.forms[form] = len(self.reads)
            self.reads.append(access)
            self.args.append(wire)
        return "in", self.forms[form]

    def _form(self, wire: int, access: Access) -> tuple:
        """Return what tells apart how members read the group's operand `wire`."""
        return wire, type(getattr(access, "inner", access)), access.dims, access.blocked

    def _limits(self, units: Sequence[int], most: Sequence[int]) -> tuple[list[int], list[int], set[int]]:
        """Return units and most points of a slice that all members can work on, at least and at most those given, and factors that
        followers need uncut. Raises NotLowerable where a member takes less than there always are."""
        unit, out, whole = list(units), list(most), set[int]()
        for m in self.members:
            low = m.low
            for f in m.rows.single if isinstance(m, Follower) else ():
                out[f] = 1
            for link, k in m.loops():
                f = link.factor
                if f < 0 and low.sizes[k] > low.max_len[k]:
                    raise NotLowerable(
                        f"{low.sizes[k]} points stay together, and a member takes {low.max_len[k]} at most"
                    )
                if f >= 0:
                    out[f] = min(out[f], link.most(low.max_len[k]))
                    unit[f] = max(unit[f], min(link.unit(low.units[k]), link.unit(low.sizes[k])))
                    whole |= {f} if isinstance(m, Follower) and not low.split[k] else set()
        if any(n < u for n, u in zip(out, unit, strict=True)):
            raise NotLowerable("slices that one member needs whole are more than another one takes")
        return unit, out, whole

    def arguments(self) -> list[int]:
        return self.args

    def fits(self, lens: Sequence[int]) -> bool:
        zero = (0,) * len(lens)
        found = ((m.low, m.ranges(zero, lens)) for m in self.members if isinstance(m, Linked))
        return all(low.fits([b - a for a, b in zip(lo, hi, strict=True)]) for low, (lo, hi) in found)

    # -- buffers: two copies each of every member's scratch, then of the intermediates ------------------------------

    def _owner(self, i: int) -> int:
        """The member in whose result buffer member i writes: its only reader may work in place."""
        users = [j for j, m in enumerate(self.members) if ("op", i) in m.sources]
        if i in self.record.outputs or len(users) != 1:
            return i
        user = self.members[users[0]]
        same = user.low.writes[0].spec.dtype == self.members[i].low.writes[0].spec.dtype
        if not same or user.sources.count(("op", i)) > 1 or self._overwritten(user) != i:
            return i
        return self._owner(users[0])

    def _overwritten(self, user: Member) -> int:
        """The member whose result a member overwrites, or -1: of several only the first may share."""
        dtype = user.low.writes[0].spec.dtype
        for j in user.low.in_place:
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
        n = len(self.record.ops)
        return [*range(n, len(self.members)), *range(n)]

    def _slice(self, i: int, s: Slice, own: Slice) -> Slice | None:
        """Return what member i does in slice s, `own` with its place in the reduction; None if nothing."""
        if i == 0 and self.prepared >= 0 and not s.fresh:
            return None
        own.first, own.last = s.first, s.last
        if i in self.products and s.acc:
            own.acc = s.acc + sum(self._acc_sizes(s.lo, s.hi)[: self.products.index(i)])
        return own

    def ops_per_point(self) -> float:
        """Cycles per point of the busier of the matrix and the vector engine, whose work is shared over the reduction's length."""
        depth = math.prod([n for n, summed in zip(self.lead.sizes, self.lead.reduce, strict=True) if summed])
        own = [m.points() * m.low.ops_per_point() for m in self.members]
        return sum(x if i in self.products else x / depth for i, x in enumerate(own) if i or self.prepared < 0)
