"""A vector for each item of a batch, means of many positions, and both within streams: squeeze-and-excite blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from frontend.onnx.onnx_build import info, model, node
from support.cnn_models import CnnBuilder

from tx8fast import api

CLOSE = {"fp32": 1e-5, "bf16": 3e-2, "fp16": 4e-3}
NUMPY = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Max": np.maximum, "Min": np.minimum}


def agrees(path: Path, feed: dict, want: np.ndarray, dtype: str, opt: int = 2) -> api.CompiledModel:
    compiled = api.compile(path, dtype=dtype, opt=opt)
    (got,) = compiled.run(feed, sanitize=True).values()
    assert np.abs(got.astype(np.float64) - want).max() <= CLOSE[dtype] * np.abs(want).max()
    return compiled


@pytest.mark.parametrize("op", [*NUMPY, "Where", "Less"])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((3, 5, 7, 40), "bf16"),
        ((2, 3, 130), "fp16"),
        ((17, 4, 4, 64), "fp32"),
        ((1, 6, 5, 70), "bf16"),
        ((4, 1, 9, 64), "fp32"),
        ((4, 9, 1, 24), "fp32"),
        ((3, 2, 1, 5, 70), "fp32"),
        ((4, 1, 1, 64), "fp32"),
    ],
)
def test_vectors_of_items(tmp_path, op, first, shape, dtype):
    """Every kind of op, the vector on either side: channels that are no whole blocks, more items than tiles."""
    rng = np.random.default_rng(3)
    gate = (shape[0], *(1,) * (len(shape) - 2), shape[-1])
    x = rng.standard_normal(shape).astype(np.float32)
    v = (rng.standard_normal(gate) + (4 if op == "Div" else 0)).astype(np.float32)
    a, b = ("v", "s") if first else ("s", "v")
    steps = [node("Softmax", "x", "s", axis=-1)]  # in blocks
    s = np.exp(x.astype(np.float64))
    s /= s.sum(-1, keepdims=True)
    left, right = (v, s) if first else (s, v)
    if op == "Where":
        steps += [node("Greater", "s t", "c"), node("Where", f"c {a} {b}", "y")]
        want = np.where(s > 0.02, left, right)
    elif op == "Less":
        steps += [node("Less", f"{a} {b}", "c"), node("Cast", "c", "y", to=onnx.TensorProto.FLOAT)]
        want = (left < right).astype(np.float64)
    else:
        steps += [node(op, f"{a} {b}", "y")]
        want = NUMPY[op](left, right)
    weights = {"t": np.array(0.02, np.float32)} if op == "Where" else {}
    onnx.save(model(steps, [info("x", shape), info("v", gate)], [info("y", shape)], weights), tmp_path / "m.onnx")
    if op in ("Where", "Less") and dtype != "fp32":
        pytest.skip("rounding decides which side of a threshold numbers are on")
    if op == "Div" and first:
        want = v / s
    compiled = agrees(tmp_path / "m.onnx", {"x": x, "v": v}, want, dtype)
    assert not compiled.program.meta["kernel_core"]


@pytest.mark.parametrize(("shape", "axis"), [((9, 1, 4100, 8), 2), ((8, 4111, 1, 24), 1), ((5, 1, 1, 4500, 100), 3)])
def test_many_positions_beside_dimensions_of_one(tmp_path, shape, axis):
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    out = tuple(1 if i == axis else n for i, n in enumerate(shape))
    steps = [node("Softmax", "x", "s", axis=-1), node("ReduceMean", "s axes", "y", keepdims=1)]
    onnx.save(model(steps, [info("x", shape)], [info("y", out)], {"axes": np.array([axis])}), tmp_path / "m.onnx")
    s = np.exp(x.astype(np.float64))
    s /= s.sum(-1, keepdims=True)
    compiled = agrees(tmp_path / "m.onnx", {"x": x}, s.mean(axis=axis, keepdims=True), "fp32")
    assert not compiled.program.meta["kernel_core"]


@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum"])
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((3, 64, 67, 150), "bf16"), ((9, 4099, 8), "fp16"), ((8, 71, 60, 24), "fp32"), ((16, 90, 91, 32), "bf16")],
)
def test_many_positions(tmp_path, kind, shape, dtype):
    """More positions than an instruction takes, a prime number of them, the last slice shorter."""
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32) + 0.1
    axes = tuple(range(1, len(shape) - 1))
    out = tuple(1 if i in axes else n for i, n in enumerate(shape))
    steps = [node("Softmax", "x", "s", axis=-1), node(kind, "s axes", "y", keepdims=1)]
    onnx.save(model(steps, [info("x", shape)], [info("y", out)], {"axes": np.array(axes)}), tmp_path / "m.onnx")
    s = np.exp(x.astype(np.float64))
    s /= s.sum(-1, keepdims=True)
    want = {"Mean": np.mean, "Max": np.max, "Min": np.min, "Sum": np.sum}[kind[6:]](s, axis=axes, keepdims=True)
    compiled = agrees(tmp_path / "m.onnx", {"x": x}, want, dtype)
    assert any("long positions" in str(s.info) for s in compiled.program.segments)
    assert not compiled.program.meta["kernel_core"]


def excited(path: Path, batch: int, size: int, channels: int, linear: bool = False) -> Path:
    """Two squeeze-and-excite blocks, the second behind a depthwise convolution, as exporters write them; linear: with matrix products on
    flattened means."""
    b = CnnBuilder(seed=2)

    def silu(x: str) -> str:
        return b.node("Mul", x, b.node("Sigmoid", x))

    def gated(x: str, c: int, mid: int) -> str:
        z = b.node("GlobalAveragePool", x)
        if linear:
            z = b.node("Flatten", z)
            z = b.node("Relu", b.node("Gemm", z, b.weight((mid, c), 0.2), b.weight((mid,), 0.1), transB=1))
            z = b.node("HardSigmoid", b.node("Gemm", z, b.weight((c, mid), 0.2), b.weight((c,), 0.1), transB=1))
            z = b.node("Reshape", z, b.constant([batch, c, 1, 1]))
        else:
            z = b.node("Sigmoid", b.conv(silu(b.conv(z, c, mid, 1)), mid, c, 1))
        return b.node("Mul", *((x, z) if mid % 2 else (z, x)))

    y = first = silu(b.conv("x", 3, channels, 3, 2))
    y = b.node("Add", b.conv(gated(y, channels, 7), channels, channels, 1), first)
    wide = 3 * channels
    z = silu(b.conv(silu(b.conv(y, channels, wide, 1)), wide, wide, 3, 2, wide))
    z = b.conv(gated(z, wide, 10), wide, 40, 1)
    left = -(-(-(-size // 2)) // 2)
    return b.save(path, (batch, 3, size, size), z, (batch, 40, left, left))


@pytest.mark.slow(but_every=4)
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize(
    ("batch", "size", "channels", "dtype"),
    [(1, 16, 24, "fp32"), (2, 16, 64, "bf16"), (5, 12, 100, "fp32"), (16, 16, 24, "bf16"), (19, 12, 32, "fp16")],
)
def test_squeeze_and_excite(tmp_path, linear, batch, size, channels, dtype):
    """One tile per image, several, images left over; at every level the same numbers."""
    onnxruntime = pytest.importorskip("onnxruntime")
    path = excited(tmp_path / "m.onnx", batch, size, channels, linear)
    x = np.random.default_rng(0).standard_normal((batch, 3, size, size)).astype(np.float32)
    want = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})[0]
    for opt in (1, 2, 3):
        compiled = agrees(path, {"x": x}, want, dtype, opt)
        assert not compiled.program.meta["kernel_core"]
    if 1 < batch <= 16:  # of more images chains take less time
        kinds = [
            s.info["op"] for s in compiled.program.segments if s.info["engine"] in ("conv stream", "spread stream")
        ]
        assert any("reduce" in kind and "mul" in kind for kind in kinds)


@pytest.mark.parametrize("lead", ["product", "norm"])
@pytest.mark.parametrize(
    ("batch", "rows", "c", "dtype"),
    [(2, 9, 100, "bf16"), (3, 40, 64, "fp32"), (18, 5, 130, "fp16"), (1, 7, 24, "bf16")],
)
def test_gates_of_items_join_what_they_follow(tmp_path, lead, batch, rows, c, dtype):
    """A vector for each sequence behind a product or a norm, with a residual behind it: one loop nest, a sequence at a time."""
    rng = np.random.default_rng(7)
    x, s, t, r = (
        rng.standard_normal(shape).astype(np.float32)
        for shape in ((batch, rows, c), (batch, 1, c), (batch, 1, c), (batch, rows, c))
    )
    w = (rng.standard_normal((c, c)) * c**-0.5).astype(np.float32)
    if lead == "norm":
        steps, weights = [node("LayerNormalization", "x g", "n", axis=-1)], {"g": np.ones(c, np.float32)}
        y = x.astype(np.float64)
        y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5)
    else:
        steps, weights = [node("MatMul", "x w", "n")], {"w": w}
        y = x.astype(np.float64) @ w
    steps += [node("Mul", "n s", "a"), node("Add", "t a", "b"), node("Add", "b r", "y")]
    inputs = [info("x", x.shape), info("s", s.shape), info("t", t.shape), info("r", r.shape)]
    onnx.save(model(steps, inputs, [info("y", x.shape)], weights), tmp_path / "m.onnx")
    want = y * s + t + r
    for opt in (1, 2, 3):
        compiled = agrees(tmp_path / "m.onnx", {"x": x, "s": s, "t": t, "r": r}, want, dtype, opt)
    ops = [s.info["op"] for s in compiled.program.segments]
    assert rows < 7 or any(op.count("add") == 2 and "mul" in op for op in ops), ops
