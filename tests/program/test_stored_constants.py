"""Constants that stand in no file of the model, where the program stores no weights: they are in the program all the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tx8fast
from tx8fast.cli.app import run


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """x @ transpose(c + c): what is computed from c exists nowhere, and its transposition is made from it."""
    c = np.arange(40 * 27, dtype=np.float32).reshape(40, 27) / 64
    graph = helper.make_graph(
        [
            helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(c)),
            helper.make_node("Add", ["c", "c"], ["d"]),
            helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]),
            helper.make_node("MatMul", ["x", "t"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 27])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 40])],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    return path


def test_a_program_without_weights_runs(model: Path):
    x = np.random.default_rng(0).standard_normal((5, 27)).astype(np.float32)
    inside, beside = (tx8fast.compile(model, embed_limit_bytes=n) for n in (1 << 20, 0))
    assert inside.run({"x": x})["y"].tobytes() == beside.run({"x": x})["y"].tobytes()


def test_a_host_gets_all_of_it(model: Path):
    out = model.with_name("whole.tx8")
    assert run(["compile", str(model), "--standalone", "-o", str(out)]) == 0
    x = np.ones((5, 27), np.float32)
    assert tx8fast.load(out).run({"x": x})["y"].tobytes() == tx8fast.compile(model).run({"x": x})["y"].tobytes()
