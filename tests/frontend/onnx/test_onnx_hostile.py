"""Models made to confuse: absurd sizes, arithmetic that overflows, expansions without end, names used twice."""

from __future__ import annotations

import time

import numpy as np
import onnx
import pytest
from frontend.onnx.onnx_build import BOOL, I64, imported, info, model, node
from onnx import helper

from tx8fast.api import compile_ir
from tx8fast.errors import ImportModelError, InfeasibleError, UnsupportedError
from tx8fast.frontend.onnx import import_model, import_onnx
from tx8fast.frontend.onnx.node import MAX_OPSET
from tx8fast.ir.ops.contraction import MAX_SIZE, MAX_STEP
from tx8fast.isa.limits import LIMITS
from tx8fast.machine import load_machine
from tx8fast.options import CompileOptions

OPSETS = [helper.make_opsetid("", 20), helper.make_opsetid("acme", 1)]


def one(op: str, inputs: str, weights: dict, **attrs):
    return imported(
        [node(op, inputs, "y", "it", **attrs)],
        [info("x", [1, 1, 4, 4])],
        [info("y", None)],
        weights,
    )


@pytest.mark.parametrize("version, message", [
    (MAX_OPSET + 1, f"operator set {MAX_OPSET + 1} is newer than {MAX_OPSET}, the newest one known.*or older"),
    (99, "operator set 99 is newer"), (0, "operator set 0 is not supported, required 1 to"),
])  # fmt: skip
def test_operator_sets_that_are_not_known(version, message):
    with pytest.raises(ImportModelError, match=message):
        imported([node("Relu", "x", "y")], [info("x", [2])], [info("y", [2])], opset=version)


@pytest.mark.parametrize("shape", [[2**31], [4, 2**31, 1], [2**62, 2**62], [2**20, 2**21]])
def test_inputs_that_no_machine_holds(shape):
    with pytest.raises(ImportModelError, match=r"graph input 'x' has shape .*at most 2147483647 per dimension"):
        imported([node("Relu", "x", "y")], [info("x", shape)], [info("y", None)])


@pytest.mark.parametrize(("op", "inputs", "weights", "message"), [
    ("Expand", "x s", {"s": np.array([2**40, 1, 1, 4, 4])}, "it.*output 'y' has shape"),
    ("Expand", "x s", {"s": np.array([-5])}, "it.*does not broadcast with"),
    ("Tile", "x s", {"s": np.array([1, 1, 1, 2**62])}, "it.*output 'y' has shape"),
    ("Pad", "x s", {"s": np.array([0, 0, 0, 2**62, 0, 0, 0, 2**62])}, "it.*output 'y' has shape"),
    ("ConstantOfShape", "s", {"s": np.array([2**31, 4])}, "it.*output 'y' has shape"),
    ("ConstantOfShape", "s", {"s": np.array([-2])}, "it.*-2 is negative"),
    ("Range", "a b c", {"a": np.array(0), "b": np.array(2**50), "c": np.array(1)}, "it.*the range has 1.1.*e.15 elements"),
    ("Range", "a b c", {"a": np.float32(0), "b": np.float32(np.nan), "c": np.float32(1)}, "it.*nan.*no length"),
    ("OneHot", "i d v", {"i": np.array([1]), "d": np.array(2**40), "v": np.array([0.0, 1.0])}, "it.*list of classes"),
    ("Resize", "x _ s", {"s": np.array([1, 1, np.nan, np.inf], np.float32)}, "it.*NaN"),
    ("Mul", "a a", {"a": np.array([2**40])}, "it.*does not fit 64 bits"),
    ("Add", "a a", {"a": np.array([2**62])}, "it.*does not fit 64 bits"),
    ("Reshape", "x s", {"s": np.array([2**62, -1])}, "it.*cannot view"),
    ("Conv", "x w", {"w": np.ones((1, 1, 2, 2), np.float32)}, "it.*'dilation'.*required 2 integers from 1 to 2147483647"),
    ("LRN", "x", {}, "it.*'kernel'.*required a window of at most 1000000000 elements"),
    ("Col2Im", "c i b", {"c": np.ones((1, 4, 9), np.float32), "i": np.array([4, 4]), "b": np.array([2, 0])},
     r"it.*'kernel'.*found \(2, 0\)"),
    ("Col2Im", "c i b", {"c": np.ones((1, 4, 8), np.float32), "i": np.array([4, 4]), "b": np.array([2, 2])},
     "it.*found blocks 8 .*required blocks 9"),
    ("HannWindow", "s", {"s": np.array(2**31)}, "it.*the window has 2.*e.09 elements"),
    ("EyeLike", "s", {"s": np.broadcast_to(np.int8(0), (2**14, 2**14))}, "it.*the identity has 2.*e.08 elements"),
    ("DFT", "c s", {"c": np.ones((1, 4, 1), np.float32), "s": np.array(2**15)}, "it.*the matrix of the transform has 1.*e.09"),
    ("STFT", "c s _ l", {"c": np.ones((1, 2**15, 1), np.float32), "s": np.array(1), "l": np.array(2**14)},
     "it.*the table of frames has 2.*e.08"),
    ("AffineGrid", "c s", {"c": np.ones((1, 2, 3), np.float32), "s": np.array([1, 1, 2**30, 2**30])}, "it.*the grid has 3.*e.18"),
    ("MelWeightMatrix", "a a b c d", {"a": np.array(2**15), "b": np.array(8000), "c": np.float32(0), "d": np.float32(4000)},
     "it.*the table of weights has 5.*e.08"),
    ("Resize", "x _ s", {"s": np.array([1, 1, 1, 2e7], np.float32)}, "it.*the table of what is read has 3.*e.08"),
])  # fmt: skip
def test_absurd_sizes(op, inputs, weights, message):
    attrs = {"Conv": {"dilations": [2**62, 1]}, "LRN": {"size": 2**31 - 1}, "Resize": {"mode": "linear"}}.get(op, {})
    with pytest.raises(ImportModelError, match=message) as e:
        one(op, inputs, weights, **attrs)
    assert str(e.value).count("node 'it'") == 1 and "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("op", "inputs", "kernel"),
    [("Conv", "x w", (0, 2)), ("ConvTranspose", "x w", (2, 0)), ("ConvTranspose", "v w", (1, 0, 1))],
)
def test_windows_of_no_elements(op, inputs, kernel):
    with pytest.raises(ImportModelError, match="it.*found a window of 0 elements along an axis, required at least 1"):
        one(op, inputs, {"w": np.ones((1, 1, *kernel), np.float32), "v": np.ones((1, 1, 2, 2, 2), np.float32)})


