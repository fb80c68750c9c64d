"""Keeps what f16 computes within its range where a formula passes through numbers that its operands and result do not need.

May import: ir, passes.{base, canonicalize, lift_integers, lift_match}. Must not: change other formats, or types outside of a formula.

f16 ends at 65504, the square of 256. Three formulas run over on the way although they begin and end in range:

    (q k^T) * c, c below 1     the factor goes to an operand of the product, in front of its views, so that a product, a softmax
                               and a product stay neighbours
    sqrt(sum x^2), x / x^2 ..  from the power to what takes it down again (a root, a quotient), all is computed in f32
    float(sums of integers) * c  of quantised layers: integers are scaled in f32
"""

from __future__ import annotations

import math
from typing import ClassVar

from tx8fast.ir.core import Block, Op, Value
from tx8fast.ir.interfaces import infer_shapes
from tx8fast.ir.program import IRProgram
from tx8fast.ir.rewrite import Rewriter, pattern, rewrite_greedily
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.canonicalize import splat
from tx8fast.passes.lift_integers import of_integers
from tx8fast.passes.lift_match import in_f16, is_parameter, made_by, scalar, scaled, static, used_once
from tx8fast.records import dataclass

_NARROW, _WIDE = "f16", "f32"
#: a product of single numbers is a `mul`
_PRODUCTS = ("gemm", "contract", "mul")
_VIEWS = ("reshape", "transpose", "broadcast")
#: ops of a formula that do not take numbers down; of one computed operand, but for `_MEETS`
_KEEPS = frozenset(
    {
        "add",
        "sub",
        "mul",
        "div",
        "max",
        "min",
        "neg",
        "abs",
        "relu",
        "clamp",
        "reduce",
        "avg_pool",
        "avg_pool_nd",
        "max_pool",
        "slice",
        "pad",
        *_VIEWS,
    }
)
_MEETS = frozenset({"add", "sub", "mul", "max"})
_ROOTS = frozenset({"sqrt", "rsqrt", "recip", "log"})


# ---------------------------------------------------------------- factors of products


def _product_below(v: Value) -> Op | None:
    """The product of two computed f16 values, without bias or activation, that `v` is a view of and nothing else reads."""
    while used_once(v) and (view := made_by(v, "reshape", "convert")) is not None:
        v = view.operands[0]
    op = made_by(v, *_PRODUCTS)
    if op is None or v.dtype != _NARROW or not used_once(v) or not static(*op.operands, v):
        return None
    if len(op.operands) != 2 or op.attrs.get("act", "none") != "none" or any(map(is_parameter, op.operands)):
        return None
    return op


def _scale(product: Op, factor: float, rw: Rewriter) -> None:
    """Multiply the smaller operand, or both by the root of a factor that the format lacks."""
    sizes = [math.prod(v.shape) for v in product.operands]
    if in_f16(factor):
        _scale_operand(product, int(sizes[1] < sizes[0]), factor, rw)
    else:
        for i in (0, 1):
            _scale_operand(product, i, math.sqrt(factor), rw)


def _scale_operand(user: Op, i: int, factor: float, rw: Rewriter) -> None:
    """Multiply operand i of a product, in front of its views."""
    while used_once(user.operands[i]) and (view := made_by(user.operands[i], *_VIEWS)) is not None:
        user, i = view, 0
    x = user.operands[i]
    rw.set_operand(user, i, rw.insert("mul", x, scalar(rw, factor, x.dtype, user), before=user).result)


@pattern("softmax")
def _softmax_factor(op: Op, rw: Rewriter) -> bool:
    """softmax((q k^T) * c) is softmax((q * c) k^T)."""
    factor = op.attrs["scale"]
    product = _product_below(op.operands[0]) if 0 < factor < 1 else None
    if product is None:
        return False
    _scale(product, factor, rw)
    op.attrs["scale"] = 1.0
    rw.touch(op)
    return True


@pattern("mul", "div")
def _product_factor(op: Op, rw: Rewriter) -> bool:
    """(a b) * c is (a * c) b."""
    found = scaled(op.result)
    product = None if found is None or found[1] >= 1 else _product_below(found[0])
    if found is None or product is None:
        return False
    _scale(product, found[1], rw)
    rw.replace(op, [found[0]])
    return True


# ---------------------------------------------------------------- powers


def _power(op: Op) -> float:
    """The power of itself that an op makes of its operand; 0 for anything else."""
    if op.kind == "square" or op.kind == "mul" and op.operands[0] is op.operands[1]:
        return 2.0
    exponent = splat(op.operands[1]) if op.kind == "pow" else None
    return float(exponent) if exponent is not None else 0.0


