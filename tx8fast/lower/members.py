"""Members of a group: an op's kernel, and what a range of the group's factors means for it.

May import: the family files, lower.links, graph_table, machine. Must not: place buffers, emit anything.

A member that reads nothing of the group *leads* it: its factors are the group's. All others *follow*: they work on what
another member makes of a slice, which is one matrix in blocks, whatever the dimensions of its rows are. So most ops are lowered
as if they worked on rows and columns; an operand from outside that lacks some of the rows' dimensions keeps slices to a single
point of those. Kernels that tell rows apart, or work on heads, keep the dimensions of their op.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tx8fast.graph_table import Dim, GroupRecord, OpRecord, Rule, TensorSpec
from tx8fast.lower.access import Access
from tx8fast.lower.base import Lowering, NotLowerable
from tx8fast.lower.contraction import Contraction
from tx8fast.lower.convolution import as_product, convolution
from tx8fast.lower.elementwise import Elementwise
from tx8fast.lower.links import Link, LinkedAccess, Links, Ranges
from tx8fast.lower.lookup import LOOKUPS, Lookup, TableRows
from tx8fast.lower.movement import ChannelNorm, Relabelled
from tx8fast.lower.rotary import Rope
from tx8fast.lower.rows import Norm
from tx8fast.machine import Machine
from tx8fast.numerics.layout import npc
from tx8fast.records import dataclass

NORMS = ("layernorm", "rmsnorm")
PRODUCTS = ("gemm", "contract", "conv")
FOLLOWERS = frozenset({*Elementwise.takes, *NORMS, "rope", "channel_norm"})
FEW_USES = 4  # of a row: putting it into blocks each time takes less than loading its blocks one by one
Source = tuple[str, int]  # ("in", group read) or ("op", member)


def is_product(op: OpRecord) -> bool:
    """True for an op of a kind that works on the matrix engine."""
    return op.kind in PRODUCTS


def may_lead(op: OpRecord) -> bool:
    """True for an op of a kind that may lead a group."""
    return is_product(op) or op.kind in LOOKUPS


def may_follow(op: OpRecord) -> bool:
    """True for an op of a kind that may work on what leaders make."""
    return op.kind in FOLLOWERS


def leader(op: OpRecord, machine: Machine, resident: bool) -> Lowering | None:
    """Return the kernel of an op that may lead a group, None if it is not of a kind that does. resident: the left operand of a
    product stays in scratchpad, whole. Raises NotLowerable."""
    product = as_product(op) if op.kind == "conv" else op
    if is_product(op) and product is not None:
        return Contraction(product, machine, resident=resident)
    if not may_lead(op):
        return None
    if resident:
        raise NotLowerable(f"{op.kind} has no left operand that could stay")
    return convolution(op, machine) if op.kind == "conv" else Lookup(op, machine, blocked=True)


def may_lead_rows(op: OpRecord) -> bool:
    """True for an op of a kind that may lead a group in which nothing else does."""
    return op.kind in NORMS or op.kind in Elementwise.takes


def row_leader(op: OpRecord, machine: Machine, resident: bool) -> Lowering:
    """Return the kernel of an op on rows that leads a group without products and look-ups. Raises NotLowerable."""
    if resident or not may_lead_rows(op):
        raise NotLowerable(f"{op.kind} leads no group")
    low = (Norm if op.kind in NORMS else Elementwise)(op, machine)
    if not low.writes[0].blocked:
        raise NotLowerable("ops on rows share a loop nest where these lie in blocks")
    return low


@dataclass
class Member(ABC):
    """A kernel, and where each of its read accesses comes from. made: the dimensions of its result over the group's factors."""

    low: Lowering
    made: tuple[Dim, ...]
    sources: list[Source]

    @abstractmethod
    def ranges(self, lo: Sequence[int], hi: Sequence[int]) -> Ranges:
        """Return the range of the kernel's loops that the group's range [lo, hi) means."""

    @abstractmethod
    def result(self, spec: TensorSpec) -> Access:
        """Return the access to the member's result `spec` where it leaves the group."""

    @abstractmethod
    def loops(self) -> Iterator[tuple[Link, int]]:
        """Yield the links of the kernel's loops that have limits, with the number of the loop."""


