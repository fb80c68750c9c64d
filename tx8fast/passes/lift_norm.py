"""Recognises normalisation spelt out in primitives: mean of squares, epsilon, root, scale, shift.

May import: ir, passes.base, passes.canonicalize, passes.lift_match. Must not: change numbers beyond rounding.
Intermediate values that have other users stay; the rest is dead afterwards and goes.
"""

from __future__ import annotations

import math
from typing import ClassVar

from tx8fast.ir.core import Op, Value
from tx8fast.ir.rewrite import Pattern, Rewriter, pattern
from tx8fast.passes.base import PatternPass
from tx8fast.passes.canonicalize import is_widening, splat
from tx8fast.passes.lift_match import (
    close,
    half_step,
    is_parameter,
    made_by,
    orders,
    reshaped,
    same,
    scalar,
    static,
    used_once,
)
from tx8fast.records import dataclass

_FLOATS = ("bf16", "f16", "f32")


def _root(v: Value) -> Value | None:
    """a, if v = sqrt(a)."""
    op = made_by(v, "sqrt", "pow")
    if op is None or (op.kind == "pow" and splat(op.operands[1]) != 0.5):
        return None
    return op.operands[0]


def _inverse_root(v: Value) -> Value | None:
    """a, if v = 1 / sqrt(a)."""
    op = made_by(v, "rsqrt", "recip", "div", "pow")
    if op is None:
        return None
    if op.kind == "rsqrt" or (op.kind == "pow" and splat(op.operands[1]) == -0.5):
        return op.operands[0]
    if op.kind == "recip":
        return _root(op.operands[0])
    if op.kind == "div" and splat(op.operands[0]) == 1:
        return _root(op.operands[1])
    return None


def _mean(v: Value) -> tuple[Value, tuple[int, ...]] | None:
    """(x, axes), if v is the mean of x over its last axes, kept as extents of 1."""
    op = made_by(v, "reduce", "mul", "div", "reshape")
    if op is None:
        return None
    if op.kind == "reshape":
        if (inner := made_by(op.operands[0], "reduce")) is None or not static(v):
            return None
        x, axes = inner.operands[0], {a % len(inner.operands[0].shape) for a in inner.attrs["axes"]}
        kept = tuple(1 if i in axes else d for i, d in enumerate(x.shape))
        return (x, tuple(sorted(axes))) if inner.attrs["op"] == "mean" and v.shape == kept else None
    if op.kind == "reduce":
        if not op.attrs["keepdims"] or op.attrs["op"] != "mean":
            return None
        rank = len(op.operands[0].shape)
        return op.operands[0], tuple(sorted(a % rank for a in op.attrs["axes"]))
    for total, count in orders(op) if op.kind == "mul" else [tuple(op.operands)]:
        c, inner = splat(count), made_by(total, "reduce")
        if c is None or not c or inner is None or inner.attrs["op"] != "add" or not inner.attrs["keepdims"]:
            continue
        shape = inner.operands[0].shape
        axes = tuple(sorted(a % len(shape) for a in inner.attrs["axes"]))
        n = math.prod(shape[a] for a in axes)
        if close(float(c), n if op.kind == "div" else 1 / n, half_step(float(c), count.dtype)):
            return inner.operands[0], axes
    return None


def _squared(v: Value) -> Value | None:
    op = made_by(v, "square", "mul", "pow")
    if (
        op is None
        or (op.kind == "mul" and not same(op.operands[0], op.operands[1]))
        or (op.kind == "pow" and splat(op.operands[1]) != 2)
    ):
        return None
    return op.operands[0]


def _normalised(op: Op) -> tuple[Value, Value] | None:
    """(x, v), if op computes x / sqrt(v)."""
    if op.kind == "div":
        v = _root(op.operands[1])
        return None if v is None else (op.operands[0], v)
    for x, factor in orders(op):
        v = _inverse_root(factor)
        if v is not None:
            return x, v
    return None


@pattern("mul", "div", benefit=3)
def _norm(op: Op, rw: Rewriter) -> bool:
    """x / sqrt(mean(x^2) + eps), and the same of x minus its mean."""
    found = _normalised(op)
    if found is None:
        return False
    x, total = found
    added = made_by(total, "add")
    if added is None or x.type is not op.result.type or x.dtype not in _FLOATS or not static(x):
        return False
    for power, constant in orders(added):
        eps, mean = splat(constant), _mean(power)
        if eps is None or mean is None or eps < 0 or eps > 1e-1:
            continue
        inner = _squared(mean[0])
        if inner is None or not same(inner, x):
            continue
        rank, axes = len(x.shape), mean[1]
        if axes != (rank - 1,):
            continue
        centred = made_by(x, "sub")
        shift = None if centred is None else _mean(centred.operands[1])
        if centred is not None and shift is not None and shift[1] == axes and same(shift[0], centred.operands[0]):
            rw.replace_with(op, "layernorm", centred.operands[0], axes=axes, eps=float(eps))
        else:
            rw.replace_with(op, "rmsnorm", x, axes=axes, eps=float(eps))
        return True
    return False


