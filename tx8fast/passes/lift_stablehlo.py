"""Recognises what JAX programs spell out in primitives: softmax, sigmoid, layer norm with the short variance.

May import: ir, passes.base, passes.canonicalize, passes.lift_match, passes.lift_norm. Must not: change numbers beyond
rounding. Runs before the other lifting passes, which finish what is begun here.
"""

from __future__ import annotations

from typing import ClassVar

from tx8fast.ir.core import Op, Value
from tx8fast.ir.rewrite import Pattern, Rewriter, pattern
from tx8fast.passes.base import PatternPass
from tx8fast.passes.canonicalize import splat
from tx8fast.passes.lift_match import made_by, orders, same, static, used_once
from tx8fast.passes.lift_norm import _mean, _squared
from tx8fast.records import dataclass

_FLOATS = ("bf16", "f16", "f32")


def _seen(v: Value) -> Value:
    """`v` before conversions of its format."""
    while (op := made_by(v, "convert")) is not None and op.operands[0].dtype in _FLOATS:
        v = op.operands[0]
    return v


def _reduced(v: Value, how: str) -> tuple[Value, int] | None:
    """(x, axis), if v is x reduced over one axis that stays with extent 1."""
    op = made_by(_seen(v), "reduce")
    if op is None or op.attrs["op"] != how or not op.attrs["keepdims"] or len(op.attrs["axes"]) != 1:
        return None
    x = op.operands[0]
    return _seen(x), op.attrs["axes"][0] % len(x.shape)


def _shifted_exp(v: Value) -> tuple[Value, int] | None:
    """(x, axis), if v = exp(x - max(x))."""
    e = made_by(_seen(v), "exp")
    return None if e is None else _shifted(e.operands[0])


def _shifted(v: Value) -> tuple[Value, int] | None:
    """(x, axis), if v = x - max(x)."""
    d = made_by(_seen(v), "sub")
    top = None if d is None else _reduced(d.operands[1], "max")
    if d is None or top is None or not same(_seen(d.operands[0]), top[0]):
        return None
    return d.operands[0], top[1]


def _as(rw: Rewriter, x: Value, like: Value, before: Op) -> Value:
    return x if x.dtype == like.dtype else rw.insert("convert", x, before=before, dtype=like.dtype).result


def _parts(op: Op) -> tuple[Value, Value] | None:
    """(a, b), if op = a / b."""
    if op.kind == "div":
        return op.operands[0], op.operands[1]
    for a, b in orders(op):
        inner = made_by(b, "recip")
        if inner is not None:
            return a, inner.operands[0]
    return None


@pattern("div", "mul", benefit=5)
def _softmax(op: Op, rw: Rewriter) -> bool:
    """exp(x - max) / sum(exp(x - max))."""
    parts = _parts(op)
    if parts is None or op.result.dtype not in _FLOATS or not static(*op.operands):
        return False
    found = _shifted_exp(parts[0])
    total = None if found is None else _reduced(parts[1], "add")
    if found is None or total is None or total[1] != found[1] or not same(total[0], _seen(parts[0])):
        return False
    if found[0].shape != op.result.shape:
        return False
    rw.replace_with(op, "softmax", _as(rw, found[0], op.result, op), axis=found[1], scale=1.0, log=False)
    return True


@pattern("sub", benefit=5)
def _log_softmax(op: Op, rw: Rewriter) -> bool:
    """(x - max) - log(sum(exp(x - max)))."""
    root = made_by(_seen(op.operands[1]), "log")
    total = None if root is None else _reduced(root.operands[0], "add")
    if total is None or op.result.dtype not in _FLOATS or not static(*op.operands):
        return False
    found, other = _shifted_exp(total[0]), _shifted(op.operands[0])
    if found is None or other is None or found[1] != total[1] or other[1] != total[1]:
        return False
    if not same(_seen(found[0]), _seen(other[0])) or other[0].shape != op.result.shape:
        return False
    rw.replace_with(op, "softmax", _as(rw, other[0], op.result, op), axis=total[1], scale=1.0, log=True)
    return True


@pattern("div", "recip", benefit=4)
def _sigmoid(op: Op, rw: Rewriter) -> bool:
    """1 / (1 + exp(-x))."""
    if op.kind == "div" and splat(op.operands[0]) != 1:
        return False
    total = made_by(op.operands[-1], "add")
    for a, b in orders(total) if total is not None else ():
        e = made_by(a, "exp")
        inner = None if e is None else made_by(e.operands[0], "neg")
        if (
            inner is not None
            and splat(b) == 1
            and inner.operands[0].type is op.result.type
            and op.result.dtype in _FLOATS
        ):
            rw.replace_with(op, "sigmoid", inner.operands[0])
            return True
    return False


# ---------------------------------------------------------------- norms


def _per_row(v: Value, x: Value) -> bool:
    return static(v, x) and len(v.shape) == len(x.shape) and v.shape[-1] == 1 and x.shape[-1] != 1


@pattern("mul", benefit=6)
def _scale_last(op: Op, rw: Rewriter) -> bool:
    """x * (r * g) = (x * r) * g for a root r per row and a vector g."""
    for x, product in orders(op):
        inner = made_by(product, "mul")
        if inner is None or x.type is not op.result.type or not used_once(product):
            continue
        for r, g in orders(inner):
            vector = static(g) and g.shape[-1:] == x.shape[-1:] and g.type is not x.type
            if made_by(r, "rsqrt") is not None and _per_row(r, x) and vector:
                rw.replace_with(op, "mul", rw.insert("mul", x, r, before=op).result, g)
                return True
    return False


def _short_variance(v: Value, x: Value, mean: Value, axes: tuple[int, ...]) -> bool:
    """True if v = mean(x^2) - mean^2, cut off at 0 or not."""
    inner = made_by(v, "relu")
    difference = made_by(inner.operands[0] if inner is not None else v, "sub")
    if difference is None:
        return False
    squares, square = _mean(difference.operands[0]), _squared(difference.operands[1])
    if squares is None or square is None or squares[1] != axes or not same(square, mean):
        return False
    power = _squared(squares[0])
    return power is not None and same(power, x)


@pattern("mul", benefit=5)
def _short_layernorm(op: Op, rw: Rewriter) -> bool:
    """(x - mean) / sqrt(mean(x^2) - mean^2 + eps)."""
    for centred, root in orders(op):
        difference, inverse = made_by(centred, "sub"), made_by(root, "rsqrt")
        if difference is None or inverse is None or centred.type is not op.result.type:
            continue
        x, mean = difference.operands
        found, total = _mean(mean), made_by(inverse.operands[0], "add")
        if (
            found is None
            or total is None
            or not same(found[0], x)
            or found[1] != (len(x.shape) - 1,)
            or x.dtype not in _FLOATS
        ):
            continue
        for variance, constant in orders(total):
            eps = splat(constant)
            if eps is not None and 0 <= eps <= 1e-1 and _short_variance(variance, x, mean, found[1]):
                rw.replace_with(op, "layernorm", x, axes=found[1], eps=float(eps))
                return True
    return False


PATTERNS: tuple[Pattern, ...] = (_softmax, _log_softmax, _sigmoid, _scale_last, _short_layernorm)


@dataclass(frozen=True)
class LiftStablehlo(PatternPass):
    """Makes `softmax`, `sigmoid` and `layernorm` of the forms that JAX programs have them in."""

    name: ClassVar[str] = "lift-stablehlo"
    rounds: ClassVar[tuple[tuple[Pattern, ...], ...]] = (PATTERNS,)
