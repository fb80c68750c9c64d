"""Bounds of slices outside of the tensor, thresholds below zero, and factors of f16 whose product f16 lacks."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from frontend.onnx.onnx_build import info, model, node
from onnx import TensorProto

import tx8fast

ort = pytest.importorskip("onnxruntime")

HALF = np.float16
FAR = (-(2**63), 2**63 - 1)


def both(made, feeds, tmp_path, **options):
    """Return onnxruntime's first result and ours."""
    path = tmp_path / "net.onnx"
    onnx.save(made, path)
    session = ort.SessionOptions()
    session.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    want = ort.InferenceSession(path, session, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    got = next(iter(tx8fast.compile(path, **options).run(feeds).values()))
    return want, np.asarray(got)


@pytest.mark.parametrize("step", [1, 2, -1, -3])
def test_slices_begin_and_end_where_the_standard_says(step, tmp_path):
    """Bounds below zero count from the end, then both are cut to the tensor: on the way down to [0, n - 1] and [-1, n - 1]."""
    x = np.arange(1, 8, dtype=np.float32)
    bounds = list(itertools.product((*FAR, -100, -8, -7, -3, 0, 3, 6, 7, 8, 100), repeat=2))
    weights, nodes, want = {"axis": np.array([0]), "step": np.array([step])}, [], []
    for i, pair in enumerate(bounds):
        weights |= {f"lo{i}": np.array(pair[:1]), f"hi{i}": np.array(pair[1:])}
        nodes += [
            node("Slice", f"x lo{i} hi{i} axis step", f"t{i}"),
            node("ReduceSum", f"t{i} axis", f"s{i}", keepdims=1),
        ]
        lo, hi = (at + 7 if at < 0 else at for at in pair)
        lo, hi = (np.clip(lo, 0, 7), np.clip(hi, 0, 7)) if step > 0 else (np.clip(lo, 0, 6), np.clip(hi, -1, 6))
        want.append(
            float(
                sum(
                    x[at] for at in range(7) if (at - lo) % step == 0 and (lo <= at < hi if step > 0 else hi < at <= lo)
                )
            )
        )
    nodes.append(node("Concat", " ".join(f"s{i}" for i in range(len(bounds))), "y", axis=0))
    path = tmp_path / "net.onnx"
    onnx.save(model(nodes, [info("x", x.shape)], [info("y", (len(bounds),))], weights), path)
    got = np.asarray(tx8fast.compile(path).run({"x": x})["y"]).tolist()
    assert got == want, [(b, a, c) for b, a, c in zip(bounds, want, got, strict=True) if a != c]


@pytest.mark.parametrize("lambd", [-1.0, -0.5, 0.0, 0.5])
def test_where_both_bounds_of_shrink_hold_the_first_one_decides(lambd, tmp_path):
    x = np.array([-3, -1, -0.5, -0.25, 0, 0.25, 0.5, 1, 3], np.float32)
    made = model([node("Shrink", "x", "y", lambd=lambd, bias=0.25)], [info("x", x.shape)], [info("y", x.shape)])
    want, got = both(made, {"x": x}, tmp_path)
    assert np.array_equal(want, got)


@pytest.mark.parametrize(("first", "second", "most"), [
    ("Mul 300", "Mul 300", 0.3), ("Mul 0.0001", "Mul 0.0001", 6e4), ("Mul 300", "Div 0.0033", 0.3), ("Div 9.5367e-07", "Mul 1", 1e-2),
    ("Mul 3", "Mul 5", 1e3),
])  # fmt: skip
@pytest.mark.parametrize("wide", [False, True])
def test_two_factors_are_not_one_that_f16_lacks(first, second, most, wide, tmp_path):
    dtype, of = (np.float32, TensorProto.FLOAT) if wide else (HALF, TensorProto.FLOAT16)
    x = np.linspace(0, most, 32, dtype=dtype).reshape(4, 8)
    ops = [text.split() for text in (first, second)]
    nodes = [node(ops[0][0], "x a", "t"), node(ops[1][0], "t b", "y")]
    weights = {"a": dtype(ops[0][1]), "b": dtype(ops[1][1])}
    made = model(nodes, [info("x", x.shape, of)], [info("y", x.shape, of)], weights)
    want, got = both(made, {"x": x}, tmp_path, **({"dtype": "fp16"} if wide else {}))
    assert np.isfinite(want).all() and want.max() > 0
    assert np.allclose(got.astype(np.float32), want.astype(np.float32), rtol=4e-3, atol=2e-7)


@pytest.mark.parametrize("scales", [(1e-4, 1e-4), (2e-4, 0.5), (3e-4, 1.0)])
def test_factors_of_queries_and_keys_do_not_vanish(scales, tmp_path):
    rng = np.random.default_rng(7)
    shape, of = (1, 2, 8, 16), TensorProto.FLOAT16
    size = (1 / (scales[0] * scales[1])) ** 0.5
    feeds = {n: (rng.standard_normal(shape) * s).astype(HALF) for n, s in (("q", size / 2), ("k", size / 2), ("v", 1))}
    nodes = [node("Mul", "q a", "qs"), node("Mul", "k b", "ks"), node("Transpose", "ks", "kt", perm=[0, 1, 3, 2]),
             node("MatMul", "qs kt", "s"), node("Softmax", "s", "p", axis=-1), node("MatMul", "p v", "y")]  # fmt: skip
    made = model(
        nodes, [info(n, shape, of) for n in feeds], [info("y", shape, of)], {"a": HALF(scales[0]), "b": HALF(scales[1])}
    )
    for opt in (1, 2):
        want, got = both(made, feeds, tmp_path, opt=opt)
        assert np.abs(got.astype(np.float32) - want.astype(np.float32)).max() < 0.03, opt


def test_weights_times_a_factor_that_f16_lacks_stay_apart(tmp_path):
    rng, of = np.random.default_rng(1), TensorProto.FLOAT16
    x = (rng.standard_normal((1, 2, 4, 4)) * 1e-3).astype(HALF)
    weights = {
        "w": (rng.standard_normal((2, 2, 1, 1)) * 100).astype(HALF),
        "c": np.array([900, 2000], HALF).reshape(2, 1, 1),
    }
    nodes = [node("Conv", "x w", "t"), node("Mul", "t c", "y")]
    made = model(nodes, [info("x", x.shape, of)], [info("y", x.shape, of)], weights)
    want, got = both(made, {"x": x}, tmp_path)
    assert np.allclose(got.astype(np.float32), want.astype(np.float32), rtol=4e-3, atol=0.1)
