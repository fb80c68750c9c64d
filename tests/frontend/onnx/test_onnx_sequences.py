"""Sequences of tensors, which exist while a model is imported: against onnxruntime, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from frontend.onnx.onnx_build import info, model, node
from onnx import TensorProto, helper
from support.interpret import run_program

from tx8fast.errors import ImportModelError, UnsupportedError
from tx8fast.frontend.onnx import import_model

ort = pytest.importorskip("onnxruntime")
X = np.random.default_rng(7).standard_normal((4, 5, 3)).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


def place(value):
    return np.array(value, np.int64)


def built(nodes, constants, outputs=("y",), opset=17):
    made = model(nodes, [info("x", X.shape)], [info(o, None) for o in outputs], constants, opset=opset)
    for o in made.graph.output:
        o.ClearField("type")
    return made


def compared(made):
    got = run_program(import_model(made), {"x": X})
    want = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": X})
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("opset", [11, 17, 22])
@pytest.mark.parametrize("at", [0, 2, -1])
@pytest.mark.parametrize(
    ("split", "attrs"),
    [
        (None, {"axis": 0}),
        (None, {"axis": -2, "keepdims": 0}),
        (place(2), {"axis": 1}),
        (ints(1, 3, 0, 1), {"axis": 1}),
        (np.array([1, 1, 1], np.int32), {"axis": 2}),
    ],
)
def test_parts_are_taken_by_their_places(split, attrs, at, opset):
    constants = {"at": place(at)} | ({} if split is None else {"s": split})
    inputs = "x" if split is None else "x s"
    compared(
        built([node("SplitToSequence", inputs, "q", **attrs), node("SequenceAt", "q at", "y")], constants, opset=opset)
    )


@pytest.mark.parametrize("new_axis", [0, 1])
@pytest.mark.parametrize("axis", [0, 2, -1])
def test_sequences_are_made_changed_and_joined(axis, new_axis):
    nodes = [
        node("Neg", "x", "n"), node("SequenceConstruct", "x n", "q"), node("SequenceInsert", "q x first", "r"),
        node("SequenceInsert", "r n", "s"), node("SequenceErase", "s second", "t"), node("Identity", "t", "u"),
        node("ConcatFromSequence", "u", "y", axis=axis, new_axis=new_axis), node("SequenceLength", "u", "z"),
        node("SequenceErase", "u", "v"), node("SequenceLength", "v", "w"),
    ]  # fmt: skip
    compared(built(nodes, {"first": place(0), "second": place(-3)}, ("y", "z", "w")))


def test_a_loop_adds_to_a_sequence():
    """As exporters write what appends to a list."""
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    trip = helper.make_tensor_value_info("i", TensorProto.INT64, [])
    held, made = (helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None) for name in ("h", "m"))
    body = helper.make_graph(
        [node("Identity", "c", "d"), node("Gather", "x i", "g", axis=0), node("SequenceInsert", "h g", "m")],
        "body",
        [trip, condition, held],
        [helper.make_tensor_value_info("d", TensorProto.BOOL, []), made],
    )
    nodes = [
        node("SequenceEmpty", "", "e", dtype=TensorProto.FLOAT), node("Loop", "n t e", "q", body=body),
        node("ConcatFromSequence", "q", "y", axis=1, new_axis=1),
    ]  # fmt: skip
    compared(built(nodes, {"n": place(3), "t": np.array(True)}))


@pytest.mark.parametrize(
    ("nodes", "kind", "text"),
    [
        ([node("SplitToSequence", "x", "y")], UnsupportedError, r"graph output 'y' is a sequence of 4 tensors"),
        ([node("SplitToSequence", "x", "q"), node("Neg", "q", "y")], ImportModelError, r"Neg"),
        ([node("SplitToSequence", "x", "q"), node("SequenceAt", "q at", "y")], ImportModelError, r"position 4 of a sequence of 4, required -4 to 3"),
        ([node("SplitToSequence", "x at", "q"), node("SequenceAt", "q x", "y")], ImportModelError, r"SequenceAt"),
        ([node("SequenceEmpty", "", "q"), node("ConcatFromSequence", "q", "y", axis=0)], ImportModelError, r"the sequence has no tensors"),
        ([node("SequenceEmpty", "", "q"), node("SequenceErase", "q", "r"), node("SequenceLength", "r", "y")], ImportModelError, r"no tensors"),
        ([node("SplitToSequence", "x none", "q"), node("SequenceLength", "q", "y")], ImportModelError, r"parts of 0 elements"),
        ([node("SplitToSequence", "x few", "q"), node("SequenceLength", "q", "y")], ImportModelError, r"do not add up to 4"),
    ],
)  # fmt: skip
def test_what_is_no_valid_use_is_refused(nodes, kind, text):
    with pytest.raises(kind, match=text):
        import_model(built(nodes, {"at": place(4), "none": place(0), "few": ints(1, 2)}))


def test_there_is_a_most_of_parts():
    """Before any of them is made."""
    made = model(
        [node("SplitToSequence", "x", "q"), node("SequenceLength", "q", "y")], [info("x", (1 << 30,))], [info("y", ())]
    )
    with pytest.raises(UnsupportedError, match="more than 4096 parts"):
        import_model(made)


def test_what_a_loop_collects_are_tensors():
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    trip = helper.make_tensor_value_info("i", TensorProto.INT64, [])
    scanned = helper.make_tensor_sequence_value_info("q", TensorProto.FLOAT, None)
    body = helper.make_graph(
        [node("Identity", "c", "d"), node("SplitToSequence", "x", "q")], "body", [trip, condition],
        [helper.make_tensor_value_info("d", TensorProto.BOOL, []), scanned],
    )  # fmt: skip
    with pytest.raises(ImportModelError, match="a scan output is a sequence"):
        import_model(built([node("Loop", "n t", "y", body=body)], {"n": place(3), "t": np.array(True)}))
