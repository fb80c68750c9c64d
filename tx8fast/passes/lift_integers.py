"""Makes products of small integers products of floats where their sums become floats.

May import: ir, numerics, passes.{base, fold_constants (its keys), lift_match, lift_quantised, make}. Must not: read weights of the model.

The integers are of 8 bits, less a zero point at most 256 in size, which every float format holds: the matrix engine multiplies them without
rounding, and adds them in f32, in which their sums end up anyway. No engine multiplies integers.
"""

from __future__ import annotations

from typing import ClassVar

from tx8fast.ir.core import Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.rewrite import Pattern, Rewriter, rewrite_greedily
from tx8fast.ir.types import NoneType
from tx8fast.numerics.formats import INT_LIMITS
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.fold_constants import CONSTANT_PREFIX
from tx8fast.passes.lift_match import Constants, is_parameter, made_by, static
from tx8fast.passes.lift_quantised import F32, FLOATS, ROUND, has_steps, quantised
from tx8fast.passes.make import Make
from tx8fast.records import dataclass

#: largest size of a factor, which bf16 still holds
MOST_FACTOR = 256
#: kinds that move numbers: operands that are numbers, and attributes
_MOVES = {"reshape": ("shape",), "transpose": ("perm",), "slice": ("start", "size", "step"), "broadcast": ("shape",)}
_PRODUCTS = ("gemm", "conv", "conv_nd")
#: and what they are written in later
_WRITTEN = (*_PRODUCTS, "contract", "conv_transpose")
_BYTES = ("i4", "u4", "i8", "u8")
#: formats in which sums of products do not wrap
_SUMS = ("i32", "i64")


class _Integers:
    """What is known of integers, and the same as floats."""

    def __init__(self, constants: Constants) -> None:
        self.constants = constants
        self.ranges: dict[str, tuple[int, int] | None] = {}  # of weights that folding made

    def made(self, v: Value) -> tuple[int, int] | None:
        """Return the least and largest number that an op makes of what its operands may be, before it wraps; None of what it does not say."""
        op = v.op
        if op is None:
            return None
        if op.kind in ("constant", "get_param"):
            return self._stored(v)
        x = op.operands[0] if op.operands else None
        if x is not None and op.kind in (*_MOVES, "convert") and x.dtype in INT_LIMITS:
            return self.range(x)
        if x is not None and op.kind == "convert" and (whole := made_by(x, "clamp")) is not None:
            lo, hi = whole.attrs["lo"], whole.attrs["hi"]
            rounded = made_by(whole.operands[0], "round") is not None and lo.is_integer() and hi.is_integer()
            return (int(lo), int(hi)) if rounded else None
        if op.kind == "sub":
            (a, b), (c, d) = map(self.range, op.operands)
            return a - d, b - c
        return None

    def _stored(self, v: Value) -> tuple[int, int] | None:
        """The numbers of a constant, or of what folding made of a weight: the program is already one for these numbers."""
        key = v.op.attrs.get("key") if v.op is not None else None
        if type(key) is str and not key.startswith(CONSTANT_PREFIX):
            return None
        if type(key) is str and key in self.ranges:
            return self.ranges[key]
        array = self.constants.array(v)
        found = None if array is None else (int(array.min()), int(array.max())) if array.size else (0, 0)
        if type(key) is str:
            self.ranges[key] = found
        return found

    def known(self, v: Value) -> bool:
        """True if what an op makes fits its format: then it is the same of integers and of floats."""
        found, (lo, hi) = self.made(v), INT_LIMITS[v.dtype]
        return found is not None and lo <= found[0] and found[1] <= hi

    def range(self, v: Value) -> tuple[int, int]:
        found = self.made(v)
        return found if found is not None and self.known(v) else INT_LIMITS[v.dtype]

    def small(self, v: Value) -> bool:
        return v.dtype in INT_LIMITS and max(map(abs, self.range(v))) <= MOST_FACTOR

    def factor(self, make: Make, v: Value) -> Value:
        """Return a small integer as f32."""
        op = v.op
        if op is not None and op.kind == "quantize" and has_steps(op):
            return quantised(make, op)
        if op is None or not self.known(v) or op.kind in ("constant", "get_param"):
            return make.convert(v, F32)
        x, *more = op.operands
        if op.kind == "sub":
            return make("sub", self.factor(make, x), self.factor(make, more[0]))
        if op.kind in _MOVES:
            return make(op.kind, self.factor(make, x), **{a: op.attrs[a] for a in _MOVES[op.kind]})
        return self.factor(make, x) if x.dtype in INT_LIMITS else make.convert(x, F32)

    def are_sums(self, v: Value) -> bool:
        """True of products of small integers, their sums and what moves them."""
        op = v.op
        if self.small(v):
            return True
        if op is None or v.dtype not in _SUMS or not static(v):
            return False
        if op.kind in _PRODUCTS:
            return op.attrs.get("act", "none") == "none" and all(map(self.small, op.operands[:2]))
        return op.kind in (*_MOVES, "add", "sub") and all(map(self.are_sums, op.operands))

    def sums(self, make: Make, v: Value) -> Value:
        """Return such sums in f32."""
        op = v.op
        if op is None or self.small(v):
            return self.factor(make, v)
        if op.kind not in _PRODUCTS:
            attrs = {a: op.attrs[a] for a in _MOVES.get(op.kind, ())}
            return make(op.kind, *(self.sums(make, o) for o in op.operands), **attrs)
        y = make(op.kind, *(self.factor(make, f) for f in op.operands[:2]), **op.attrs)
        bias = [b for b in op.operands[2:] if type(b.type) is not NoneType]
        return make("add", y, make.convert(bias[0], F32)) if bias else y


