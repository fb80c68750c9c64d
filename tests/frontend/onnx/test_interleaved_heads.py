"""Products whose columns are queries, keys and values head by head become one product each; what only looks like it stays right."""

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper

import tx8fast
from tx8fast.frontend import open_model
from tx8fast.passes.pipeline import graph_passes, run_pipeline

B, S, C, H, D = 2, 5, 24, 3, 8
RNG = np.random.default_rng(3)
W, BIAS = RNG.standard_normal((C, H * 3 * D)).astype(np.float32), RNG.standard_normal(H * 3 * D).astype(np.float32)
INTS = {"lanes": [B, S, H, 3 * D], "parts": [B, S, H, 3, D]}


def model(path, form, bias=True, parts=(D, D, D), more=()):
    """y0, y1, ..: the parts of x W + b, seen as `form`; more: nodes besides."""
    node = helper.make_node
    nodes = [node("MatMul", ["x", "w"], ["p"]), *([node("Add", ["p", "b"], ["q"])] if bias else [])]
    nodes.append(node("Reshape", ["q" if bias else "p", "shape"], ["r"]))
    names = [f"y{i}" for i in range(len(parts))]
    stored = {"w": W, "b": BIAS, "shape": np.array(INTS["parts" if form == "index" else "lanes"])}
    if form == "index":
        for i, name in enumerate(names):
            stored[f"i{i}"] = np.array(i)
            nodes.append(node("Gather", ["r", f"i{i}"], [name], axis=3))
    else:
        source, axis = "r", 3
        if form == "turned":
            nodes.append(node("Transpose", ["r"], ["t"], perm=[0, 2, 1, 3]))
            source = "t"
        stored["sizes"] = np.array(parts)
        nodes.append(node("Split", [source, "sizes"], names, axis=axis))
    nodes += more
    results = [n for n in names if not any(n in m.input for m in more)] + [o for m in more for o in m.output]
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in stored.items() if n != "b" or bias]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (B, S, C))],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in results],
        tensors,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def products_of(path):
    program = open_model(path)
    run_pipeline(program, graph_passes("keep"))
    return sum(op.kind in ("gemm", "contract") for op in program.module.walk())


def check(path):
    feed = {"x": RNG.standard_normal((B, S, C)).astype(np.float32)}
    wanted = onnx.reference.ReferenceEvaluator(onnx.load(path)).run(None, feed)
    for opt in (1, 2):
        found = tx8fast.compile(path, dtype="fp32", opt=opt).run(feed)
        for a, b in zip(found.values(), map(np.asarray, wanted), strict=True):
            assert a.shape == b.shape and np.abs(a - b).max() < 1e-5 * np.abs(b).max()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("form", "parts"), [("lanes", (D, D, D)), ("turned", (D, D, D)), ("turned", (2 * D, 4, 4)), ("index", (D, D, D))]
)
def test_parts_of_heads(tmp_path, form, parts, bias):
    path = model(tmp_path / "m.onnx", form, bias, parts)
    assert products_of(path) == 3
    check(path)


def test_lanes_that_meet_again_stay_one_product(tmp_path):
    node = helper.make_node
    more = [node("Neg", ["y0"], ["n"]), node("Concat", ["n", "y1"], ["z"], axis=-1)]
    path = model(tmp_path / "m.onnx", "turned", parts=(D, 2 * D), more=more)
    assert products_of(path) == 1
    check(path)


@pytest.mark.parametrize("name", ["p", "r"])
def test_what_others_read_stays_one_product(tmp_path, name):
    path = model(tmp_path / "m.onnx", "turned", more=[helper.make_node("Relu", [name], ["z"])])
    assert products_of(path) == 1
    check(path)


def test_a_matrix_of_two_products_stays_whole(tmp_path):
    more = [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("MatMul", ["n", "w"], ["z"])]
    path = model(tmp_path / "m.onnx", "turned", more=more)
    assert products_of(path) == 2
    check(path)
