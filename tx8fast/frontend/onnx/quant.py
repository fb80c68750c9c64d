"""Handlers of quantised operators; products of quantised operands are computed exactly in 32-bit integers.

May import: frontend.onnx.node. Must not: touch protobufs beyond a node's attributes.
"""

from __future__ import annotations

import numpy as np

from tx8fast.frontend.common import Tensor
from tx8fast.frontend.onnx.nn import matmul
from tx8fast.frontend.onnx.node import Handler, Node
from tx8fast.frontend.onnx.reader import dtype_of
from tx8fast.frontend.onnx.window import convolve

_RANGES = {
    "i8": (-128, 127),
    "u8": (0, 255),
    "i16": (-32768, 32767),
    "u16": (0, 65535),
    "i4": (-8, 7),
    "u4": (0, 15),
    "i32": (-(2**31), 2**31 - 1),
}
_F8_MAX = {"f8e4m3fn": 448.0, "f8e5m2": 57344.0}


def spread(n: Node, t: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """Shape a scale or zero point for an element-wise op with `x`: scalar, per channel or per block."""
    if t.rank == 0 or t.shape == (1,):
        return n.reshape(t, ())
    if t.rank == 1 and not (block and x.rank == 1):
        return n.reshape(t, [t.shape[0] if i == axis else 1 for i in range(x.rank)])
    if t.shape[axis] == x.shape[axis]:
        return t
    split = [*t.shape[: axis + 1], 1, *t.shape[axis + 1 :]]
    wide = list(split)
    wide[axis + 1] = block or -(-x.shape[axis] // t.shape[axis])
    merged = [*t.shape[:axis], t.shape[axis] * wide[axis + 1], *t.shape[axis + 1 :]]
    return n.slice(n.reshape(n.broadcast(n.reshape(t, split), wide), merged), axis, 0, x.shape[axis])


def _quantize_linear(n: Node) -> Tensor:
    x, scale, zero = n[0], n[1], n[2]
    axis = n.norm_axis(n.attr("axis", 1), x.rank) if scale.rank and scale.shape != (1,) else 0
    code = n.attr("output_dtype", 0)
    dtype = zero.dtype if zero is not None else dtype_of(code, n.where) if code else "u8"
    block = n.attr("block_size", 0)
    if not x.is_float:
        x = n.cast(x, "f32")
    if dtype in _F8_MAX:
        y = n.op("div", n.in_f32(x), n.in_f32(spread(n, scale, x, axis, block)))
        if n.attr("saturate", 1):
            y = n.op("clamp", y, lo=-_F8_MAX[dtype], hi=_F8_MAX[dtype])
        return n.cast(y, dtype)
    if block or scale.rank > 1:
        scale = spread(n, scale, x, axis, block)
        zero = None if zero is None else spread(n, zero, x, axis, block)
    return quantize(n, x, scale, zero, axis, dtype)


def quantize(n: Node, x: Tensor, scale: Tensor, zero: Tensor | None, axis: int, dtype: str) -> Tensor:
    """saturate(round(x / scale) + zero)."""
    if dtype in _RANGES and dtype in ("i4", "u4"):
        y = n.op("round", n.op("div", n.in_f32(x), n.in_f32(spread(n, scale, x, axis, 0))))
        if zero is not None:
            y = n.op("add", y, n.cast(spread(n, zero, x, axis, 0), "f32"))
        lo, hi = _RANGES[dtype]
        return n.cast(n.op("clamp", y, lo=float(lo), hi=float(hi)), dtype)
    return n.op("quantize", x, scale, zero, axis=axis, dtype=dtype)


def _dequantize_linear(n: Node) -> Tensor:
    x, scale, zero = n[0], n[1], n[2]
    axis = n.norm_axis(n.attr("axis", 1), x.rank) if scale.rank and scale.shape != (1,) else 0
    code = n.attr("output_dtype", 0)
    dtype = dtype_of(code, n.where) if code else scale.dtype
    block = n.attr("block_size", 0)
    if x.is_float:
        y = n.cast(x, "f32")
        if zero is not None:
            y = n.op("sub", y, n.cast(spread(n, zero, x, axis, block), "f32"))
        return n.cast(n.op("mul", y, n.cast(spread(n, scale, x, axis, block), "f32")), dtype)
    if block or scale.rank > 1:
        scale = spread(n, scale, x, axis, block)
        zero = None if zero is None else spread(n, zero, x, axis, block)
    return n.op("dequantize", x, scale, zero, axis=axis, dtype=dtype)


def _dynamic_quantize(n: Node):
    """Scale and zero point from the range of the data, which always includes 0."""
    x = n[0]
    axes = range(x.rank)
    hi = n.op("max", n.reduce(x, "max", axes, False), 0.0)
    lo = n.op("min", n.reduce(x, "min", axes, False), 0.0)
    scale = n.op("div", n.op("sub", hi, lo), 255.0)
    one = n.const(1.0, "f32")  # the scale of nothing but zeros, as onnxruntime has it
    scale = n.op("select", n.op("eq", scale, 0.0), one, scale)
    zero = n.op("clamp", n.op("round", n.op("div", n.op("neg", lo), scale)), lo=0.0, hi=255.0)
    zero = n.cast(zero, "u8")
    return [n.op("quantize", x, scale, zero, axis=0, dtype="u8"), scale, zero]


def _shifted(n: Node, t: Tensor, zero: Tensor | None, rows: bool, dtype: str = "i32") -> Tensor:
    """Return t - zero; a vector zero point belongs to the rows or to the columns."""
    wide = n.cast(t, dtype)
    if zero is None:
        return wide
    z = n.cast(zero, dtype)
    if z.rank == 1 and z.shape[0] != 1:
        z = n.reshape(z, (z.shape[0], 1) if rows else (1, z.shape[0]))
    elif z.rank == 1:
        z = n.reshape(z, ())
    return n.op("sub", wide, z)


def _matmul_integer(n: Node) -> Tensor:
    return matmul(n, _shifted(n, n[0], n[2], True), _shifted(n, n[1], n[3], False))


def _qlinear_matmul(n: Node) -> Tensor:
    """Integers less their zeros are numbers of every float format, which the matrix engine multiplies."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (n[i] for i in range(8))
    exact = matmul(n, _shifted(n, a, a_zero, True, "f32"), _shifted(n, b, b_zero, False, "f32"))
    real = n.op("mul", exact, _product(n, a_scale, b_scale, True))
    return _requantize(n, real, y_scale, y_zero)


def _product(n: Node, a: Tensor, b: Tensor, rows: bool) -> Tensor:
    a, b = n.in_f32(a), n.in_f32(b)
    if a.rank == 1 and a.shape[0] > 1 and rows:
        a = n.reshape(a, (a.shape[0], 1))
    return n.op("mul", n.reshape(a, ()) if a.shape == (1,) else a, n.reshape(b, ()) if b.shape == (1,) else b)


def _requantize(n: Node, real: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    scale, zero = (n.reshape(t, ()) if t.shape == (1,) else t for t in (n.in_f32(scale), zero))
    if zero.dtype in _F8_MAX:
        y = n.op("div", real, scale)
        return n.cast(n.op("clamp", y, lo=-_F8_MAX[zero.dtype], hi=_F8_MAX[zero.dtype]), zero.dtype)
    return quantize(n, real, scale, zero, 0, zero.dtype)


def _qlinear_conv(n: Node) -> Tensor:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = (n[i] for i in range(9))
    channels = w.shape[0]
    x = n.op("sub", n.cast(x, "f32"), n.reshape(n.cast(x_zero, "f32"), ()))
    per_weight = (channels, *[1] * (w.rank - 1))
    zero = n.cast(w_zero, "f32")
    zero = n.reshape(zero, per_weight if np.prod(zero.shape, dtype=int) == channels != 1 else ())
    exact = convolve(n, x, n.op("sub", n.cast(w, "f32"), zero), None if bias is None else n.cast(bias, "f32"))
    scale = n.op("mul", n.reshape(n.in_f32(x_scale), ()), n.in_f32(w_scale))
    scale = n.reshape(scale, (channels, *[1] * (x.rank - 2)) if np.prod(scale.shape, dtype=int) > 1 else ())
    return _requantize(n, n.op("mul", exact, scale), y_scale, y_zero)


HANDLERS: tuple[Handler, ...] = (
    Handler("QuantizeLinear", _quantize_linear, 10),
    Handler("DequantizeLinear", _dequantize_linear, 10),
    Handler("DynamicQuantizeLinear", _dynamic_quantize, 11),
    Handler("MatMulInteger", _matmul_integer, 10),
    Handler("QLinearMatMul", _qlinear_matmul, 10),
    Handler("QLinearConv", _qlinear_conv, 10),
)
