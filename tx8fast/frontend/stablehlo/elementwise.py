"""Handlers of element-wise ops: arithmetic, logic, comparison, conversion, CHLO functions with a kind of their own.

May import: frontend.stablehlo.node. Must not: emit data movement.
"""

from __future__ import annotations

import numpy as np

from tx8fast.frontend.stablehlo.node import Handler, Node
from tx8fast.frontend.stablehlo.view import Val
from tx8fast.ir.core import Value
from tx8fast.weights import np_dtype

_CT_FLOATS = ("f32", "bf16", "f16")


def _unary(kind: str) -> Handler:
    return lambda n: n.v.elementwise(kind, n.vals[0])


def _rounding(kind: str) -> Handler:
    return lambda n: n.v.elementwise(kind, n[0]) if n[0].is_float else n[0]


def _binary(kind: str) -> Handler:
    return lambda n: n.v.elementwise(kind, n.vals[0], n.vals[1])


def _logical(kind: str) -> Handler:
    """Arithmetic on truth values: add is or, multiply and minimum are and, maximum is or."""
    on_pred = {"add": "or", "max": "or", "mul": "and", "min": "and"}[kind]
    return lambda n: n.v.elementwise(on_pred if n[0].dtype == "pred" else kind, n[0], n[1])


def _maximum(n: Node) -> Val:
    a, b = n[0], n[1]
    if a.is_float:
        for x, bound in ((a, b.splat), (b, a.splat)):
            if bound is not None and np.isneginf(bound):
                return x
            if bound is not None and bound == 0 and x.dtype in _CT_FLOATS:
                return n.v.elementwise("relu", x)
    return n.v.elementwise("or" if a.dtype == "pred" else "max", a, b)


def _compare(n: Node) -> Val:
    kind = n.importer.direction(n.op).lower()
    a, b = n[0], n[1]
    if a.dtype == "pred":
        a, b = n.v.converted(a, "u8"), n.v.converted(b, "u8")
    elif a.is_float and n.importer.total_order(n.op):
        a, b = _ranks(n, a), _ranks(n, b)
    return n.v.elementwise(kind, a, b)


def _ranks(n: Node, v: Val) -> Val:
    """Integers in the total order of floats: their bits, of negative numbers all but the sign inverted."""
    wide = "i" + v.dtype[-2:] if v.dtype != "bf16" else "i16"
    e, bits = n.v.elementwise, n.v.elementwise("bitcast", v, dtype=wide)
    turned = e("xor", bits, n.v.splat(int(np.iinfo(np_dtype(wide)).max), bits))
    return e("select", e("lt", bits, n.v.splat(0, bits)), turned, bits)


def _select(n: Node) -> Val:
    if n[0].rank == 0 and n.shape:  # one choice for all elements
        n.vals[0] = n.v.spread(n[0], [], n.shape)
    chosen = n[0].splat
    if chosen is not None:
        return n[1] if chosen else n[2]
    if n[1].dtype == "pred":
        a, b = (n.v.elementwise("and", p, x) for p, x in ((n[0], n[1]), (n.v.elementwise("not", n[0]), n[2])))
        return n.v.elementwise("or", a, b)
    return n.v.elementwise("select", n[0], n[1], n[2])


def _clamp(n: Node) -> Val:
    low, x, high = n[0], n[1], n[2]
    lo, hi = low.splat, high.splat
    exact = x.is_float or x.dtype in ("i8", "u8", "i16", "u16", "i32", "u32")
    if exact and lo is not None and hi is not None and lo <= hi:
        return n.v.elementwise("clamp", x, lo=float(lo), hi=float(hi))
    low, high = (v if v.rank == x.rank else n.v.spread(v, [], x.shape) for v in (low, high))
    return n.v.elementwise("min", n.v.elementwise("max", x, low), high)


def _convert(n: Node) -> Val:
    return n.v.converted(n[0], n.dtype)


def _bitcast(n: Node) -> Val:
    if n[0].shape != n.shape:
        raise n.unsupported("a bit cast between element types of different widths is not supported")
    return n.v.elementwise("bitcast", n[0], dtype=n.dtype)


def _remainder(n: Node) -> Val:
    return n.v.elementwise("mod", n[0], n[1], fmod=True)


def _power(n: Node) -> Val:
    known = {2.0: "square", 0.5: "sqrt", -1.0: "recip", -0.5: "rsqrt"}
    e = n[1].splat
    kind = known.get(float(e)) if e is not None and n[0].is_float else None
    return n.v.elementwise(kind, n[0]) if kind else n.v.elementwise("pow", n[0], n[1])


