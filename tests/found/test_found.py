"""Whole models that once gave wrong values or none at all: right at every level, in both formats, and without a race.

By default each level is tried in one of the formats, and of a model that was made smaller the smaller one; with TX8FAST_ALL_LEVELS=1
(`make test-found`) every model in both formats at every level.

What each one is: README.md in tests/data/found.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.whole_model import wrong_values

from tx8fast.api import compile_ir, prove_ir
from tx8fast.frontend.onnx import import_model
from tx8fast.machine import load_machine
from tx8fast.options import CompileOptions

FOLDER = Path(__file__).resolve().parents[1] / "data" / "found"
#: roundings of the largest value by which a deep model may be off more than its inputs' roundings say
DEEP = {"apertus": 8.0}
#: tested where they belong: updates in place (tests/schedule/test_updates.py), files (tests/cli/test_users_files.py)
ELSEWHERE = ("bad_628", "mc_", "external_from_cwd_", "onnxext_")
ALL = bool(os.environ.get("TX8FAST_ALL_LEVELS"))
LEVELS = {"fp32": (1, 2, 3), "bf16": (1, 2, 3)} if ALL else {"fp32": (1, 3), "bf16": (2,)}
NAMES = sorted(p.stem for p in FOLDER.glob("*.onnx") if not p.stem.startswith(ELSEWHERE))
MADE_SMALLER = {name for name in NAMES if f"{name}_min" in NAMES}


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", NAMES if ALL else [name for name in NAMES if name not in MADE_SMALLER])
@pytest.mark.slow(but_every=5)
def test_found_model_is_right(name: str, dtype: str) -> None:
    share = DEEP.get(name, 2.0)
    wrong = {opt: wrong_values(FOLDER / f"{name}.onnx", dtype, opt, share=share) for opt in LEVELS[dtype]}
    assert not any(wrong.values()), wrong


def model(nodes: list, inputs: dict, outputs: dict, weights: dict) -> onnx.ModelProto:
    """Return a model; inputs, outputs: (shape, element type) by name."""
    sides = [
        [helper.make_tensor_value_info(n, kind, shape) for n, (shape, kind) in x.items()] for x in (inputs, outputs)
    ]
    tensors = [onnx.numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items()]
    made = helper.make_model(
        helper.make_graph(nodes, "g", *sides, tensors), opset_imports=[helper.make_opsetid("", 20)]
    )
    made.ir_version = 9
    return made


F, B = TensorProto.FLOAT, TensorProto.BOOL


@pytest.mark.parametrize("columns", [64, 65, 130, 200])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.slow
def test_comparisons_and_choices_behind_a_product(columns: int, dtype: str) -> None:
    """Results of one byte lie in blocks of 128 channels, those of products in blocks of 64."""
    rng = np.random.default_rng(columns)
    node = helper.make_node
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Greater", ["m", "limit"], ["g"]), node("Not", ["g"], ["n"]),
             node("And", ["n", "mask"], ["a"]), node("Where", ["g", "m", "v"], ["y"]), node("Where", ["some", "y", "m"], ["z"]),
             node("Cast", ["g"], ["c"], to=F), node("Where", ["some", "column", "m"], ["e"])]  # fmt: skip
    full, row = (2, 9, columns), (2, 9, 1)
    weights = {"w": rng.standard_normal((32, columns)).astype(np.float32), "limit": np.float32(0.1),
               "v": rng.standard_normal(columns).astype(np.float32)}  # fmt: skip
    made = model(nodes, {"x": ((2, 9, 32), F), "mask": (full, B), "some": (row, B), "column": (row, F)},
                 {"g": (full, B), "n": (full, B), "a": (full, B), "z": (full, F), "c": (full, F), "e": (full, F)}, weights)  # fmt: skip
    wrong = {opt: wrong_values(made, dtype, opt) for opt in LEVELS[dtype]}
    assert not any(wrong.values()), wrong


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.slow
def test_more_operands_than_one_launch_takes(axis: int) -> None:
    shape = tuple(131 * n if d == axis else n for d, n in enumerate((2, 3)))
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Concat", ["x", "r"] * 65 + ["x"], ["y"], axis=axis),
    ]
    made = model(nodes, {"x": ((2, 3), F)}, {"y": (shape, F)}, {})
    wrong = {opt: wrong_values(made, "fp32", opt) for opt in LEVELS["fp32"]}
    assert not any(wrong.values()), wrong


def test_a_loop_of_many_trips_that_collects_results() -> None:
    node, info = helper.make_node, helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Mul", ["acc", "k"], ["next"]), node("Tanh", ["next"], ["one"])], "body",
        [info("i", TensorProto.INT64, ()), info("go", B, ()), info("acc", F, (2, 3))],
        [info("on", B, ()), info("next", F, (2, 3)), info("one", F, (2, 3))],
        [onnx.numpy_helper.from_array(np.float32(1.01), "k")])  # fmt: skip
    made = model([node("Loop", ["n", "t", "x"], ["y", "s"], body=body)], {"x": ((2, 3), F)},
                 {"y": ((2, 3), F), "s": ((130, 2, 3), F)}, {"n": np.int64(130), "t": np.bool_(True)})  # fmt: skip
    assert not wrong_values(made, "fp32", 2)


@pytest.mark.parametrize("scale", [1.0, 3e4])
@pytest.mark.parametrize("low", [-1e30, -1e9, -1e4, -8.0])
@pytest.mark.parametrize("mask", ["band", "rows without any", "added"])
@pytest.mark.slow(but_every=5)
def test_what_hides_a_score_is_itself_a_score(mask: str, low: float, scale: float) -> None:
    """A row that sees nothing has equal shares, and scores below -1e4 that are seen are not more than hidden ones."""
    node, keys = helper.make_node, 130
    band = np.tri(keys, dtype=bool)
    if mask == "rows without any":
        band[[5, 70]] = False
    nodes = [node("MatMul", ["q", "k"], ["p"]), node("Mul", ["p", "scale"], ["s"])]
    if mask == "added":
        nodes += [node("Add", ["s", "hidden"], ["m"])]
    else:
        nodes += [node("And", ["some", "band"], ["seen"]), node("Where", ["seen" if mask != "band" else "band", "s", "low"], ["m"])]  # fmt: skip
    nodes += [node("Softmax", ["m"], ["w"], axis=-1), node("MatMul", ["w", "v"], ["y"])]
    inputs: dict = {"q": ((2, keys, 16), F), "k": ((2, 16, keys), F), "v": ((2, keys, 16), F)}
    if mask != "added":
        inputs["some"] = ((keys, keys), B)
    made = model(nodes, inputs, {"y": ((2, keys, 16), F)},
                 {"band": band, "low": np.float32(low), "scale": np.float32(scale),
                  "hidden": np.where(band, 0, low).astype(np.float32)})  # fmt: skip
    wrong = {opt: wrong_values(made, "fp32", opt) for opt in (1, 3)}
    assert not any(wrong.values()), wrong
    options = CompileOptions(opt=3)
    program = compile_ir(import_model(made), load_machine("tx8"), options).program
    report = prove_ir(program, import_model(made), options, quick=True)
    # what is made of the two rows is not compared where the field has what hides them for hidden: softmax and product are one launch
    unseen = 2 * 2 * 16 if mask == "rows without any" and low <= -1e9 else 0
    assert not report.failures and sum(o.elements for o in report.outside.values()) == unseen
