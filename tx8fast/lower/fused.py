"""Groups of several ops that share one loop nest; what lies between them never leaves scratchpad.

May import: the family files, lower.{links, members}, graph_table, machine. Must not: decide which ops belong together.

The group's factors are those of the op that leads it: a matrix product, a convolution with a window, a look-up of rows; without any
of these, the first op, which works on rows. Every member keeps its own lowering; a map says which range of its loops a range of the group's factors means. Leading members run on
every step of the reduction, the others when it is complete. Intermediates have two copies so that the matrix engine can start
the next slice while the vector engine finishes this one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import sub

from tx8fast.graph_table import GroupRecord
from tx8fast.lower.addends import HERE, addends, begin_sums, origin, replaced, take_rows
from tx8fast.lower.base import ALIGN_BYTES, Lowering, NotLowerable, Slice, round_up
from tx8fast.lower.contraction import Contraction
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.heads_apart import in_rows, stored, whole_heads
from tx8fast.lower.leads import heads_of, lead_links
from tx8fast.lower.links import Link
from tx8fast.lower.members import NORMS, Follower, Linked, Member, Operands, is_product, leader, row_leader
from tx8fast.lower.row_lead import RowLead
from tx8fast.machine import Machine
from tx8fast.records import cached_property

COPIES = 2  # of each intermediate and of the members' scratch: neighbouring slices overlap
TURNS = 3  # copies of what lies between the halves of a slice: the second half ends up to two slices after the first


class Fused(Lowering):
    """Leading ops of equal extent, or products with columns in whole ratios, followed by members on their results. A normalisation
    of the products' left operand may come before them. Ops on rows follow each other without a product as well.

    A *closing* product sums over the columns of what the leading ones make, a feed-forward's second one: then the group's
    factors are the rows' and these columns, a reduction; its own columns are never cut."""

    overlaps = True

    def __init__(self, record: GroupRecord, machine: Machine, resident: bool = False) -> None:
        super().__init__(record, machine)
        self._known_bytes: dict[tuple, tuple[list[int], int]] = {}
        self._known_acc: dict[tuple, list[int]] = {}
        self.twin = resident
        rows = in_rows(record)
        ops = [rows.get(i, op) for i, op in enumerate(record.ops)]
        led = record.ops[0].kind in NORMS and any(is_product(op) for op in record.ops)
        made = [[w[1] for w in row if w is not None and w[0] == "op" and w[1] >= led] for row in record.wires]
        if led:
            resident, self.prepared = True, 0
        found = {
            i: low for i, op in enumerate(ops) if (low := leader(op, machine, resident and not made[i])) is not None
        }
        leaders = {i: low for i, low in found.items() if not made[i]}
        closing = [i for i in found if made[i]]
        if not leaders:
            leaders = {0: row_leader(record.ops[0], machine, resident)}
        if len(closing) > 1 or closing and resident and not led:
            raise NotLowerable("one product at most reads what those that lead a group make")
        self.lead = lead = min(leaders.values(), key=lambda low: math.prod(low.sizes))
        self.kind, self.positional = lead.leads, lead.positional
        self.closing = closing[0] if closing else -1
        if isinstance(lead, Contraction) and any(lead.sizes[f] > 1 for f in lead.batch):
            raise NotLowerable("a batched product has no row-major result slice")
        factors = self._open(found[self.closing]) if closing else list(range(len(lead.sizes)))
        own = {f: g for g, f in enumerate(factors)}
        self.inside = inside = Operands(
            record, machine, self._boxes([lead.sizes[f] for f in factors]) if closing and not led else []
        )
        for i, op in enumerate(ops):
            if led and i == 0:
                inside.link(RowLead(op, machine, lead), lead_links(lead, lead, own))  # type: ignore[arg-type]
            elif i in leaders:
                inside.link(leaders[i], lead_links(leaders[i], lead, own))
            elif i == self.closing:
                inside.link(found[i], self._closed(i, found[i], len(factors)))  # type: ignore[arg-type]
            else:
                inside.follow(op)
        self.reads, self.args, self.members = inside.reads, inside.args, [*inside.members, *inside.blocked]
        self.products = [i for i in leaders if is_product(record.ops[i])]
        self.sums = closing or self.products
        if led:
            self._check_lead()
        if closing and not self._behind.issuperset(record.outputs):
            raise NotLowerable("what a closing product sums over leaves the group")
        if closing and len(self._behind) > 1 and heads_of(found[self.closing]):  # type: ignore[arg-type]
            raise NotLowerable("what a closing product makes is several matrices, and all columns at once")
        self.writes = [
            stored(record.ops[i], self.members[i].result(ops[i].results[0]), i in rows) for i in record.outputs
        ]
        # a product whose slices have all columns adds; else the operand would have to be there early, and costs more than the sum
        self.addends = addends(record, self.members, self.reads) if closing else {}
        self.summed = {j for j, _ in self.addends.values()}
        if led:
            take_rows(self, self._boxes([lead.sizes[f] for f in factors]))
        self.replaced = replaced(self)
        early = {k for i in self.products for kind, k in self.members[i].sources if kind == "in"} | {self.prepared}
        self.late = frozenset(range(len(self.reads))) - early if not closing else frozenset()
        self.trailing = frozenset([k for i in closing for kind, k in self.members[i].sources if kind == "in"]) - early
        most = [lead.max_len[f] for f in factors]
        if len(leaders) < len(record.ops) and isinstance(lead, Contraction):
            # a slice is one matrix of all rows only if its columns are those of the result's last dimension
            for f in heads_of(lead):
                most[own[f]] = 1
        units, most, whole = self._limits([lead.units[f] for f in factors], most)
        opened = [lead.reduce[f] or bool(closing) and f in lead.n for f in factors]  # type: ignore[attr-defined]
        if any(opened[g] for g in whole):
            raise NotLowerable("a member needs whole what comes in slices")
        shard = [lead.shard[f] and g not in whole and not opened[g] for g, f in enumerate(factors)]
        split = [lead.split[f] and g not in whole for g, f in enumerate(factors)]
        self.set_factors([lead.sizes[f] for f in factors], units, shard, split, opened, most)
        if closing and not self.fits(self.units):
            raise NotLowerable("rows are longer than one instruction can read or write")

    def _check_lead(self) -> None:
        """A normalisation that leads works in the buffer from which the products read, and what adds to a closing product's sums."""
        read = [
            (i, at) for i, m in enumerate(self.members) for at, source in enumerate(m.sources) if source == ("op", 0)
        ]
        behind = self._behind if self.closing >= 0 else {0}
        products = [(i, 0) for i in self.products]
        if 0 in self.record.outputs or [r for r in read if r[0] not in behind - {self.closing}] != products:
            raise NotLowerable("a normalisation leads products whose left operand it makes, and nothing else")

    # -- a closing product --------------------------------------------------------------------------------------------

    def _open(self, closing: Lowering) -> list[int]:
        """Return the lead's factors that are the group's: rows, then the columns that the closing product sums over."""
        self.kind, self.turns = "feed forward", TURNS
        lead = self.lead
        if not isinstance(lead, Contraction) or not isinstance(closing, Contraction):
            raise NotLowerable("only products close what products lead")
        if any(p.swapped or p.l_trs or p.lone or p.batch for p in (lead, closing)):
            raise NotLowerable("a closing product takes row-major rows and one matrix of weights")
        if not lead.m or len(lead.n) != 1 or len(closing.k) != 1:
            raise NotLowerable("a closing product has rows, and sums over one dimension")
        return [*lead.m, *lead.n]

    @staticmethod
    def _boxes(sizes: Sequence[int]) -> list[tuple[list[int], list[int]]]:
        """Return slices by which accesses are told apart: of few rows, more, and all."""
        return [([0] * len(sizes), [*[min(most, n) for n in sizes[:-1]], 1]) for most in (2, 16, max(sizes[:-1]))]

    def _closed(self, i: int, low: Contraction, n: int) -> list[Link]:
        """Return the closing product's loops as the group's factors, found through the dimensions of its left operand."""
        wires, left = self.record.wires[i], low.reads[0].dims
        if [w is not None and w[0] == "op" for w in wires] != [True] + [False] * (len(wires) - 1):
            raise NotLowerable("of a closing product the left operand alone is made in the group")
        made = self.inside.members[wires[0][1]].made
        if [d.size for d in made] != [d.size for d in left]:
            raise NotLowerable("the two products see the values between them differently")
        found = {g.identity: f.identity for g, f in zip(left, made, strict=True)}
        if [found.get(f) for f in (*low.m, *low.k)] != list(range(n)):
            raise NotLowerable("the two products order rows differently")
        return [Link(-1 if (f := found.get(g)) is None else f, size) for g, size in enumerate(low.sizes)]

    @cached_property
    def _behind(self) -> set[int]:
        """The closing product and members that depend on it, and what is put into blocks for them alone."""
        out = {self.closing}
        for i, m in enumerate(self.members):
            if any(("op", j) in m.sources for j in out):
                out.add(i)
        n = len(self.record.ops)
        return out | {
            j
            for j in range(n, len(self.members))
            if all(i in out for i, m in enumerate(self.members) if ("op", j) in m.sources)
        }

    def _waits(self, i: int) -> bool:
        """True for a member, not a leading one, that works when sums are complete."""
        return self.closing < 0 or i in self._behind and i != self.closing

    def buffers(self, k: int, shared: bool, sharing: bool, bufs: int) -> int:
        if self.closing < 0:
            return super().buffers(k, shared, sharing, bufs)
        if not sharing:
            return bufs
        if k >= len(self.reads) or len(self.sizes) - 1 not in self.reads[k].factors:
            return 1  # changes with the rows, when nothing else is under way
        late = any(("in", k) in m.sources for i, m in enumerate(self.members) if i not in self.products)
        return TURNS if late and not (shared and k in self.trailing) else 2

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
                    raise NotLowerable(f"{low.sizes[k]} points stay together, a member takes {low.max_len[k]} at most")
                if f >= 0:
                    out[f] = min(out[f], link.most(low.max_len[k]))
                    unit[f] = math.lcm(unit[f], min(link.unit(low.units[k]), link.unit(low.sizes[k])))
                    whole |= {f} if isinstance(m, Follower) and not low.split[k] else set()
        whole_heads(self.writes, unit, out)
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
        for j in (*user.low.in_place, *(user.low.over if self.closing >= 0 else ())):
            kind, k = user.sources[j]
            users = sum(("op", k) in m.sources for m in self.members)
            if (
                kind == "op"
                and users == 1
                and k not in self.record.outputs
                and self.members[k].low.writes[0].spec.dtype == dtype
            ):
                return k
        return -1

    @cached_property
    def owners(self) -> list[int]:
        """The owner of every member's result."""
        return [self._owner(i) for i in range(len(self.members))]

    @cached_property
    def _inner(self) -> list[int]:
        """Members that need a buffer of their own inside the group."""
        own = [i for i, owner in enumerate(self.owners) if i not in self.record.outputs and owner == i]
        return own[1:] if self.prepared >= 0 else own

    @cached_property
    def _counts(self) -> list[tuple[int, int]]:
        """Scratch buffers and constants of every member."""
        zero = (0,) * len(self.units)
        return [(len(m.low.scratch_bytes(*m.ranges(zero, self.units))), len(m.low.const_bytes())) for m in self.members]

    @property
    def opening(self) -> int:  # type: ignore[override]
        # sums that begin with the rows as they came in are written before anything is prepared: not where scratch may lie
        begun = [self.owners[j] for j, k in self.addends.values() if k == HERE]
        return self._counts[0][0] if self.prepared >= 0 and set(begun) <= {*self.record.outputs} else 0

    def _copies(self, i: int) -> int:
        """Copies of member i's intermediate result. With a closing product, nothing is under way between
        results."""
        if i == 0 and self.prepared >= 0:
            return 1
        if self.closing >= 0:
            return 1 if i in self._behind else TURNS
        return COPIES

    def _turns(self, i: int) -> int:
        """Copies of member i's scratch."""
        return 1 if self.members[i].low.serial else self._copies(i)

    def slice_form(self, lo: Sequence[int], hi: Sequence[int]) -> tuple:
        return super().slice_form(lo, hi) if self.closing >= 0 else self.lead.slice_form(lo, hi)

    def scratch_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> list[int]:
        sizes: list[int] = []
        for i in range(len(self.members)):
            sizes += self._member_bytes(i, lo, hi)[0] * self._turns(i)
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

    def result_bytes(self, i: int, lo: tuple[int, ...], hi: tuple[int, ...]) -> int:
        """Bytes of what member i makes of a slice."""
        return self._member_bytes(i, lo, hi)[1]

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
            own = [self.members[i] for i in self.sums]
            sizes = [round_up(m.low.acc_bytes(*m.ranges(lo, hi)), ALIGN_BYTES) for m in own]
            found = self._known_acc[key] = sizes
        return found

    def emit(self, em: Emitter, s: Slice) -> None:
        """Emit the leading products and what prepares their left operand, then the other members: those on every slice, and when
        the reduction is complete the rest."""
        self._emit(em, s, True)
        self._emit(em, s, False)

    def _emit(self, em: Emitter, s: Slice, leading: bool) -> None:
        n = len(self.record.ops)
        for i in (*range(n, len(self.members)), *range(n)):
            prepares = i == 0 and self.prepared >= 0
            if (i in self.products or prepares) != leading or i in self.summed:
                continue
            if prepares and not s.fresh or not (leading or s.last) and self._waits(i):
                continue
            m, (scratch, n_scratch, const, c) = self.members[i], self._places[i]
            lo, hi = m.ranges(s.lo, s.hi)
            scratch += n_scratch * (s.parity % self._turns(i))
            reads = [s.reads[k] if kind == "in" else self.home(k, s) for kind, k in m.sources]
            own = Slice(
                lo,
                hi,
                reads,
                [self.home(i, s)],
                s.scratch[scratch : scratch + n_scratch],
                s.consts[const : const + c],
                parity=s.parity,
            )
            if prepares:
                begin_sums(self, em, s)
            if i in self.sums:
                own.first, own.last, own.stays = s.first, s.last, s.stays
                own.acc = s.acc + sum(self._acc_sizes(s.lo, s.hi)[: self.sums.index(i)]) if s.acc else 0
            if i in self.addends:
                own.addend, own.addend_dtype = origin(self, i, s)
            m.low.emit(em, own)

    @cached_property
    def _places(self) -> list[tuple[int, int, int, int]]:
        """First scratch buffer and their number, first constant and their number, of every member."""
        out, scratch, const = [], 0, 0
        for i, (n, c) in enumerate(self._counts):
            out.append((scratch, n, const, c))
            scratch, const = scratch + n * self._turns(i), const + c
        return out

    @cached_property
    def _inner_places(self) -> dict[int, int]:
        """First scratch buffer of every intermediate result."""
        at = sum(n * self._turns(i) for i, (n, _) in enumerate(self._counts))
        copies = [self._copies(i) for i in self._inner]
        return {i: at + sum(copies[:j]) for j, i in enumerate(self._inner)}

    def home(self, i: int, s: Slice) -> int:
        """Return where member i's result is in slice s."""
        i = self.owners[i]
        if i in self._inner_places:
            return s.scratch[self._inner_places[i] + s.parity % self._copies(i)]
        if i == 0 and self.prepared >= 0:
            return s.reads[self.prepared]
        return s.writes[self.record.outputs.index(i)]

    def ops_per_point(self) -> float:
        """Cycles per point of the matrix engine, then the vector engine; a slice that passes through both of them twice, to a
        closing product, keeps the busier one busy."""
        points = math.prod(self.sizes)
        own = [math.prod(m.low.sizes) / points * m.low.ops_per_point() for m in self.members]
        products = {*self.products, *self.sums}
        matrix = sum([own[i] for i in products])
        rest = products | self.summed | ({0} if self.prepared >= 0 else set())
        vector = sum([x for i, x in enumerate(own) if i not in rest])
        return max(matrix, vector) if self.closing >= 0 else matrix + vector
