"""Expressions of element-wise kinds: arithmetic, order, logic, functions, activations, conversion, rope.

May import: numpy, graph_table, proof.expression, proof.cells. Must not: know how any of them is computed.

Functions that hide nothing are atoms: equal operands give equal results, and nothing else is known of them. Maxima are
sums of hashes, so that the operands that lose count too. Comparisons use the field's order and give concrete truth values.
"""

from __future__ import annotations

import math

import numpy as np

from tx8fast.graph_table import OpRecord
from tx8fast.proof.cells import SPECIAL, Elements, choose
from tx8fast.proof.constants import SIGNIFICAND, hides
from tx8fast.proof.expression import (
    CONCRETE,
    NotExpressed,
    Operands,
    Scope,
    Value,
    concrete,
    elements,
    expression,
    given,
    moved,
    need,
)
from tx8fast.proof.recipes import RECIPES, apply, magnitude

#: kinds that are atoms -> the atom's name
_ATOMS = {
    "log": "ln", "sqrt": "sqrt", "sin": "sin", "cos": "cos", "tanh": "tanh", "sigmoid": "sigmoid", "tan": "tan", "sinh": "sinh", "cosh": "cosh", "asin": "asin", "acos": "acos", "atan": "atan", "asinh": "asinh",
    "acosh": "acosh", "atanh": "atanh", "floor": "floor", "ceil": "ceil", "round": "round", "softplus": "softplus",
}  # fmt: skip
_INTEGER_UNARY = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "square": np.square,
    "relu": lambda x: np.maximum(x, 0),
}
_SAME = ("floor", "ceil", "round")
_COMPARE = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Integers divide towards zero; by zero the result is zero."""
    safe = np.where(b == 0, 1, b)
    whole = np.abs(a) // np.abs(safe) * np.sign(a) * np.sign(safe)
    return np.where(b == 0, 0, whole).astype(a.dtype)


def _shift(a: np.ndarray, b: np.ndarray, left: bool) -> np.ndarray:
    bits = 8 * a.dtype.itemsize
    few = np.minimum(b, bits - 1)
    made = np.left_shift(a, few) if left else np.right_shift(a, few)
    gone = np.zeros_like(a) if left or a.dtype.kind == "u" else made
    return np.where(b >= bits, gone, made)


_INTEGER_BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _quotient,
    "max": np.maximum,
    "min": np.minimum,
    "pow": np.power,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "mod": np.mod,
    "shl": lambda a, b: _shift(a, b, True),
    "shr": lambda a, b: _shift(a, b, False),
}


def _known(*values: Value | None) -> bool:
    return all(isinstance(v, np.ndarray) for v in values)


@expression("add", "sub", "mul", "div", "max", "min", "pow", "mod", "and", "or", "xor", "shl", "shr")
def binary(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """Two operands, broadcast as in numpy; integers wrap to their format."""
    kind, f = op.kind.rstrip("_"), scope.field
    if _known(*operands):
        a, b = (concrete(v, kind) for v in operands)
        if kind == "pow" and (b < 0).any():
            raise NotExpressed("whole numbers to negative powers")
        function = np.fmod if kind == "mod" and op.attr("fmod") else _INTEGER_BINARY[kind]
        with np.errstate(all="ignore"):
            return [np.asarray(function(a, b))]
    a, b = (elements(scope, v) for v in operands)
    if kind == "div":
        return [f.mul(a, scope.inverse(b))]
    simple = {"add": f.add, "sub": f.sub, "mul": f.mul, "max": f.maximum, "min": f.minimum}
    if kind in simple:
        return [simple[kind](a, b)]
    if kind == "mod":
        kind = "fmod" if op.attr("fmod") else "mod"
    elif kind != "pow":
        raise NotExpressed(f"{kind} of numbers that are drawn")
    return [f.atom(kind, *(Elements(np.broadcast_to(x.p, op.results[0].shape), None) for x in (a, b)))]


@expression(*_COMPARE)
def compare(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """Truth values, always concrete: numbers are compared in the field's order."""
    if _known(*operands):
        return [_COMPARE[op.kind](operands[0], operands[1])]
    a, b = (elements(scope, v) for v in operands)
    scope.note(op.kind, a, b)
    return [_COMPARE[op.kind](scope.field.order(a), scope.field.order(b))]


