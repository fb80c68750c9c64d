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
@pytest.mark.slow(but_every=5)
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


@pytest.mark.parametrize("dtype, limit", [("fp32", 3e-6), ("bf16", 0.06), ("fp16", 0.02)])
@pytest.mark.parametrize("large", [1, 6])
@pytest.mark.slow(but_every=3)
def test_an_item_that_sees_nothing_has_equal_shares(tmp_path, dtype, limit, large):
    """In every format and at every level: of f16 no number absorbs all scores."""
    b, h, s, t = SIZES
    value = lambda n, dims, kind=TensorProto.FLOAT: helper.make_tensor_value_info(n, kind, dims)  # noqa: E731
    node = helper.make_node
    nodes = [
        node("Cast", ["there"], ["seen"], to=TensorProto.BOOL), node("Unsqueeze", ["seen", "axes"], ["rows"]),
        node("Where", ["rows", "zero", "low"], ["mask"]), node("MatMul", ["q", "k"], ["scores"]),
        node("Add", ["scores", "mask"], ["masked"]), node("Softmax", ["masked"], ["p"], axis=-1), node("MatMul", ["p", "v"], ["y"]),
    ]  # fmt: skip
    stored = {"axes": np.array([1, 2]), "zero": np.array(0, np.float32), "low": np.array(np.finfo(np.float32).min)}
    inputs = [
        value("there", (b, t), TensorProto.INT64),
        value("q", (b, h, s, DEPTH)),
        value("k", (b, h, DEPTH, t)),
        value("v", (b, h, t, DEPTH)),
    ]
    tensors = [onnx.numpy_helper.from_array(a, n) for n, a in stored.items()]
    graph = helper.make_graph(nodes, "g", inputs, [value("y", (b, h, s, DEPTH))], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), tmp_path / "m.onnx")
    rng = np.random.default_rng(4)
    feed = {
        n: rng.standard_normal(d).astype(np.float32)
        for n, d in (("q", (b, h, s, DEPTH)), ("k", (b, h, DEPTH, t)), ("v", (b, h, t, DEPTH)))
    }
    feed["q"] *= large
    there = np.arange(t) < np.array([[0], [7], [t]])
    scores = np.where(there[:, None, None], feed["q"].astype(np.float64) @ feed["k"], -1e38)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    want = p / p.sum(-1, keepdims=True) @ feed["v"]
    for opt in (1, 2, 3):
        found = tx8fast.compile(tmp_path / "m.onnx", dtype=dtype, opt=opt).run(
            feed | {"there": there.astype(np.int64)}
        )["y"]
        assert np.abs(found.astype(np.float64) - want).max() <= limit * np.abs(want).max(), opt
