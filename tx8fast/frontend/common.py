"""What all model readers share: import options, tensor handles, and the emitter with import-time folding.

May import: ir, weights, errors, numpy. Must not: know any file format.

A `Tensor` is what a reader passes around: a known constant, a weight that has not been read, or a value of
the IR. The emitter turns constants and weights into ops only when an op needs them, and evaluates an op at
once if every operand is a small constant, so that chains of shape arithmetic never reach the IR.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tx8fast.errors import ConfigError, UnsupportedError
from tx8fast.ir.builder import Builder
from tx8fast.ir.core import PURE, Context, Value
from tx8fast.ir.ops.base import reference
from tx8fast.records import dataclass
from tx8fast.weights import ArraySource, Weight, WeightTable, np_dtype
from tx8fast.weights.dtypes import dtype_name

#: constants up to this size stand in the IR text; larger ones become weight-table entries
INLINE_BYTES = 1024
#: largest result (and operand) of an evaluation at import time
FOLD_BYTES = 1 << 16


@dataclass
class ImportOptions:
    """How to make a model static. `dims` binds symbolic dimensions, `constants` binds graph inputs to values.

    `phase` is "prefill" or "decode" ("" = what the file says); `seq`, `past` and `batch` are in tokens and
    sequences and bind the usual names of those dimensions. `chips`: how many will run it together, 0 = what the model says.
    `kernels`: a Python file with functions for ONNX nodes of the user's own kinds.
    """

    phase: str = ""
    seq: int | None = None
    past: int | None = None
    batch: int | None = None
    dims: dict[str, int] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    chips: int = 0
    kernels: str = ""

    def __post_init__(self) -> None:
        if self.phase not in ("", "prefill", "decode"):
            raise ConfigError(f"import options: phase '{self.phase}' is unknown, expected prefill or decode")
        for name, value in [("seq", self.seq), ("past", self.past), ("batch", self.batch), *self.dims.items()]:
            least = 0 if name in ("past",) or name in self.dims else 1
            if value is not None and (type(value) is not int or value < least):
                raise ConfigError(f"import options: {name} is {value!r}, expected a whole number >= {least}")

    def dim(self, symbol: str) -> int | None:
        """Return the size bound to `symbol`, or None. Explicit bindings win over the usual names."""
        if symbol in self.dims:
            return self.dims[symbol]
        name = symbol.lower().replace("-", "_").strip()
        if m := re.fullmatch(r"(\w+) ?\+ ?(\w+)", name):
            parts = [self.dim(p) for p in m.groups()]
            return None if None in parts else sum(parts)  # type: ignore[arg-type]
        past = self.past if self.past is not None else (0 if self.phase == "prefill" else None)
        seq = self.seq if self.seq is not None else (1 if self.phase == "decode" else None)
        if name in ("batch", "batch_size", "n_batch", "bs"):
            return self.batch
        if name in ("past_sequence_length", "past_seq_len", "past_length", "past_len", "past"):
            return past
        if name in ("total_sequence_length", "total_seq_len", "total_length"):
            return None if seq is None or past is None else seq + past
        if name in ("sequence", "sequence_length", "seq_len", "seq_length", "seq"):
            return seq
        return None


def is_length(symbol: str) -> bool:
    """True if `symbol` is a usual name of a number of tokens, which the phase decides."""
    return ImportOptions(phase="decode", past=1).dim(symbol) is not None


class NeedConstant(UnsupportedError):
    """An operand decides a shape but is not known at compile time. `inputs` are graph inputs that would settle it."""

    def __init__(self, message: str, inputs: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.inputs = inputs


class Tensor:
    """A handle: `array` if the value is a known small constant, `load` if it can be read, else an IR value."""

    __slots__ = ("shape", "dtype", "array", "key", "load", "value")

    def __init__(
        self,
        shape: Sequence[int],
        dtype: str,
        *,
        array: np.ndarray | None = None,
        key: str | None = None,
        load: Callable[[], np.ndarray] | None = None,
        value: Value | None = None,
    ) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype
        self.array: Any = array  # np.ndarray or None
        self.key = key
        self.load = load
        self.value = value

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        return "f" in self.dtype

    def force(self) -> Any:
        """Return the constant's array of any size, reading it if need be; None if it is not constant."""
        return self.array if self.array is not None or self.load is None else self.load()

    def __repr__(self) -> str:
        return f"<{self.dtype}{list(self.shape)}>"


@dataclass(frozen=True, eq=False)
class TensorList:
    """A sequence of tensors of one element type."""

    dtype: str
    tensors: tuple[Tensor, ...]


Imported = Tensor | TensorList


