"""Recognises activations spelt out in primitives: SiLU, GELU (exact and tanh form), gated products.

May import: ir, passes.{base, canonicalize, lift_match, lift_quantised}. Must not: change numbers beyond rounding.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

from tx8fast.ir.core import Op, Value
from tx8fast.ir.rewrite import Pattern, Rewriter, pattern
from tx8fast.passes.base import PatternPass
from tx8fast.passes.canonicalize import splat
from tx8fast.passes.lift_match import close, half_step, is_parameter, made_by, orders, same, used_once
from tx8fast.passes.lift_quantised import PATTERNS as QUANTISED
from tx8fast.records import dataclass

_FLOATS = ("bf16", "f16", "f32")
_GATES = ("silu", "gelu", "gelu_tanh")


class _Product(NamedTuple):
    """constant * product of values; the constant is what was meant up to a share of it, lost in rounding."""

    constant: float
    share: float
    factors: list[Value]

    def has(self, meant: float, count: int) -> bool:
        return len(self.factors) == count and close(self.constant, meant, self.share)


def _product(v: Value, depth: int = 5) -> _Product:
    """Write `v` as a product, seen through mul, div by a constant, square and small powers."""
    c = splat(v)
    if c is not None:
        return _Product(float(c), half_step(float(c), v.dtype), [])
    op = v.op
    if op is None or depth == 0:
        return _Product(1.0, 0.0, [v])
    if op.kind == "mul" or op.kind == "div" and splat(op.operands[1]):
        (c1, share1, f1), (c2, share2, f2) = (_product(x, depth - 1) for x in op.operands)
        return _Product(c1 * c2 if op.kind == "mul" else c1 / c2, share1 + share2, f1 + f2)
    power = 2 if op.kind == "square" else splat(op.operands[1]) if op.kind == "pow" else None
    if power in (2, 3):
        power = int(power)
        c1, share, f1 = _product(op.operands[0], depth - 1)
        return _Product(c1**power, share * power, f1 * power)
    return _Product(1.0, 0.0, [v])


def _is(v: Value, x: Value, constant: float, power: int = 1) -> bool:
    """True if v = constant * x ** power."""
    found = _product(v)
    return found.has(constant, power) and all(same(f, x) for f in found.factors)


def _one_plus(v: Value, kind: str) -> Value | None:
    """t, if v = 1 + kind(t)."""
    op = made_by(v, "add")
    for a, b in orders(op) if op is not None else ():
        inner = made_by(a, kind)
        if inner is not None and splat(b) == 1:
            return inner.operands[0]
    return None


def _is_tanh_argument(t: Value, x: Value) -> bool:
    """True if t = sqrt(2 / pi) * (x + 0.044715 * x^3), or the same with x before the bracket."""
    found = _product(t)
    n = len(found.factors)
    if n not in (1, 2) or not found.has(math.sqrt(2 / math.pi), n):
        return False
    for i, v in enumerate(found.factors):
        total = made_by(v, "add")
        if total is None or not all(same(f, x) for f in found.factors[:i] + found.factors[i + 1 :]):
            continue
        for a, b in orders(total):
            if (same(a, x) if n == 1 else splat(a) == 1) and _is(b, x, 0.044715, 4 - n):
                return True
    return False


@pattern("mul", benefit=4)
def _gelu(op: Op, rw: Rewriter) -> bool:
    """x / 2 * (1 + erf(x / sqrt 2)), and the form with tanh."""
    if op.result.dtype not in _FLOATS:
        return False
    found = _product(op.result)
    if not found.has(0.5, 2):
        return False
    for x, gate in (found.factors, found.factors[::-1]):
        if x.type is not op.result.type:
            continue
        t = _one_plus(gate, "erf")
        if t is not None and _is(t, x, math.sqrt(0.5)):
            rw.replace_with(op, "gelu", x)
            return True
        t = _one_plus(gate, "tanh")
        if t is not None and _is_tanh_argument(t, x):
            rw.replace_with(op, "gelu_tanh", x)
            return True
    return False


@pattern("mul", benefit=3)
def _silu(op: Op, rw: Rewriter) -> bool:
    for x, gate in orders(op):
        inner = made_by(gate, "sigmoid")
        if inner is not None and inner.operands[0] is x and x.type is op.result.type and x.dtype in _FLOATS:
            rw.replace_with(op, "silu", x)
            return True
    return False


@pattern("mul", benefit=2)
def _gated(op: Op, rw: Rewriter) -> bool:
    """act(gate) * up of equal shapes."""
    for a, up in orders(op):
        act = made_by(a, *_GATES)
        if act is None or not used_once(a) or a.type is not up.type or is_parameter(up):
            continue
        if made_by(up, *_GATES) is None:
            rw.replace_with(op, "swiglu", act.operands[0], up, act=act.kind)
            return True
    return False


PATTERNS: tuple[Pattern, ...] = (_gelu, _silu, _gated, *QUANTISED)


@dataclass(frozen=True)
class LiftActivation(PatternPass):
    """Makes `silu`, `gelu`, `gelu_tanh` and `swiglu` of their primitives, and steps of activations that are quantised."""

    name: ClassVar[str] = "lift-activation"
    rounds: ClassVar[tuple[tuple[Pattern, ...], ...]] = (PATTERNS,)
