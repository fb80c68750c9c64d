"""A product of another one's result whose columns are heads, with something behind them: the same numbers at every level."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import tx8fast

TAILS = {"Mul": lambda y: y * 0.5, "Relu": lambda y: np.maximum(y, 0), "Tanh": np.tanh, "": lambda y: y}


def model(path: Path, sizes: tuple[int, ...], tail: str, bias: bool, resid: bool) -> dict[str, np.ndarray]:
    """Write the graph; return its arrays. sizes: batch, rows, columns of the input and between, heads, of a head."""
    b, n, k, e, heads, depth = sizes
    rng = np.random.default_rng(sum(sizes))
    draw = lambda *s: rng.standard_normal(s).astype(np.float32)  # noqa: E731
    arrays = {"x": draw(b, n, k), "y": draw(b, n, e), "w1": draw(k, e), "b1": draw(e), "w2": draw(e, heads * depth)}
    node = helper.make_node
    nodes, at = [node("MatMul", ["x", "w1"], ["a"])], "a"
    for given_, of, to in ((bias, "b1", "a1"), (resid, "y", "a2")):
        if given_:
            nodes.append(node("Add", [at, of], [to]))
            at = to
    nodes += [node("MatMul", [at, "w2"], ["q"]), node("Reshape", ["q", "sh"], ["q4"])]
    nodes.append(node("Transpose", ["q4"], ["t" if tail else "o"], perm=[0, 2, 1, 3]))
    if tail:
        nodes.append(node(tail, ["t", "half"] if tail == "Mul" else ["t"], ["o"]))
    held = {"w1": arrays["w1"], "b1": arrays["b1"], "w2": arrays["w2"], "sh": np.array([b, n, heads, depth])}
    held["half"] = np.array(0.5, np.float32)
    used = {v for made in nodes for v in made.input}
    info = lambda name, *s: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, s)  # noqa: E731
    inputs = [info("x", b, n, k)] + [info("y", b, n, e)] * resid
    weights = [numpy_helper.from_array(v, name) for name, v in held.items() if name in used]
    graph = helper.make_graph(nodes, "g", inputs, [info("o", b, heads, n, depth)], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return arrays


def wanted(a: dict[str, np.ndarray], sizes: tuple[int, ...], tail: str, bias: bool, resid: bool) -> np.ndarray:
    b, n, _, _, heads, depth = sizes
    wide = {name: v.astype(np.float64) for name, v in a.items()}
    y = wide["x"] @ wide["w1"] + bias * wide["b1"] + resid * wide["y"]
    return TAILS[tail]((y @ wide["w2"]).reshape(b, n, heads, depth).transpose(0, 2, 1, 3))


def compare(path: Path, sizes: tuple[int, ...], tail: str, bias: bool, resid: bool, opt: int) -> None:
    arrays = model(path, sizes, tail, bias, resid)
    right = wanted(arrays, sizes, tail, bias, resid)
    made = tx8fast.compile(path, opt=opt)
    got = made.run({"x": arrays["x"]} | ({"y": arrays["y"]} if resid else {}))["o"]
    assert np.abs(got - right).max() < 2e-5 * np.abs(right).max()


@pytest.mark.parametrize("opt", [2, 3])
@pytest.mark.parametrize(
    "sizes", [(1, 4, 4, 4, 2, 4), (1, 17, 64, 64, 4, 16), (1, 17, 48, 16, 3, 3), (2, 33, 64, 64, 2, 96)]
)
@pytest.mark.slow(but_every=5)
def test_heads_behind_two_products(tmp_path: Path, sizes: tuple[int, ...], opt: int) -> None:
    compare(tmp_path / "m.onnx", sizes, "Relu", bias=False, resid=True, opt=opt)


@settings(max_examples=12, deadline=None)
@given(
    st.tuples(*(st.sampled_from(c) for c in ((1, 2), (1, 16, 17, 65), (4, 48, 64, 130), (16, 63, 64, 128), (1, 2, 3, 5),
                                             (3, 5, 8, 20, 24, 64, 96)))),
    st.sampled_from(sorted(TAILS)), st.booleans(), st.booleans(),
)  # fmt: skip
def test_any_heads(tmp_path_factory, sizes: tuple[int, ...], tail: str, bias: bool, resid: bool) -> None:
    compare(tmp_path_factory.mktemp("m") / "m.onnx", sizes, tail, bias, resid, opt=2)
