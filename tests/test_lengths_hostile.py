"""Models that padding would change in ways that their inputs do not show: served right at every length, or refused."""

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper

import tx8fast
from tests.support.family_checkpoints import VOCAB, make_family
from tests.support.small_graph import SmallGraph
from tx8fast.errors import ConfigError, SimulationError
from tx8fast.length_probes import lengths_to_compare
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
    "parity": [
        node("r = Mod n two64"), node("f = Add r one"), node("g = Cast f", to=TensorProto.FLOAT), node("y = Mul x g"),
    ],
    "a multiple of three": [
        node("r = Mod n three"), node("f = Min r one"), node("g = Cast f", to=TensorProto.FLOAT), node("y = Add x g"),
    ],
    "padded to a multiple of two with ones": [
        node("r = Mod n two64"), node("end = Concat zerozero r zero", axis=0), node("w = Pad x end float1"),
        node("s = ReduceSum w zero", keepdims=1), node("y = Add x s"),
    ],
    "no more than four": [
        node("r = Min n four"), node("g = Cast r", to=TensorProto.FLOAT), node("y = Mul x g"),
    ],
    "no more than four rows": [
        node("r = Min n four"), node("part = Slice z zero r zero"), node("s = ReduceSum part zero", keepdims=1), node("y = Add x s"),
    ],
    "a mask taken away again": [
        node("m = Slice triangle zerozero nn zeroone"), node("t = Transpose x", perm=[1, 0]), node("s = MatMul x t"),
        node("a = Add s m"), node("b = Add a tenthousand"), node("y = MatMul b x"),
    ],
    "a mask made small": [
        node("m = Slice triangle zerozero nn zeroone"), node("t = Transpose x", perm=[1, 0]), node("s = MatMul x t"),
        node("a = Add s m"), node("b = Div a tenthousand"), node("d = Add b float1"), node("y = ReduceSum d one", keepdims=1),
    ],
    "low numbers that are not alike, raised": [
        node("m = Slice slope zerozero nn zeroone"), node("t = Transpose x", perm=[1, 0]), node("s = MatMul x t"),
        node("a = Add s m"), node("b = Add a tenthousand"), node("y = MatMul b x"),
    ],
    "bits": [
        node("i = Cast x", to=TensorProto.INT64), node("o = BitwiseOr i four"), node("l = Sub o one"), node("g = Cast l", to=TensorProto.FLOAT),
        node("q = Add g x"), node("y = ReduceSum q zero", keepdims=1),
    ],
    **{
        f"infinities behind {name}": [
            *way, node("m = Slice mask zerozero nn zeroone"), node("t = Transpose x", perm=[1, 0]), node("s = MatMul x t"),
            node("a = Add s m"), node("p = Softmax a", axis=-1), node("y = MatMul p r"),
        ]
        for name, way in {
            "a slice": [node("h = Slice x zero two64 one"), node("r = Reciprocal h")],
            "two of it": [node("h = Concat x x", axis=1), node("r = Reciprocal h")],
            "two columns": [node("h = Gather x zeroone", axis=1), node("r = Reciprocal h")],
            "running sums": [node("h = CumSum x one0"), node("r = Reciprocal h")],
            "a norm of nothing": [node("r = LayerNormalization x float1s", epsilon=0.0)],
            "logarithms of shares": [node("l = LogSoftmax x", axis=-1), node("h = Add l logc"), node("r = Reciprocal h")],
            "whole numbers": [
                node("b = Sigmoid x"), node("d = Mul b half"), node("i = Cast d", to=TensorProto.INT32), node("h = Cast i", to=TensorProto.FLOAT),
                node("r = Reciprocal h"),
            ],
            "a logarithm that is cut": [node("h = Abs x"), node("l = Log h"), node("r = Slice l zero two64 one")],
            "a norm behind a bias": [
                node("b = Add x float1"), node("l = ReduceMean b one", keepdims=1), node("e = Sub b l"), node("q = Mul e e"),
                node("v = ReduceMean q one", keepdims=1), node("d = Sqrt v"), node("r = Div e d"),
            ],
        }.items()
    },
    "nothing": [node("none = Slice x one zero zero"), node("y = Concat none x", axis=0)],
}  # fmt: skip


