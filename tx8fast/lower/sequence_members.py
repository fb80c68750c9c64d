"""What a stream of sequences is made of: ops of a transformer, whose values are all positions of some channels.

May import: the family files, lower.rounds, graph_table, machine. Must not: cut anything, emit code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field

import numpy as np

from tx8fast.graph_table import Dim, GroupRecord, OpRecord, TensorSpec
from tx8fast.lower.access import Access
from tx8fast.lower.attention import Attention
from tx8fast.lower.base import Lowering, NotLowerable, round_up
from tx8fast.lower.chain import Source, whole
from tx8fast.lower.contraction import Contraction
from tx8fast.lower.elementwise import Elementwise
from tx8fast.lower.rounds import Stream
from tx8fast.lower.rows import Norm
from tx8fast.machine import Machine
from tx8fast.numerics.layout import block_size
from tx8fast.records import dataclass

NORMS = ("layernorm", "rmsnorm")
PRODUCTS = ("gemm", "contract")


@dataclass
class Member:
    """An op, or score, softmax and mix of attention. images: per read access that holds a value, where it comes from; others:
    group read; step: columns of a part, 0: all."""

    low: Lowering
    result: int
    images: dict[int, Source]
    others: dict[int, int] = field(default_factory=dict)
    step: int = 0
    mask_base: int = 0  # mask factors of members before this one


class Members(Stream):
    """The members of a record. Raises NotLowerable where they do not fit together."""

    def __init__(self, record: GroupRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        if record.outputs != (len(record.ops) - 1,):
            raise NotLowerable("a stream has one result, the last")
        result = record.results[0]
        if len(result.shape) != 3 or result.layout != "blocked":
            raise NotLowerable("a sequence stream works on blocked [sequences, positions, channels]")
        self.n_images, self.positions = result.shape[:2]
        self.args: list[int] = []
        self.members: list[Member] = []
        self.by_result: dict[int, int] = {}
        self.kept: dict[tuple[int, bool], int] = {}
        self.inputs: dict[Source, int] = {}
        self.mask_sizes: list[int] = []
        self._add_members()
        self.writes = [self._sequences(result)]
        sizes = (self.n_images, self.positions, result.shape[-1], *self.mask_sizes)
        alone = (True, *(False,) * (len(sizes) - 1))
        self.set_factors(sizes, split=alone, shard=alone)
        self.spread_over_tiles(self.n_images)
        if 2 * self.tiles < machine.n_tiles:  # laying it out takes seconds, and it would hardly pay
            raise NotLowerable("more than half of the tiles would have no sequence")

    # -- members --------------------------------------------------------------------------------------------------

    def _add_members(self) -> None:
        record = self.record
        users: dict[int, list[int]] = {}
        for t, row in enumerate(record.wires):
            for w in row:
                if w is not None and w[0] == "op":
                    users.setdefault(w[1], []).append(t)
        inside: set[int] = set()
        for t, op in enumerate(record.ops):
            if t in inside:
                continue
            softmax = users.get(t, [])
            if op.kind in PRODUCTS and len(softmax) == 1 and record.ops[softmax[0]].kind == "softmax":
                mix = users.get(softmax[0], [])
                if len(mix) != 1:
                    raise NotLowerable("probabilities have one reader")
                inside |= {softmax[0], mix[0]}
                self._attention((t, softmax[0], mix[0]))
            elif op.kind in PRODUCTS:
                self._product(t, op)
            elif op.kind in NORMS:
                low = Norm(op, self.machine)
                if low.heads > 1:
                    raise NotLowerable("rows of a sequence are normalised whole")
                self._own(Member(low, t, {0: self._source(t, 0)}, self._vectors(t, low, [1, 2])))
            else:
                self._point(t, op)
        self.members.sort(key=lambda m: m.result)
        self.by_result = {m.result: i for i, m in enumerate(self.members)}
        for m in self.members:
            if isinstance(m.low, Attention):
                readers = [s for u in self.members for s in u.images.values() if s == m.images[0]]
                if len(readers) > 1:  # attention scales its queries where they lie
                    raise NotLowerable("queries have no other reader than their attention")
                self._check_keys(m.images[1])
                self._check_keys(m.images[2])

    def _check_keys(self, source: Source) -> None:
        """Keys and values of all positions lie together, so only attention can read them."""
        others = [m for m in self.members if source in m.images.values() and not isinstance(m.low, Attention)]
        if source[0] == "in" or not isinstance(self._maker(source).low, Contraction) or others:
            raise NotLowerable("keys and values come from products of the stream")

    def _maker(self, source: Source) -> Member:
        return self.members[self.by_result[source[1]]]

    def _spec(self, source: Source) -> TensorSpec:
        spec = self.record.operands[source[1]] if source[0] == "in" else self.record.ops[source[1]].results[0]
        assert spec is not None
        return spec

    def _own(self, member: Member) -> None:
        shape = member.low.record.results[0].shape
        if shape[:2] != (self.n_images, self.positions) or len(shape) != 3:
            raise NotLowerable("every value of a sequence stream is [sequences, positions, channels]")
        self.members.append(member)

    def _source(self, t: int, operand: int) -> Source:
        """Where a value that is all positions comes from."""
        wire = self.record.wires[t][operand]
        assert wire is not None
        if wire[0] == "in" and wire not in self.inputs:
            spec = self.record.operands[wire[1]]
            rows = (self.n_images, self.positions)
            if spec is None or len(spec.shape) != 3 or spec.shape[:2] != rows or spec.layout != "blocked":
                raise NotLowerable("what comes in is blocked [sequences, positions, channels]")
            self.inputs[wire] = self._read(wire[1], self._sequences(spec))
        return wire

    def _read(self, operand: int, access: Access) -> int:
        self.args.append(operand)
        self.reads.append(access)
        return len(self.reads) - 1

    def _outside(self, t: int, operand: int, access: Access) -> int:
        """The group read of a weight or vector."""
        wire = self.record.wires[t][operand]
        if wire is None or wire[0] != "in":
            raise NotLowerable("weights and vectors come from outside the group")
        key = (wire[1], access.blocked)
        if key not in self.kept:
            self.kept[key] = self._read(wire[1], whole(access))
        return self.kept[key]

    def _vectors(self, t: int, low: Lowering, accesses: Sequence[int]) -> dict[int, int]:
        order = low.arguments()
        return {j: self._outside(t, order[j], low.reads[j]) for j in accesses if j < len(low.reads)}

    def _sequences(self, spec: TensorSpec) -> Access:
        n, s, c = spec.shape
        return Access(spec, [Dim(n, ((0, 1),)), Dim(s, ((1, 1),)), Dim(c, ((2, 1),))], True)

    def _product(self, t: int, op: OpRecord) -> None:
        low = Contraction(op, self.machine)
        if low.swapped or low.batch or low.l_trs or low.lone or len(low.n) != 1 or len(op.results[0].shape) != 3:
            raise NotLowerable("products of a stream take row-major positions and one matrix of weights")
        if [low.sizes[f] for f in low.m] != [self.n_images, self.positions] or op.results[0].layout != "blocked":
            raise NotLowerable("the rows of a stream's products are all positions")
        depth = math.prod(low.sizes[f] for f in low.k)
        if depth > max(low.max_len[f] for f in low.k):
            raise NotLowerable("rows are longer than one instruction can read")
        others = {j: self._outside(t, low.arguments()[j], low.reads[j]) for j in range(1, len(low.reads))}
        self._own(Member(low, t, {0: self._source(t, low.arguments()[0])}, others))

    def _point(self, t: int, op: OpRecord) -> None:
        low = Elementwise(op, self.machine)
        if low.sizes[:2] != (self.n_images, self.positions) or not low.blocked or len(low.sizes) != 3:
            raise NotLowerable("an element-wise op of a stream works on all positions")
        if low.sizes[2] > low.max_len[2]:
            raise NotLowerable("formats of an element-wise op of a stream have blocks of one width")
        if any(mode not in ("full", "vector", "scalar") for mode in low.modes):
            raise NotLowerable("this broadcast is not one of a stream")
        order = low.arguments()
        images = {j: self._source(t, order[j]) for j, mode in enumerate(low.modes) if mode == "full"}
        self._own(Member(low, t, images, self._vectors(t, low, [j for j in range(len(order)) if j not in images])))

    def _attention(self, ops: tuple[int, int, int]) -> None:
        record = self.record
        operands: list[TensorSpec | None] = []
        origin: list[tuple[int, int]] = []  # op and operand of each operand of the three
        wires = []
        place_of = {t: i for i, t in enumerate(ops)}
        for t in ops:
            row: list[tuple[str, int] | None] = []
            for j, w in enumerate(record.wires[t]):
                if w is None:
                    row.append(None)
                elif w[0] == "op" and w[1] in place_of:
                    row.append(("op", place_of[w[1]]))
                else:
                    row.append(("in", len(operands)))
                    operands.append(record.ops[t].operands[j])
                    origin.append((t, j))
            wires.append(tuple(row))
        group = GroupRecord(tuple(record.ops[t] for t in ops), tuple(wires), tuple(operands), (2,))
        low = Attention(group, self.machine, loads=False)
        low.ends = ()
        self._heads(low)
        places = [origin[k] for k in low.arguments()]
        images = {j: self._source(*where) for j, where in enumerate(places[:3])}
        others = {}
        base = len(self.mask_sizes)
        if low.masked:
            wire = record.wires[places[3][0]][places[3][1]]
            if wire is None or wire[0] != "in":
                raise NotLowerable("a mask comes from outside the stream")
            others[3] = self._read(wire[1], self._masks(low))
        self._own(Member(low, ops[2], images, others, mask_base=base))

    def _masks(self, low: Attention) -> Access:
        """The mask over the sequence and attention's own factors, which follow those of the group."""
        base = 3 + len(self.mask_sizes)
        self.mask_sizes += low.sizes
        own = self._sequence_factor(low)
        dims = [
            d if d.full else Dim(d.size, tuple((0 if f == own else base + f, c) for f, c in d.terms))
            for d in low.reads[3].dims
        ]
        return Access(low.reads[3].spec, dims, True)

    def _heads(self, low: Attention) -> None:
        """Check that every head is whole blocks of channels of its operands."""
        for access in (*low.reads[:3], low.writes[0]):
            spec = access.spec
            if len(spec.shape) != 3 or spec.shape[:2] != (self.n_images, self.positions):
                raise NotLowerable("attention of a stream works on [sequences, positions, channels]")
            lead = access.dims[0].terms
            if len(lead) != 1 or lead[0][0] != self._sequence_factor(low):
                raise NotLowerable("attention of a stream has the sequence as its first factor")
            one, block = access.box((0,) * len(low.sizes), (1,) * len(low.sizes))[-1], block_size(spec.dtype)
            if one != (0, low.depth) or low.depth % block or any(c % block for _, c in access.dims[-1].terms):
                raise NotLowerable("heads are whole blocks of channels")

    @staticmethod
    def _sequence_factor(low: Attention) -> int:
        terms = low.reads[0].dims[0].terms
        return terms[0][0] if len(terms) == 1 else -1

    def _all_heads(self, low: Attention) -> list[tuple[int, ...]]:
        free = [1 if f == self._sequence_factor(low) else n for f, n in enumerate(low.sizes[: low.band])]
        return [tuple(int(x) for x in np.unravel_index(i, free)) for i in range(math.prod(free))]

    @staticmethod
    def _head_range(low: Attention, head: Sequence[int], a: int, b: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Factor ranges of rows [a, b) of a head, and of the keys that they see."""
        first, last = 0, low.keys
        if low.visible is not None and low.depth == block_size(low.dtype):  # their rows lie together
            offset, window = low.visible
            unit = low.units[low.range]
            last = min(low.keys, round_up(b + offset, unit))
            first = min(max(0, a + offset - window + 1) // unit * unit, last - 1)
        return (*head, a, first), (*(x + 1 for x in head), b, last)

    def arguments(self) -> list[int]:
        return self.args
