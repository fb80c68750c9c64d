"""Forms that kernels read: normalisations of dense rows, and products that are stored dense, as the layout passes decide."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import tx8fast
from tests.support.cli_case import write_onnx


def ops(compiled) -> list[str]:
    return [s.info["op"] for s in compiled.program.segments]


@pytest.mark.parametrize(("channels", "changes"), [(128, 0), (120, 2)])
def test_norms_between_dense_ops(tmp_path, channels: int, changes: int) -> None:
    """Rows of whole blocks are normalised as they lie: no change of layout stands before or behind. Of rows that leave lanes of
    padding blocks are made first. Results are right, and nothing is read that nobody wrote."""
    nodes = [helper.make_node("Concat", ["x", "z"], ["a"], "before", axis=0),
             helper.make_node("LayerNormalization", ["a", "g"], ["n"], "norm", axis=-1),
             helper.make_node("Concat", ["z", "n"], ["y"], "behind", axis=0)]  # fmt: skip
    rng = np.random.default_rng(0)
    x, z, g = (rng.standard_normal(s).astype(np.float32) for s in ((9, channels), (4, channels), (channels,)))
    path = write_onnx(tmp_path / "m.onnx", nodes, {"x": x.shape, "z": z.shape}, {"y": (17, channels)}, {"g": g})
    compiled = tx8fast.compile(path, dtype="fp32", opt=1)
    assert ops(compiled).count("channel_norm") == changes
    a = np.concatenate([x, z])
    wanted = np.concatenate([z, (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5) * g])
    assert np.allclose(compiled.run({"x": x, "z": z}, sanitize=True)["y"], wanted, atol=1e-4)


def test_a_product_in_both_forms(tmp_path) -> None:
    """What a product makes is stored as another product reads it, and dense for a transpose."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "mm"), helper.make_node("Transpose", ["h"], ["t"], "turned", perm=[1, 0]),
             helper.make_node("MatMul", ["h", "v"], ["y"], "mix")]  # fmt: skip
    rng = np.random.default_rng(0)
    w, v, x = (rng.standard_normal(s).astype(np.float32) for s in ((96, 200), (200, 64), (80, 96)))
    path = write_onnx(tmp_path / "m.onnx", nodes, {"x": x.shape}, {"t": (200, 80), "y": (80, 64)}, {"w": w, "v": v})
    compiled = tx8fast.compile(path, dtype="fp32", opt=2)
    assert any("gemm+channel_norm" in kinds.split(" > ") for kinds in ops(compiled))
    found = compiled.run({"x": x}, sanitize=True)
    assert np.allclose(found["t"], (x @ w).T, atol=1e-3) and np.allclose(found["y"], x @ w @ v, atol=1e-2)