class Linked(Member):
    """A member whose loops are factors of the group."""

    def __init__(self, low: Lowering, links: Sequence[Link], sources: list[Source]) -> None:
        self.links = Links(links)
        super().__init__(low, self.access(low.writes[0]).dims, sources)

    def access(self, inner: Access) -> Access:
        """Return the member's access over the group's factors."""
        return inner if self.links.equal else LinkedAccess(inner, self.links)

    def result(self, spec: TensorSpec) -> Access:
        return self.access(self.low.writes[0])

    def ranges(self, lo: Sequence[int], hi: Sequence[int]) -> Ranges:
        return self.links.ranges(lo, hi)

    def loops(self) -> Iterator[tuple[Link, int]]:
        return zip(self.links, range(len(self.links)), strict=True)


class Rows:
    """What a member makes of a slice, as rows and columns. shape: of its result; made: the dimensions over the group's factors, each
    of which may stand for several neighbouring ones of the result. Raises NotLowerable."""

    def __init__(self, shape: Sequence[int], made: Sequence[Dim]) -> None:
        self.shape, self.made = tuple(shape), tuple(made)
        self.runs: list[range] = []
        at = 0
        for k, d in enumerate(made):
            end = at + 1
            while end < len(shape) and (math.prod(shape[at:end]) < d.size or k == len(made) - 1):
                end += 1
            self.runs.append(range(at, end))
            at = end
        if [math.prod(shape[r.start : r.stop]) for r in self.runs] != [d.size for d in made] or at != len(shape):
            raise NotLowerable("members of a group keep the dimensions of what they follow")
        if any(len(d.terms) > 1 for d in made):
            raise NotLowerable("a dimension of several factors has no rows that follow each other")
        self.flat = math.prod([d.size for d in made[:-1]]), made[-1].size
        #: factors of which slices must have a single point, for operands that lack their dimension
        self.single: set[int] = set()

    def merged(self, spec: TensorSpec) -> tuple[int, ...]:
        """Return an operand's shape over the dimensions `made`, 1 for those that it lacks."""
        shape = (1,) * (len(self.shape) - len(spec.shape)) + spec.shape
        if len(shape) == len(self.shape) and all(n in (1, m) for n, m in zip(shape, self.shape, strict=True)):
            sizes = tuple([math.prod(shape[r.start : r.stop]) for r in self.runs])
            if all(n in (1, d.size) for n, d in zip(sizes, self.made, strict=True)):
                return sizes
        raise NotLowerable("an operand has neither the rows' dimensions nor a single element of them")

    def outer(self, sizes: Sequence[int]) -> Sequence[Dim]:
        """Return the dimensions of which an operand (its shape over `made`) has a row of columns for each point, if these are the first
        ones and there are further rows: of a slice with a single point of them that row is a vector. None of any other operand."""
        rows = sizes[:-1]
        n = next((i for i, (own, d) in enumerate(zip(rows, self.made, strict=False)) if own != d.size), len(rows))
        further = math.prod([d.size for d in self.made[n:-1]])
        whole = max(rows[n:], default=1) == 1 and sizes[-1] == self.flat[1]
        return self.made[:n] if whole and math.prod(rows) > 1 and further > 1 else ()

    def uses(self, spec: TensorSpec) -> int:
        """Return how many rows an operand's row is used for; all, if it has no columns."""
        *rows, columns = self.merged(spec)
        return self.flat[0] if columns != self.flat[1] else self.flat[0] // math.prod(rows)

    def spec(self, spec: TensorSpec) -> TensorSpec:
        """Return what a kernel of rows and columns takes an operand for."""
        *rows, columns = sizes = self.merged(spec)
        if math.prod(rows) == 1 != self.flat[0] or self.outer(sizes):
            return TensorSpec((columns,) if spec.shape else (), spec.dtype)
        return TensorSpec((self.flat[0], columns), spec.dtype, "blocked")

    def access(self, spec: TensorSpec, blocked: bool = True) -> Access:
        """Return the access to a result, or to an operand from outside; it may keep slices to a single point of some factors."""
        sizes = self.merged(spec)
        lacking = [d for n, d in zip(sizes[:-1], self.made[:-1], strict=True) if n != d.size]
        for d in self.outer(sizes) or (lacking if math.prod(sizes[:-1]) > 1 else ()):
            if not d.terms and d.size > 1:
                raise NotLowerable(
                    "an operand lacks a dimension, or has a row for one, of which slices have all points"
                )
            self.single.update([f for f, _ in d.terms])
        dims = [d if n == d.size else Dim(1) for n, d in zip(sizes, self.made, strict=True)]
        if len(self.made) == len(self.shape):
            return Access(spec, dims[len(dims) - len(spec.shape) :], blocked)
        if spec.layout == "blocked" and len(spec.shape) > 1 and npc(sizes) != npc(spec.shape):
            raise NotLowerable("merged dimensions change the blocked form")
        return Access(replace(spec, shape=sizes), dims, blocked)

    def record(self, op: OpRecord) -> OpRecord:
        """Return the op on rows and columns."""
        operands = tuple([None if s is None else self.spec(s) for s in op.operands])
        if op.rule is None:
            raise NotLowerable(f"{op.kind} has no factor rule")
        return flat_record(op, operands, TensorSpec(self.flat, op.results[0].dtype, "blocked"), op.rule.kinds[-1])