@pytest.mark.parametrize(("op", "weights", "attrs"), [
    ("RoiAlign", {"r": np.ones((1, 4), np.float32), "b": np.zeros(1, np.int64)}, {"sampling_ratio": 2**31 - 1}),
])  # fmt: skip
def test_work_that_no_counter_holds(op, weights, attrs):
    ir = one(op, " ".join(["x", *weights]), weights, **attrs)
    with pytest.raises(
        InfeasibleError, match=r"it: the kernel core would do [\d,]+ loads, at most [\d,]+ can be counted"
    ):
        compile_ir(ir, load_machine("test_2x2"), CompileOptions())


@pytest.mark.parametrize(("op", "weights", "attrs"), [
    ("Conv", {"w": np.ones((1, 1, 2, 2), np.float32)}, {}), ("MaxPool", {}, {"kernel_shape": [2, 2]}),
    ("AveragePool", {}, {"kernel_shape": [2, 2]}),
])  # fmt: skip
@pytest.mark.parametrize("step", [MAX_STEP, MAX_STEP + 1, MAX_SIZE])
def test_strides_beyond_what_an_engine_counts(op, weights, attrs, step):
    ir = one(op, " ".join(["x", *weights]), weights, strides=[step, step], **attrs)
    program = compile_ir(ir, load_machine("test_2x2"), CompileOptions())
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    found = program.run({"x": x}, sanitize=True)["y"]
    corner = x[0, 0, :2, :2]
    assert found.item() == {"Conv": corner.sum(), "MaxPool": corner.max(), "AveragePool": corner.mean()}[op]


def test_the_longest_step_is_what_the_instructions_hold():
    assert all(LIMITS[field][1] == MAX_STEP + 1 for field in ("sx", "sy", "dx", "dy", "kx", "ky"))
    assert all(LIMITS[field][1] >= MAX_STEP + 1 for field in ("top", "bottom", "left", "right"))


def test_not_a_number_in_a_shape():
    nodes = [node("Cast", "f", "s", "cast", to=I64), node("Expand", "x s", "y")]
    with pytest.raises(ImportModelError, match="cast.*NaN.*cannot become i64"):
        imported(nodes, [info("x", [1])], [info("y", None)], {"f": np.array([np.nan], np.float32)})


