"""Element-wise kinds: binary, comparison, logic, unary, activations, clamp, select, swiglu, maps, convert, rope.

May import: ir.ops.base, ir.factors, numerics.steps, errors. Must not: know lowering.
"""

from __future__ import annotations

from tx8fast.errors import ConfigError, VerifyError
from tx8fast.ir import factors, factors_index
from tx8fast.ir.core import COMMUTATIVE, COMPUTE, ELEMENTWISE, IDEMPOTENT, REQUIRED, Op
from tx8fast.ir.ops.base import (
    CT_FLOATS,
    INT_DTYPES,
    OpDef,
    broadcast_dims,
    broadcast_into,
    fail,
    in_place,
    is_num,
    match,
    same_dtype,
    tensor,
    where,
)
from tx8fast.ir.types import DTYPE_BITS, FLOAT_DTYPES
from tx8fast.numerics.layout import npc
from tx8fast.numerics.steps import parse_steps

EW = COMPUTE | ELEMENTWISE


def _unary(op: Op):
    t = tensor(op, 0)
    return [(t.shape, t.dtype)]


def _float_unary(op: Op):
    t = tensor(op, 0, dtypes=FLOAT_DTYPES)
    return [(t.shape, t.dtype)]


def _predicate(op: Op):
    return [(tensor(op, 0, dtypes=FLOAT_DTYPES).shape, "pred")]


def _binary(op: Op):
    a, b = tensor(op, 0), tensor(op, 1)
    if a.dtype != b.dtype:
        same_dtype(op, 1, a.dtype)
    return [(broadcast_dims(op, 1, a.shape, b.shape), a.dtype)]


def _logic(op: Op):
    a = tensor(op, 0, dtypes=INT_DTYPES | {"pred"})
    if len(op.operands) == 1:
        return [(a.shape, a.dtype)]
    return _binary(op)


def _shift(op: Op):
    tensor(op, 0, dtypes=INT_DTYPES)
    return _binary(op)


def _compare(op: Op):
    return [(_binary(op)[0][0], "pred")]


def _select(op: Op):
    p, a, b = tensor(op, 0, dtypes=("pred",)), tensor(op, 1), tensor(op, 2)
    if a.dtype != b.dtype:
        raise fail(op, 2, f"element type {b.dtype}", f"{a.dtype} as operand 'a'")
    return [(broadcast_dims(op, 2, broadcast_dims(op, 1, p.shape, a.shape), b.shape), a.dtype)]


def _prelu(op: Op):
    t = tensor(op, 0, dtypes=FLOAT_DTYPES)
    same_dtype(op, 1, t.dtype)
    broadcast_into(op, 1, t.shape)
    return [(t.shape, t.dtype)]


def _clamp(op: Op):
    if not op.attrs["lo"] <= op.attrs["hi"]:
        raise fail(op, "lo", op.attrs["lo"], f"at most hi = {op.attrs['hi']}")
    return _unary(op)


def _swiglu(op: Op):
    if op.attrs["act"] not in ("silu", "gelu", "gelu_tanh", "relu", "sigmoid"):
        raise fail(op, "act", repr(op.attrs["act"]), "silu, gelu, gelu_tanh, relu or sigmoid")
    tensor(op, 0, dtypes=FLOAT_DTYPES)
    return _binary(op)


def _map(op: Op):
    try:
        parse_steps(op.attrs["steps"], len(op.operands))
    except ConfigError as e:
        raise fail(op, "steps", repr(op.attrs["steps"]), f"steps: {e}") from e
    first = tensor(op, 0, dtypes=FLOAT_DTYPES)
    shape = first.shape
    for k in range(1, len(op.operands)):
        same_dtype(op, k, first.dtype)
        shape = broadcast_dims(op, k, shape, tensor(op, k).shape)
    return [(shape, first.dtype)]


def _convert(op: Op):
    if op.attrs["dtype"] not in DTYPE_BITS:
        raise fail(op, "dtype", repr(op.attrs["dtype"]), f"one of {', '.join(DTYPE_BITS)}")
    return [(tensor(op, 0).shape, op.attrs["dtype"])]


