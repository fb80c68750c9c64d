"""An unrolled Llama of any size as an ONNX file without weights: every matrix is a hole in one sparse file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BF16 = TensorProto.BFLOAT16
F32 = TensorProto.FLOAT


class _Graph:
    """Collects nodes and initialisers; weights share bytes [0, n) of `holes`, which is sparse."""

    def __init__(self, dtype: int) -> None:
        self.dtype = dtype
        self.nodes: list[onnx.NodeProto] = []
        self.inits: list[onnx.TensorProto] = []
        self.largest_bytes = 0

    def node(self, kind: str, *inputs: str, **attrs) -> str:
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=f"n{len(self.nodes)}", **attrs))
        return out

    def const(self, name: str, values, dtype=np.int64) -> str:
        self.inits.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def weight(self, name: str, *shape: int) -> str:
        n_bytes = int(np.prod(shape)) * (2 if self.dtype == BF16 else 4)
        t = TensorProto(name=name, dims=shape, data_type=self.dtype, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "holes.bin"), ("offset", "0"), ("length", str(n_bytes))):
            t.external_data.add(key=key, value=value)
        self.inits.append(t)
        self.largest_bytes = max(self.largest_bytes, n_bytes)
        return name


def _norm(g: _Graph, x: str, name: str, d: int) -> str:
    wide = g.node("Cast", x, to=F32)
    mean = g.node("ReduceMean", g.node("Pow", wide, "two"), "last", keepdims=1)
    root = g.node("Sqrt", g.node("Add", mean, "eps"))
    scaled = g.node("Cast", g.node("Mul", wide, g.node("Reciprocal", root)), to=g.dtype)
    return g.node("Mul", g.weight(name, d), scaled)


def _rope(g: _Graph, x: str) -> str:
    low, high = g.node("Slice", x, "zero1", "half", "last"), g.node("Slice", x, "half", "full", "last")
    turned = g.node("Concat", g.node("Neg", high), low, axis=-1)
    return g.node("Add", g.node("Mul", x, "cos"), g.node("Mul", turned, "sin"))


def _repeat(g: _Graph, x: str) -> str:
    return g.node("Reshape", g.node("Expand", g.node("Unsqueeze", x, "two_axis"), "grown"), "heads4")


def write_llama(folder: Path, layers: int = 80, seq: int = 128, d: int = 8192, heads: int = 64, kv_heads: int = 8,
                hidden: int = 28672, vocab: int = 128256, dtype: int = BF16) -> Path:  # fmt: skip
    """Write `model.onnx` and its sparse weights; the sizes are those of the 70B model. Return the path."""
    g = _Graph(dtype)
    hd = d // heads
    g.const("two", 2.0, np.float32), g.const("eps", 1e-5, np.float32)
    for name, values in (
        ("last", [-1]), ("zero1", [0]), ("half", [hd // 2]), ("full", [hd]), ("two_axis", [2]),
        ("q_shape", [1, seq, heads, hd]), ("kv_shape", [1, seq, kv_heads, hd]),
        ("grown", [1, kv_heads, heads // kv_heads, seq, hd]), ("heads4", [1, heads, seq, hd]), ("flat", [1, seq, d]),
    ):  # fmt: skip
        g.const(name, values)
    g.weight("cos", 1, 1, seq, hd), g.weight("sin", 1, 1, seq, hd), g.weight("mask", 1, 1, seq, seq)
    g.weight("scale", 1)
    x = g.node("Gather", g.weight("embed", vocab, d), "ids")
    for n in range(layers):
        p = f"layers.{n}."
        h = _norm(g, x, p + "norm1", d)
        q, k, v = (
            g.node("Transpose", g.node("Reshape", g.node("MatMul", h, g.weight(p + w, d, cols)), shape), perm=[0, 2, 1, 3])
            for w, cols, shape in (("q", d, "q_shape"), ("k", kv_heads * hd, "kv_shape"), ("v", kv_heads * hd, "kv_shape"))
        )  # fmt: skip
        q, k = _rope(g, q), _rope(g, k)
        k, v = _repeat(g, k), _repeat(g, v)
        scores = g.node("Mul", g.node("MatMul", q, g.node("Transpose", k, perm=[0, 1, 3, 2])), "scale")
        weights = g.node("Softmax", g.node("Add", scores, "mask"), axis=-1)
        mixed = g.node("Transpose", g.node("MatMul", weights, v), perm=[0, 2, 1, 3])
        out = g.node("MatMul", g.node("Reshape", mixed, "flat"), g.weight(p + "o", d, d))
        x = g.node("Add", x, out)
        h = _norm(g, x, p + "norm2", d)
        gate = g.node("MatMul", h, g.weight(p + "gate", d, hidden))
        up = g.node("MatMul", h, g.weight(p + "up", d, hidden))
        act = g.node("Mul", g.node("Mul", gate, g.node("Sigmoid", gate)), up)
        x = g.node("Add", x, g.node("MatMul", act, g.weight(p + "down", hidden, d)))
    logits = g.node("MatMul", _norm(g, x, "norm", d), g.weight("head", d, vocab))
    graph = helper.make_graph(
        g.nodes, "llama", [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, seq])],
        [helper.make_tensor_value_info(logits, dtype, [1, seq, vocab])], g.inits,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "holes.bin", "wb") as f:
        f.truncate(g.largest_bytes)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"
