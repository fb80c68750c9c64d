"""The graph IR's structures: values with use lists, ops, blocks, regions, contexts, builder.

May import: ir.types, ir.attrs, errors. Must not: know any particular op. An op is created through
`Context.create` or an `ir.builder.Builder` only, which fill in defaults and check listed attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

from tx8fast.errors import InternalError, VerifyError
from tx8fast.ir.attrs import ATTR_CLASSES
from tx8fast.ir.types import TensorType, Type, TypePool
from tx8fast.records import dataclass

_GAP = 1 << 20  # order numbers are spaced so that most inserts need no renumbering

# Trait bits. A value-semantic op is read-only; a view is read-only too.
READ_ONLY = 1
VALUE_SEMANTICS = 2 | READ_ONLY
INPLACE = 4
VIEW = 8 | READ_ONLY
PURE = 16
CONSTANT_LIKE = 32
COMMUTATIVE = 64
ELEMENTWISE = 128
TERMINATOR = 256
ISOLATED = 512
SYMBOL_TABLE = 1024
SYMBOL = 2048
COLLECTIVE = 4096
BACKEND_ONLY = 8192
REAL = 32768  # counts in pattern search
COMPUTE = PURE | VALUE_SEMANTICS | REAL  # what an ordinary compute op has
IDEMPOTENT = 131072

REQUIRED: Any = object()


class Value:
    """One SSA value: an op result (`owner` is the Op) or block argument (`owner` is the Block)."""

    __slots__ = ("type", "owner", "index", "uses", "name")

    def __init__(self, type: Type, owner: Op | Block, index: int, name: str | None = None) -> None:
        self.type = type
        self.owner = owner
        self.index = index
        self.uses: dict[tuple[Op, int], None] = {}  # insertion-ordered, O(1) add and drop
        self.name = name

    @property
    def op(self) -> Op | None:
        """The defining op, or None for a block argument."""
        return self.owner if type(self.owner) is Op else None

    @property
    def users(self) -> list[Op]:
        """Distinct user ops, in the order of their first use."""
        return list(dict.fromkeys(op for op, _ in self.uses))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape  # type: ignore[attr-defined]

    @property
    def dtype(self) -> str:
        return self.type.dtype  # type: ignore[attr-defined]

    def replace_all_uses_with(self, other: Value) -> None:
        if other is self:
            return
        for op, i in self.uses:
            op.operands[i] = other
            other.uses[op, i] = None
        self.uses = {}


@dataclass(frozen=True, eq=False)
class OpInfo:
    """What all ops of one kind share. `code` is dense and stable within a build."""

    name: str  # full name, "tx8be.gemm"
    code: int
    ins: tuple[str, ...]  # operand names; "x?" optional (only at the end), "x*" variadic
    outs: tuple[str, ...]
    attrs: dict[str, tuple[type | tuple[type, ...], Any]]  # name -> (python type(s), default or REQUIRED), in order
    traits: int = 0
    infer: Callable[[Op], Sequence[Type]] | None = None  # result types from operands and attributes
    decl: Any = None  # the family's OpDef: rule, reference, lowering facts (ir/ops/base.py)
    since: tuple[int, int] = (1, 0)
    impl: dict[tuple[str, str], Callable] = field(default_factory=dict)

    @cached_property
    def kind(self) -> str:
        """The name without its dialect: "gemm"."""
        return self.name.partition(".")[2]


class Op:
    """One operation. Operand and result counts are fixed at creation."""

    __slots__ = ("info", "operands", "results", "attrs", "regions", "block", "prev", "next", "order", "loc")

    def __init__(
        self,
        info: OpInfo,
        operands: Iterable[Value],
        result_types: Iterable[Type],
        attrs: dict[str, Any],
        n_regions: int = 0,
    ) -> None:
        self.info = info
        self.operands = list(operands)
        self.attrs = attrs
        self.results = [Value(t, self, i) for i, t in enumerate(result_types)]
        self.regions = [Region(self) for _ in range(n_regions)]
        self.block: Block | None = None
        self.prev: Op | None = None
        self.next: Op | None = None
        self.order = 0
        self.loc: str | None = None  # source name: "model.onnx:node 'x'" or "layers.3.mlp.up"
        for i, v in enumerate(self.operands):
            v.uses[self, i] = None

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def kind(self) -> str:
        """The name without its dialect: "gemm"."""
        return self.info.kind

    @property
    def result(self) -> Value:
        if len(self.results) != 1:
            raise InternalError(f"{self.name} has {len(self.results)} results, expected 1")
        return self.results[0]

    def operand(self, name: str) -> Value | None:
        """Return the operand with this declared name, or None if it is optional and absent (or `tx8be.none`)."""
        for i, n in enumerate(self.info.ins):
            if n.rstrip("?*") == name:
                if i >= len(self.operands):
                    return None
                v = self.operands[i]
                return None if v.op is not None and v.op.name == "tx8be.none" else v
        raise InternalError(f"{self.name} declares no operand '{name}'")

    def has(self, trait: int) -> bool:
        return self.info.traits & trait == trait

    def set_operand(self, i: int, value: Value) -> None:
        del self.operands[i].uses[self, i]
        self.operands[i] = value
        value.uses[self, i] = None

    @property
    def body(self) -> Block:
        """The single block of region 0."""
        return self.regions[0].blocks[0]

    @property
    def parent(self) -> Op | None:
        return self.block.region.op if self.block is not None and self.block.region is not None else None

    def is_before(self, other: Op) -> bool:
        """True if this op stands before `other`; both must be in the same block. O(1)."""
        return self.order < other.order

    def detach(self) -> None:
        if self.block is not None:
            self.block._unlink(self)

    def erase(self) -> None:
        """Remove the op. Raises InternalError if a result is still used."""
        for r in self.results:
            if r.uses:
                raise InternalError(f"cannot erase {self.name}: result {r.index} still has {len(r.uses)} uses")
        self.detach()
        self.drop_refs()

    def drop_refs(self) -> None:
        for i, v in enumerate(self.operands):
            v.uses.pop((self, i), None)
        self.operands = []
        for region in self.regions:
            for block in region.blocks:
                for op in list(block):
                    op.drop_refs()

    def walk(self) -> Iterator[Op]:
        """Yield this op and every op nested in it, in order; the current op may be erased."""
        yield self
        for region in self.regions:
            for block in region.blocks:
                op = block.first
                while op is not None:
                    following = op.next
                    if op.regions:
                        yield from op.walk()
                    else:  # most ops; a generator of their own would be half of the walk's time
                        yield op
                    op = following

    def __repr__(self) -> str:
        return f"<{self.name} {self.loc or ''}>"


class Block:
    """An ordered list of ops with arguments; linked, so edits at the cursor are safe and O(1)."""

    __slots__ = ("args", "first", "last", "region", "_size")

    def __init__(self, arg_types: Iterable[Type] = ()) -> None:
        self.args = [Value(t, self, i) for i, t in enumerate(arg_types)]
        self.first: Op | None = None
        self.last: Op | None = None
        self.region: Region | None = None
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Op]:
        op = self.first
        while op is not None:
            following = op.next
            yield op
            op = following

    @property
    def terminator(self) -> Op | None:
        return self.last if self.last is not None and self.last.has(TERMINATOR) else None

    def add_arg(self, type: Type, name: str | None = None) -> Value:
        v = Value(type, self, len(self.args), name)
        self.args.append(v)
        return v

    def append(self, op: Op) -> Op:
        return self.insert_before(None, op)

    def insert_before(self, anchor: Op | None, op: Op) -> Op:
        """Insert `op` before `anchor`, or at the end if it is None."""
        if op.block is not None:
            raise InternalError(f"{op.name} is already in a block")
        prev = self.last if anchor is None else anchor.prev
        op.block, op.prev, op.next = self, prev, anchor
        if prev is None:
            self.first = op
        else:
            prev.next = op
        if anchor is None:
            self.last = op
            op.order = prev.order + _GAP if prev is not None else 0
        else:
            anchor.prev = op
            low = prev.order if prev is not None else anchor.order - 2 * _GAP
            op.order = (low + anchor.order) // 2
            if op.order in (low, anchor.order):
                self._renumber()
        self._size += 1
        return op

    def insert_after(self, anchor: Op, op: Op) -> Op:
        return self.insert_before(anchor.next, op)

    def _unlink(self, op: Op) -> None:
        if op.prev is None:
            self.first = op.next
        else:
            op.prev.next = op.next
        if op.next is None:
            self.last = op.prev
        else:
            op.next.prev = op.prev
        op.block = op.prev = op.next = None
        self._size -= 1

    def _renumber(self) -> None:
        for i, op in enumerate(self):
            op.order = i * _GAP


class Region:
    __slots__ = ("op", "blocks")

    def __init__(self, op: Op) -> None:
        self.op = op
        self.blocks: list[Block] = []

    def add_block(self, arg_types: Iterable[Type] = ()) -> Block:
        block = Block(arg_types)
        block.region = self
        self.blocks.append(block)
        return block


class Context:
    """Owns the type pool and the op registry; nothing is global."""

    def __init__(self) -> None:
        self.types = TypePool()
        self.infos: dict[str, OpInfo] = {}
        self.attr_classes: dict[str, type] = dict(ATTR_CLASSES)  # by text name, "parallel" -> ParallelAttr
        #: types of other dialects by text name: (context, text between the angle brackets) -> type
        self.type_readers: dict[str, Callable[[Context, str], Type]] = {}

    def tensor(self, shape, dtype: str, kind: str = "vtensor") -> TensorType:
        return self.types.tensor(shape, dtype, kind)

    def register(self, info: OpInfo) -> None:
        if info.name in self.infos:
            raise InternalError(f"operation '{info.name}' is already defined")
        if info.traits & INPLACE and not info.name.endswith("_"):
            raise InternalError(f"{info.name}: an in-place op's name ends with '_'")
        self.infos[info.name] = info

    def info(self, name: str) -> OpInfo:
        if "." not in name:
            name = "tx8be." + name
        found = self.infos.get(name)
        if found is None:
            raise VerifyError(f"unknown operation '{name}'")
        return found

    def create(
        self,
        name: str,
        operands: Sequence[Value] = (),
        result_types: Sequence[Type] | None = None,
        loc: str | None = None,
        n_regions: int = 0,
        **given: Any,
    ) -> Op:
        """Create a detached op. `result_types=None` infers them. Attributes are checked and defaulted;
        names beginning with `rt_` are run-time attributes and may be added freely."""
        info = self.info(name)
        attrs: dict[str, Any] = {}
        for n, (kinds, default) in info.attrs.items():
            v = given.pop(n, default)
            if v is REQUIRED:
                raise VerifyError(f"{info.name} '{loc or ''}': attribute '{n}' is required")
            if v is not None and type(v) is not kinds and not (type(kinds) is tuple and type(v) in kinds):
                if type(v) is list and kinds is tuple:
                    v = tuple(v)
                elif type(v) is int and kinds is float:
                    v = float(v)
                else:
                    want = getattr(kinds, "__name__", str(kinds))
                    raise VerifyError(f"{info.name} '{loc or ''}': attribute '{n}' expects {want}, found {v!r}")
            attrs[n] = v
        for n, v in given.items():
            if not n.startswith("rt_"):
                raise VerifyError(f"{info.name} '{loc or ''}': unknown attribute '{n}'")
            attrs[n] = v
        op = Op(info, operands, result_types or (), attrs, n_regions)
        op.loc = loc
        if result_types is None:
            if info.infer is None:
                raise InternalError(f"{info.name}: result types must be given")
            try:
                inferred = info.infer(op)
            except Exception:
                op.drop_refs()
                raise
            op.results = [Value(t, op, i) for i, t in enumerate(inferred)]
        return op