def write(path, nodes):
    ints = {
        "zero": [0],
        "one": [1],
        "c": [C],
        "two64": [2],
        "three": [3],
        "four": [4],
        "zerozero": [0, 0],
        "zeroone": [0, 1],
    }
    stored = {k: np.array(v, np.int64) for k, v in ints.items()} | {
        "two": np.float32(2),
        "float1": np.float32(1),
        "vector": VECTOR,
        "mask": MASK,
        "triangle": np.where(np.tri(FULL, dtype=bool), 0, -1e4).astype(np.float32),
        "slope": np.where(np.tri(FULL, dtype=bool), 0, -5e3 - 100.0 * np.arange(FULL)).astype(np.float32),
        "tenthousand": np.float32(1e4),
        "float1s": np.ones(C, np.float32),
        "one0": np.int64(1),
        "eps": np.float32(1e-6),
        "logc": np.float32(np.log(C)),
        "half": np.float32(0.5),
        "eighth": np.float32(0.125),
        "infinite": np.where(np.tri(FULL, dtype=bool), 0, -np.inf).astype(np.float32),
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
@pytest.mark.slow(but_every=7)
def test_every_length_is_right_or_refused(tmp_path, name):
    path = tmp_path / "m.onnx"
    fixed = {"z": RNG.standard_normal((FULL, C)).astype(np.float32)} if write(path, MODELS[name]) else {}
    try:
        programs = tx8fast.compile_lengths(path, "N", BOUNDS, tx8fast.CompileOptions(dtype="fp32"))
    except ConfigError:
        return
    for length in (1, 2, 3, 5, 6, 7, 15, 20):
        feed = {"x": RNG.standard_normal((length, C)).astype(np.float32), **fixed}
        with np.errstate(all="ignore"):
            wanted = np.asarray(onnx.reference.ReferenceEvaluator(onnx.load(path)).run(None, feed)[0])
        found = programs.run(feed)["y"]
        assert found.shape == wanted.shape
        assert np.allclose(found, wanted, rtol=1e-4, atol=1e-5), length


@pytest.mark.parametrize(
    "name", ["parity", "a multiple of three", "padded to a multiple of two with ones", "no more than four"]
)
def test_what_is_the_same_at_all_bounds_only_is_refused(tmp_path, name):
    write(tmp_path / "m.onnx", MODELS[name])
    with pytest.raises(ConfigError, match=r"served without being compiled, \d+: the model is another one"):
        tx8fast.compile_lengths(tmp_path / "m.onnx", "N", (6, 12, 18))


def test_another_model_for_one_element_is_not_served(tmp_path):
    """... and is told; a program of one element serves it."""
    one = [node("r = Min n two64"), node("g = Cast r", to=TensorProto.FLOAT), node("y = Mul x g")]
    write(tmp_path / "m.onnx", one)
    programs = tx8fast.compile_lengths(tmp_path / "m.onnx", "N", (3, 6), tx8fast.CompileOptions(dtype="fp32"))
    programs.save(tmp_path / "m.tx8")
    x = RNG.standard_normal((2, C)).astype(np.float32)
    for served in (programs, tx8fast.load(tmp_path / "m.tx8")):
        assert np.array_equal(served.run({"x": x})["y"], 2 * x)
        with pytest.raises(SimulationError, match="N is 1, required 2 to 6: .*another one for 1"):
            served.run({"x": x[:1]})
    first = tx8fast.compile_lengths(tmp_path / "m.onnx", "N", (1, 6), tx8fast.CompileOptions(dtype="fp32"))
    assert np.array_equal(first.run({"x": x[:1]})["y"], x[:1]) and np.array_equal(first.run({"x": x})["y"], 2 * x)


@pytest.mark.parametrize("look", ["Gather", "GatherND", "computed"])
def test_indices_into_a_table_cut_to_the_length(tmp_path, look):
    """A negative one would count from the end of the longer table."""
    rows = {
        "Gather": [node("row = Gather part idx", axis=0)],
        "GatherND": [node("at = Unsqueeze idx one"), node("row = GatherND part at")],
        "computed": [node("at = Sub idx one"), node("row = Gather part at", axis=0)],
    }
    table = np.arange(FULL * C, dtype=np.float32).reshape(FULL, C)
    nodes = [
        *[node("n0 = Shape x"), node("n = Slice n0 zero one zero"), node("part = Slice table zero n zero")],
        *[*rows[look], node("y = Add x row")],
    ]
    stored = {"zero": np.array([0]), "one": np.array([1]), "table": table}
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ("N", C)),
        helper.make_tensor_value_info("idx", TensorProto.INT64, (1,)),
    ]
    used = {i for m in nodes for i in m.input}
    tensors = [numpy_helper.from_array(a, n) for n, a in stored.items() if n in used]
    graph = helper.make_graph(
        nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], tensors
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), tmp_path / "m.onnx")
    options = tx8fast.CompileOptions(dtype="fp32")
    if look == "computed":
        with pytest.raises(ConfigError, match="cut to the length, by indices that may be negative"):
            tx8fast.compile_lengths(tmp_path / "m.onnx", "N", BOUNDS, options)
        return
    programs = tx8fast.compile_lengths(tmp_path / "m.onnx", "N", BOUNDS, options)
    x = RNG.standard_normal((5, C)).astype(np.float32)
    assert np.array_equal(programs.run({"x": x, "idx": np.array([4])})["y"], x + table[4])
    for wrong in (-1, 5):
        with pytest.raises(SimulationError, match=rf"input 'idx' is \[{wrong}\], required 0 to 4"):
            programs.run({"x": x, "idx": np.array([wrong])})