def flat_record(op: OpRecord, operands: Sequence[TensorSpec | None], result: TensorSpec, columns: str) -> OpRecord:
    """Return an op on rows and columns. columns: the kind of their factor."""
    dims = [Dim(n, ((f, 1),)) for f, n in enumerate(result.shape)]

    def seen(spec: TensorSpec | None) -> tuple[Dim, ...] | None:
        if spec is None:
            return None
        own = zip(dims[len(dims) - len(spec.shape) :], spec.shape, strict=True)
        return tuple([d if d.size == n else Dim(1) for d, n in own])

    rule = Rule(result.shape, "P" + columns, tuple([seen(s) for s in operands]), (tuple(dims),))
    return replace(op, operands=tuple(operands), results=(result,), rule=rule)


class Follower(Member):
    """A member on what another one makes. flat: its kernel sees rows and columns."""

    def __init__(self, low: Lowering, rows: Rows, flat: bool, sources: Sequence[Source] = ()) -> None:
        super().__init__(low, rows.made, list(sources))
        self.rows, self.flat = rows, flat
        self.step = rows.made[-1].size // low.sizes[-1]  # columns per point of the last loop

    def result(self, spec: TensorSpec) -> Access:
        return self.rows.access(spec)

    def ranges(self, lo: Sequence[int], hi: Sequence[int]) -> Ranges:
        *rows, (a, b) = [d.box(lo, hi) for d in self.made]
        first, last = a // self.step, -(-b // self.step)
        if self.flat:
            return (0, first), (math.prod([b - a for a, b in rows]), last)
        return (*[a for a, _ in rows], first), (*[b for _, b in rows], last)

    def loops(self) -> Iterator[tuple[Link, int]]:
        last = len(self.low.sizes) - 1
        for k, d in [(last, self.made[-1])] if self.flat else enumerate(self.made):
            for f, width in d.terms or ((-1, 1),):
                yield Link(f, self.low.sizes[k], self.step if k == last else 1, width), k

    def access(self, k: int, spec: TensorSpec) -> Access:
        """Return read access k, of the operand `spec` from outside, over the group's factors. Raises NotLowerable."""
        inner = self.low.reads[k]
        if self.flat:
            return self.rows.access(spec)
        dims = [self.made[d.terms[0][0]] if d.terms else d for d in inner.dims]
        if [d.size for d in dims] != [d.size for d in inner.dims]:
            raise NotLowerable(f"{self.low.record.kind} reads parts of dimensions")
        return Access(inner.spec, dims, inner.blocked)


def follower(op: OpRecord, machine: Machine, made: Sequence[Dim]) -> Follower:
    """Return the member that works on dimensions `made`. Raises NotLowerable."""
    if not may_follow(op):
        raise NotLowerable(f"{op.kind} follows nothing in a group")
    shape = op.results[0].shape
    rows = Rows(shape, made)
    if op.kind in NORMS and (
        rows.flat[1] != shape[-1] or {a % len(shape) for a in op.attr("axes")} != {len(shape) - 1}
    ):
        raise NotLowerable("a norm works on rows of its last dimension, and what it follows has other rows")
    if op.kind != "rope" and (op.kind not in NORMS or op.attr("heads") == 1):
        family = Relabelled if op.kind == "channel_norm" else Norm if op.kind in NORMS else Elementwise
        return Follower(family(rows.record(op), machine), rows, True)
    low = (Rope if op.kind == "rope" else Norm)(op, machine)
    sizes = [d.size for d in rows.made]
    if [d.size for d in low.writes[0].dims] != sizes or list(low.sizes[:-1]) != sizes[:-1]:
        raise NotLowerable(f"{op.kind} must keep the blocked form and the dimensions of what it follows")
    return Follower(low, rows, False)


