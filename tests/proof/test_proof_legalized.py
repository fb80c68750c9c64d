"""Operators that are written in ops of engines before they are lowered: their programs are proved, and take no kernel core."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tx8fast import api
from tx8fast.options import CompileOptions

FUNCTIONS = (
    "Tan",
    "Sinh",
    "Cosh",
    "Asin",
    "Acos",
    "Atan",
    "Asinh",
    "Acosh",
    "Atanh",
    "Selu",
    "Celu",
    "ThresholdedRelu",
)
I64 = np.int64
#: name -> (nodes as operator, inputs and attributes, shape of the input, weights)
OTHERS = {
    "power": ([("Pow", "x e", {})], (3, 70), {"e": np.float32(2.2)}),
    "prelu": ([("PRelu", "x s", {})], (3, 70), {"s": np.linspace(-1, 1, 70, dtype=np.float32)}),
    "shares of channels": ([("Softmax", "x", {"axis": 1})], (1, 21, 8, 8), {}),
    "norm of features": ([("LpNormalization", "x", {"axis": 1, "p": 2})], (2, 12, 4, 4), {}),
    "logarithm of a sum": ([("ReduceLogSumExp", "x a", {})], (5, 40), {"a": np.array([1], I64)}),
    "norm of all": ([("LayerNormalization", "x g", {"axis": 1})], (2, 3, 30), {"g": np.ones((3, 30), np.float32)}),
    "long rows": ([("Softmax", "x", {})], (2, 16500), {}),
    "border": ([("Pad", "x p", {"mode": "reflect"})], (1, 2, 20, 20), {"p": np.array([0, 0, 1, 1, 0, 0, 2, 2], I64)}),
    "quantised": ([("QuantizeLinear", "x s z", {}), ("DequantizeLinear", "v0 s z", {})], (4, 64),
                  {"s": np.float32(0.1), "z": np.uint8(7)}),
    "wide": ([("Conv", "x w", {"kernel_shape": [1, 9]})], (1, 1, 1, 4200), {"w": np.ones((4, 1, 1, 9), np.float32)}),
    "dilated pool": ([("MaxPool", "x", {"kernel_shape": [2, 2], "dilations": [2, 2]})], (1, 3, 16, 16), {}),
}  # fmt: skip


def proved(path, nodes, shape, weights, dtype=None) -> None:
    made = [
        helper.make_node(op, names.split(), [f"v{i}"], f"n{i}", **attrs) for i, (op, names, attrs) in enumerate(nodes)
    ]
    stored = [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()]
    x, y = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), (made[-1].output[0], None))
    )
    graph = helper.make_graph(made, "g", [x], [y], stored)
    plain = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save(onnx.shape_inference.infer_shapes(plain), path)
    options = CompileOptions(dtype=dtype)
    program = api.compile(path, options).program
    assert not program.meta["kernel_core"]
    report = api.prove(program, path, options, quick=True)
    assert report.complete and not report.failures, "\n".join(report.lines())


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_functions(tmp_path, kind: str) -> None:
    proved(tmp_path / "m.onnx", [(kind, "x", {})], (5, 70), {})


@pytest.mark.parametrize("name", OTHERS)
def test_others(tmp_path, name: str) -> None:
    proved(tmp_path / "m.onnx", *OTHERS[name])


LONG = {
    "softmax": [("Softmax", "x", {})],
    "logarithm": [("LogSoftmax", "x", {})],
    "norm": [("LayerNormalization", "x g", {})],
    "scaled": [("Mul", "x g", {}), ("Softmax", "v0", {})],
}


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("name", LONG)
def test_long_rows_of_16_bits(tmp_path, name, dtype):
    """Their pieces lie in f32, whatever the rows come in."""
    proved(tmp_path / "m.onnx", LONG[name], (2, 16500), {"g": np.linspace(1, 2, 16500, dtype=np.float32)}, dtype)


@pytest.mark.parametrize("function, number", [("Atan", 1 / 3), ("Selu", 1.6732632), ("Selu", 1.0507), ("Asinh", 1 / 6)])
def test_a_weight_that_is_a_constant_of_a_function_in_bf16(tmp_path, function, number):
    """The numbers of a function's steps are known before one is looked up, on either side."""
    nodes = [("Mul", "x w", {}), (function, "v0", {}), ("Mul", "v1 w", {})]
    proved(tmp_path / "m.onnx", nodes, (3, 70), {"w": np.float32(number)}, "bf16")


@pytest.mark.parametrize("opt", [1, 2, 3])
def test_comparisons_with_infinity_within_a_launch(tmp_path, opt):
    """A number that is drawn is not infinite, nor is any other but the constant: the choice is made in the launch that compares."""
    nodes = [("Equal", "x i"), ("Equal", "y i"), ("Or", "v0 v1"), ("Min", "x y"), ("Max", "x y"), ("Mul", "v3 v4"), ("Where", "v2 s v5"),
             ("Less", "y i"), ("Where", "v7 v6 s"), ("ReduceSum", "v8 a")]  # fmt: skip
    weights = {"i": np.float32(np.inf), "s": np.float32(7), "a": np.array([1], I64)}
    made = [helper.make_node(kind, names.split(), [f"v{i}"]) for i, (kind, names) in enumerate(nodes)]
    stored = [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (1, 9)), ("y", (5, 1)))]
    result = helper.make_tensor_value_info("v9", TensorProto.FLOAT, (5, 1))
    graph = helper.make_graph(made, "g", inputs, [result], stored)
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    options = CompileOptions(opt=opt)
    program = api.compile(path, options).program
    report = api.prove(program, path, options)
    assert report.complete and not report.failures, "\n".join(report.lines())
