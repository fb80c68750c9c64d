"""What groups of several convolutions and pools have in common: their members, and what the members read.

May import: the family files, graph_table, machine. Must not: decide which ops belong together, or cut images.

A sum with an image that exists already, and a ReLU, become the last steps of the convolution before them: the engine
adds its sums to an image as it does to partial sums, then applies the activation (hardware manual 12.3).
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from tx8fast.graph_table import Dim, GroupRecord, OpRecord, TensorSpec
from tx8fast.lower.access import Access
from tx8fast.lower.base import ALIGN_BYTES, Lowering, NotLowerable, round_up
from tx8fast.lower.channel_moves import ChannelMoves
from tx8fast.lower.convolution import Convolution, Depthwise, Windowed
from tx8fast.lower.elementwise import Elementwise
from tx8fast.lower.loops import least_room
from tx8fast.lower.planes import ABSORBED, TURN, Intake, Outlet, Planes
from tx8fast.lower.pooling import Pool
from tx8fast.lower.thin import Thin
from tx8fast.lower.transfer import spec_bytes
from tx8fast.lower.windows import MAX_EXTENT
from tx8fast.machine import Machine
from tx8fast.records import dataclass

WINDOWS = ("conv", "max_pool", "avg_pool")
PSUM = -1  # the image a convolution adds its sums to, as if it were an operand
Rows = tuple[int, int]
Source = tuple[str, int]  # ("op", member) or ("in", group operand)


def is_chain(ops: Sequence[OpRecord]) -> bool:
    """True for ops among which are several windows, or one and what turns planes into images or images into planes."""
    windows = sum(op.kind in WINDOWS for op in ops)
    return windows > 1 or windows == 1 and any(op.kind == TURN for op in ops)


@dataclass(frozen=True)
class Member:
    """An op with what it absorbed. lead, result: ops of the record that begin and end it; before: ops on its image."""

    op: OpRecord
    lead: int
    result: int
    psum: Source | None = None
    before: tuple[OpRecord, ...] = ()


def members(record: GroupRecord) -> tuple[list[Member], dict[int, int]]:
    """Return the members in order, and the member that makes each op's result if that exists at all."""
    users: dict[int, int] = {}
    for wire in (w for row in record.wires for w in row if w is not None and w[0] == "op"):
        users[wire[1]] = users.get(wire[1], 0) + 1
    found: dict[int, Member] = {}  # by the op whose result it makes
    for t, op in enumerate(record.ops):
        sources = record.wires[t]
        new = None
        if op.kind == "relu":
            new = _rectified(found, sources[0], users, t)
        elif op.kind == "add" and op.operands[0] == op.operands[1]:
            for mine, other in (sources, sources[::-1]):
                new = new or _summed(found, mine, other, users, t)
        elif (source := sources[0]) is not None and source[0] == "op":
            old = found.get(source[1])
            if old is not None and old.op.kind in ABSORBED.get(op.kind, ()):
                if users[source[1]] != 1:
                    raise NotLowerable("a change of layout within a chain")
                new = replace(found.pop(source[1]), op=op, result=t, before=(*old.before, old.op))
        found[t] = new or Member(op, t, t)
    made = sorted(found.values(), key=lambda m: m.lead)
    return made, {m.result: i for i, m in enumerate(made)}


def _absorbing(found: dict[int, Member], source: Source | None, users: dict[int, int]) -> Member | None:
    """Return the convolution that makes `source` if it may take over what alone reads it."""
    if source is None or source[0] != "op" or users[source[1]] != 1:
        return None
    member = found[source[1]]
    return member if member.op.kind == "conv" and member.op.attr("act") == "none" else None


def _rectified(found: dict[int, Member], source: Source | None, users: dict[int, int], at: int) -> Member | None:
    member = _absorbing(found, source, users)
    if member is None:
        return None
    del found[member.result]
    attrs = tuple((n, "relu" if n == "act" else v) for n, v in member.op.attrs)
    return replace(member, op=replace(member.op, attrs=attrs), result=at)


