"""Updates of values that somebody else reads, under whatever name: whole models, compiled, run and compared."""

from __future__ import annotations

import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.small_graph import SmallGraph
from support.update_graphs import random_graph

import tx8fast
from tx8fast import api
from tx8fast.machine import load_machine
from tx8fast.options import CompileOptions

LEVELS = (1, 2, 3)
FOUND = ("mc_input_scatter_squeeze", "mc_mm_scatter_squeeze", "mc_relu_scatter_both", "mc_relu_scatter_ident",
         "mc_relu_scatter_read_later", "mc_relu_scatter_squeeze", "mc_scatter_of_reshaped_out", "mc_scatter_of_squeezed",
         "mc_scatter_two_alias", "mc_two_scatters", "bad_628")  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.slow
def test_models_that_were_wrong(name: str, data_dir) -> None:
    ort = pytest.importorskip("onnxruntime")
    path = data_dir / "found" / f"{name}.onnx"
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(str(path), options)
    rng = np.random.default_rng(0)
    inputs = {i.name: rng.standard_normal(i.shape).astype(np.float32) for i in session.get_inputs()}
    expected = dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs), strict=True))
    for dtype, tolerance in (("fp32", 1e-5), ("bf16", 0.02)):
        for opt in LEVELS:
            found = tx8fast.compile(path, opt=opt, dtype=dtype).run(inputs, sanitize=True)
            for key, right in expected.items():
                np.testing.assert_allclose(found[key].astype(np.float32), right, atol=tolerance * max(1, np.abs(right).max()),
                                           err_msg=f"{key} at level {opt}, {dtype}")  # fmt: skip


@pytest.mark.parametrize("seed", range(200 if os.environ.get("TX8FAST_ALL_MODELS") else 8))
@pytest.mark.slow
def test_random_views_and_updates(seed: int, tmp_path) -> None:
    """Exact at every level; which of them in bf16 goes by the seed."""
    g = random_graph(seed)
    path = tmp_path / "model.onnx"
    onnx.save(g.model(), path)
    for opt in LEVELS:
        dtype = "fp32" if (seed + opt) % 3 else "bf16"
        found = tx8fast.compile(path, opt=opt, dtype=dtype).run(g.inputs, sanitize=True)
        for name, right in g.outputs.items():
            what = f"{name} of graph {seed} at {opt}, {dtype}"
            np.testing.assert_array_equal(found[name].astype(np.float32), right, what)


def test_random_graphs_have_what_they_are_for(tmp_path) -> None:
    """Updates in place and copied, in main and in layers; layers in layers."""
    seen: set[tuple[str, bool, bool]] = set()
    deepest = 0
    for seed in range(30):
        onnx.save(random_graph(seed).model(), tmp_path / "model.onnx")
        options = CompileOptions(dtype="fp32")
        ir = api.open_model(tmp_path / "model.onnx", **options.import_options())
        table = api.lower_graph(ir, options).table
        deepest = max(deepest, len(table.functions))
        for name, fn in table.functions.items():
            steps = [
                s for s in fn.steps if s.record is not None and s.record.kind in ("kv_update", "scatter", "scatter_nd")
            ]
            seen |= {(s.record.kind, s.in_place >= 0, name == "main") for s in steps}
    assert len(seen) == 12 and deepest > 2


@pytest.mark.parametrize("opt", LEVELS)
@pytest.mark.parametrize("returned", ["parameter", "constant", "view", "argument", "twice"])
def test_results_of_a_layer_that_it_did_not_make(returned: str, opt: int) -> None:
    """A layer that hands back its argument, a parameter of its own, or one value twice; the caller updates and reads on."""
    from tx8fast.ir.attrs import DenseAttr

    shape = {"x": ((4, 8), "f32")}
    weight = np.arange(32, dtype=np.float32).reshape(4, 8)
    g = SmallGraph(**shape)
    g.top.first.erase()
    g.begin("subgraph", "layer", **shape)
    w = g.array("w", weight) if returned != "constant" else g("constant", value=DenseAttr(weight))
    made = g("neg", g.args["x"])
    view = g("reshape", g("reshape", w, shape=(32,)), shape=(4, 8))
    first = {"parameter": w, "constant": w, "view": view, "argument": g.args["x"], "twice": made}[returned]
    g.end(a=first, b=made)
    g.begin("func", "main", **shape)
    y = g("abs", g.args["x"])
    a, b = g.op("call", y, callee="layer", result_types=[y.type] * 2).results
    index = g("constant", value=DenseAttr(np.zeros((1, 8), np.int64)))
    row = g("slice", g.args["x"], start=(0, 0), size=(1, 8), step=(1, 1))
    program = g.done(updated=g("scatter", a, index, row, axis=0), read=g("neg", b), before=g("neg", y), same=a)
    x = np.arange(-16, 16, dtype=np.float32).reshape(4, 8)
    right = {"argument": np.abs(x), "twice": -np.abs(x)}.get(returned, weight)
    found = api.compile_ir(program, load_machine(), CompileOptions(dtype="fp32", opt=opt)).run({"x": x}, sanitize=True)
    np.testing.assert_array_equal(found["updated"], np.concatenate([x[:1], right[1:]]))
    np.testing.assert_array_equal(found["read"], np.abs(x))
    np.testing.assert_array_equal(found["before"], -np.abs(x))
    np.testing.assert_array_equal(found["same"], right)


@pytest.mark.parametrize("opt", (1, 2))
@pytest.mark.parametrize("reader", ("Neg", "Transpose"))
def test_an_op_without_elements_does_not_take_a_layer_s_barrier_away(opt: int, reader: str, tmp_path) -> None:
    """The tiles of a transpose read what others have written, so its launch is its own; opt 2 may chain a negation."""
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node(reader, ["a"], ["o"]),
             helper.make_node("Relu", ["nothing"], ["e"]), helper.make_node("Exp", ["e"], ["f"])]  # fmt: skip
    info = lambda name, rows: helper.make_tensor_value_info(name, TensorProto.FLOAT, (rows, 64))  # noqa: E731
    graph = helper.make_graph(nodes, "empty", [info("x", 64), info("nothing", 0)], [info("o", 64), info("f", 0)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    program = tx8fast.compile(tmp_path / "m.onnx", opt=opt).program
    barriers = [program.segments[x.segment].barrier for x in program.launches]
    assert all(barriers) and len(barriers) in ((1, 2) if (reader, opt) == ("Neg", 2) else (2,))
