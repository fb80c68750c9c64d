"""A norm and products of many channels, whose rows tiles share, gather, or have unevenly: the same numbers at every level."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tx8fast

LOOSE = {"fp32": 2e-5, "bf16": 3e-2}


def model(path: Path, rows: int, inner: int, depth: int, cols: int) -> tuple[np.ndarray, np.ndarray]:
    """[product of `inner` columns, bias,] LayerNormalization of `depth` channels, product. Return the input and what is right."""
    rng = np.random.default_rng(rows + depth)
    x = rng.standard_normal((rows, inner or depth)).astype(np.float32)
    held = {
        "g": 1 + rng.standard_normal(depth),
        "b": rng.standard_normal(depth),
        "w": rng.standard_normal((depth, cols)) / depth**0.5,
    }
    nodes, at = [], "x"
    if inner:
        held |= {"w0": rng.standard_normal((inner, depth)) / inner**0.5, "b0": rng.standard_normal(depth)}
        nodes = [helper.make_node("MatMul", ["x", "w0"], ["p"]), helper.make_node("Add", ["p", "b0"], ["q"])]
        at = "q"
    nodes += [
        helper.make_node("LayerNormalization", [at, "g", "b"], ["n"], axis=-1),
        helper.make_node("MatMul", ["n", "w"], ["o"]),
    ]
    info = lambda name, *s: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, s)  # noqa: E731
    weights = [numpy_helper.from_array(v.astype(np.float32), name) for name, v in held.items()]
    graph = helper.make_graph(nodes, "g", [info("x", *x.shape)], [info("o", rows, cols)], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    y = x.astype(np.float64)
    y = y @ held["w0"] + held["b0"] if inner else y
    y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5) * held["g"] + held["b"]
    return x, y @ held["w"]


@pytest.mark.parametrize("rows, inner, depth, cols, dtype", [
    (256, 0, 2560, 512, "fp32"), (300, 0, 2560, 512, "fp32"), (257, 0, 2560, 512, "bf16"), (224, 0, 8192, 256, "bf16"),
    (257, 256, 2560, 512, "fp32"), (300, 256, 4096, 512, "bf16"), (512, 0, 4096, 1024, "bf16"),
])  # fmt: skip
@pytest.mark.slow
def test_norms_of_many_channels(tmp_path: Path, rows: int, inner: int, depth: int, cols: int, dtype: str) -> None:
    """Rows that a nest before has left are gathered in its slices, no chunks; tiles with fewer rows have as many chunks as the others."""
    x, right = model(tmp_path / "m.onnx", rows, inner, depth, cols)
    made = tx8fast.compile(tmp_path / "m.onnx", dtype=dtype)
    got = np.asarray(made.run({"x": x}, sanitize=True)["o"]).astype(np.float64)
    assert np.abs(got - right).max() < LOOSE[dtype] * np.abs(right).max()
