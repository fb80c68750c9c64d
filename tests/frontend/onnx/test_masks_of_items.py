"""Softmax with masks that differ by any of the leading dimensions, alone and between the products of attention."""

import itertools
import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tx8fast

SIZES = (3, 2, 5, 70)
DEPTH = 8
FORMS = list(itertools.product((False, True), repeat=3))


def model(path, shape, alone):
    """softmax(q k^T / sqrt(depth) + mask) v, or of scores from outside."""
    b, h, s, t = SIZES
    value = lambda n, dims: helper.make_tensor_value_info(n, TensorProto.FLOAT, dims)  # noqa: E731
    inputs = (
        [value("scores", SIZES)]
        if alone
        else [value("q", (b, h, s, DEPTH)), value("k", (b, h, DEPTH, t)), value("v", (b, h, t, DEPTH))]
    )
    nodes = [] if alone else [helper.make_node("MatMul", ["q", "k"], ["scores"])]
    nodes += [
        helper.make_node("Mul", ["scores", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "mask"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["y" if alone else "p"], axis=-1),
    ]
    nodes += [] if alone else [helper.make_node("MatMul", ["p", "v"], ["y"])]
    scale = onnx.numpy_helper.from_array(np.array(1 / math.sqrt(DEPTH), np.float32), "scale")
    graph = helper.make_graph(
        nodes, "g", [*inputs, value("mask", shape)], [value("y", SIZES if alone else (b, h, s, DEPTH))], [scale]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)


def wanted(feed):
    f = {k: v.astype(np.float64) for k, v in feed.items()}
    s = (f["scores"] if "scores" in f else f["q"] @ f["k"]) / math.sqrt(DEPTH) + f["mask"]
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return p if "scores" in f else p @ f["v"]


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_masks_of_any_items(tmp_path, form, alone):
    shape = (*(n if own else 1 for n, own in zip(SIZES, form, strict=False)), SIZES[-1])
    model(tmp_path / "m.onnx", shape, alone)
    rng = np.random.default_rng(sum(form))
    for opt in (1, 2, 3):
        program = tx8fast.compile(tmp_path / "m.onnx", dtype="fp32", opt=opt)
        feed = {i.name: rng.standard_normal(i.shape).astype(np.float32) for i in program.inputs}
        feed["mask"] = np.where(rng.random(shape) < 0.4, np.float32(-1e9), feed["mask"])
        found = program.run(feed)["y"]
        assert np.abs(found - wanted(feed)).max() < 3e-6, opt
