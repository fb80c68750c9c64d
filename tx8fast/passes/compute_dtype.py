"""Chooses the float format that the program computes in, and converts where another format meets it.

May import: ir, numerics.formats, passes.{base, effects, lift_integers, lift_masks, lift_match, mask_range}, weights (mask value).
Must not: change the types of a function's arguments and results, or read weights but masks.

A parameter needs no conversion at run time: `get_param` simply takes the wanted type, the weight table keeps
the format of the source, and packing the parameter image converts.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tx8fast.errors import ConfigError, VerifyError
from tx8fast.ir.attrs import INLINE_LIMIT_BYTES, DenseAttr
from tx8fast.ir.clone import clone_op
from tx8fast.ir.core import REAL, TERMINATOR, Block, Op, Value
from tx8fast.ir.interfaces import infer_shapes
from tx8fast.ir.program import IRProgram
from tx8fast.ir.types import TensorType
from tx8fast.numerics.formats import clamp_finite, np_dtype
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.effects import is_parameter, written_states
from tx8fast.passes.fold_constants import CONSTANT_PREFIX
from tx8fast.passes.lift_integers import of_integers
from tx8fast.passes.lift_masks import deepened, mask_of
from tx8fast.passes.lift_match import Constants
from tx8fast.passes.mask_range import hiding, in_range, lowest, may_leave_range, whole
from tx8fast.records import dataclass
from tx8fast.weights import MASK_VALUE, DerivedSource, Weight

TARGETS = ("bf16", "f16", "f32", "keep")
#: formats that are converted into one another; f64 stays what it is and runs on the kernel core
FLOATS = frozenset({"bf16", "f16", "f32", "tf32"})
_WIDE = frozenset({"f32", "tf32"})
#: kinds that always run in the compute format, with the number of leading operands that do (-1: all)
ALWAYS = {
    "gemm": -1,
    "contract": -1,
    "conv": -1,
    "conv_transpose": -1,
    "layernorm": -1,
    "rmsnorm": -1,
    "softmax": -1,
    "rope": -1,
    "batchnorm_inference": 1,
}
MASK_LIMIT_BYTES = 1 << 26  # of masks of f16 whose numbers are looked at when they are needed in a wider format
#: movement whose result is as constant as its only operand
_MOVES = frozenset({"transpose", "reshape", "broadcast", "slice", "convert"})


@dataclass(frozen=True)
class ComputeDtype(CompilerPass):
    """`dtype`: bf16, f16 or f32, or keep to leave every type as it was imported.

    Arguments and results keep their types. Floats made from integers stay as they are until they meet a value
    of the compute format, so that positions are not rounded; explicit widening of the model is kept too. A graph that was built in
    the format stays as it is.
    """

    name: ClassVar[str] = "compute-dtype"
    dtype: str = "bf16"

    def run(self, program: IRProgram) -> PassResult:
        if self.dtype not in TARGETS:
            raise ConfigError(
                f"pass '{self.name}': option 'dtype': expected one of {', '.join(TARGETS)}, found '{self.dtype}'"
            )
        if self.dtype in ("keep", program.whole.config_dtype):  # a builder's graph has its wide parts on purpose
            return PassResult()
        written = written_states(program.module)
        converts = 0
        changed = False
        for symbol in program.functions:
            for block in symbol.regions[0].blocks:
                caster = _Caster(program, block, self.dtype, written)
                caster.run()
                converts += caster.converts
                changed |= caster.changed
        return PassResult(changed, {"converts": converts})


def _is_float(v: Value) -> bool:
    return type(v.type) is TensorType and v.type.dtype in FLOATS


class _Caster:
    """One block. Values are retyped in place, in order; `original` remembers what they were."""

    def __init__(self, program: IRProgram, block: Block, target: str, written: set) -> None:
        self.program, self.ctx, self.block = program, program.ctx, block
        self.target, self.written = target, written
        self.original: dict[Value, str] = {}
        self.casts: dict[tuple[Value, str], Value] = {}
        self.masks: dict[tuple[Value, str], Value | None] = {}
        self.constancy: dict[Value, bool] = {}
        self.hiding = hiding(block)
        self.given = {op.operands[i] for op, (masks, _) in self.hiding.items() for i in masks}
        self.bounds: dict[Value, Value] = {}
        self.head = block.first
        self.converts = 0
        self.changed = False

    def run(self) -> None:
        ops = list(self.block)
        for op in ops:
            if op.results and self.flexible(op.results[0]):
                continue  # takes its type from its users
            if op.has(REAL):
                self.visit(op)
            else:
                self.restore(op)
        for op in reversed(ops):
            if op.results and self.constancy.get(op.results[0]) and not op.results[0].uses:
                op.erase()

    # ------------------------------------------------------------ constants

    def flexible(self, v: Value) -> bool:
        """True for a float parameter or constant, also seen through movement."""
        known = self.constancy.get(v)
        if known is None:
            known = self.constancy[v] = self._flexible(v)
        return known

    def _flexible(self, v: Value) -> bool:
        op = v.op
        if op is None or not _is_float(v):
            return False
        if op.kind == "constant":
            return True
        if is_parameter(op):
            return ("state", op.attrs["key"]) not in self.written
        return op.kind in _MOVES and self.flexible(op.operands[0])

    def constant_as(self, v: Value, dtype: str) -> Value:
        """Return the constant `v` in another format: a second read, or a converted copy."""
        op = v.op
        assert op is not None and op.block is not None
        if op.kind == "convert":
            return self.cast(op.operands[0], dtype)
        if op.kind == "constant":
            new = self._converted(op, dtype)
        else:
            new = clone_op(op)
            if new.operands:
                new.set_operand(0, self.cast(op.operands[0], dtype))
            new.results[0].type = self.ctx.tensor(v.shape, dtype)
            self._made_as(new, dtype)
        op.block.insert_after(op, new)
        self.constancy[new.results[0]] = True
        return new.results[0]

    def _made_as(self, read: Op, dtype: str) -> None:
        """Let a parameter that a formula makes of nothing, as the tables of a rotation, be made in the wider format that reads it."""
        weights = self.program.weights
        if read.kind != "get_param" or weights is None or read.attrs["key"] not in weights:
            return
        found = weights[read.attrs["key"]]
        formula = isinstance(found.source, DerivedSource) and not found.source.inputs and not found.chips
        if formula and found.dtype in FLOATS - _WIDE and dtype in _WIDE:
            key = f"{found.key}/in {dtype}"  # a deeper mask is another one
            if key not in weights:
                weights.add(Weight(key, found.shape, dtype, found.source))
            read.attrs["key"] = key

    def mask_as(self, v: Value, dtype: str) -> Value | None:
        """Return a known mask of f16 in a wider format, in which it hides with what absorbs: of f16 no number does, and -65504 may
        be a score there. None if it is no such mask, or a row of it sees nothing."""
        if (v, dtype) not in self.masks:
            self.masks[v, dtype] = self._mask_as(v, dtype)
        return self.masks[v, dtype]

    def _mask_as(self, v: Value, dtype: str) -> Value | None:
        op = v.op
        if op is None or op.block is None or v.dtype != "f16" or dtype not in ("bf16", "f32") or not self.flexible(v):
            return None
        if op.kind in _MOVES:
            rows = op.kind in ("reshape", "broadcast") and op.operands[0].shape[-1:] == v.shape[-1:]
            inner = self.mask_as(op.operands[0], dtype) if rows else None
            if inner is None:
                return None  # other rows than those that are looked at
            new = clone_op(op)
            new.set_operand(0, inner)
            new.results[0].type = self.ctx.tensor(v.shape, dtype)
        elif (known := self._named_mask(op, dtype)) is not None:
            new = known
        else:
            array = Constants(self.program, MASK_LIMIT_BYTES).array(v)
            deep = None if array is None else deepened(array, dtype)
            if deep is None:
                return None
            new = self._held(deep, dtype, op)
        op.block.insert_after(op, new)
        self.constancy[new.results[0]] = True
        return new.results[0]

    def _named_mask(self, op: Op, dtype: str) -> Op | None:
        """Return a read of the same mask that hides with another number, of those that are never written out."""
        weights = self.program.weights
        if op.kind != "get_param" or weights is None or op.attrs["key"] not in weights:
            return None
        found = weights[op.attrs["key"]]
        source = found.source
        if not isinstance(source, DerivedSource) or source.expr != "causal_mask" or source.attrs.get("offset", 0) < 0:
            return None  # other expressions are no masks; with rows before the first key some see nothing
        key = f"{found.key}/{dtype}"
        if key not in weights:
            deep = DerivedSource("causal_mask", {**source.attrs, "value": MASK_VALUE[dtype]})
            weights.add(Weight(key, found.shape, dtype, deep))
        return self.ctx.create("get_param", (), [self.ctx.tensor(found.shape, dtype)], loc=op.loc, key=key)

    def _converted(self, op: Op, dtype: str) -> Op:
        return self._held(clamp_finite(op.attrs["value"].array, np_dtype(dtype)), dtype, op)

    def _held(self, array: np.ndarray, dtype: str, op: Op) -> Op:
        """Return a constant in a format, in place of `op`."""
        weights = self.program.weights
        if array.nbytes <= INLINE_LIMIT_BYTES:
            return self.ctx.create("constant", loc=op.loc, value=DenseAttr(array))
        if weights is None:
            return self.ctx.create("convert", [op.result], loc=op.loc, dtype=dtype)
        n = 0
        while (key := f"{CONSTANT_PREFIX}{n}") in weights:
            n += 1
        weights.add_array(key, array)
        return self.ctx.create("get_param", (), [self.ctx.tensor(array.shape, dtype)], loc=op.loc, key=key)

    # ------------------------------------------------------------ casts

    def cast(self, v: Value, dtype: str) -> Value:
        """Return `v` in `dtype`; one conversion per value and format, directly behind the definition."""
        if v.dtype == dtype:
            return v
        found = self.casts.get((v, dtype))
        if found is None:
            found = self.casts[v, dtype] = self._cast(v, dtype)
            self.changed = True
        return found

    def _cast(self, v: Value, dtype: str) -> Value:
        op = v.op
        if self.flexible(v):
            return self.constant_as(v, dtype)
        if op is not None and op.kind == "convert" and v.dtype in _WIDE and op.operands[0].dtype == dtype:
            return op.operands[0]  # widened before, no need to come back
        if v in self.given and dtype == self.target and may_leave_range(v.dtype, dtype):
            v = self.bounded(v, dtype)  # whoever reads it, so that it equals what it is compared with
        new = self.ctx.create("convert", [v], loc=None if op is None else op.loc, dtype=dtype)
        if v.op is None:
            self.block.insert_before(self.head, new)
        else:
            self.block.insert_after(v.op, new)
        self.converts += 1
        return new.result

    def set_format(self, op: Op, i: int, dtype: str) -> None:
        new = self.cast(op.operands[i], dtype)
        if new is not op.operands[i]:
            op.set_operand(i, new)

    def keep_in_range(self, op: Op, i: int, dtype: str) -> None:
        """Let what hides be a number of the compute format where an operand is converted to it, or meets scores that will be."""
        v, (masks, meets) = op.operands[i], self.hiding.get(op, (frozenset(), False))
        if i not in masks or not may_leave_range(v.dtype, self.target) or not (meets or dtype == self.target):
            return
        op.set_operand(i, self.bounded(v, dtype))

    def hide_whole(self, op: Op) -> None:
        """Let a mask in f16 hide with its own number, whatever the scores are that it is added to."""
        masks, meets = self.hiding.get(op, (frozenset(), False))
        if not meets or len(masks) != 1:
            return
        (i,) = masks
        if self.flexible(op.operands[i]):
            array = Constants(self.program, MASK_LIMIT_BYTES).array(op.operands[i])
            if array is None or not (np.isfinite(array) & (np.abs(array) >= -lowest("f16"))).any():
                return
        at, uses = op, list(op.result.uses)
        for made in whole(self.ctx, op, i):
            self.block.insert_after(at, made)
            at = made
        for user, k in uses:
            user.set_operand(k, at.result)

    def bounded(self, v: Value, dtype: str) -> Value:
        """Return a mask whose numbers the compute format has. dtype: what it will be converted to."""
        if v not in self.bounds:
            self.bounds[v] = self._bounded(v, dtype)
        return self.bounds[v]

    def _bounded(self, v: Value, dtype: str) -> Value:
        if self.flexible(v):
            array = None if dtype == self.target else Constants(self.program, INLINE_LIMIT_BYTES).array(v)
            low = lowest(self.target)
            if array is None or v.op is None or not (np.isfinite(array) & (np.abs(array) > -low)).any():
                return v  # a constant is converted into the range
            new = [
                self._held(
                    np.where(np.isinf(array), array, np.clip(array, low, -low)).astype(array.dtype), v.dtype, v.op
                )
            ]
            self.constancy[new[0].result] = True
        else:
            new = in_range(self.ctx, v, self.target)
        at = v.op
        for made in new:
            if at is None:
                self.block.insert_before(self.head, made)
            else:
                self.block.insert_after(at, made)
                at = made
        return new[-1].result

    def restore(self, op: Op) -> None:
        """Give an op whose types are fixed (a call, a return, an unknown kind) the operands it was imported with."""
        for i, v in enumerate(op.operands):
            if _is_float(v):
                self.set_format(op, i, self.original.get(v, v.dtype))
        if not op.has(TERMINATOR):
            for r in op.results:
                if r in self.original:
                    r.type = self.ctx.tensor(r.shape, self.original[r])

    # ------------------------------------------------------------ ops

    def visit(self, op: Op) -> None:
        floats = [i for i, v in enumerate(op.operands) if _is_float(v)]
        if any(type(v.type) is TensorType and v.type.dtype == "f64" for v in op.operands):
            self.restore(op)
            return
        if op.kind in ("convert", "dequantize"):
            self.retarget(op)
        elif op.kind != "quantize" and floats:
            count = ALWAYS.get(op.kind)
            dtype = self.target if count is not None else self.meeting([op.operands[i] for i in floats])
            dtype = "f32" if of_integers(op) else dtype  # sums of integers are floats made from integers
            before = list(op.operands)
            if op.kind == "softmax":
                last = op.attrs["axis"] in (-1, len(op.result.shape) - 1)
                mask = mask_of(op) if last and not op.attrs["log"] else None
                deep = None if mask is None else self.mask_as(mask, dtype)
                if deep is not None:
                    op.set_operand(1, deep)
            for i in floats:
                if count is None or count < 0 or i < count:
                    self.keep_in_range(op, i, dtype)
                    self.set_format(op, i, dtype)
            if not self.retype(op):
                for i, v in enumerate(before):
                    op.set_operand(i, v)
                self.restore(op)
            elif op.kind == "clamp" and _is_float(op.result) and may_leave_range("f32", op.result.dtype):
                low = lowest(op.result.dtype)
                op.attrs |= {n: min(max(op.attrs[n], low), -low) for n in ("lo", "hi") if np.isfinite(op.attrs[n])}
            elif op.kind in ("add", "sub") and op.result.dtype == "f16" == self.target:
                self.hide_whole(op)
            return
        self.retype(op)

    def retarget(self, op: Op) -> None:
        """Conversions to a float: from integers they stay; others go to the compute format unless they widen it."""
        wanted = op.attrs["dtype"]
        if wanted not in FLOATS:
            return
        widens = wanted in _WIDE and self.target not in _WIDE
        if op.kind == "dequantize" or (_is_float(op.operands[0]) and not widens):
            op.attrs["dtype"] = self.target
            self.changed |= wanted != self.target

    def meeting(self, values: list[Value]) -> str:
        """The format in which `values` meet: that of the computed ones if they agree, else the compute format."""
        found = {v.dtype for v in values if not self.flexible(v) and v.op is not None}
        if any(v.op is None for v in values):
            found.add(self.target)  # arguments enter in the compute format
        return found.pop() if len(found) == 1 else self.target

    def retype(self, op: Op) -> bool:
        """Infer the results' types again; False if the kind does not take these operands."""
        types = [r.type for r in op.results]
        try:
            changed = infer_shapes(op)
        except VerifyError:
            return False
        self.changed |= changed
        for r, t in zip(op.results, types):
            if r.type is not t and _is_float(r):
                self.original.setdefault(r, t.dtype)  # type: ignore[attr-defined]
        return True