def _rope(op: Op):
    x = tensor(op, 0, min_rank=2, dtypes=FLOAT_DTYPES)
    heads, style, r = op.attrs["heads"], op.attrs["style"], op.attrs["rotary_dim"]
    if style not in ("half", "interleaved"):
        raise fail(op, "style", repr(style), "half or interleaved")
    if heads < 1 or (is_num(x.shape[-1]) and x.shape[-1] % heads):
        raise fail(op, "heads", heads, f"a divisor of the last dimension {x.shape[-1]}")
    if not is_num(x.shape[-1]):
        raise VerifyError(f"{where(op)}: the last dimension of operand 'x' must be known")
    d = x.shape[-1] // heads
    if r != -1 and not (0 < r <= d and r % 2 == 0):
        raise fail(op, "rotary_dim", r, f"-1 or an even number in [2, {d}]")
    if r == -1 and d % 2:
        raise fail(op, "heads", heads, f"a value that gives an even head size, found {d}")
    for i in (1, 2):
        t = tensor(op, i, rank=2, dtypes=FLOAT_DTYPES)
        match(op, i, "lane count", t.shape[1], d)
        if t.shape[0] != 1:
            match(op, i, "position count", t.shape[0], x.shape[-2])
    return [(x.shape, x.dtype)]


# ---------------------------------------------------------------- rules and facts


def _ew_rule(cost: int, engine: str = "ct"):
    def rule(ins, outs, attrs):
        return factors.elementwise(ins, outs, cost, engine)

    return rule


def broadcast_align(op: Op) -> str:
    """Return "both" if every operand is of the result's shape, but for leading dimensions of 1 if its blocks lie alike without them, scalar,
    a last-dim vector, one such per item of a batch, or one value per row."""
    out = op.results[0].shape
    for v in op.operands:
        s = getattr(v.type, "shape", None)
        if s is None or s == out:
            continue
        wide = (1,) * (len(out) - len(s)) + s
        if all(d == 1 for d in wide[:-1]) and wide[-1] in (1, out[-1]):
            continue
        if wide == out[:-1] + (1,) or len(s) > 2 and s == (out[0], *(1,) * (len(out) - 2), out[-1]):
            continue
        if wide == out and len(s) > 1 and all(type(d) is int for d in s) and npc(s) == npc(wide):
            continue
        return "nalign"
    return "both"


def _convert_engine(op: Op) -> str:
    dtypes = {op.operands[0].dtype, op.results[0].dtype}
    return "ct" if dtypes <= CT_FLOATS else "kcore"


def _un(name: str, cost: int = 1, engine: str = "ct", infer=_float_unary, traits: int = EW, **attrs) -> OpDef:
    return OpDef(
        name,
        ("x",),
        attrs=attrs,
        infer=infer,
        rule_of=_ew_rule(cost, "ct" if engine == "ct" else "kcore"),
        engine=engine,
        traits=traits,
        inplace=-1 if infer is _predicate else 0,
    )


def _bin(name: str, cost: int = 1, engine: str = "ct", infer=_binary, commutes: bool = False, **attrs) -> OpDef:
    return OpDef(
        name,
        ("a", "b"),
        attrs=attrs,
        infer=infer,
        rule_of=_ew_rule(cost, "ct" if engine == "ct" else "kcore"),
        engine=engine,
        align=broadcast_align,
        traits=EW | (COMMUTATIVE if commutes else 0),
        inplace=-1 if infer is _compare else 0,
    )


#: kinds without a vector instruction or a short sequence of them run on the kernel core
_BINARY = (
    _bin("add", commutes=True),
    _bin("sub"),
    _bin("mul", commutes=True),
    _bin("div"),
    _bin("max", commutes=True),
    _bin("min", commutes=True),
    _bin("pow", 8, "kcore"),
    _bin("mod", 4, "kcore", fmod=(bool, False)),
    _bin("and", 1, "kcore", _logic, True),
    _bin("or", 1, "kcore", _logic, True),
    _bin("xor", 1, "kcore", _logic, True),
    _bin("shl", 1, "kcore", _shift),
    _bin("shr", 1, "kcore", _shift),
    *[_bin(n, 1, "ct", _compare, n in ("eq", "ne")) for n in ("eq", "ne", "lt", "le", "gt", "ge")],
)