class Emitter:
    """Appends ops to one block, folding what is constant. `loc` names the source node of the next ops."""

    def __init__(self, ctx: Context, block, weights: WeightTable) -> None:
        self.ctx = ctx
        self.builder = Builder(ctx, block)
        self.weights = weights
        self.loc = ""
        self._n_consts = 0
        self._params: dict[str, Value] = {}

    def const(self, array, dtype: str | None = None) -> Tensor:
        """Wrap a numpy array (or number, with `dtype`) as a constant."""
        array = np.asarray(array)
        name = dtype or dtype_name(array.dtype)
        want = np_type(name)
        return Tensor(array.shape, name, array=array if array.dtype == want else array.astype(want))

    def value(self, t: Tensor) -> Value:
        """Return the IR value of a tensor, creating its `constant` or `get_param` op at the first use."""
        if t.value is None:
            if t.key is not None:
                if t.key not in self._params:
                    type_ = self.ctx.tensor(t.shape, t.dtype)
                    self._params[t.key] = self.builder("get_param", key=t.key, result_types=[type_], loc=t.key)
                t.value = self._params[t.key]
            else:
                t.value = self._constant(t)
        return t.value

    def _constant(self, t: Tensor) -> Value:
        array = t.array
        type_ = self.ctx.tensor(t.shape, t.dtype)
        if array.nbytes <= INLINE_BYTES:
            return self.builder("constant", value=make_dense(array), result_types=[type_], loc=self.loc)
        key = f"%const/{self._n_consts}"
        self._n_consts += 1
        stored = np.ascontiguousarray(array, np_dtype(t.dtype)).reshape(t.shape)
        self.weights.add(Weight(key, t.shape, t.dtype, ArraySource(stored)))
        return self.builder("get_param", key=key, result_types=[type_], loc=self.loc)

    def op(self, kind: str, *operands: Tensor | None, **attrs: Any) -> Tensor:
        """Emit a one-result op."""
        return self.ops(kind, *operands, **attrs)[0]

    def ops(self, kind: str, *operands: Tensor | None, **attrs: Any) -> list[Tensor]:
        """Emit an op and return all its results. Raises VerifyError if the operands do not fit it."""
        given = list(operands)
        while given and given[-1] is None:
            given.pop()
        if all(t is None or t.array is not None for t in given):
            folded = self._fold(kind, given, attrs)
            if folded is not None:
                return folded
        values: list[Any] = [None if t is None else self.value(t) for t in given]
        made = self.builder.op(kind, *values, loc=self.loc, **attrs)
        return [Tensor(r.shape, r.dtype, value=r) for r in made.results]

    def _fold(self, kind: str, given: list[Any], attrs: dict[str, Any]) -> list[Tensor] | None:
        """Evaluate an op on constants; None if a result would be too large or the op has no routine."""
        if any(t is None for t in given) or any(t.array.nbytes > FOLD_BYTES for t in given):
            return None
        placeholders = [Value(self.ctx.tensor(t.shape, t.dtype), None, 0) for t in given]  # type: ignore[arg-type]
        op = self.ctx.create(kind, placeholders, loc=self.loc, **attrs)
        sizes = [math.prod(r.shape) * np_type(r.dtype).itemsize for r in op.results]
        if not op.info.decl.routine or max(sizes) > FOLD_BYTES:
            return None
        arrays = reference(op, [t.array for t in given])
        return [self.const(a, r.dtype) for a, r in zip(arrays, op.results, strict=True)]


def np_type(name: str) -> np.dtype:
    """Return the numpy dtype in which constants of dtype `name` are evaluated; 4-bit integers take a byte."""
    return {"i4": np.dtype(np.int8), "u4": np.dtype(np.uint8)}.get(name) or np_dtype(name)


def make_dense(array: np.ndarray):
    """Wrap a small array as the attribute of `constant`."""
    from tx8fast.ir.attrs import DenseAttr

    return DenseAttr(array)


def source_args(value: Value) -> list[Value]:
    """Return the block arguments that `value` is computed from, in order of discovery."""
    found: dict[Value, None] = {}
    seen: dict[Value, None] = {}
    stack = [value]
    while stack:
        v = stack.pop()
        if v in seen:
            continue
        seen[v] = None
        if v.op is None:
            found[v] = None
        else:
            stack += v.op.operands
    return list(found)


def build_program(ctx: Context, weights: WeightTable, name: str, fill: Callable):
    """Build a module with one function "main". `fill(block)` adds arguments and ops and returns
    (argument names, result names, result values); ops without use are dropped afterwards."""
    from tx8fast.ir.program import IRProgram

    module = ctx.create("module", n_regions=1)
    body = module.regions[0].add_block()
    func = ctx.create("func", n_regions=1, sym_name="main")
    body.append(func)
    block = func.regions[0].add_block()
    arg_names, result_names, results = fill(block)
    Builder(ctx, block).op("return", *results)
    func.attrs["arg_names"] = tuple(arg_names)
    func.attrs["result_names"] = tuple(result_names)
    drop_unused(block)
    _drop_unused_weights(block, weights)
    return IRProgram(ctx, module, weights, name)


def _drop_unused_weights(block, weights: WeightTable) -> None:
    """Remove table entries that no `get_param` names, directly or through a derived entry."""
    used: set[str] = set()
    todo = [op.attrs["key"] for op in block if op.kind == "get_param"]
    while todo:
        key = todo.pop()
        if key not in used:
            used.add(key)
            todo += getattr(weights[key].source, "inputs", ())
    for key in weights.keys():
        if key not in used:
            weights.remove(key)


def drop_unused(block) -> None:
    """Erase ops without effects whose results nobody uses, last first."""
    op = block.last
    while op is not None:
        before = op.prev
        if op.results and (op.has(PURE) or op.kind == "get_param") and not any(r.uses for r in op.results):
            op.erase()
        op = before