def _shift_right(sign: str) -> Handler:
    """What moves in from above: of numbers with a sign ("i") the highest bit, of others ("u") zeros, whatever the operands are."""

    def emit(n: Node) -> Val:
        x, by = n[0], n[1]
        wide = sign + x.dtype[1:]
        if x.dtype == wide:
            return n.v.elementwise("shr", x, by)
        bits = [n.v.elementwise("bitcast", v, dtype=wide) for v in (x, by)]
        return n.v.elementwise("bitcast", n.v.elementwise("shr", *bits), dtype=x.dtype)

    return emit


def _expm1(n: Node) -> Val:
    """u - 1 with u = exp(x); for small x times x / log(u), since u is the exponential of log(u) and not of x once it is rounded
    (W. Kahan's correction; Higham, Accuracy and Stability of Numerical Algorithms, 1.14.1)."""
    e, x = n.v.elementwise, n[0]
    power, one = e("exp", x), n.v.splat(1, x)
    less = e("sub", power, one)
    exact = e("mul", less, e("div", x, e("log", power)))
    return _near_zero(n, x, e("eq", power, one), exact, less)


def _log1p(n: Node) -> Val:
    """log(u) with u = 1 + x; for small x times x / (u - 1), by the same correction. Of an exponential it is the softplus."""
    e, x = n.v.elementwise, n[0]
    made = x.core.value.op if x.core.value is not None and x.is_float else None
    if made is not None and made.kind == "exp":
        return _instead(n, x, "softplus", *made.operands)
    one = n.v.splat(1, x)
    more = e("add", x, one)
    log = e("log", more)
    return _near_zero(n, x, e("eq", more, one), e("mul", log, e("div", x, e("sub", more, one))), log)


def _near_zero(n: Node, x: Val, tiny: Val, near: Val, far: Val) -> Val:
    """`near` for x between -1 and 1, there x itself where it is `tiny`; `far` elsewhere, which knows infinities."""
    e = n.v.elementwise
    small = e("lt", e("abs", x), n.v.splat(1, x))
    return e("select", small, e("select", tiny, x, near), far)


def _cbrt(n: Node) -> Val:
    root = n.v.elementwise("pow", n.v.elementwise("abs", n[0]), n.v.splat(1 / 3, n[0]))
    return n.v.elementwise("mul", n.v.elementwise("sign", n[0]), root)


def _round_away(n: Node) -> Val:
    """The whole part, one more if half or more is left: x + 0.5 would be rounded itself."""
    e, size = n.v.elementwise, n.v.elementwise("abs", n[0])
    low = e("floor", size)
    up = e("ge", e("sub", size, low), n.v.splat(0.5, size))
    size = e("select", up, e("add", low, n.v.splat(1, low)), low)
    return e("mul", e("sign", n[0]), size)


def _is_finite(n: Node) -> Val:
    odd = n.v.elementwise("or", n.v.elementwise("isnan", n[0]), n.v.elementwise("isinf", n[0]))
    return n.v.elementwise("not", odd)


def _signed_inf(kind: str) -> Handler:
    return lambda n: n.v.elementwise(
        "and", n.v.elementwise("isinf", n[0]), n.v.elementwise(kind, n[0], n.v.splat(0, n[0]))
    )


def erfc(n: Node) -> Val:
    """1 - erf(t), written as 1 + erf(-t): the form GELU is recognised by."""
    return n.v.elementwise("add", n.v.elementwise("erf", negated(n, n[0])), n.v.splat(1, n[0]))


def negated(n: Node, v: Val) -> Val:
    """-v, dropping a negation that v already has, also one inside a product."""
    op = v.core.value.op if v.core.value is not None else None
    factors = list(op.operands) if op is not None and op.kind == "mul" else []
    for sub, factor in enumerate(factors):
        inner = factor.op
        if inner is not None and inner.kind == "neg":
            values = list(factors)
            values[sub] = inner.operands[0]
            return _instead(n, v, "mul", *values)
    return n.v.elementwise("neg", v)


def _instead(n: Node, v: Val, kind: str, *operands: Value) -> Val:
    """What an op of operands with the layout of v makes, in the layout of v."""
    made = n.importer.emitter.builder(kind, *operands, loc=n.importer.emitter.loc)
    return Val(v.shape, type(v.core)(v.core.shape, v.dtype, value=made), v.dims)