def into_blocks(flat: tuple[int, int], dtype: str, machine: Machine) -> Lowering:
    """Return the kernel that puts dense rows, loaded as they lie in DDR, into blocks."""
    dense, blocked = TensorSpec(flat, dtype), TensorSpec(flat, dtype, "blocked")
    op = OpRecord("channel_norm", (), (dense,), (blocked,), None)
    return ChannelNorm(flat_record(op, (dense,), blocked, "P"), machine)


class Operands:
    """Members as they come in, and what they read. boxes: slices of the group's factors; accesses to one operand that fill scratchpad
    alike for all of these share a buffer, whatever they are for.

    reads, args: the group's read accesses and their operands; blocked: members that put dense operands into blocks, numbered behind
    the record's ops."""

    def __init__(self, record: GroupRecord, machine: Machine, boxes: Sequence[Ranges | tuple]) -> None:
        self.record, self.machine, self.boxes = record, machine, boxes
        self.members: list[Member] = []
        self.blocked: list[Follower] = []
        self.reads: list[Access] = []
        self.args: list[int] = []
        self._forms: dict[tuple, int] = {}

    def link(self, low: Lowering, links: list[Link]) -> None:
        """Add the next op as a member whose loops are factors of the group."""
        wires = self.record.wires[len(self.members)]
        member = Linked(low, links, [])
        for access, operand in zip(low.reads, low.arguments(), strict=True):
            wire = wires[operand]
            assert wire is not None
            beside = wires[access.numbers] if isinstance(access, TableRows) else None
            member.sources.append(wire if wire[0] == "op" else self._read(wire[1], member.access(access), beside))
        if isinstance(low, Lookup):
            low.number_by(member.sources[low.numbers][1])
        self.members.append(member)

    def follow(self, op: OpRecord) -> None:
        """Add the next op as a member that works on what others make. Raises NotLowerable."""
        wires = self.record.wires[len(self.members)]
        before = [self.members[w[1]].made for w in wires if w is not None and w[0] == "op"]
        if not before or any(made != before[0] for made in before):
            raise NotLowerable(f"{op.kind} works on nothing that the group makes, or on unlike results")
        member = follower(op, self.machine, before[0])
        for k, operand in enumerate(member.low.arguments()):
            wire = wires[operand]
            assert wire is not None
            member.sources.append(wire if wire[0] == "op" else self._outside(wire[1], member, k))
        self.members.append(member)

    def _outside(self, wire: int, member: Follower, k: int) -> Source:
        """Return where a follower finds an operand from outside. Dense rows that are used few times are loaded as they lie in DDR,
        with long runs, and put into blocks in scratchpad."""
        spec, rows = self.record.operands[wire], member.rows
        assert spec is not None
        alone = not member.flat or spec.layout == "blocked" or rows.outer(rows.merged(spec))
        if alone or not rows.flat[0] > rows.uses(spec) <= FEW_USES:
            return self._read(wire, member.access(k, spec))
        source = self._read(wire, rows.access(spec, False))
        known = [j for j, m in enumerate(self.blocked) if m.sources == [source]]
        if not known:
            self.blocked.append(Follower(into_blocks(rows.flat, spec.dtype, self.machine), rows, True, [source]))
        return "op", len(self.record.ops) + (known[0] if known else len(self.blocked) - 1)

    def _read(self, wire: int, access: Access, beside: object = None) -> Source:
        """Return the group's read access of operand `wire`; members that read it alike share its buffer. beside: what else tells
        them apart."""
        form = (wire, type(getattr(access, "inner", access)), access.dims, access.blocked, beside)
        same = [
            k
            for k, known in enumerate(self.reads[:1])
            if self.boxes
            and self.args[k] == wire
            and known.spec == access.spec
            and all([known.transfers(*box) == access.transfers(*box) for box in self.boxes])
        ]
        k = self._forms.setdefault(form, same[0] if same else len(self.reads))
        if k == len(self.reads):
            self.reads.append(access)
            self.args.append(wire)
        return "in", k