def test_which_lengths_are_compared():
    """All of a small graph, those beside the bounds of a large one, two of a graph that is built here."""
    assert sorted(lengths_to_compare((8, 16), [8], False, 10)) == [n for n in range(1, 16) if n != 8]
    large = lengths_to_compare((512, 2048), [61], False, 10**6)
    assert len(large) == 8 and {2047, 1, 2, 3, 511} <= set(large)
    assert lengths_to_compare((512, 2048), [61], True, 10) == [2047, 1, 2]


NORMED = {
    "norms with a little added": [
        node("b = Add x float1"), node("q = Mul b b"), node("v = ReduceMean q one", keepdims=1), node("w = Add v eps"), node("d = Sqrt w"),
        node("r = Div b d"),
    ],
    "shares": [node("b = Add x float1"), node("p0 = Softmax b", axis=-1), node("k = ReduceMax p0 one", keepdims=1), node("r = Div p0 k")],
    "shares by hand": [
        node("b = Add x float1"), node("k = ReduceMax b one", keepdims=1), node("l = Sub b k"), node("e = Exp l"),
        node("v = ReduceSum e one", keepdims=1), node("r = Div e v"),
    ],
    "softplus": [node("h = Concat x x", axis=1), node("r = Softplus h")],
}  # fmt: skip


@pytest.mark.parametrize("name", NORMED)
@pytest.mark.slow(but_every=3)
def test_quotients_by_what_is_never_zero_are_served(tmp_path, name):
    rest = [
        node("m = Slice triangle zerozero nn zeroone"), node("t = Transpose x", perm=[1, 0]), node("s = MatMul x t"), node("a = Add s m"),
        node("p = Softmax a", axis=-1), node("y = MatMul p r"),
    ]  # fmt: skip
    write(tmp_path / "m.onnx", [*NORMED[name], *rest])
    programs = tx8fast.compile_lengths(tmp_path / "m.onnx", "N", BOUNDS, tx8fast.CompileOptions(dtype="fp32"))
    for length in (2, 7, 19):
        feed = {"x": RNG.standard_normal((length, C)).astype(np.float32)}
        wanted = np.asarray(onnx.reference.ReferenceEvaluator(onnx.load(tmp_path / "m.onnx")).run(None, feed)[0])
        assert np.allclose(programs.run(feed)["y"], wanted, rtol=1e-4, atol=1e-5), length


