"""Plans in which every tile loads for itself need more room than those that share: only those that have it are tried."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tx8fast


@pytest.mark.parametrize("opt", [2, 3])
@pytest.mark.slow
def test_plans_without_sharing_have_room(tmp_path: Path, opt: int) -> None:
    """A short product, a bias, a longer product and a bias, added to a product of the same rows."""
    lead, depth, inner, cols = (6, 390, 16), 2, 33, 400
    rng = np.random.default_rng(3)
    rows = int(np.prod(lead))
    held = {"a": (depth, inner), "b": (inner,), "c": (inner, cols), "d": (cols,), "e": (depth, cols), "f": (cols,)}
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in held.items()}
    shapes = {"flat": (rows, depth), "inner": (*lead, inner), "whole": (*lead, cols)}
    node = helper.make_node
    nodes = [
        node("Reshape", ["x", "flat"], ["x2"]),
        node("Gemm", ["x2", "a"], ["p"]), node("Reshape", ["p", "inner"], ["p5"]), node("Add", ["b", "p5"], ["q"]),
        node("MatMul", ["q", "c"], ["r"]), node("Add", ["r", "d"], ["s"]),
        node("Gemm", ["x2", "e", "f"], ["t"]), node("Reshape", ["t", "whole"], ["t5"]), node("Add", ["t5", "s"], ["o"]),
    ]  # fmt: skip
    weights = [numpy_helper.from_array(v, name) for name, v in arrays.items()]
    weights += [numpy_helper.from_array(np.array(v), name) for name, v in shapes.items()]
    info = lambda name, *s: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, s)  # noqa: E731
    graph = helper.make_graph(nodes, "g", [info("x", *lead, depth)], [info("o", *lead, cols)], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    made = tx8fast.compile(tmp_path / "m.onnx", opt=opt)
    x = rng.standard_normal((*lead, depth)).astype(np.float32)
    w = {name: v.astype(np.float64) for name, v in arrays.items()}
    right = (x @ w["a"] + w["b"]) @ w["c"] + w["d"] + x @ w["e"] + w["f"]
    got = np.asarray(made.run({"x": x})["o"])
    assert np.abs(got - right).max() < 1e-5 * np.abs(right).max()
