"""Operators whose formula passes through squares, powers or sums that f16 does not hold, though it holds operand and result."""

from __future__ import annotations

import numpy as np
import pytest
from frontend.onnx.onnx_build import imported, info, node
from onnx import TensorProto
from support.interpret import run_program

from tx8fast.passes.pipeline import graph_passes, run_pipeline

BATCH, CHANNELS, SIZE = 1, 2, 4


def lrn(x):
    around = np.stack([x[:, :1] ** 2 + x[:, 1:] ** 2] * 2, axis=2).reshape(x.shape)
    return x / (1 + 0.1 / 3 * around) ** 0.75


def windows(x, p):
    total = np.abs(x[..., :-1]) ** p + np.abs(x[..., 1:]) ** p
    return (total[..., :-1, :] + total[..., 1:, :]) ** (1 / p)


def standard(x):
    centred = x - x.mean((0, 2, 3), keepdims=True)
    return centred / np.sqrt((centred**2).mean((0, 2, 3), keepdims=True))


CASES = {
    "LRN": (node("LRN", "x", "y", size=3, alpha=0.1), lrn),
    "LpPool 2": (node("LpPool", "x", "y", kernel_shape=[2, 2]), lambda x: windows(x, 2)),
    "LpPool 3": (node("LpPool", "x", "y", kernel_shape=[2, 2], p=3), lambda x: windows(x, 3)),
    "GlobalLpPool 3": (node("GlobalLpPool", "x", "y", p=3), lambda x: (np.abs(x) ** 3).sum((2, 3), keepdims=True) ** (1 / 3)),
    "MeanVarianceNormalization": (node("MeanVarianceNormalization", "x", "y"), standard),
    "Mean": (node("Mean", "x " * 200, "y"), lambda x: x),
}  # fmt: skip


@pytest.mark.parametrize(
    "name, source", [(name, "f16") for name in CASES] + [(name, "f32") for name in CASES if name != "Mean"]
)
def test_f16_has_room(name, source):
    """Models of f16, and models of f32 that are compiled in f16."""
    made, expected = CASES[name]
    sign = np.where(np.arange(SIZE * SIZE) % 3, 1, -1).reshape(SIZE, SIZE)
    x = (sign * np.random.default_rng(0).uniform(300, 600, (BATCH, CHANNELS, SIZE, SIZE))).astype(np.float16)
    of = TensorProto.FLOAT16 if source == "f16" else TensorProto.FLOAT
    program = imported([made], [info("x", x.shape, of)], [info("y", None, of)])
    run_pipeline(program, graph_passes("f16"))
    (y,) = run_program(program, {"x": x.astype(np.float16 if source == "f16" else np.float32)})
    np.testing.assert_allclose(y.astype(np.float64), expected(x.astype(np.float64)), rtol=4e-3)
