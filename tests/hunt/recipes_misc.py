"""Recipes: arithmetic with a limited domain, quantisation, control flow, signals, images."""

from __future__ import annotations

from typing import Any

import numpy as np
from hunt.draft import MICROSOFT, Draft, Unfit, Value
from hunt.formats import F32, I32, I64, U8, tensor
from hunt.recipes import broadcastable, recipe
from onnx import helper


@recipe("Div", "Mod")
def divide(d: Draft, x: Value, op: str) -> Value:
    more: dict[str, Any] = {"fmod": 1} if op == "Mod" and (x.is_float or d.chance(0.3)) else {}
    other = broadcastable(d, x, "positive")
    if x.array.size and (np.abs(x.array.astype(np.float64)) > 0.2).all() and d.chance(0.4):
        return d.op(op, other, x, **more)
    return d.op(op, x, other, **more)


@recipe("Pow")
def power(d: Draft, x: Value, op: str) -> Value:
    if x.is_float and d.chance(0.5):
        return d.op(op, x, d.weight(np.asarray(d.pick([2.0, 3.0, 0.5, -1.0]), np.float32), x.code))
    return d.op(op, d.like(x, profile="positive"), x)


@recipe("BitShift")
def shift(d: Draft, x: Value, op: str) -> Value:
    other = d.weight(d.rng.integers(0, 4, x.shape).astype(x.array.dtype), x.code)
    return d.op(op, x, other, direction=d.pick(["LEFT", "RIGHT"]))


@recipe("QuantizeLinear")
def quantize(d: Draft, x: Value, op: str) -> Value:
    dtype = d.pick([np.uint8, np.int8])
    scale = d.weight(np.asarray(0.03125, np.float32), x.code)
    if np.abs(x.array.astype(np.float64)).max(initial=0) >= 2**25:
        raise Unfit("numbers beyond 32 bits on the way")
    return d.op(op, x, scale, d.weight(np.asarray(128 if dtype is np.uint8 else 0, dtype)))


@recipe("DequantizeLinear")
def dequantize(d: Draft, x: Value, op: str) -> Value:
    if x.array.dtype not in (np.uint8, np.int8, np.int32):
        raise Unfit("no quantised numbers")
    zero = None if x.array.dtype == np.int32 else d.weight(np.asarray(3, x.array.dtype))
    if x.rank > 1 and d.chance(0.4) and zero is None:
        return d.op(op, x, d.weight(d.draw(x.shape[1:2], "positive"), F32), axis=1)
    return d.op(op, x, d.weight(np.asarray(0.0625, np.float32), F32), zero)


@recipe("DynamicQuantizeLinear")
def dynamic_quantize(d: Draft, x: Value, op: str) -> Value:
    # a range of nothing is a scale of 1, one of roundings a scale of nearly nothing
    if not x.array.size or np.ptp(x.array) < 1e-5:
        raise Unfit("no range")
    return d.node(op, [x], 3)[0]


@recipe("MatMulInteger")
def matmul_integer(d: Draft, x: Value, op: str) -> Value:
    if x.rank < 2 or x.array.dtype not in (np.uint8, np.int8):
        raise Unfit("no bytes")
    b = d.rng.integers(-5, 6, (x.shape[-1], d.pick([1, 64, 65, 129]))).astype(np.int8)
    return d.op(op, x, d.weight(b), d.weight(np.asarray(2, x.array.dtype)) if d.chance(0.6) else None)


@recipe("ConvInteger")
def conv_integer(d: Draft, x: Value, op: str) -> Value:
    if x.rank != 4 or x.array.dtype != np.uint8:
        raise Unfit("no image of bytes")
    w = d.rng.integers(0, 6, (d.pick([3, 64]), x.shape[1], 1, 1)).astype(np.uint8)
    return d.op(op, x, d.weight(w), d.weight(np.asarray(2, np.uint8)))