def _atan2(n: Node) -> Val:
    """atan(y / x), moved by pi on the left half plane; x = 0 has its own answer. Equal sizes, also two infinities, make 1 or -1. Zeros have
    signs, which their reciprocals tell."""
    y, x = n[0], n[1]
    zero, pi = n.v.splat(0, x), n.v.splat(np.pi, x)
    e = n.v.elementwise

    def negative(v: Val) -> Val:
        return e("or", e("lt", v, zero), e("lt", e("div", n.v.splat(1, v), v), zero))

    flat = e("eq", x, zero)
    slope = e("div", y, e("select", flat, n.v.splat(1, x), x))
    diagonal = e("eq", e("abs", y), e("abs", x))
    angle = e("atan", e("select", diagonal, e("mul", e("sign", y), e("sign", x)), slope))
    side = e("select", negative(y), e("neg", pi), pi)
    angle = e("select", e("lt", x, zero), e("add", angle, side), angle)
    behind = e("and", e("eq", y, zero), negative(x))
    upright = e("select", behind, side, e("mul", e("sign", y), n.v.splat(np.pi / 2, x)))
    return e("select", flat, upright, angle)


def _reduce_precision(n: Node) -> Val:
    form = n.int("exponent_bits"), n.int("mantissa_bits")
    dtype = {(8, 7): "bf16", (5, 10): "f16", (8, 23): "f32", (11, 52): "f64"}.get(form)
    if dtype is None:
        raise n.unsupported(
            f"rounding to {form[0]} bits of exponent and {form[1]} of mantissa is not supported, only to bf16, f16, f32"
        )
    if dtype == "f64" or (dtype == "f32" and n[0].dtype in ("bf16", "f16")):
        return n[0]
    return n.v.converted(n.v.converted(n[0], dtype), n.dtype)


def _identity(n: Node) -> list[Val]:
    return list(n.vals)


def _constant_like(n: Node) -> Val:
    value = n.attr("value").value
    return Val(n.shape, n.const(np.asarray(value).astype(np_dtype(n.dtype)), n.dtype), (-1,) * len(n.shape))


_UNARY = {
    "abs": "abs",
    "cosine": "cos",
    "exponential": "exp",
    "log": "log",
    "logistic": "sigmoid",
    "negate": "neg",
    "not": "not",
    "rsqrt": "rsqrt",
    "sign": "sign",
    "sine": "sin",
    "sqrt": "sqrt",
    "tan": "tan",
    "tanh": "tanh",
}
_CHLO = {
    "acos": "acos",
    "acosh": "acosh",
    "asin": "asin",
    "asinh": "asinh",
    "atan": "atan",
    "atanh": "atanh",
    "cosh": "cosh",
    "erf": "erf",
    "sinh": "sinh",
    "square": "square",
    "tan": "tan",
    "is_inf": "isinf",
}
_BINARY = {
    "divide": "div",
    "subtract": "sub",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "shift_left": "shl",
}

HANDLERS: dict[str, Handler] = {
    **{f"stablehlo.{name}": _unary(kind) for name, kind in _UNARY.items()},
    **{f"chlo.{name}": _unary(kind) for name, kind in _CHLO.items()},
    **{f"stablehlo.{name}": _binary(kind) for name, kind in _BINARY.items()},
    **{
        f"stablehlo.{name}": _rounding(kind)
        for name, kind in (("floor", "floor"), ("ceil", "ceil"), ("round_nearest_even", "round"))
    },
    "stablehlo.add": _logical("add"),
    "stablehlo.multiply": _logical("mul"),
    "stablehlo.minimum": _logical("min"),
    "stablehlo.maximum": _maximum,
    "stablehlo.compare": _compare,
    "stablehlo.select": _select,
    "stablehlo.clamp": _clamp,
    "stablehlo.convert": _convert,
    "stablehlo.bitcast_convert": _bitcast,
    "stablehlo.remainder": _remainder,
    "stablehlo.power": _power,
    "stablehlo.shift_right_logical": _shift_right("u"),
    "stablehlo.shift_right_arithmetic": _shift_right("i"),
    "stablehlo.exponential_minus_one": _expm1,
    "stablehlo.log_plus_one": _log1p,
    "stablehlo.cbrt": _cbrt,
    "stablehlo.round_nearest_afz": _round_away,
    "stablehlo.is_finite": _is_finite,
    "stablehlo.atan2": _atan2,
    "chlo.is_pos_inf": _signed_inf("gt"),
    "chlo.is_neg_inf": _signed_inf("lt"),
    "chlo.erfc": erfc,
    "chlo.constant_like": _constant_like,
    "stablehlo.optimization_barrier": _identity,
    "sdy.sharding_constraint": _identity,
    "stablehlo.reduce_precision": _reduce_precision,
}
