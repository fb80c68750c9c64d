"""The operators of transformers and convolution networks in every operator set from 7 on, in the form it gives them."""

from __future__ import annotations

import numpy as np
import pytest
from frontend.onnx.onnx_build import info, model, node
from onnx import helper
from support.interpret import run_program

from tx8fast.errors import UnsupportedError
from tx8fast.frontend.onnx import import_model
from tx8fast.frontend.onnx.node import MAX_OPSET

ort = pytest.importorskip("onnxruntime")
NEWEST_OF_RUNTIME = 22
IMAGE = (1, 4, 6, 6)


def ints(*values):
    return np.array(values, np.int64)


def nodes_of(opset: int) -> list[tuple[str, str, dict, dict]]:
    """(operator, inputs, constants, attributes); x is [2, 4, 6], i is an image, k a kernel."""
    axes: tuple[str, dict, dict] = ("x a", {"a": ints(-1)}, {}) if opset >= 18 else ("x", {}, {"axes": [-1]})
    found = [
        ("ReduceSum", "x a", {"a": ints(-1)}, {"keepdims": 0}), *((r, *axes) for r in ("ReduceMean", "ReduceMax", "ReduceL2")),
        ("Softmax", "x", {}, {"axis": 1}), ("Squeeze", "u a", {"a": ints(0)}, {}), ("Unsqueeze", "x a", {"a": ints(0, 2)}, {}),
        ("Split", "x s", {"s": ints(1, 3)}, {"axis": 1}), ("Slice", "x b e a", {"b": ints(1), "e": ints(9), "a": ints(2)}, {}),
        ("Transpose", "x", {}, {"perm": [2, 0, 1]}), ("Reshape", "x s", {"s": ints(0, -1)}, {}), ("Concat", "x x", {}, {"axis": 1}),
        ("Expand", "u s", {"s": ints(3, 1, 6)}, {}), ("Pad", "x p", {"p": ints(0, 1, 0, 0, 0, 2)}, {}), ("Gather", "x j", {}, {"axis": 1}),
        ("Clip", "x lo hi", {"lo": np.float32(-0.5), "hi": np.float32(0.5)}, {}), ("Where", "c x x", {"c": np.ones((4, 1), bool)}, {}),
        ("Pow", "x e", {"e": np.float32(2)}, {}), ("Erf", "x", {}, {}), ("MatMul", "x w", {}, {}), ("Cast", "x", {}, {"to": 7}),
        ("Gemm", "g w", {}, {"alpha": 0.5}), ("Einsum", "x w", {}, {"equation": "bij,jk->bik"}), ("CumSum", "x a", {"a": np.array(1)}, {}),
        ("TopK", "x k1", {"k1": ints(2)}, {"axis": 1}), ("ArgMax", "x", {}, {"axis": 1}), ("Tile", "x t", {"t": ints(1, 2, 1)}, {}),
        ("ScatterND", "x at up", {"at": ints([0, 1], [1, 2]), "up": np.ones((2, 6), np.float32)}, {}),
        ("Conv", "i k", {}, {"pads": [1, 1, 1, 1]}), ("MaxPool", "i", {}, {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("AveragePool", "i", {}, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}), ("GlobalAveragePool", "i", {}, {}),
        ("BatchNormalization", "i v v v p", {"v": np.ones(4, np.float32), "p": np.full(4, 2, np.float32)}, {}),
        ("LRN", "i", {}, {"size": 3}), ("Resize", "i _ s", {"s": np.array([1, 1, 2, 2], np.float32)}, {"mode": "nearest"}),
        ("DepthToSpace", "i", {}, {"blocksize": 2}), ("HardSwish", "x", {}, {}) if opset >= 14 else ("HardSigmoid", "x", {}, {}),
        ("QuantizeLinear", "x q", {"q": np.float32(0.1)}, {}), ("InstanceNormalization", "i v v", {"v": np.ones(4, np.float32)}, {}),
    ]  # fmt: skip
    if opset >= 14:
        found.append(("Trilu", "x", {}, {"upper": 0}))
    if opset >= 17:
        found.append(("LayerNormalization", "x n", {"n": np.ones(6, np.float32)}, {}))
    if opset >= 18:
        found.append(("Split", "x", {}, {"axis": 1, "num_outputs": 2}))
    if opset >= 20:
        found.append(("Gelu", "x", {}, {"approximate": "tanh"}))
    return found


def old_nodes_of(opset: int) -> list[tuple[str, str, dict, dict]]:
    """As `nodes_of`, of operator sets below 13: what are inputs today were attributes."""
    axes: tuple[str, dict, dict] = ("x", {}, {"axes": [1], "keepdims": 0})
    found = [
        *((r, *axes) for r in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp")),
        ("Softmax", "x", {}, {}), ("LogSoftmax", "x", {}, {"axis": 1}), ("Squeeze", "u", {}, {"axes": [0]}), ("Unsqueeze", "x", {}, {"axes": [0, 2]}),
        ("Split", "x", {}, {"axis": 1, "split": [1, 3]}), ("Concat", "x x", {}, {"axis": 1}), ("Flatten", "i", {}, {"axis": 2}),
        ("Gemm", "g w b", {"b": np.ones(5, np.float32)}, {"alpha": 0.5}), ("Dropout", "x", {}, {}), ("PRelu", "x n", {"n": np.ones(6, np.float32)}, {}),
        ("Conv", "i k", {}, {"auto_pad": "SAME_UPPER"}), ("MaxPool", "i", {}, {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("AveragePool", "i", {}, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}), ("LRN", "i", {}, {"size": 3}),
        ("BatchNormalization", "i v v v p", {"v": np.ones(4, np.float32), "p": np.full(4, 2, np.float32)}, {"momentum": 0.5}),
    ]  # fmt: skip
    if opset < 9:
        found.append(
            (
                "BatchNormalization",
                "i v v v p",
                {"v": np.ones(4, np.float32), "p": np.full(4, 2, np.float32)},
                {"spatial": 1},
            )
        )
        found.append(("Upsample", "i", {}, {"mode": "nearest", "scales": [1.0, 1.0, 2.0, 2.0]}))
    if opset < 10:
        found += [("Slice", "x", {}, {"axes": [1], "starts": [1], "ends": [9]}), ("TopK", "x", {}, {"axis": 1, "k": 2})]
    else:
        found.append(("TopK", "x k1", {"k1": ints(2)}, {"axis": 1}))
        found.append(
            ("Resize", "i s", {"s": np.array([1, 1, 2, 2], np.float32)}, {})
            if opset == 10
            else ("CumSum", "x a", {"a": np.array(1)}, {})
        )
    if opset < 11:
        found.append(("Clip", "x", {}, {"min": -0.5, "max": 0.5}))
        found.append(("Pad", "x", {}, {"pads": [0, 1, 0, 0, 0, 2], "value": 1.5}))
    return found


@pytest.mark.parametrize("opset", range(7, MAX_OPSET + 1))
def test_operator_set(opset):
    rng = np.random.default_rng(opset)
    values = {
        "x": rng.standard_normal((2, 4, 6)).astype(np.float32), "u": rng.standard_normal((1, 6)).astype(np.float32),
        "g": rng.standard_normal((3, 6)).astype(np.float32), "w": rng.standard_normal((6, 5)).astype(np.float32),
        "i": rng.standard_normal(IMAGE).astype(np.float32), "k": rng.standard_normal((8, 4, 3, 3)).astype(np.float32),
        "j": ints(2, 0),
    }  # fmt: skip
    for op, inputs, constants, attrs in nodes_of(opset) if opset >= 13 else old_nodes_of(opset):
        feed = {n: values[n] for n in dict.fromkeys(inputs.split()) if n in values}
        infos = [info(n, a.shape, helper.np_dtype_to_tensor_dtype(a.dtype)) for n, a in feed.items()]
        outputs = "y z" if op in ("Split", "TopK") else "y"
        m = model(
            [node(op, inputs, outputs, **attrs)],
            infos,
            [info(o, None) for o in outputs.split()],
            constants,
            opset=opset,
        )
        for o in m.graph.output:
            o.ClearField("type")
        got = run_program(import_model(m), feed)
        if opset > NEWEST_OF_RUNTIME:
            assert all(np.isfinite(np.asarray(a, np.float64)).all() for a in got)
            continue
        want = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feed)
        for a, b in zip(got, want, strict=True):
            assert a.dtype == b.dtype, op
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=op)


def test_a_batch_norm_of_places_is_refused_by_name():
    values = {"v": np.ones((4, 6, 6), np.float32)}
    m = model(
        [node("BatchNormalization", "i v v v v", "y", spatial=0)],
        [info("i", IMAGE)],
        [info("y", IMAGE)],
        values,
        opset=8,
    )
    with pytest.raises(UnsupportedError, match=r"BatchNormalization.*spatial=0"):
        import_model(m)
