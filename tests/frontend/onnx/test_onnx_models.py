"""Whole exported models: the imported graph computes what onnxruntime computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from support.interpret import run_program

from tx8fast.frontend import open_model
from tx8fast.frontend.onnx import import_onnx

MODELS = sorted((Path(__file__).parents[2] / "data" / "onnx").glob("*.onnx"))


def model_inputs(path: Path) -> dict[str, np.ndarray]:
    """Seeded inputs for a model of static shape; decode models are at position 5."""
    rng = np.random.default_rng(3)
    inputs = {}
    for info in onnx.load(path).graph.input:
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        if info.name == "pos":
            inputs[info.name] = np.array([5], np.int64)
        elif info.type.tensor_type.elem_type == onnx.TensorProto.INT64:
            inputs[info.name] = rng.integers(0, 256, shape)
        else:
            inputs[info.name] = rng.standard_normal(shape).astype(np.float32)
    return inputs


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_model_equals_onnxruntime(path):
    ort = pytest.importorskip("onnxruntime")
    inputs = model_inputs(path)
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)
    program = import_onnx(path)
    program.verify()
    results = run_program(program, inputs)
    assert list(program.main.attrs["result_names"]) == [o.name for o in session.get_outputs()]
    assert len(results) == len(expected)
    for got, want in zip(results, expected):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


def test_import_is_deterministic(data_dir):
    path = data_dir / "onnx" / "llama-decode-op23.onnx"
    assert import_onnx(path).text(locations=True) == open_model(path).text(locations=True)


def test_constants_are_operands_of_constant_ops(data_dir):
    program = import_onnx(data_dir / "onnx" / "gpt2-prefill-op20.onnx")
    kinds = [op.kind for op in program.main.body]
    assert "constant" in kinds and "get_param" in kinds
    for op in program.main.body:
        if op.kind == "constant":
            assert not op.operands and len(op.results) == 1


def test_shape_arithmetic_does_not_reach_the_graph(data_dir):
    for path in MODELS:
        for op in import_onnx(path).main.body:
            integers = [r for r in op.results if r.dtype == "i64"]
            assert op.kind not in ("range", "shape") and not (op.kind == "concat" and integers), (path.stem, op)


def test_weights_stay_in_the_file(data_dir):
    from tx8fast.weights import FileSource

    path = data_dir / "onnx" / "vit-encode-op20.onnx"
    program = import_onnx(path)
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    weights = [w for w in program.weights.values() if w.dtype == "f32"]
    assert len(weights) >= 15
    for w in weights:
        assert isinstance(w.source, FileSource) and w.source.path == str(path)
        np.testing.assert_array_equal(program.weights.view(w.key), stored[w.key])


def test_ops_carry_the_node_names(data_dir):
    path = data_dir / "onnx" / "llama-prefill-op20.onnx"
    names = {n.name for n in onnx.load(path).graph.node}
    located = [op.loc for op in import_onnx(path).main.body if op.kind == "gemm"]
    assert located and set(located) <= names
