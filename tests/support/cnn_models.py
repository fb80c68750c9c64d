"""ONNX image classifiers built in memory: ResNet-50, and a small network with every kind of CNN layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class CnnBuilder:
    """Collects nodes; values are names. `fill` is the value of every weight (None: random)."""

    def __init__(self, dtype: int = TensorProto.FLOAT, fill: float | None = None, seed: int = 0) -> None:
        self.dtype, self.fill = dtype, fill
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, kind: str, *inputs: str, **attrs) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"n{len(self.nodes)}", **attrs))
        return name

    def weight(self, shape: tuple[int, ...], scale: float, shift: float = 0.0) -> str:
        name = f"w{len(self.weights)}"
        if self.fill is None:
            data = (self.rng.standard_normal(shape) * scale + shift).astype(np.float32)
        else:
            data = np.full(shape, self.fill, np.float32)
        if self.dtype == TensorProto.FLOAT:
            self.weights.append(numpy_helper.from_array(data, name))
        else:
            import ml_dtypes

            raw = data.astype(ml_dtypes.bfloat16).tobytes()
            self.weights.append(helper.make_tensor(name, self.dtype, shape, raw, raw=True))
        return name

    def constant(self, values: list[int]) -> str:
        self.weights.append(numpy_helper.from_array(np.array(values, np.int64), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def conv(self, x: str, cin: int, cout: int, kernel: int, stride: int = 1, groups: int = 1) -> str:
        w = self.weight((cout, cin // groups, kernel, kernel), (2.0 / (cin // groups * kernel * kernel)) ** 0.5)
        b = self.weight((cout,), 0.1)
        return self.node("Conv", x, w, b, strides=[stride, stride], pads=[kernel // 2] * 4, group=groups,
                         kernel_shape=[kernel, kernel])  # fmt: skip

    def save(self, path: Path, x_shape: tuple[int, ...], out: str, out_shape: tuple[int, ...]) -> Path:
        graph = helper.make_graph(
            self.nodes, "cnn", [helper.make_tensor_value_info("x", self.dtype, x_shape)],
            [helper.make_tensor_value_info(out, self.dtype, out_shape)], self.weights)  # fmt: skip
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
        return path


def resnet50(path: Path, batch: int, fill: float | None = 0.01, dtype: int = TensorProto.FLOAT) -> Path:
    """Write ResNet-50 v1.5 with folded batch normalisation."""
    b = CnnBuilder(dtype, fill)
    y = b.node("Relu", b.conv("x", 3, 64, 7, 2))
    y = b.node("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    cin = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        mid = 64 << stage
        for i in range(blocks):
            stride = 2 if stage and not i else 1
            z = b.node("Relu", b.conv(y, cin, mid, 1))
            z = b.node("Relu", b.conv(z, mid, mid, 3, stride))
            z = b.conv(z, mid, 4 * mid, 1)
            skip = y if i else b.conv(y, cin, 4 * mid, 1, stride)
            y = b.node("Relu", b.node("Add", z, skip))
            cin = 4 * mid
    y = b.node("Flatten", b.node("GlobalAveragePool", y))
    y = b.node("Gemm", y, b.weight((1000, cin), 0.02), b.weight((1000,), 0.1), transB=1)
    return b.save(path, (batch, 3, 224, 224), y, (batch, 1000))
