"""Handlers of element-wise ONNX operators: arithmetic, logic, comparison, activations, casts.

May import: frontend.onnx.node, frontend.onnx.reader. Must not: touch protobufs beyond a node's attributes.
"""

from __future__ import annotations

import numpy as np

from tx8fast.frontend.common import Tensor
from tx8fast.frontend.onnx.node import Handler, Node
from tx8fast.frontend.onnx.reader import dtype_of

#: integer ranges that a float64 clamp bound represents exactly
_CLAMP_OK = frozenset({"f16", "bf16", "f32", "f64", "i8", "u8", "i16", "u16", "i32", "u32"})


def _unary(kind: str):
    return lambda n: n.op(kind, n[0])


def _binary(kind: str):
    return lambda n: n.op(kind, n[0], n[1])


def _fold_variadic(kind: str):
    def run(n: Node) -> Tensor:
        result = n[0]
        for t in n.inputs[1:]:
            result = n.op(kind, result, t)
        return result

    return run


def _mean(n: Node) -> Tensor:
    total = n.with_room(n[0])
    for t in n.inputs[1:]:
        total = n.op("add", total, n.with_room(t))
    return n.cast(n.op("mul", total, 1.0 / len(n)), n[0].dtype)


def _pow(n: Node) -> Tensor:
    x, y = n[0], n[1]
    if x.dtype == y.dtype:
        if y.array is not None and y.array.size == 1 and x.is_float:
            power = float(y.array.reshape(-1)[0])
            shape = np.broadcast_shapes(x.shape, y.shape)
            special = {2.0: "square", 0.5: "sqrt", -1.0: "recip", -0.5: "rsqrt"}.get(power)
            if special is not None and shape == x.shape:
                return n.op(special, x)
        return n.op("pow", x, y)
    if not x.is_float and y.is_float:
        known = y.array
        if (
            known is not None
            and known.size
            and (known >= 0).all()
            and (known == np.floor(known)).all()
            and known.max() < 64
        ):
            return n.op("pow", x, n.cast(y, x.dtype))
        # every 32-bit integer is a number of f64; what is a whole number but for the last bits is one before the rest is cut off
        made = n.op("pow", n.cast(x, "f64"), n.cast(y, "f64"))
        whole = n.op("round", made)
        near = n.op("le", n.op("abs", n.op("sub", made, whole)), n.op("mul", n.op("abs", made), 2.0**-45))
        return n.cast(n.op("select", near, whole, made), x.dtype)
    return n.op("pow", x, n.cast(y, x.dtype))


def _mod(n: Node) -> Tensor:
    return n.op("mod", n[0], n[1], fmod=bool(n.attr("fmod", 0)))


def _bit_shift(n: Node) -> Tensor:
    return n.op("shl" if n.required("direction") == "LEFT" else "shr", n[0], n[1])


def _round(n: Node) -> Tensor:
    return n.op("round", n[0])


def _floor_like(kind: str):
    return lambda n: n.op(kind, n[0]) if n[0].is_float else n[0]


def _is_inf(n: Node) -> Tensor:
    x, negative, positive = n[0], n.attr("detect_negative", 1), n.attr("detect_positive", 1)
    found = n.op("isinf", x)
    if negative and positive:
        return found
    if not negative and not positive:
        return n.const(np.zeros(x.shape, bool))
    return n.op("and", found, n.op("gt" if positive else "lt", x, 0.0))


def _clip(n: Node) -> Tensor:
    x = n[0]
    lo = n.reshape(n[1], ()) if n.has(1) else _bound(n, "min", x.dtype)
    hi = n.reshape(n[2], ()) if n.has(2) else _bound(n, "max", x.dtype)
    known = all(t is None or t.array is not None for t in (lo, hi))
    if known and x.dtype in _CLAMP_OK:
        low = float(lo.array) if lo is not None else float("-inf")
        high = float(hi.array) if hi is not None else float("inf")
        if low <= high:
            return n.op("clamp", x, lo=low, hi=high)
    if lo is not None:
        x = n.op("max", x, lo)
    return n.op("min", x, hi) if hi is not None else x


def _bound(n: Node, name: str, dtype: str) -> Tensor | None:
    value = n.attr(name)
    return None if value is None else n.const(float(value), dtype)


def _leaky_relu(n: Node) -> Tensor:
    return n.op("leaky_relu", n[0], alpha=float(n.attr("alpha", 0.01)))


def _elu(n: Node) -> Tensor:
    return n.op("elu", n[0], alpha=float(n.attr("alpha", 1.0)))


def _celu(n: Node) -> Tensor:
    return n.op("celu", n[0], alpha=float(n.attr("alpha", 1.0)))


def _selu(n: Node) -> Tensor:
    alpha = n.attr("alpha", 1.6732 if n.opset < 6 else 1.67326319217681884765625)
    gamma = n.attr("gamma", 1.0507 if n.opset < 6 else 1.05070102214813232421875)
    return n.op("selu", n[0], alpha=float(alpha), gamma=float(gamma))


def _thresholded_relu(n: Node) -> Tensor:
    return n.op("thresholded_relu", n[0], alpha=float(n.attr("alpha", 1.0)))


def _hard_sigmoid(n: Node) -> Tensor:
    return n.op("hsigmoid", n[0], alpha=float(n.attr("alpha", 0.2)), beta=float(n.attr("beta", 0.5)))


def _prelu(n: Node) -> Tensor:
    x, slope = n[0], n[1]
    if x.is_float:
        return n.op("prelu", x, slope)
    return n.op("select", n.op("lt", x, 0), n.op("mul", x, slope), x)


