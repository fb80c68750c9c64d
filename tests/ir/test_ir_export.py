"""Small programs as text, JSON and raw data: built in a few lines, written, read back, run."""

import json

import ml_dtypes
import numpy as np
import pytest
from op_cases import Case, build, data, make_case
from support.checkpoints import make_checkpoint
from support.interpret import run_program
from support.run_graph import run_graph
from support.small_graph import SmallGraph

from tx8fast.api import compile_ir
from tx8fast.errors import ImportModelError
from tx8fast.frontend import open_model
from tx8fast.ir import new_context, reference
from tx8fast.ir.export import export_program, export_text, load_exported
from tx8fast.machine import load_machine
from tx8fast.options import CompileOptions
from tx8fast.passes.pipeline import run_pipeline, standard_pipeline

KINDS = ("gemm", "conv", "softmax", "layernorm", "reduce", "transpose", "concat", "gather", "add", "select", "max_pool")


def one_op(case: Case, arrays):
    """A program of one op in four lines."""
    g = SmallGraph(**{f"x{i}": (o[0], o[1]) for i, o in enumerate(case.operands)})
    y = g(case.kind, *g.args.values(), **case.attrs)
    return g.done(y=y), {f"x{i}": a for i, a in enumerate(arrays)}


@pytest.mark.parametrize("kind", KINDS)
def test_random_one_op_programs_run_through_the_pipeline_and_through_files(tmp_path, kind):
    rng = np.random.default_rng(len(kind))
    for n in range(4):
        case = make_case(kind, rng)
        arrays = data(case, rng)
        program, inputs = one_op(case, arrays)
        expected = reference(build(program.ctx, case), arrays)[0]
        path = export_program(program, tmp_path / str(n), inputs, {"y": expected})
        description = json.loads(path.read_text())
        for entry, array in zip(description["arguments"], arrays, strict=True):
            raw = (tmp_path / str(n) / entry["file"]).read_bytes()
            assert raw == array.tobytes() and entry["shape"] == list(array.shape)
        back, given, wanted = load_exported(new_context(), tmp_path / str(n))
        assert back.text() == program.text() and back.name == program.name
        run_pipeline(back, standard_pipeline("keep"))
        found = run_graph(back, given)["y"]
        np.testing.assert_allclose(found, wanted["y"].reshape(found.shape), rtol=1e-5, atol=1e-6)


def test_export_drops_run_time_attributes_and_nothing_else(tmp_path):
    g = SmallGraph(x=((2, 8), "f32"))
    plain = g("relu", g("gemm", g.args["x"], g.array("w", np.ones((8, 4), np.float32))))
    program = g.done(y=plain)
    before = program.text()
    for i, op in enumerate(program.module.walk()):
        op.attrs["rt_note"] = i
    noted = program.text()
    assert export_text(program) == before != noted and program.text() == noted
    export_program(program, tmp_path)
    assert "rt_note" not in (tmp_path / "graph.mlir").read_text()
    back, _, _ = load_exported(new_context(), tmp_path)
    for p in (program, back):  # what is compiled does not depend on them
        run_pipeline(p, standard_pipeline())
    run_pipeline(program, "strip-runtime")
    run_pipeline(back, "strip-runtime")
    assert back.text() == program.text()


def test_a_model_keeps_its_weights_where_they_are(tmp_path):
    make_checkpoint(tmp_path / "model")
    program = open_model(tmp_path / "model", seq=4)
    folder = tmp_path / "out"
    export_program(program, folder)
    assert sum(f.stat().st_size for f in folder.rglob("*")) < 64 << 10
    back, _, _ = load_exported(new_context(), folder, tmp_path / "model")
    assert back.text() == program.text() and back.weights.keys() == program.weights.keys()
    ids = {program.main.attrs["arg_names"][0]: np.array([[3, 1, 4, 1]])}
    for a, b in zip(run_program(program, ids), run_program(back, ids), strict=True):
        np.testing.assert_array_equal(a, b)
    alone, _, _ = load_exported(new_context(), folder)  # without the weight files it still compiles
    assert "lm_head.weight" in alone.weights.missing()  # rotation tables are formulas and stay
    run_pipeline(alone, standard_pipeline())


def test_wrong_data_and_damaged_descriptions_are_named(tmp_path):
    g = SmallGraph(x=((2,), "bf16"))
    program = g.done(y=g("relu", g.args["x"]))
    with pytest.raises(ImportModelError, match=r"argument 'x': found f32 \[2\], required bf16 \[2\]"):
        export_program(program, tmp_path, {"x": np.zeros(2, np.float32)})
    path = export_program(program, tmp_path, {"x": np.zeros(2, ml_dtypes.bfloat16)})
    good = json.loads(path.read_text())
    for change, message in (
        ({"graph": "gone.mlir"}, "gone.mlir"), ({"weights": [{}]}, "KeyError"),
        ({"weights": [{"key": "k", "shape": [1], "dtype": "f32", "kind": "magic", "mutable": False}]}, "unknown kind 'magic'"),
        ({"arguments": [{**good["arguments"][0], "file": "../x"}]}, "leaves the directory"),
        ({"arguments": [{**good["arguments"][0], "shape": [3]}]}, "cannot reshape"),
    ):  # fmt: skip
        path.write_text(json.dumps({**good, **change}))
        with pytest.raises(ImportModelError, match=message):
            load_exported(new_context(), tmp_path)
    path.write_text("{")
    with pytest.raises(ImportModelError, match="exported program"):
        load_exported(new_context(), tmp_path)


def test_the_program_is_the_same_with_and_without_run_time_attributes(tmp_path):
    files = []
    for noted in (True, False):
        g = SmallGraph(x=((4, 64), "f32"))
        y = g("relu", g("gemm", g.args["x"], g.array("w", np.ones((64, 32), np.float32))))
        program = g.done(y=g("softmax", y))
        if noted:
            for i, op in enumerate(program.module.walk()):
                op.attrs["rt_note"] = i
        compile_ir(program, load_machine("test_2x2"), CompileOptions()).save(tmp_path / "p.tx8")
        files.append((tmp_path / "p.tx8").read_bytes())
    assert files[0] == files[1]