@expression("not", "isnan", "isinf")
def logic(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """The complement of integers and truth values; integers are never NaN or infinite, nor are elements that hide nothing."""
    x = need(operands, 0)
    if op.kind == "not":
        return [np.invert(concrete(x, op.kind))]
    if isinstance(x, Elements) and (x.p & SPECIAL).any():
        raise NotExpressed(f"{op.kind} of elements that hide")
    return [np.zeros(x.shape, bool)]


@expression(*_ATOMS, "neg", "exp", "rsqrt", "recip", "square", "abs", "erf", "sign")
def unary(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """One operand, element by element."""
    kind, f, x = op.kind.rstrip("_"), scope.field, need(operands, 0)
    if isinstance(x, np.ndarray) and op.results[0].dtype in CONCRETE:
        return [x if kind in _SAME else _INTEGER_UNARY[kind](x)]
    a = elements(scope, x)
    if kind == "recip":
        return [scope.inverse(a)]
    if kind in RECIPES:
        return [activation(scope, kind, a, {}, op.results[0].dtype)]
    direct = {"neg": f.neg, "exp": f.exp, "rsqrt": f.rsqrt, "square": f.square, "abs": lambda a: magnitude(f, a)}
    return [direct[kind](a) if kind in direct else f.atom(_ATOMS[kind], a)]


# --- activations ---------------------------------------------------------------------------------------------------


def activation(scope: Scope, name: str, a: Elements, attrs: dict, dtype: str) -> Elements:
    """Return an activation function of elements, with a result of format `dtype`. Raises NotExpressed."""
    f = scope.field
    if name in ("none", ""):
        return a
    if name == "relu":
        return f.relu(a)
    if name in _ATOMS:
        return f.atom(_ATOMS[name], a)
    numbers = {
        **({"alpha": 0.01} if name == "leaky_relu" else {}),
        **{n: v for n, v in attrs.items() if type(v) is float},
    }
    if name in RECIPES:
        return apply(f, name, dtype if dtype in SIGNIFICAND else "f32", a, numbers, scope.comparisons)
    if name in ("selu", "celu", "thresholded_relu"):
        given = [scope.number(v).broadcast_to(a.shape) for _, v in sorted(numbers.items())]
        return f.atom(name, a, *given)
    raise NotExpressed(f"activation '{name}'")


@expression(
    "relu",
    "leaky_relu",
    "gelu",
    "gelu_tanh",
    "silu",
    "hswish",
    "hsigmoid",
    "softsign",
    "mish",
    "elu",
    "selu",
    "celu",
    "thresholded_relu",
)
def activations(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """An activation function as an op of its own."""
    kind, x = op.kind.rstrip("_"), need(operands, 0)
    if isinstance(x, np.ndarray):
        return [_INTEGER_UNARY[kind](x)]
    return [activation(scope, kind, x, dict(op.attrs), op.results[0].dtype)]


def _between(scope: Scope, a: Elements, lo: float, hi: float, dtype: str) -> Elements:
    """Return min(max(a, lo), hi); a bound beyond all numbers that count bounds nothing."""
    f = scope.field
    if not hides(lo, dtype):
        a = f.maximum(a, scope.number(lo))
    return a if hides(-hi, dtype) else f.minimum(a, scope.number(hi))


@expression("clamp")
def clamp(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """x within [lo, hi]."""
    x, lo, hi = need(operands, 0), op.attr("lo"), op.attr("hi")
    if isinstance(x, Elements):
        return [_between(scope, x, lo, hi, op.results[0].dtype)]
    if x.dtype == bool:
        return [x]
    limits = np.iinfo(x.dtype)
    low = limits.min if lo <= limits.min else math.ceil(lo)
    high = limits.max if hi >= limits.max else math.floor(hi)
    return [np.clip(x, low, high)]


@expression("prelu")
def prelu(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """max(x, 0) + slope min(x, 0)."""
    f, x, slope = scope.field, elements(scope, operands[0]), elements(scope, operands[1])
    return [f.add(f.relu(x), f.mul(f.neg(f.relu(f.neg(x))), slope))]


@expression("swiglu")
def swiglu(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """act(gate) up."""
    gate, up = (elements(scope, v) for v in operands)
    return [scope.field.mul(activation(scope, op.attr("act"), gate, {}, op.results[0].dtype), up)]


# --- choice, conversion, rope --------------------------------------------------------------------------------------


@expression("select")
def select(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """a where the truth value holds, else b."""
    pred = concrete(operands[0], "the condition of a select")
    a, b = need(operands, 1), need(operands, 2)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return [np.where(pred, a, b)]
    shape = op.results[0].shape
    a, b = (elements(scope, v).broadcast_to(shape) for v in (a, b))
    return [choose(np.broadcast_to(pred, shape), a, b)]


@expression("convert")
def convert(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """Another format: numbers stay themselves, rounding is no part of the proof; integers wrap."""
    x = need(operands, 0)
    target = op.results[0].dtype
    if target not in CONCRETE:
        return [elements(scope, x)]
    if isinstance(x, Elements):
        if target == "pred":
            scope.note("ne", x, scope.number(0.0))
            return [scope.field.order(x) != scope.field.order(scope.number(0.0))]
        raise NotExpressed(f"convert to {target} of numbers that are drawn")
    return [x != 0 if target == "pred" else x.astype(CONCRETE[target])]


@expression("rope")
def rope(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """x cos + partner(x) sin, the first `rotary_dim` lanes of every head in pairs, others with themselves; the table of sines carries the sign.

    x [.., S, heads * D], tables [S or 1, D]."""
    f = scope.field
    x, cos, sin = (elements(scope, v) for v in operands)
    heads, lanes = op.attr("heads"), op.attr("rotary_dim")
    width = x.shape[-1] // heads
    lanes = width if lanes < 0 else lanes
    at = np.arange(lanes)
    partner = np.arange(width)
    partner[:lanes] = (at + lanes // 2) % lanes if op.attr("style") == "half" else at ^ 1
    split = x.reshape(*x.shape[:-1], heads, width)
    cos, sin = (t.at((slice(None), None)) for t in (cos, sin))
    made = f.add(f.mul(split, cos), f.mul(split.at((..., partner)), sin))
    return [made.reshape(*x.shape)]


@expression("dequantize")
def dequantize(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """(x - zero) scale; scale and zero are one value, one per channel of `axis`, or one per block."""
    x, axis = need(operands, 0), op.attr("axis")
    shape = x.shape
    made = elements(scope, x)
    zero = given(operands, 2)
    if zero is not None:
        made = scope.field.sub(made, elements(scope, _along(zero, shape, axis)))
    return [scope.field.mul(made, elements(scope, _along(need(operands, 1), shape, axis)))]


def _along(value: Value, shape: tuple[int, ...], axis: int) -> Value:
    """Give scales the shape of what they scale: per channel, or repeated within their blocks."""
    if math.prod(value.shape) == 1:
        return moved(value, lambda a: a.reshape(()))
    if len(value.shape) == 1 and len(shape) != 1:
        line = [1] * len(shape)
        line[axis % len(shape)] = -1
        return moved(value, lambda a: a.reshape(line))
    for d, (n, parts) in enumerate(zip(shape, value.shape, strict=True)):
        if parts not in (1, n):
            value = moved(value, lambda a, d=d, n=n, parts=parts: np.repeat(a, n // parts, d))
    return value