def _fits(norm: Op, p: Value, result: Value) -> bool:
    """True if `p` is a parameter over the normalised axes."""
    x = norm.operands[0]
    if (
        norm.attrs["heads"] != 1
        or not static(p, x)
        or p.dtype != x.dtype
        or result.type is not x.type
        or not is_parameter(p)
    ):
        return False
    n = len(norm.attrs["axes"])
    own, lead = p.shape[max(0, len(p.shape) - n) :], p.shape[: max(0, len(p.shape) - n)]
    return own == x.shape[len(x.shape) - n :] and all(d == 1 for d in lead)


@pattern("mul", benefit=2)
def _gamma(op: Op, rw: Rewriter) -> bool:
    for y, g in orders(op):
        norm = made_by(y, "rmsnorm", "layernorm")
        if norm is not None and len(norm.operands) == 1 and used_once(y) and _fits(norm, g, op.result):
            rw.replace_with(op, norm.kind, norm.operands[0], g, axes=norm.attrs["axes"], eps=norm.attrs["eps"])
            return True
    return False


@pattern("rmsnorm", benefit=2)
def _centred(op: Op, rw: Rewriter) -> bool:
    """The norm by the root of the mean square of x minus its mean is a layer norm of x."""
    less = made_by(op.operands[0], "sub")
    shift = None if less is None else _mean(less.operands[1])
    if less is None or shift is None or op.attrs["heads"] != 1 or not static(op.result):
        return False
    rank = len(op.result.shape)
    axes = tuple(sorted(a % rank for a in op.attrs["axes"]))
    if shift[1] != axes or not same(shift[0], less.operands[0]) or less.operands[0].type is not op.result.type:
        return False
    rw.replace_with(op, "layernorm", less.operands[0], *op.operands[1:], axes=op.attrs["axes"], eps=op.attrs["eps"])
    return True


@pattern("add", benefit=2)
def _beta(op: Op, rw: Rewriter) -> bool:
    for y, b in orders(op):
        norm = made_by(y, "layernorm")
        if norm is not None and len(norm.operands) == 2 and used_once(y) and _fits(norm, b, op.result):
            rw.replace_with(op, "layernorm", *norm.operands, b, axes=norm.attrs["axes"], eps=norm.attrs["eps"])
            return True
    return False


@pattern("convert")
def _narrow(op: Op, rw: Rewriter) -> bool:
    """A norm computed in f32 between two conversions: the engine computes in f32 anyhow."""
    norm = made_by(op.operands[0], "rmsnorm", "layernorm")
    if norm is None or not used_once(norm.result):
        return False
    sources = []
    for v in norm.operands:
        widened = made_by(v, "convert")
        if widened is None or widened.operands[0].dtype != op.result.dtype:
            return False
        sources.append(widened.operands[0])
    if not is_widening(op.result.dtype, norm.result.dtype):
        return False
    attrs = {name: norm.attrs[name] for name in ("axes", "eps", "heads")}
    rw.replace_with(op, norm.kind, *sources, **attrs)
    return True


@pattern("rmsnorm", "layernorm")
def _before_heads(op: Op, rw: Rewriter) -> bool:
    """A norm of each head before the heads are brought to the front, where rotation and products expect them."""
    turned = made_by(op.operands[0], "transpose")
    rank = len(op.result.shape) if static(op.result) else 0
    if (
        op.attrs["heads"] != 1
        or turned is None
        or not used_once(turned.result)
        or [a % rank for a in op.attrs["axes"]] != [rank - 1]
    ):
        return False
    perm = turned.attrs["perm"]
    if perm[-1] != rank - 1 or any(v.shape != op.result.shape[-1:] for v in op.operands[1:]):
        return False
    attrs = {"axes": (-1,), "eps": op.attrs["eps"]}
    norm = rw.insert(op.kind, turned.operands[0], *op.operands[1:], before=op, **attrs).result
    rw.replace_with(op, "transpose", norm, perm=perm)
    return True


@pattern("batchnorm_inference")
def _channel_scale(op: Op, rw: Rewriter) -> bool:
    """With known statistics it is one product and one sum per channel."""
    x, *parameters = op.operands
    if not static(*op.operands) or not all(is_parameter(p) and p.dtype == x.dtype for p in parameters):
        return False
    if x.dtype not in _FLOATS or x.type is not op.result.type:
        return False
    scale, offset, mean, variance = (reshaped(rw, p, x.shape[-1:], op) for p in parameters)
    total = rw.insert("add", variance, scalar(rw, op.attrs["eps"], x.dtype, op), before=op).result
    factor = rw.insert("mul", scale, rw.insert("rsqrt", total, before=op).result, before=op).result
    shift = rw.insert("sub", offset, rw.insert("mul", mean, factor, before=op).result, before=op).result
    rw.replace_with(op, "add", rw.insert("mul", x, factor, before=op).result, shift)
    return True


PATTERNS: tuple[Pattern, ...] = (_norm, _gamma, _centred, _beta, _narrow, _channel_scale)


@dataclass(frozen=True)
class LiftNorm(PatternPass):
    """Makes `rmsnorm` and `layernorm` of their primitives, and a product and a sum of a known batch norm."""

    name: ClassVar[str] = "lift-norm"
    rounds: ClassVar[tuple[tuple[Pattern, ...], ...]] = (PATTERNS, (_before_heads,))
