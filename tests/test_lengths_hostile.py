"""Models that padding would change in ways that their inputs do not show: served right at every length, or refused."""

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper

import tx8fast
from tests.support.family_checkpoints import VOCAB, make_family
from tests.support.small_graph import SmallGraph
from tx8fast.errors import ConfigError
from tx8fast.passes.same_lengths import Varying

C, FULL, BOUNDS = 8, 40, (6, 20)
RNG = np.random.default_rng(5)
VECTOR = np.where(np.arange(FULL) < 13, 0.0, 1.0).astype(np.float32)
VECTOR[0] = 1.0
MASK = np.where(np.tri(FULL, dtype=bool) | (np.arange(FULL) >= 13), 0.0, -1e9).astype(np.float32)


def node(text, **attrs):
    """ "y = Op a b" as a node."""
    result, _, rest = text.partition(" = ")
    kind, *operands = rest.split()
    return helper.make_node(kind, operands, [result], **attrs)


LAST = [node("last = Sub n one")]
CUT = [node("part = Slice z zero n zero")]
MODELS = {
    "the last row of a table": [*LAST, node("row = Slice z last n zero"), node("y = Add x row")],
    "the last row, gathered": [*LAST, node("row = Gather z last", axis=0), node("y = Add x row")],
    "a sum over a part": [*CUT, node("s = ReduceSum part zero", keepdims=1), node("y = Add x s")],
    "a part": [*CUT, node("y = Mul part two")],
    "attention to a part": [
        *CUT, node("t = Transpose part", perm=[1, 0]), node("s = MatMul x t"), node("p = Softmax s", axis=-1), node("y = MatMul p part"),
    ],
    "a sum over what is repeated": [
        node("row = Slice z zero one zero"), node("shape = Concat n c", axis=0), node("w = Expand row shape"),
        node("s = ReduceSum w zero", keepdims=1), node("y = Add x s"),
    ],
    "a vector that is zero for a while": [node("v = Slice vector zero n zero"), node("u = Unsqueeze v zero"), node("y = MatMul u x")],
    "a mask that hides for a while": [
        node("m = Slice mask zerozero nn zeroone"), node("t = Transpose x", perm=[1, 0]), node("s = MatMul x t"), node("a = Add s m"),
        node("p = Softmax a", axis=-1), node("y = MatMul p x"),
    ],
    "zero times minus infinity": [
        node("a = Abs x"), node("l = Log a"), node("e = Mul a l"), node("y = ReduceSum e zero", keepdims=1),
    ],
    "a sum of infinities": [node("r = Reciprocal x"), node("t = Transpose x", perm=[1, 0]), node("y = MatMul t r")],
    "rows by their length": [
        node("l = ReduceL2 x one", keepdims=1), node("r = Div x l"), node("t = Transpose x", perm=[1, 0]), node("y = MatMul t r"),
    ],
    "nothing": [node("none = Slice x one zero zero"), node("y = Concat none x", axis=0)],
}  # fmt: skip


def write(path, nodes):
    ints = {"zero": [0], "one": [1], "c": [C], "zerozero": [0, 0], "zeroone": [0, 1]}
    stored = {k: np.array(v, np.int64) for k, v in ints.items()} | {
        "two": np.float32(2),
        "vector": VECTOR,
        "mask": MASK,
    }
    nodes = [node("n0 = Shape x"), node("n = Slice n0 zero one zero"), node("nn = Concat n n", axis=0), *nodes]
    used = {i for m in nodes for i in m.input}
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("N", C))]
    inputs += [helper.make_tensor_value_info("z", TensorProto.FLOAT, (FULL, C))] if "z" in used else []
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in stored.items() if n in used]
    graph = helper.make_graph(
        nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], tensors
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return "z" in used


@pytest.mark.parametrize("name", MODELS)
def test_every_length_is_right_or_refused(tmp_path, name):
    path = tmp_path / "m.onnx"
    fixed = {"z": RNG.standard_normal((FULL, C)).astype(np.float32)} if write(path, MODELS[name]) else {}
    try:
        programs = tx8fast.compile_lengths(path, "N", BOUNDS, tx8fast.CompileOptions(dtype="fp32"))
    except ConfigError:
        return
    for length in (1, 5, 6, 7, 15, 20):
        feed = {"x": RNG.standard_normal((length, C)).astype(np.float32), **fixed}
        with np.errstate(all="ignore"):
            wanted = np.asarray(onnx.reference.ReferenceEvaluator(onnx.load(path)).run(None, feed)[0])
        found = programs.run(feed)["y"]
        assert found.shape == wanted.shape
        assert np.allclose(found, wanted, rtol=1e-4, atol=1e-5), length


def test_what_can_be_served_is(tmp_path):
    """A part, row by row, and what is not repeated by the length."""
    write(tmp_path / "m.onnx", MODELS["a part"])
    tx8fast.compile_lengths(tmp_path / "m.onnx", "N", BOUNDS)


@pytest.mark.parametrize("case", ["mixtral", "deepseek_v3"])
def test_routed_experts_are_served(tmp_path, case):
    """Shares of experts are written row by row into zeros of the length."""
    make_family(tmp_path, case)
    options = tx8fast.CompileOptions(phase="prefill", dtype="fp32")
    programs = tx8fast.compile_lengths(tmp_path, "seq", (5, 9), options)
    ids = RNG.integers(1, VOCAB, (1, 7))
    wanted = tx8fast.compile(tmp_path, phase="prefill", seq=7, dtype="fp32").run({"input_ids": ids})["logits"]
    found = programs.run({"input_ids": ids})["logits"]
    assert found.shape == wanted.shape and np.abs(found - wanted).max() < 1e-5 * np.abs(wanted).max()


def test_tables_of_all_lengths_begin_alike():
    """... not only with the shortest."""
    g = SmallGraph(x=((4,), "f32"))
    v = g("neg", g.args["x"])
    four, eight = np.arange(4, dtype=np.float32), np.arange(8, dtype=np.float32)
    found = Varying(tables={v: four})
    found.add(Varying(tables={v: eight}), "comparing")
    assert found.tables[v] is eight
    with pytest.raises(ConfigError, match=r"comparing: .*the values of .* differ"):
        Varying(tables={v: four}).add(Varying(tables={v: eight[::-1]}), "comparing")