def test_attention_over_attention_whose_mask_is_infinite_is_served(tmp_path):
    """What is minus infinity hides keys, and leaves the rows finite that the next layer attends to."""
    layers = [
        (node(f"t{i} = Transpose {x}", perm=[1, 0]), node(f"s{i} = MatMul {x} t{i}"), node(f"a{i} = Add s{i} m"),
         node(f"p{i} = Softmax a{i}", axis=-1), node(f"{y} = MatMul p{i} {x}"))
        for i, x, y in ((1, "x", "h"), (2, "h", "y"))
    ]  # fmt: skip
    write(tmp_path / "m.onnx", [node("m = Slice infinite zerozero nn zeroone"), *layers[0], *layers[1]])
    programs = tx8fast.compile_lengths(tmp_path / "m.onnx", "N", BOUNDS, tx8fast.CompileOptions(dtype="fp32"))
    feed = {"x": RNG.standard_normal((7, C)).astype(np.float32)}
    wanted = np.asarray(onnx.reference.ReferenceEvaluator(onnx.load(tmp_path / "m.onnx")).run(None, feed)[0])
    assert np.allclose(programs.run(feed)["y"], wanted, rtol=1e-4, atol=1e-5)


def test_many_ways_to_a_value_take_no_longer(tmp_path):
    """Each value has eight operands made of the one before: 8^40 ways back to the input, followed in the order of the ops."""
    nodes = [node("v0 = Abs x")]
    for i in range(40):
        nodes += [node(f"c{i} = Sum {' '.join([f'v{i}'] * 8)}"), node(f"v{i + 1} = Mul c{i} eighth")]
    write(tmp_path / "m.onnx", [*nodes, node("d = Add v40 float1"), node("y = Div x d")])
    tx8fast.compile_lengths(tmp_path / "m.onnx", "N", (6, 20), tx8fast.CompileOptions(dtype="fp32", opt=1))


def test_a_quotient_that_f16_has_not_is_refused(tmp_path):
    """One over 1e-6 is infinite there, whatever its sign."""
    nodes = [
        node("l = ReduceL2 x one", keepdims=1), node("d = Add l eps"), node("q = Reciprocal d"), node("r = Mul x q"),
        node("m = Slice triangle zerozero nn zeroone"), node("t = Transpose x", perm=[1, 0]), node("s = MatMul x t"), node("a = Add s m"),
        node("p = Softmax a", axis=-1), node("y = MatMul p r"),
    ]  # fmt: skip
    write(tmp_path / "m.onnx", nodes)
    tx8fast.compile_lengths(tmp_path / "m.onnx", "N", (6, 20), tx8fast.CompileOptions(dtype="fp32"))
    with pytest.raises(ConfigError, match="not finite"):
        tx8fast.compile_lengths(tmp_path / "m.onnx", "N", (6, 20), tx8fast.CompileOptions(dtype="fp16"))


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_a_mask_in_another_format_is_served(tmp_path, dtype):
    nodes = [
        node("m = Slice triangle zerozero nn zeroone"), node("t = Transpose x", perm=[1, 0]), node("s = MatMul x t"), node("a = Add s m"),
        node("p = Softmax a", axis=-1), node("y = MatMul p x"),
    ]  # fmt: skip
    write(tmp_path / "m.onnx", nodes)
    programs = tx8fast.compile_lengths(tmp_path / "m.onnx", "N", (6, 20), tx8fast.CompileOptions(dtype=dtype))
    feed = {"x": RNG.standard_normal((5, C)).astype(np.float32)}
    wanted = np.asarray(onnx.reference.ReferenceEvaluator(onnx.load(tmp_path / "m.onnx")).run(None, feed)[0])
    assert np.allclose(programs.run(feed)["y"], wanted, atol=0.05)


def test_what_can_be_served_is(tmp_path):
    """A part, row by row, and what is not repeated by the length."""
    write(tmp_path / "m.onnx", MODELS["a part"])
    tx8fast.compile_lengths(tmp_path / "m.onnx", "N", BOUNDS)


@pytest.mark.parametrize("case", ["mixtral", "deepseek_v3"])
@pytest.mark.slow
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