def _summed(
    found: dict[int, Member], mine: Source | None, other: Source | None, users: dict[int, int], at: int
) -> Member | None:
    member = _absorbing(found, mine, users)
    if member is None or other is None or member.psum is not None:
        return None
    if other[0] == "op" and found[other[1]].lead >= member.lead:
        return None
    del found[member.result]
    return replace(member, result=at, psum=other)


@dataclass
class Stage:
    """A member of the chain. images: per read access that holds an image, where it comes from; others: group read."""

    low: Lowering
    shape: tuple[int, ...]  # of its result
    images: dict[int, Source] = field(default_factory=dict)
    others: dict[int, int] = field(default_factory=dict)
    planes: int = -1  # group operand that an intake takes in

    @property
    def windowed(self) -> bool:
        return isinstance(self.low, Windowed | Pool | Thin)

    def needs(self, j: int, rows: Rows) -> Rows:
        """Rows of image j for rows of its result."""
        if j == PSUM or not self.windowed:
            return rows
        return self.low.window.rows.box((0, rows[0]), (0, rows[1]))  # type: ignore[attr-defined]

    def ranges(self, rows: Rows) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Factor ranges of the member for rows of one image's result."""
        if self.windowed:
            rest = self.low.sizes[2:]
            return (0, rows[0], *(0,) * len(rest)), (1, rows[1], *rest)
        w, c = self.shape[2:]
        return (0, rows[0] * w, 0), (1, rows[1] * w, c)