@recipe("QLinearMatMul")
def qlinear_matmul(d: Draft, x: Value, op: str) -> Value:
    if x.rank < 2 or x.array.dtype != np.uint8:
        raise Unfit("no bytes")
    b = d.weight(d.rng.integers(-5, 6, (x.shape[-1], d.pick([3, 64, 65]))).astype(np.int8))
    scale = [d.weight(np.asarray(s, np.float32), F32) for s in (0.0625, 0.125, 0.5)]
    zero = [d.weight(np.asarray(z, t)) for z, t in ((3, np.uint8), (0, np.int8), (100, np.uint8))]
    return d.op(op, x, scale[0], zero[0], b, scale[1], zero[1], scale[2], zero[2])


@recipe("QLinearConv")
def qlinear_conv(d: Draft, x: Value, op: str) -> Value:
    if x.rank != 4 or x.array.dtype != np.uint8:
        raise Unfit("no image of bytes")
    w = d.weight(d.rng.integers(0, 6, (d.pick([3, 64]), x.shape[1], 1, 1)).astype(np.uint8))
    scale = [d.weight(np.asarray(s, np.float32), F32) for s in (0.0625, 0.125, 0.5)]
    zero = [d.weight(np.asarray(z, np.uint8)) for z in (3, 2, 100)]
    return d.op(op, x, scale[0], zero[0], w, scale[1], zero[1], scale[2], zero[2])


