"""Constant folding: ops whose operands are all known run once, at compile time.

May import: ir, numerics by way of the ops' reference routines, passes.base, passes.effects.
Must not: read a weight above the size limit, or one that the program writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from tx8fast.errors import InternalError, SimulationError, VerifyError
from tx8fast.ir.attrs import DENSE_DTYPES, INLINE_LIMIT_BYTES, DenseAttr
from tx8fast.ir.core import CONSTANT_LIKE, PURE, Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.types import NoneType, TensorType
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.effects import reads_only_state, states_written_by
from tx8fast.records import dataclass

#: prefix of the weight-table keys that compilation adds
CONSTANT_PREFIX = "%const/"
_UNKNOWN = object()
#: kinds that may keep all of a weight's elements, and their attributes that say how: above the size limit such a result becomes a
#: derived table entry
DERIVED = {"transpose": ("perm",), "reshape": (), "slice": ("start", "step"), "pad": ("lo",), "convert": ()}


def _keeps_all(op: Op) -> bool:
    """True if an op of `DERIVED` leaves every element of its operand as it is, elsewhere, and nothing else but zeros beside them."""
    if op.kind == "convert":
        return op.operands[0].dtype in ("i8", "u8") and op.result.dtype == "f32"
    if op.kind == "slice":
        return op.result.shape == op.operands[0].shape
    return op.kind != "pad" or (op.attrs["mode"] == "constant" and op.attrs["value"] == 0)


@dataclass(frozen=True)
class FoldConstants(CompilerPass):
    """Runs the reference routine of pure ops on constant operands.

    `limit_bytes` bounds each operand read from the weight table and each result. Results above 1024 bytes
    become entries `%const/<n>` of the weight table; without a table such ops stay.
    """

    name: ClassVar[str] = "fold-constants"
    per_function: ClassVar[bool] = True
    limit_bytes: int = 1 << 20

    def run(self, program: IRProgram) -> PassResult:
        folder = _Folder(program, self.limit_bytes)
        for op in list(program.module.walk()):
            folder.visit(op)
        stats = {"folded": folder.folded, "weights": folder.added}
        return PassResult(folder.folded > 0, stats)


class _Folder:
    def __init__(self, program: IRProgram, limit_bytes: int) -> None:
        self.program = program
        self.limit_bytes = limit_bytes
        self.written = states_written_by(program)
        self.folded = 0
        self.added = 0
        self.next_key = 0
        self.keys: dict[tuple[Any, ...], str] = {}  # content -> key of an entry added in this run
        self.produced: dict[Value, np.ndarray] = {}  # large results of this run, so that chains need no table read

    def visit(self, op: Op) -> None:
        if not op.has(PURE) or op.regions or not op.results or op.block is None:
            return
        if type(op.attrs.get("value")) is DenseAttr:
            return  # already what folding makes
        if op.kind in DERIVED and self.derive(op):
            return
        if op.attrs.get("combine") in ("add", "mul") and op.result.dtype in ("bf16", "f16"):
            return  # the routine rounds what falls on one place each time; these sums are kept in f32 later
        routine = reference_of(op)
        if routine is None or not all(self.fits(r) for r in op.results):
            return
        arrays = []
        for v in op.operands:
            array = self.constant(v)
            if array is _UNKNOWN:
                return
            arrays.append(array)
        try:
            results = routine(op, arrays)
        except (VerifyError, SimulationError):
            return  # not computable here (an index out of range, say); the op stays and fails where it runs
        self.decide(op)
        self.replace(op, [self.checked(op, r, a) for r, a in zip(op.results, results)])

    def decide(self, op: Op) -> None:
        """Note whose values went into an op's results."""
        weights = self.program.weights
        for v in op.operands:
            key = v.op.attrs.get("key") if v.op is not None else None
            if weights is not None and type(key) is str and key in weights:
                weights.decide(key)

    def derive(self, op: Op) -> bool:
        """Replace a moved weight above the limit by a table entry that is computed when its bytes are needed."""
        source, weights, t = op.operands[0].op, self.program.weights, op.result.type
        key = source.attrs.get("key") if source is not None and source.kind == "get_param" else None
        if (
            type(key) is not str
            or weights is None
            or key not in weights
            or type(t) is not TensorType
            or not t.is_static
        ):
            return False
        states = reads_only_state(source)  # type: ignore[arg-type]
        if (
            t.dtype not in DENSE_DTYPES
            or nbytes(t) <= self.limit_bytes
            or not states
            or not self.written.isdisjoint(states)
            or not _keeps_all(op)
        ):
            return False
        attrs = {n: list(op.attrs[n]) for n in DERIVED[op.kind]}
        content = (op.kind, key, str(attrs), t.shape)
        made = self.keys.get(content)
        if made is None:
            while (made := f"{CONSTANT_PREFIX}{self.next_key}") in weights:
                self.next_key += 1
            weights.add_derived(made, op.kind, attrs, (key,), t.shape, t.dtype)
            self.added += 1
            self.keys[content] = made
        new = self.program.ctx.create("get_param", (), [t], loc=op.loc, key=made)
        op.block.insert_before(op, new)  # type: ignore[union-attr]
        op.result.replace_all_uses_with(new.result)
        op.erase()
        self.folded += 1
        return True

    def fits(self, v: Value) -> bool:
        t = v.type
        if type(t) is not TensorType or not t.is_static or t.dtype not in DENSE_DTYPES:
            return False
        return nbytes(t) <= (self.limit_bytes if self.program.weights is not None else INLINE_LIMIT_BYTES)

    def constant(self, v: Value) -> Any:
        """Return the value's array, None for an absent tensor, `_UNKNOWN` if it is not constant."""
        op = v.op
        if op is None:
            return _UNKNOWN
        if type(v.type) is NoneType:
            return None
        if v in self.produced:
            return self.produced[v]
        if op.has(CONSTANT_LIKE):
            attr = op.attrs.get("value")
            return attr.array if type(attr) is DenseAttr else _UNKNOWN
        key = op.attrs.get("key")
        if type(key) is not str or self.program.weights is None or len(op.results) != 1:
            return _UNKNOWN
        states = reads_only_state(op)
        if not states or not self.written.isdisjoint(states) or key not in self.program.weights:
            return _UNKNOWN
        view = self.program.weights.const_view(key, self.limit_bytes)
        return _UNKNOWN if view is None else view

    def checked(self, op: Op, r: Value, array: Any) -> np.ndarray:
        wanted = DENSE_DTYPES[r.dtype][1]
        found = np.asarray(array)
        if found.shape != r.shape or found.dtype != wanted:
            raise InternalError(
                f"folding {op.name} '{op.loc or ''}': its routine gave {found.dtype} {list(found.shape)}, "
                f"its result type is {r.type}"
            )
        return found

    def replace(self, op: Op, arrays: list[np.ndarray]) -> None:
        ctx = self.program.ctx
        for r, array in zip(op.results, arrays):
            if array.nbytes <= INLINE_LIMIT_BYTES:
                new = ctx.create("constant", (), [r.type], loc=op.loc, value=DenseAttr(array))
            else:
                owned = np.array(array, order="C", copy=True)
                new = ctx.create("get_param", (), [r.type], loc=op.loc, key=self.add_weight(owned))
                self.produced[new.result] = owned
            op.block.insert_before(op, new)  # type: ignore[union-attr]
            r.replace_all_uses_with(new.result)
        op.erase()
        self.folded += 1

    def add_weight(self, array: np.ndarray) -> str:
        weights = self.program.weights
        content = (array.dtype.name, array.shape, hashlib.sha256(array.reshape(-1).view(np.uint8).data).digest())
        known = self.keys.get(content)
        if known is not None:
            return known  # layers that compute one table each share it
        while (key := f"{CONSTANT_PREFIX}{self.next_key}") in weights:
            self.next_key += 1
        weights.add_array(key, array)
        self.added += 1
        self.keys[content] = key
        return key


def nbytes(t: TensorType) -> int:
    """Bytes of the array that holds a static tensor."""
    return t.numel * DENSE_DTYPES[t.dtype][1].itemsize


def reference_of(op: Op) -> Callable[[Op, list[Any]], list[Any]] | None:
    """Return the function that computes `op` on arrays: its Compute interface, or its reference routine."""
    compute = op.info.impl.get(("Compute", "compute"))
    if compute is not None:
        return compute
    if not getattr(op.info.decl, "routine", ""):
        return None
    from tx8fast.ir.ops.base import reference

    return reference
