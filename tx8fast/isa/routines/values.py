"""Routines that compute element by element.

May import: math, isa.routines.base, numerics.formats. Must not: execute one.
"""

from __future__ import annotations

import math

from tx8fast.isa.routines.base import (
    Call,
    Encode,
    Operand,
    choice,
    copied,
    declare,
    real,
    real_word,
    whole,
)
from tx8fast.isa.work import Work
from tx8fast.numerics.formats import INTS, int_limits

#: activations by number, as products, gated units and the routines of their names know them
ACTIVATIONS = (
    "none",
    "relu",
    "leaky_relu",
    "gelu",
    "gelu_tanh",
    "silu",
    "hswish",
    "softplus",
    "softsign",
    "mish",
    "elu",
    "celu",
    "thresholded_relu",
    "sigmoid",
    "tanh",
)
_ALIASES = {"": "none", "leaky": "leaky_relu"}
_ALPHA = {"leaky_relu": 0.01}
SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875


def act_words(call: Call) -> list[int]:
    """Attributes `act` and `alpha`: the activation's number, and its parameter."""
    name = str(call.attrs.get("act", "none"))
    name = _ALIASES.get(name, name)
    found = choice("act", ACTIVATIONS, "none")(Call(call.ins, call.outs, {"act": name}))
    return [*found, real_word(call.attrs.get("alpha", _ALPHA.get(name, 1.0)))]


def act_work(call: Call, default: str = "none") -> Work:
    """Return the work of the attribute `act` on one element."""
    name = str(call.attrs.get("act", default))
    return ACT_EACH[_ALIASES.get(name, name)]


def mapped(each: Work, operands: int = 1):
    """The work of a function of every element of the result, whose operands are repeated up to it."""
    return lambda call: (each + Work(loads=operands, stores=1)) * call.out.n


def _axis(call: Call) -> list[int]:
    return [int(call.attrs.get("axis", 1)) % max(1, len(call.given(0).shape))]


def _along(v: Operand, n: int) -> Work:
    return Work(loads=v.n, ops=2 * n)


def _quantised(call: Call) -> Work:
    n, to_whole = call.out.n, call.out.dtype in INTS
    work = Work(loads=1, stores=1, divides=1, ops=3 if to_whole else 0) * n + _along(call.given(1), n)
    return work + (_along(call.given(2), n) if to_whole and call.has(2) else Work())


def _dequantised(call: Call) -> Work:
    n = call.out.n
    work = Work(loads=1, stores=1, ops=2) * n + _along(call.given(1), n)
    return work + (_along(call.given(2), n) if call.has(2) else Work())


def _converted(call: Call) -> Work:
    x, y = call.given(0), call.out
    return copied(x.shape, x.size, x.strides, y.strides) if x.dtype == y.dtype else Work(1, 1, 1) * x.n


def _limits(call: Call) -> list[int]:
    """The bounds as numbers, and between which integers they lie: infinite ones become the format's limits."""
    lo, hi = float(call.attrs.get("lo", -math.inf)), float(call.attrs.get("hi", math.inf))
    low, high = int_limits(call.out.dtype) if call.out.dtype in INTS else (0, 1)
    if math.isnan(lo) or math.isnan(hi):
        first, last = low, high
    else:
        first = low if lo <= low else high if lo > high else math.ceil(lo)
        last = high if hi >= high else low if hi < low else math.floor(hi)
    signed = [v - (1 << 64) if v >= 1 << 63 else v for v in (first, last)]
    return [real_word(lo), real_word(hi), *signed]


#: ops, divisions and functions of one element
_F, _D, _O = Work(functions=1), Work(divides=1), Work(ops=1)
_FUNCTIONS: dict[str, Work] = {
    "exp": _F,
    "log": _F,
    "rsqrt": _D * 2,
    "sin": _F,
    "cos": _F,
    "tan": _F * 2 + _D,
    "asin": _F,
    "acos": _F,
    "atan": _F,
    "sinh": _F,
    "cosh": _F,
    "asinh": _F,
    "acosh": _F,
    "atanh": _F,
    "tanh": _F,
    "sigmoid": _F + _D + _O,
    "erf": _F,
    "sqrt": _D,
    "recip": _D,
}
_EXACT: dict[str, Work] = {
    name: _O for name in ("neg", "abs", "square", "sign", "floor", "ceil", "round", "not", "isnan", "isinf")
}
ACT_EACH: dict[str, Work] = {
    "none": Work(),
    "relu": _O,
    "leaky_relu": _O * 2,
    "gelu": _F + _O * 3,
    "gelu_tanh": _F + _D + _O * 8,
    "silu": _F + _D + _O * 2,
    "hswish": _O * 5,
    "softplus": _F * 2 + _O * 2,
    "softsign": _D + _O * 2,
    "mish": _F * 3 + _O * 3,
    "elu": _F + _O * 2,
    "celu": _F + _D + _O * 4,
    "thresholded_relu": _O,
    "sigmoid": _F + _D + _O,
    "tanh": _F,
}
_BINARY: dict[str, Work] = {
    "add": _O,
    "sub": _O,
    "mul": _O,
    "div": _D,
    "mod": _D + _O * 3,
    "max": _O,
    "min": _O,
    "pow": _F * 2 + _O * 2,
    "and": _O,
    "or": _O,
    "xor": _O,
    "shl": _O * 2,
    "shr": _O * 2,
    "eq": _O,
    "ne": _O,
    "lt": _O,
    "le": _O,
    "gt": _O,
    "ge": _O,
}


def _with_each(name: str, function: str, *attrs: Encode, each: Work, operands: int = 1) -> None:
    declare(name, function, *attrs, work=mapped(each, operands), each=each)


# the order is known to the C functions: exact functions, activations and relations lie together
for _name, _each in {**_FUNCTIONS, **_EXACT}.items():
    _with_each(_name, "routine_unary", each=_each)
for _name in ACTIVATIONS[1:13]:
    _with_each(
        _name, "routine_activation", real("alpha", _ALPHA.get(_name, 1.0)), real("beta", 0.0), each=ACT_EACH[_name]
    )
_with_each("hsigmoid", "routine_activation", real("alpha", 0.2), real("beta", 0.5), each=_O * 4)
_with_each("selu", "routine_activation", real("alpha", SELU_ALPHA), real("gamma", SELU_GAMMA), each=_F + _O * 3)
for _name, _each in _BINARY.items():
    _with_each(_name, "routine_binary", whole("fmod", 0), each=_each, operands=2)
_with_each("prelu", "routine_prelu", each=_O * 2, operands=2)
_with_each("clamp", "routine_clamp", _limits, each=_O * 2)
declare(
    "swiglu",
    "routine_swiglu",
    lambda call: act_words(Call(call.ins, call.outs, {"act": "silu", **call.attrs})),
    work=lambda call: (act_work(call, "silu") + Work(2, 1, 1)) * call.out.n,
)
_with_each("select", "routine_select", each=_O, operands=3)
declare("convert", "routine_copy", work=_converted)
declare("quantize", "routine_quantize", _axis, work=_quantised)
declare("dequantize", "routine_dequantize", _axis, work=_dequantised)