class Chain(Lowering):
    """The members as stages, with a read access of all there is for every weight and vector."""

    positional = True
    overlaps = True
    #: how an operand that comes as an image may meet the result of an element-wise op
    image_modes: tuple[str, ...] = ("full",)

    def __init__(self, record: GroupRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        if record.outputs != (len(record.ops) - 1,) or not is_chain(record.ops):
            raise NotLowerable("a chain has several windows, or planes, and one result, the last")
        self.args: list[int] = []
        self.stages: list[Stage] = []
        made, member_of = members(record)
        kept: dict[tuple[int, bool], int] = {}
        for m in made:
            self.stages.append(self._stage(m, member_of, kept))

    def _stage(self, member: Member, member_of: dict[int, int], kept: dict[tuple[int, bool], int]) -> Stage:
        op = member.op
        low = self._lowered(op, member.before)
        shape = low.image.shape if isinstance(low, Outlet) else op.results[0].shape
        if len(shape) == 2 and op.kind == "reduce":
            shape = (shape[0], 1, 1, shape[1])
        if len(shape) != 4:
            raise NotLowerable("every op of a chain works on images")
        stage = Stage(low, shape)
        n, h, w, c = shape
        if stage.windowed and (low.window.taps >= 0 or max(h, low.window.size[0]) > MAX_EXTENT):  # type: ignore[attr-defined]
            raise NotLowerable(f"a chain has whole kernels, and images of {MAX_EXTENT} rows at most")
        blocked = low.writes[0].blocked or isinstance(low, Outlet)
        if not stage.windowed and (
            not blocked or low.sizes != (n, h * w, c) or c > low.max_len[-1] and not isinstance(low, Planes)
        ):
            raise NotLowerable("an element-wise op of a chain works on blocked images with all their channels")

        def source(wire: Source) -> Source:
            return ("op", member_of[wire[1]]) if wire[0] == "op" else wire

        if member.psum is not None:
            stage.images[PSUM] = source(member.psum)
            low.sum_dtype = low.dtype  # type: ignore[attr-defined]
        for j, (access, operand) in enumerate(zip(low.reads, low.arguments(), strict=True)):
            wire = self.record.wires[member.lead][operand]
            assert wire is not None
            if isinstance(low, Intake):
                stage.planes = wire[1]
            elif isinstance(low, ChannelMoves) or (
                j == 0 if not isinstance(low, Elementwise) else self._is_image(low.modes[j], wire)
            ):
                spec = self.record.ops[member.lead].operands[operand]
                # a vector beside images of one position has as many elements as they
                if isinstance(low, Elementwise) and (spec is None or len(spec.shape) != 4):
                    raise NotLowerable("every operand of a chain that is no vector is an image")
                stage.images[j] = source(wire)
            elif wire[0] == "op" or (isinstance(low, Elementwise) and low.modes[j] not in ("vector", "scalar")):
                raise NotLowerable("weights and vectors come from outside the chain")
            else:
                key = (wire[1], access.blocked)
                if key not in kept:
                    kept[key] = len(self.reads)
                    self._add(wire[1], whole(access))
                stage.others[j] = kept[key]
        return stage

    def _is_image(self, mode: str, wire: Source) -> bool:
        """True for an operand of an element-wise op that is an image, if only of one position."""
        gates = mode == "vector" and wire[0] == "op" and "items" in self.image_modes  # of one image
        return gates or mode in self.image_modes

    def _lowered(self, op: OpRecord, before: Sequence[OpRecord]) -> Lowering:
        if before:
            raise NotLowerable("images in another layout")
        if op.kind != "conv":
            return (Pool if op.kind in WINDOWS else Elementwise)(op, self.machine)
        if op.attr("groups") == 1:
            return Convolution(op, self.machine)
        low = Depthwise(op, self.machine)
        if low.w.shape[3] != 1 or low.w.shape[2] != low.x.shape[3] or max(low.dilation) > 1:
            raise NotLowerable("a grouped convolution in a chain is depthwise")
        return low

    def _add(self, operand: int, access: Access) -> None:
        self.args.append(operand)
        self.reads.append(access)

    def arguments(self) -> list[int]:
        return self.args

    def _spec(self, source: Source) -> TensorSpec:
        spec = self.record.operands[source[1]] if source[0] == "in" else self.stages[source[1]].low.record.results[0]
        assert spec is not None
        return spec

    def _users(self, source: Source) -> list[int]:
        return [k for k, s in enumerate(self.stages) for x in s.images.values() if x == source]

    def _overwritable(self, i: int) -> list[Source]:
        """Images in whose bytes member i may write its result, unless somebody else reads them later."""
        stage = self.stages[i]
        new = stage.low.record.results[0]
        places = stage.low.in_place if isinstance(stage.low, Elementwise) else [PSUM]
        found = [stage.images[j] for j in places if j in stage.images]
        return [s for s in found if (self._spec(s).shape, self._spec(s).dtype) == (new.shape, new.dtype)]


def whole(access: Access) -> Access:
    """Return the access to all of a tensor, whatever the factors."""
    return Access(access.spec, [Dim(s, full=True) for s in access.spec.shape], access.blocked)


def place(
    wishes: Sequence[tuple[object, int, Sequence[tuple[int, int]]]],
    phase: Mapping[Any, int] | None = None,
    turn: int = 1,
) -> tuple[int, dict]:
    """Return the bytes of one buffer for all wishes (name, bytes, half-open lifetimes), and offsets: what is never
    alive together shares bytes. The largest go first, each to the lowest place that is free, and has the `phase` that its name asks
    for: the offset modulo `turn`."""
    placed: list[tuple[int, int, int, int, Sequence[tuple[int, int]]]] = []
    at, phase = {}, phase or {}
    for name, size, lives in sorted(wishes, key=lambda w: (-w[1], w[2])):
        need = round_up(max(size, 1), ALIGN_BYTES)
        first, last = min(f for f, _ in lives), max(t for _, t in lives)
        offset = phase.get(name, 0)
        for a, b, f0, t0, others in placed:
            if a >= offset + need:
                break
            if b > offset and f0 < last and first < t0 and any(f < u and s < t for f, t in lives for s, u in others):
                offset = b + (phase[name] - b) % turn if name in phase else b
        bisect.insort(placed, (offset, offset + need, first, last, lives))
        at[name] = offset
    return max((p[1] for p in placed), default=0), at


def smallest_first(record: GroupRecord) -> GroupRecord:
    """Return the group with its ops in an order that needs little scratchpad."""
    needs = [{w[1] for w in row if w is not None and w[0] == "op"} for row in record.wires]
    order = least_room([spec_bytes(op.results[0]) for op in record.ops], needs)
    new = {old: i for i, old in enumerate(order)}
    wires = tuple(
        tuple(("op", new[w[1]]) if w is not None and w[0] == "op" else w for w in record.wires[t]) for t in order
    )
    return replace(
        record, ops=tuple(record.ops[t] for t in order), wires=wires, outputs=tuple(new[t] for t in record.outputs)
    )
