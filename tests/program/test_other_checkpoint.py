"""A program whose weights stay in the checkpoint, run with another one: right, or refused where constants were computed from weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tx8fast
from tx8fast.errors import ProgramError

ROWS, INNER = 4, 1000


def write(folder: Path, scale: np.ndarray, weight: np.ndarray) -> Path:
    """x @ weight * exp(scale), weights in a file beside the model: the exponential is computed by the compiler."""
    folder.mkdir()
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["y"]),
        helper.make_node("Exp", ["scale"], ["e"]),
        helper.make_node("Mul", ["y", "e"], ["out"]),
    ]
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, INNER])],
            [helper.make_tensor_value_info("out", TensorProto.FLOAT, [ROWS, INNER])],
            [numpy_helper.from_array(scale, "scale"), numpy_helper.from_array(weight, "weight")],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
    )
    path = folder / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="model.data", size_threshold=0)
    return path


@pytest.fixture
def drawn():
    rng = np.random.default_rng(5)
    scales = [rng.uniform(-1, 1, INNER).astype(np.float32) for _ in range(2)]
    weights = [rng.standard_normal((INNER, INNER)).astype(np.float32) for _ in range(2)]
    return scales, weights, rng.standard_normal((ROWS, INNER)).astype(np.float32)


def test_other_weights_that_stay_in_the_checkpoint_are_used(tmp_path, drawn):
    scales, weights, x = drawn
    program = tx8fast.compile(write(tmp_path / "a", scales[0], weights[0]), embed_limit_bytes=0)
    write(tmp_path / "b", scales[0], weights[1])
    for folder, weight in (("a", weights[0]), ("b", weights[1])):
        found = program.run({"x": x}, weights_dir=tmp_path / folder)["out"]
        wanted = x.astype(np.float64) @ weight * np.exp(scales[0].astype(np.float64))
        assert np.abs(found - wanted).max() < 1e-5 * np.abs(wanted).max()


def test_weights_that_the_compiler_has_computed_with_must_be_the_same(tmp_path, drawn):
    scales, weights, x = drawn
    program = tx8fast.compile(write(tmp_path / "a", scales[0], weights[0]), embed_limit_bytes=0)
    write(tmp_path / "b", scales[1], weights[0])
    program.save(tmp_path / "p.tx8")
    for loaded in (program, tx8fast.load(tmp_path / "p.tx8")):
        with pytest.raises(
            ProgramError, match=r"1 weights that have other values.*\n  - scale \(model.data\)\n"
        ) as error:
            loaded.run({"x": x}, weights_dir=tmp_path / "b")
        assert "compile the checkpoint that is there" in str(error.value)


@pytest.mark.parametrize(
    "change", [{"file": "../a/model.data"}, {"file": "/etc/passwd"}, {"offset": "x"}, {"nbytes": 1 << 70}, {"file": 5}]
)
def test_damaged_places_are_told(tmp_path, drawn, change):
    scales, weights, x = drawn
    program = tx8fast.compile(write(tmp_path / "a", scales[0], weights[0]), embed_limit_bytes=0)
    program.program.meta["deciding"] = [program.program.meta["deciding"][0] | change]
    with pytest.raises(ProgramError, match="reading parameters"):
        program.run({"x": x}, weights_dir=tmp_path / "a")