def _gelu(n: Node) -> Tensor:
    return n.op("gelu_tanh" if n.attr("approximate", "none") == "tanh" else "gelu", n[0])


def _swish(n: Node) -> Tensor:
    alpha = float(n.attr("alpha", 1.0))
    if alpha == 1.0:
        return n.op("silu", n[0])
    return n.op("mul", n[0], n.op("sigmoid", n.op("mul", n[0], alpha)))


def _shrink(n: Node) -> Tensor:
    x, bias, lambd = n[0], float(n.attr("bias", 0.0)), float(n.attr("lambd", 0.5))
    if not x.is_float:  # f32 has no number for every integer of 32 bits
        x = n.cast(x, "f32" if x.dtype in ("i8", "u8", "i16", "u16") else "f64")
    high = n.op("select", n.op("gt", x, lambd), n.op("sub", x, bias), n.const(0.0, x.dtype))
    # of a negative lambd both may hold: the first one decides
    return n.cast(n.op("select", n.op("lt", x, -lambd), n.op("add", x, bias), high), n[0].dtype)


def _where(n: Node) -> Tensor:
    return n.op("select", n[0], n[1], n[2])


def _cast(n: Node) -> Tensor:
    return convert(n, n[0], dtype_of(n.required("to"), f"{n.where}: attribute 'to'"), n.attr("saturate", 1))


def _cast_like(n: Node) -> Tensor:
    return convert(n, n[0], n[1].dtype, n.attr("saturate", 1))


_F8_MAX = {"f8e4m3fn": 448.0, "f8e5m2": 57344.0}


def convert(n: Node, x: Tensor, dtype: str, saturate: int = 1) -> Tensor:
    """Cast with ONNX's meaning: floats cut toward zero to integers, 8-bit floats saturate unless told not to."""
    if x.dtype == dtype:
        return x
    if dtype == "pred":
        return n.op("ne", x, 0)
    if x.is_float and dtype[0] in "iu" and x.array is not None and np.isnan(x.array.astype(np.float64)).any():
        raise n.bad(f"a constant that is not a number (NaN) cannot become {dtype}")
    if x.is_float and dtype in ("i4", "u4"):  # the low bits of the whole part, as for integers
        x = n.op("convert", x, dtype="i32")
    if dtype in _F8_MAX and saturate:
        high = _F8_MAX[dtype]
        x = n.in_f32(x) if x.is_float else n.op("convert", x, dtype="f32")
        return n.op("convert", n.op("clamp", x, lo=-high, hi=high), dtype=dtype)
    return n.op("convert", x, dtype=dtype)


def _bit_cast(n: Node) -> Tensor:
    return n.op("bitcast", n[0], dtype=dtype_of(n.required("to"), f"{n.where}: attribute 'to'"))


def _identity(n: Node) -> Tensor:
    return n[0]


def _dropout(n: Node):
    """Outside training, dropout passes its input through and its mask is all true."""
    training = bool(n.number(2, "training_mode")) if n.has(2) else False
    ratio = float(n.number(1, "ratio")) if training and n.has(1) else float(n.attr("ratio", 0.5))
    if training and ratio > 0:
        raise n.unsupported("dropout in training mode draws random numbers; export the model for inference")
    return [n[0], n.const(np.ones(n[0].shape, bool))] if n.wants(1) else [n[0]]


_UNARY_OPS = {
    "Neg": "neg", "Abs": "abs", "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Reciprocal": "recip", "Sin": "sin",
    "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh",
    "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh", "Tanh": "tanh", "Sigmoid": "sigmoid", "Erf": "erf",
    "Sign": "sign", "Not": "not", "BitwiseNot": "not", "IsNaN": "isnan", "Relu": "relu", "HardSwish": "hswish",
    "Softplus": "softplus", "Softsign": "softsign", "Mish": "mish",
}  # fmt: skip
_BINARY_OPS = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Div": "div",
    "And": "and",
    "Or": "or",
    "Xor": "xor",
    "BitwiseAnd": "and",
    "BitwiseOr": "or",
    "BitwiseXor": "xor",
    "Equal": "eq",
    "Less": "lt",
    "LessOrEqual": "le",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
}

HANDLERS: tuple[Handler, ...] = (
    *[Handler(name, _unary(kind)) for name, kind in _UNARY_OPS.items()],
    *[Handler(name, _binary(kind), 7) for name, kind in _BINARY_OPS.items()],
    Handler("Pow", _pow, 7),
    Handler("Mod", _mod, 10),
    Handler("BitShift", _bit_shift, 11),
    Handler("Sum", _fold_variadic("add")),
    Handler("Max", _fold_variadic("max")),
    Handler("Min", _fold_variadic("min")),
    Handler("Mean", _mean),
    Handler("Floor", _floor_like("floor")),
    Handler("Ceil", _floor_like("ceil")),
    Handler("Round", _round, 11),
    Handler("IsInf", _is_inf, 10),
    Handler("Clip", _clip),
    Handler("LeakyRelu", _leaky_relu),
    Handler("Elu", _elu),
    Handler("Celu", _celu, 12),
    Handler("Selu", _selu),
    Handler("ThresholdedRelu", _thresholded_relu, 10),
    Handler("HardSigmoid", _hard_sigmoid),
    Handler("PRelu", _prelu),
    Handler("Gelu", _gelu, 20),
    Handler("Swish", _swish, 24),
    Handler("Shrink", _shrink, 9),
    Handler("Where", _where, 9),
    Handler("Cast", _cast),
    Handler("CastLike", _cast_like, 15),
    Handler("BitCast", _bit_cast, 26),
    Handler("Identity", _identity, lists=True),
    Handler("Dropout", _dropout),
)
