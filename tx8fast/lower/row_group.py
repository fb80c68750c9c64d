"""Groups that begin with rows of tables: look-ups, then members on the rows while they are in scratchpad.

May import: lower.base, lower.emitter, lower.elementwise, lower.fused, lower.lookup, lower.movement, lower.rows. Must not: decide which ops belong together.

A slice is one blocked matrix [rows, columns], whatever the dimensions of the row numbers are, so a member after the
look-ups is lowered as if its op worked on two dimensions. A change of layout does nothing: rows are put into blocks when
they arrive, and stored in the result's own layout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tx8fast.graph_table import Dim, GroupRecord, OpRecord, Rule, TensorSpec
from tx8fast.lower.base import Access, Lowering, NotLowerable, Slice
from tx8fast.lower.elementwise import Elementwise
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.fused import NORMS, Fused
from tx8fast.lower.links import Member
from tx8fast.lower.lookup import LOOKUPS, Lookup, TableRows
from tx8fast.lower.movement import ChannelNorm
from tx8fast.lower.rows import Norm
from tx8fast.lower.sequences import BINARY, UNARY
from tx8fast.machine import Machine

AFTER = frozenset({*LOOKUPS, *NORMS, *BINARY, *UNARY, "channel_norm"})
MAX_OPS = 8  # of a group
FEW_USES = 4  # of a row: putting it into blocks each time takes less than loading its blocks one by one


def is_row_group(kinds: Sequence[str]) -> bool:
    """True if ops of these kinds may be such a group."""
    return 1 < len(kinds) <= MAX_OPS and kinds[0] in LOOKUPS and AFTER.issuperset(kinds)


class Same(Lowering):
    """A change of layout between values in scratchpad, which all have one."""

    def __init__(self, record: OpRecord, machine: Machine, x: Access) -> None:
        super().__init__(record, machine)
        self.reads, self.writes = [x], [x]

    def emit(self, em: Emitter, s: Slice) -> None:
        """Nothing: operand and result share their buffer."""


@dataclass
class RowMember(Member):
    """A member on a slice's rows, whatever their place in the tensor. flat: its factors are rows and columns."""

    flat: bool = True

    def ranges(self, lo: Sequence[int], hi: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if not self.flat:
            return tuple(lo), tuple(hi)
        return (0, lo[-1]), (math.prod(b - a for a, b in zip(lo[:-1], hi[:-1], strict=True)), hi[-1])


class RowGroup(Fused):
    """Group factors: those of the look-ups."""

    kind = "rows of tables"
    deferred = False

    def __init__(self, record: GroupRecord, machine: Machine) -> None:
        Lowering.__init__(self, record, machine)
        self._begin()
        if not is_row_group([op.kind for op in record.ops]):
            raise NotLowerable("look-ups lead a group of rows")
        self.products = []
        lead = Lookup(record.ops[0], machine, blocked=True)
        self.shape = lead.writes[0].spec.shape
        self.dims = lead.writes[0].dims
        self.flat = (math.prod(self.shape[:-1]), self.shape[-1])
        self.most = [1 << 62] * len(self.shape)
        self.blocked: list[RowMember] = []  # operands from outside that are put into blocks, members behind the ops
        for i, op in enumerate(record.ops):
            if op.results[0].shape != self.shape:
                raise NotLowerable("members of a group of rows have one shape")
            if op.kind in LOOKUPS:
                self._look_up(i, lead if i == 0 else Lookup(op, machine, blocked=True))
            elif op.kind == "channel_norm":
                self._join(i, Same(op, machine, self._flat_access(op.results[0])))
            elif op.kind in NORMS:
                self._join(i, Norm(self._flattened(op), machine))
            else:
                self._join(i, Elementwise(self._flattened(op), machine))
        self.members += self.blocked
        for m in self.members:
            if isinstance(m.low, Same) and self._owner(m.sources[0][1]) == m.sources[0][1]:
                raise NotLowerable("rows are needed in two layouts")
        self.writes = [Access(record.ops[i].results[0], self.dims, True) for i in record.outputs]
        columns = not any(isinstance(m.low, Norm) for m in self.members)
        self.set_factors(self.shape, lead.units, [*lead.shard[:-1], columns], lead.split, None, self.most)

    def _look_up(self, i: int, low: Lookup) -> None:
        if low.sizes != self.shape:
            raise NotLowerable("look-ups of a group have one shape")
        wires = self.record.wires[i]
        if any(wire is None or wire[0] == "op" for wire in wires[:2]):
            raise NotLowerable("tables and numbers come from outside")
        sources = [self._read(wire[1], access, wires[1]) for wire, access in zip(wires, low.reads, strict=True)]  # type: ignore[index]
        low.number_by(sources[1][1])
        self.members.append(RowMember(low, [], sources, False))

    def _read(self, wire: int, access: Access, beside: object = None) -> tuple[str, int]:
        """Return the group's read access of operand `wire`; alike ones are one. beside: what else tells them apart."""
        form = (wire, type(access), access.dims, access.blocked, beside if isinstance(access, TableRows) else None)
        if form not in self.forms:
            self.forms[form] = len(self.reads)
            self.reads.append(access)
            self.args.append(wire)
        return "in", self.forms[form]

    def _join(self, i: int, low: Lowering) -> None:
        sources: list[tuple[str, int]] = []
        operands = [(wire, spec) for wire, spec in zip(self.record.wires[i], self.record.ops[i].operands, strict=True)
                    if wire is not None and spec is not None]  # fmt: skip
        for wire, spec in operands:
            sources.append(wire if wire[0] == "op" else self._beside(wire[1], spec))
        self.most[-1] = min([self.most[-1], *low.max_len[-1:]])
        self.members.append(RowMember(low, [], sources))

    def _beside(self, wire: int, spec: TensorSpec) -> tuple[str, int]:
        """Return where a member finds an operand from outside. Rows that are used few times are loaded as they lie in
        DDR, with long runs, and put into blocks here."""
        dims = self._operand(spec)
        uses = math.prod(self.shape[:-1]) // math.prod(spec.shape[:-1])
        if spec.layout == "blocked" or math.prod(spec.shape[:-1]) <= 1 or uses > FEW_USES:
            return self._read(wire, Access(spec, dims, True))
        kind, k = self._read(wire, Access(spec, dims, False))
        known = [j for j, m in enumerate(self.blocked) if m.sources == [(kind, k)]]
        if not known:
            shapes = [TensorSpec(self.flat, spec.dtype, layout) for layout in ("dense", "blocked")]
            op = OpRecord("channel_norm", (), (shapes[0],), (shapes[1],), _flat_rule(shapes, "P"))
            self.blocked.append(RowMember(ChannelNorm(op, self.machine), [], [(kind, k)]))
        return "op", len(self.record.ops) + (known[0] if known else len(self.blocked) - 1)

    def _sequence(self) -> Sequence[int]:
        n = len(self.record.ops)
        return [*range(n, len(self.members)), *range(n)]

    def _operand(self, spec: TensorSpec) -> list[Dim]:
        """Return how an operand from outside meets the rows: all of them, or one set of rows, columns or numbers for
        every place along leading dimensions."""
        shape = (1,) * (len(self.shape) - len(spec.shape)) + spec.shape
        dims = []
        for f, (n, whole, dim) in enumerate(zip(shape, self.shape, self.dims, strict=True)):
            dims.append(dim if n == whole else Dim(1))
            if n != whole and math.prod(shape[:-1]) > 1:
                self.most[f] = 1
        return dims[len(dims) - len(spec.shape) :]

    def _flattened(self, op: OpRecord) -> OpRecord:
        """Return the op on rows and columns; an operand's rows are those of a slice."""
        operands = tuple(s if s is None else self._flat_spec(s) for s in op.operands)
        result = self._flat_spec(op.results[0])
        assert op.rule is not None
        return replace(
            op, operands=operands, results=(result,), rule=_flat_rule((*operands, result), op.rule.kinds[-1])
        )

    def _flat_spec(self, spec: TensorSpec) -> TensorSpec:
        if spec.shape == self.shape:
            return TensorSpec(self.flat, spec.dtype, "blocked")
        lead, width = math.prod(spec.shape[:-1]), spec.shape[-1] if spec.shape else 1
        pad = len(self.shape) - len(spec.shape)
        whole = (
            all(n in (1, m) for n, m in zip(spec.shape, self.shape[max(pad, 0) :], strict=True)) if pad >= 0 else False
        )
        if not whole or width not in (1, self.flat[1]) or (width != self.flat[1] and lead > 1):
            raise NotLowerable("an operand has neither the rows' columns nor a single element")
        if lead > 1:
            return TensorSpec(self.flat, spec.dtype, "blocked")
        return TensorSpec((width,) if spec.shape else (), spec.dtype)

    def _flat_access(self, spec: TensorSpec) -> Access:
        flat = self._flat_spec(spec)
        return Access(flat, [Dim(n, ((f, 1),)) for f, n in enumerate(flat.shape)], True)

    def fits(self, lens: Sequence[int]) -> bool:
        return True

    def acc_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> int:
        return 0

    def slice_form(self, lo: Sequence[int], hi: Sequence[int]) -> tuple:
        return Lowering.slice_form(self, lo, hi)

    def ops_per_point(self) -> float:
        return sum(m.low.ops_per_point() for m in self.members)


def _flat_rule(specs: Sequence[TensorSpec | None], columns: str) -> Rule:
    """Return the rule of an op on rows and columns, the last of `specs` its result. columns: the kind of their factor."""
    *ins, out = specs
    assert out is not None
    dims = [Dim(n, ((f, 1),)) for f, n in enumerate(out.shape)]

    def seen(spec: TensorSpec | None) -> tuple[Dim, ...] | None:
        if spec is None:
            return None
        return tuple(
            [d if d.size == n else Dim(1) for d, n in zip(dims[len(dims) - len(spec.shape) :], spec.shape, strict=True)]
        )

    return Rule(out.shape, "P" + columns, tuple([seen(s) for s in ins]), (tuple(dims),))