def _has_product(v: Value) -> bool:
    op = v.op
    if op is None or op.kind in _PRODUCTS:
        return op is not None
    return op.kind in (*_MOVES, "add", "sub") and any(_has_product(o) for o in op.operands)


def _sums_that_become_floats(constants: Constants) -> Pattern:
    integers = _Integers(constants)

    def apply(op: Op, rw: Rewriter) -> bool:
        x = op.operands[0]
        if op.result.dtype not in FLOATS or not _has_product(x) or not integers.are_sums(x):
            return False
        make = Make(rw, op)
        rw.replace(op, [make.convert(integers.sums(make, x), op.result.dtype)])
        return True

    return Pattern("sums_that_become_floats", ("tx8be.convert",), apply)


@dataclass(frozen=True)
class LiftIntegers(CompilerPass):
    """Makes products of 8-bit integers whose sums become floats products of floats."""

    name: ClassVar[str] = "lift-integers"
    limit_bytes: int = 1 << 20  # as of constant folding, whose results are looked at

    def run(self, program: IRProgram) -> PassResult:
        patterns = (_sums_that_become_floats(Constants(program, self.limit_bytes)),)
        result = rewrite_greedily(program.ctx, program.module, patterns)
        return PassResult(result.changed, {**result.applied, "dead": result.dead})


def of_integers(op: Op) -> bool:
    """True of a product of floats that were integers of at most 8 bits; one of its operands may be a weight, which is not looked at."""
    if op.kind not in _WRITTEN:
        return False
    whole = [_whole(v) for v in op.operands[:2]]
    return any(whole) and all(w or is_parameter(v) for w, v in zip(whole, op.operands))


def _whole(v: Value) -> bool:
    """True of floats that were integers, what moves them and takes a zero point from them."""
    op = v.op
    if op is None or not op.operands:
        return False
    x = op.operands[0]
    if op.kind == "convert":
        return _whole(x) if x.dtype in FLOATS else x.dtype in _BYTES
    if op.kind == "map":
        steps = [s.split() for s in op.attrs["steps"].split(";")]
        ends = [i for i, (kind, *operands) in enumerate(steps) if kind == "sub" and operands[-1] == repr(ROUND)]
        return bool(ends) and all(kind in ("add", "max", "min") for kind, *_ in steps[ends[-1] + 1 :])
    if op.kind == "concat":
        return all(map(_whole, op.operands))
    return op.kind == "round" or (op.kind in (*_MOVES, "sub", "pad", "clamp") and _whole(x))