@recipe("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(d: Draft, x: Value, op: str) -> Value:
    if x.rank < 2 or x.shape[-1] % 16 or x.code != F32:
        raise Unfit("no rows of blocks")
    k, n, block = x.shape[-1], d.pick([16, 64, 65]), 16
    b = d.weight(d.rng.integers(0, 256, (n, k // block, block // 2)).astype(np.uint8))
    scale = d.weight(d.draw((n * (k // block),), "positive") / 16, F32)
    return d.op(op, x, b, scale, domain=MICROSOFT, K=k, N=n, bits=4, block_size=block)


@recipe("GatherBlockQuantized", domain=MICROSOFT)
def gather_quantized(d: Draft, x: Value, op: str) -> Value:
    if x.code not in (I32, I64) or x.array.min() < 0 or x.array.max() > 200:
        raise Unfit("no indices")
    rows = int(x.array.max()) + 1
    data = d.weight(d.rng.integers(0, 256, (rows, 16)).astype(np.uint8), U8)
    scale = d.weight(d.draw((rows, 2), "positive"), F32)
    return d.op(op, data, x, scale, domain=MICROSOFT, gather_axis=0, quantize_axis=1, block_size=16, bits=4)


# ---- control flow: bodies read the value from outside


@recipe("If")
def if_(d: Draft, x: Value, op: str) -> Value:
    if x.array.dtype == bool and x.array.size == 1 and x.static:
        y = d.weight(d.draw((3, 64)))
        return _branch(d, x, y)
    if not x.is_float:
        raise Unfit("no floats")
    test = np.asarray(d.chance(0.5))
    return _branch(d, d.weight(test), x)


def _branch(d: Draft, test: Value, x: Value) -> Value:
    """Branches read x where they stand: it is no operand of the node."""
    shape = helper.make_tensor_value_info("r", x.code, x.shape)
    then = helper.make_graph([helper.make_node("Relu", [x.name], ["r"])], "then", [], [shape])
    other = helper.make_graph([helper.make_node("Neg", [x.name], ["r"])], "other", [], [shape])
    return d.captured("If", [test], [x], then_branch=then, else_branch=other)


@recipe("Loop")
def loop(d: Draft, x: Value, op: str) -> Value:
    if not x.is_float:
        raise Unfit("no floats")
    ins = [helper.make_tensor_value_info("i", I64, ()), helper.make_tensor_value_info("c", 9, ()),
           helper.make_tensor_value_info("s", x.code, x.shape)]  # fmt: skip
    half = helper.make_node("Constant", [], ["half"], value=tensor("half", np.asarray(0.5, np.float32), x.code))
    nodes = [helper.make_node("Identity", ["c"], ["co"]), half, helper.make_node("Mul", ["s", "half"], ["so"])]
    outs = [helper.make_tensor_value_info("co", 9, ()), helper.make_tensor_value_info("so", x.code, x.shape)]
    if scanned := d.chance(0.5):
        nodes.append(helper.make_node("Neg", ["so"], ["scan"]))
        outs.append(helper.make_tensor_value_info("scan", x.code, x.shape))
    trips = d.weight(np.asarray(d.int(1, 4), np.int64))
    body = helper.make_graph(nodes, "body", ins, outs)
    return d.pick(d.node(op, [trips, d.weight(np.asarray(True)), x], 1 + scanned, body=body))


@recipe("Scan")
def scan(d: Draft, x: Value, op: str) -> Value:
    if not x.is_float or x.rank < 2 or x.shape[0] > 8:
        raise Unfit("no short sequence of floats")
    row = helper.make_tensor_value_info("x", x.code, x.shape[1:])
    state = helper.make_tensor_value_info("s", x.code, x.shape[1:])
    outs = [helper.make_tensor_value_info(n, x.code, x.shape[1:]) for n in ("so", "y")]
    nodes = [helper.make_node("Add", ["s", "x"], ["so"]), helper.make_node("Relu", ["so"], ["y"])]
    body = helper.make_graph(nodes, "body", [state, row], outs)
    return d.pick(d.node(op, [d.like(x, x.shape[1:]), x], 2, body=body, num_scan_inputs=1))


# ---- signals and images


@recipe("DFT")
def dft(d: Draft, x: Value, op: str) -> Value:
    if x.rank != 3 or x.shape[-1] > 2 or x.shape[1] not in (2, 4, 8, 16, 32, 64, 128):
        raise Unfit("no signal, or of a length for which the reference is far from exact")
    return d.op(op, x, None, d.weight(np.asarray(1, np.int64)))


@recipe("STFT")
def stft(d: Draft, x: Value, op: str) -> Value:
    if x.rank != 3 or x.shape[-1] != 1 or x.shape[1] < 16:
        raise Unfit("no signal")
    step, length = d.weight(np.asarray(8, np.int64)), d.weight(np.asarray(16, np.int64))
    return d.op(op, x, step, d.floats(x, (16,), "positive"), length)


@recipe("AffineGrid")
def affine_grid(d: Draft, x: Value, op: str) -> Value:
    if x.rank != 3 or x.shape[1:] != (2, 3):
        raise Unfit("no transformations")
    return d.op(op, x, d.ints(x.shape[0], 1, 4, 5))


@recipe("GridSample")
def grid_sample(d: Draft, x: Value, op: str) -> Value:
    mode = d.pick(["linear", "nearest"])
    if x.rank == 4 and x.shape[-1] == 2 and d.chance(0.5) and np.abs(x.array).max() < 2:
        return d.op(op, d.like(x, (x.shape[0], 3, 5, 6)), x, mode=mode)
    if x.rank != 4:
        raise Unfit("rank")
    return d.op(op, x, d.like(x, (x.shape[0], 3, 4, 2), "unit"), mode=mode)


@recipe("Col2Im")
def col2im(d: Draft, x: Value, op: str) -> Value:
    if x.rank != 3 or x.shape[1] % 4 or x.shape[2] % 4:
        raise Unfit("no columns")
    return d.op(op, x, d.ints(4 + 1, x.shape[2] // 4 + 1), d.ints(2, 2))


@recipe("Resize")
def resize(d: Draft, x: Value, op: str) -> Value:
    if x.rank not in (3, 4) or not x.is_float:
        raise Unfit("rank")
    grow = np.asarray([1, 1, *[d.pick([2, 1.5, 0.5]) for _ in x.shape[2:]]], np.float32)
    mode = d.pick(["nearest", "linear", "cubic"]) if x.rank == 4 else "nearest"
    way = d.pick(["half_pixel", "asymmetric", "align_corners"])
    return d.op(op, x, None, d.weight(grow, F32), mode=mode, coordinate_transformation_mode=way)