def _computed(op: Op) -> list[Value]:
    return [v for v in op.operands if v.dtype == _NARROW and not is_parameter(v)]


class _Powers:
    """The ops of one block that stand between a power and what takes it down."""

    def __init__(self) -> None:
        self.ops: set[Op] = set()
        self._below: dict[Value, frozenset[Op]] = {}

    def find(self, op: Op) -> None:
        """Note the formula that `op` ends, if it takes a power down. Called in the order of the block."""
        if not op.results or not _is_narrow(op.results[0]):
            return
        if _sums_integers(op):
            for user in op.results[0].users:
                if user.kind in ("mul", "div"):
                    self.ops |= {op, user}
                    self._behind(user.results[0])
            return
        lowers = op.kind in _ROOTS or op.kind == "div" or 0 != _power(op) < 1
        below = frozenset[Op]().union(*(self._of(v) for v in op.operands))
        if lowers and below:
            self.ops |= below | {op}
            self._behind(op.results[0])
        elif _power(op) > 1:
            self._below[op.results[0]] = frozenset((op,))
        elif below and op.kind in _KEEPS and (op.kind in _MEETS or len(_computed(op)) == 1):
            self._below[op.results[0]] = below | {op}

    def _of(self, v: Value) -> frozenset[Op]:
        return self._below.get(v, frozenset())

    def _behind(self, v: Value) -> None:
        """What is left of the formula: sums and factors that are known, further roots, and the quotient or product with a value."""
        for user in v.users:
            if user in self.ops or not user.results or not _is_narrow(user.results[0]):
                continue
            alone = all(x is v or is_parameter(x) for x in user.operands)
            if alone and (user.kind in _KEEPS or user.kind in _ROOTS or 0 != _power(user) < 1):
                self.ops.add(user)
                self._behind(user.results[0])
            elif user.kind in ("div", "mul"):
                self.ops.add(user)


def _sums_integers(op: Op) -> bool:
    """True for what makes f16 of sums of integers, which f32 holds."""
    v = op.operands[0] if op.kind == "convert" else None
    if v is None or v.dtype != _WIDE:
        return False
    while (inner := made_by(v, "add", "sub", "relu", *_VIEWS)) is not None:
        v = inner.operands[0]
    if (wide := made_by(v, "convert")) is None:
        product = made_by(v, "gemm", "contract", "conv")
        return product is not None and of_integers(product)
    v = wide.operands[0]
    while (inner := made_by(v, "add", "sub", *_VIEWS)) is not None:
        v = inner.operands[0]
    return v.dtype in ("i32", "i64") and made_by(v, "gemm", "contract", "conv") is not None


def _is_narrow(v: Value) -> bool:
    return getattr(v.type, "dtype", "") == _NARROW


def _widen(program: IRProgram, block: Block, members: set[Op]) -> None:
    """Compute `members` in f32."""
    ops = [op for op in block if op in members]
    wide: dict[Value, Value] = {}

    def convert(v: Value, dtype: str, where: Op) -> Op:
        return program.ctx.create("convert", [v], loc=where.loc, dtype=dtype)

    for op in ops:
        if op.kind == "convert":
            wide[op.result] = op.operands[0]
            continue
        for i, v in enumerate(op.operands):
            if not _is_narrow(v):
                continue
            if v not in wide:
                wide[v] = block.insert_before(op, convert(v, _WIDE, op)).result
            op.set_operand(i, wide[v])
        infer_shapes(op)
        (y,) = op.results
        outside = [(user, i) for user, i in y.uses if user not in members]
        if outside:
            back = block.insert_after(op, convert(y, _NARROW, op)).result
            for user, i in outside:
                user.set_operand(i, back)
    for op in ops:
        if op.kind == "convert" and not op.result.uses:
            op.erase()


@dataclass(frozen=True)
class F16Range(CompilerPass):
    """Factors below one meet the operands of f16 products, powers stay in f32 until their roots. Changes nothing of other formats."""

    name: ClassVar[str] = "f16-range"

    def run(self, program: IRProgram) -> PassResult:
        result = rewrite_greedily(program.ctx, program.module, (_softmax_factor, _product_factor))
        stats, changed = {**result.applied, "dead": result.dead, "widened": 0}, result.changed
        for symbol in program.functions:
            for block in symbol.regions[0].blocks:
                powers = _Powers()
                for op in block:
                    powers.find(op)
                stats["widened"] += len(powers.ops)
                if powers.ops:
                    _widen(program, block, powers.ops)
                    changed = True
        return PassResult(changed, stats)