_UNARY = (
    _un("neg", infer=_unary), _un("abs", infer=_unary, traits=EW | IDEMPOTENT), _un("exp"), _un("log"), _un("sqrt"),
    _un("rsqrt"), _un("recip"), _un("square", infer=_unary), _un("sin"), _un("cos"), _un("tanh"), _un("sigmoid"),
    _un("erf", 12), _un("sign", 3, infer=_unary),
    *[_un(n, 8, "kcore") for n in ("tan", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh")],
    *[_un(n, 1, "kcore", traits=EW | IDEMPOTENT) for n in ("floor", "ceil", "round")],
    _un("not", 1, "kcore", _logic), _un("isnan", 1, "kcore", _predicate), _un("isinf", 1, "kcore", _predicate),
)  # fmt: skip

_ACTIVATIONS = (
    _un("relu", infer=_unary, traits=EW | IDEMPOTENT), _un("leaky_relu", 2, alpha=(float, 0.01)), _un("gelu", 14),
    _un("gelu_tanh", 8), _un("silu", 2), _un("hswish", 4), _un("hsigmoid", 3, alpha=(float, 0.2), beta=(float, 0.5)),
    _un("softplus", 1), _un("softsign", 3), _un("mish", 3), _un("elu", 5, alpha=(float, 1.0)),
    _un("selu", 5, "kcore", alpha=(float, 1.6732632423543772), gamma=(float, 1.0507009873554805)),
    _un("celu", 5, "kcore", alpha=(float, 1.0)), _un("thresholded_relu", 2, "kcore", alpha=(float, 1.0)),
    OpDef("prelu", ("x", "slope"), infer=_prelu, rule_of=_ew_rule(3, "kcore"), engine="kcore",
          align=broadcast_align, traits=EW, inplace=0),
)  # fmt: skip

_KINDS: tuple[OpDef, ...] = (
    *_BINARY,
    *_UNARY,
    *_ACTIVATIONS,
    OpDef("clamp", ("x",), attrs={"lo": (float, float("-inf")), "hi": (float, float("inf"))}, infer=_clamp,
          rule_of=_ew_rule(2), traits=EW | IDEMPOTENT, inplace=0),
    OpDef("select", ("pred", "a", "b"), infer=_select, rule_of=_ew_rule(2), align=broadcast_align, traits=EW),
    OpDef("swiglu", ("gate", "up"), attrs={"act": (str, "silu")}, infer=_swiglu, rule_of=_ew_rule(3),
          align=broadcast_align, traits=EW, inplace=0),
    OpDef("map", ("x*",), attrs={"steps": (str, REQUIRED)}, infer=_map, align=broadcast_align, traits=EW,
          rule_of=lambda ins, outs, attrs: factors.elementwise(ins, outs, attrs["steps"].count(";") + 1, "ct"), since=(2, 0)),
    OpDef("convert", ("x",), attrs={"dtype": (str, REQUIRED)}, infer=_convert, rule_of=_ew_rule(1), traits=EW,
          engine=_convert_engine),
    OpDef("rope", ("x", "cos", "sin"), align="align", infer=_rope, rule_of=factors_index.rope,
          attrs={"heads": (int, REQUIRED), "style": (str, "half"), "rotary_dim": (int, -1)}),
)  # fmt: skip
#: kinds that models also use in place
_IN_PLACE = frozenset({"add", "sub", "mul", "div", "relu", "leaky_relu", "sigmoid", "tanh", "silu", "hswish", "clamp"})

OPS: tuple[OpDef, ...] = (*_KINDS, *[in_place(d) for d in _KINDS if d.name in _IN_PLACE])
