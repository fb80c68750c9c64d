"""Forms that kernels read: normalisations of dense rows, and products that are stored dense, as the layout passes decide."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import tx8fast
from tests.support import family_checkpoints
from tests.support.cli_case import write_onnx
from tests.support.family_reference import FamilyReference

SEQ = 24
IDS = np.random.default_rng(1).integers(0, family_checkpoints.VOCAB, (1, SEQ))


def ops(compiled) -> list[str]:
    return [s.info["op"] for s in compiled.program.segments]


@pytest.mark.parametrize("opt", [1, 2])
@pytest.mark.parametrize(("head", "changes"), [(64, 5), (24, 9)])
def test_norms_of_heads(tmp_path, monkeypatch, opt: int, head: int, changes: int) -> None:
    """Heads of whole blocks are normalised as dense rows: no change of layout stands before or behind. Of heads that leave lanes of
    padding blocks are made first. Results are right, and nothing is read that nobody wrote."""
    case = {**family_checkpoints.CONFIGS["qwen3"], "head_dim": head}
    monkeypatch.setitem(family_checkpoints.CONFIGS, "qwen3", case)
    config, weights = family_checkpoints.make_family(tmp_path, "qwen3", "bfloat16")
    compiled = tx8fast.compile(tmp_path, phase="prefill", batch=1, seq=SEQ, opt=opt)
    found = compiled.run({"input_ids": IDS}, sanitize=True)
    wanted = FamilyReference(config, weights).prefill(IDS)
    for name, w in wanted.items():
        assert np.abs(np.asarray(found[name]).astype(np.float64) - w).max() <= 2e-2 * np.abs(w).max(), name
    made = ops(compiled)
    assert "+".join(made).split("+").count("channel_norm") == changes  # one of them of the embedding
    assert opt == 1 or "gemm+channel_norm" in made


def test_a_product_in_both_forms(tmp_path) -> None:
    """What a product makes is stored as another product reads it, and dense for a transpose."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "mm"), helper.make_node("Transpose", ["h"], ["t"], "turned", perm=[1, 0]),
             helper.make_node("MatMul", ["h", "v"], ["y"], "mix")]  # fmt: skip
    rng = np.random.default_rng(0)
    w, v, x = (rng.standard_normal(s).astype(np.float32) for s in ((96, 200), (200, 64), (80, 96)))
    path = write_onnx(tmp_path / "m.onnx", nodes, {"x": x.shape}, {"t": (200, 80), "y": (80, 64)}, {"w": w, "v": v})
    compiled = tx8fast.compile(path, dtype="fp32", opt=2)
    assert "gemm+channel_norm" in ops(compiled)
    found = compiled.run({"x": x}, sanitize=True)
    assert np.allclose(found["t"], (x @ w).T, atol=1e-3) and np.allclose(found["y"], x @ w @ v, atol=1e-2)