def test_names_used_twice():
    relu = node("Relu", "x", "y")
    with pytest.raises(ImportModelError, match="graph input 'x' is declared twice"):
        imported([relu], [info("x", [2]), info("x", [2])], [info("y", [2])])
    with pytest.raises(ImportModelError, match="graph outputs 'y' are declared twice"):
        imported([relu], [info("x", [2])], [info("y", [2]), info("y", [2])])
    m = model([node("Add", "x w", "y")], [info("x", [2])], [info("y", [2])], {"w": np.ones(2, np.float32)})
    m.graph.initializer.append(m.graph.initializer[0])
    with pytest.raises(ImportModelError, match="initialiser 'w' is defined twice"):
        import_model(m)


def function(name: str, *calls: str):
    names = ["a", *[f"t{i}" for i in range(len(calls) - 1)], "b"]
    nodes = [node(c, a, b, domain="" if c == "Relu" else "acme") for c, a, b in zip(calls, names, names[1:])]
    return helper.make_function("acme", name, ["a"], ["b"], nodes, OPSETS)


def call(first: str, functions: list):
    node_ = node(first, "x", "y", domain="acme")
    return imported([node_], [info("x", [2])], [info("y", [2])], functions=functions, domains=("acme",))


def test_functions_that_call_each_other():
    with pytest.raises(ImportModelError, match="recursive"):
        call("A", [function("A", "B", "B"), function("B", "A", "A")])


def test_functions_that_double_again_and_again(monkeypatch):
    monkeypatch.setattr("tx8fast.frontend.onnx.importer.MAX_EXPANSIONS", 500)
    levels = [function(f"F{i}", f"F{i + 1}", f"F{i + 1}") for i in range(28)]
    start = time.perf_counter()
    with pytest.raises(ImportModelError, match="more than 500 function calls and loop bodies"):
        call("F0", [*levels, function("F28", "Relu")])
    assert time.perf_counter() - start < 5


def test_loops_without_a_reasonable_end():
    body = helper.make_graph([node("Identity", "a", "b"), node("Identity", "go", "on")], "body",
                             [info("i", [], I64), info("go", [], BOOL), info("a", [2])],
                             [info("on", [], BOOL), info("b", [2])])  # fmt: skip
    with pytest.raises(UnsupportedError, match="more than 1024 times"):
        imported(
            [node("Loop", "m _ x", "y", body=body)],
            [info("x", [2])],
            [info("y", None)],
            {"m": np.array(2**40)},
        )


@pytest.mark.parametrize(
    "location",
    ["/etc/passwd", "../../../../etc/passwd", "sub/../../m.bin", "..", ".", "", "link/w.bin"],
)
def test_external_data_outside_the_model_directory(tmp_path, location):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(4096))
    (folder / "link").symlink_to(tmp_path, target_is_directory=True)
    m = model(
        [node("Add", "x w", "y")],
        [info("x", [1024])],
        [info("y", [1024])],
        {"w": np.zeros(1024, np.float32)},
    )
    t = m.graph.initializer[0]
    t.ClearField("raw_data")
    t.data_location = onnx.TensorProto.EXTERNAL
    t.external_data.add(key="location", value=location)
    onnx.save(m, folder / "m.onnx")
    with pytest.raises(ImportModelError, match="initialiser 'w'.*not inside the model's directory"):
        import_onnx(folder / "m.onnx")


@pytest.mark.parametrize(("op", "attr", "value", "message"), [
    ("Softmax", "axis", [1], "axis.*is of kind INTS, required INT"),
    ("Softmax", "axis", "1", "axis.*is of kind STRING, required INT"),
    ("Transpose", "perm", 3, "perm.*is of kind INT, required INTS"),
    ("LeakyRelu", "alpha", 1, "alpha.*is of kind INT, required FLOAT"),
])  # fmt: skip
def test_attributes_of_another_kind(op, attr, value, message):
    with pytest.raises(ImportModelError, match="it.*" + message):
        one(op, "x", {}, **{attr: value})


@pytest.mark.parametrize(("op", "inputs", "message"), [
    ("Add", "x _", r"input 1 \(B\) is empty"), ("Concat", "x _", "input 1 .*is empty"), ("Softmax", "_", r"input 0 \(input\) is empty"),
])  # fmt: skip
def test_required_inputs_left_empty(op, inputs, message):
    with pytest.raises(ImportModelError, match="it.*" + message):
        one(op, inputs, {}, axis=0) if op != "Add" else one(op, inputs, {})
