"""The contents of an exported program's files: run-time attributes stay out, weights are described or written."""

import json

import numpy as np
import pytest
from support.small_graph import SmallGraph

from tx8fast.api import compile_ir
from tx8fast.errors import ImportModelError
from tx8fast.ir.export import export_text, exported
from tx8fast.machine import load_machine
from tx8fast.options import CompileOptions
from tx8fast.weights import FileSource, Weight


def test_export_drops_run_time_attributes_and_nothing_else():
    g = SmallGraph(x=((2, 8), "f32"))
    program = g.done(y=g("relu", g("gemm", g.args["x"], g.array("w", np.ones((8, 4), np.float32)), loc="here")))
    before = program.text(locations=True)
    assert 'loc("here")' in before
    for i, op in enumerate(program.module.walk()):
        op.attrs["rt_note"] = i
    noted = program.text(locations=True)
    assert export_text(program) == before != noted and program.text(locations=True) == noted
    contents, files = exported(program)
    assert contents["graph.mlir"].decode() == before and files == []


def test_owned_weights_are_raw_data_and_arguments_are_described():
    g = SmallGraph(x=((2, 8), "f32"))
    w = np.arange(32, dtype=np.float32).reshape(8, 4).T  # not contiguous
    program = g.done(y=g("gemm", g.args["x"], g.array("w", w), trans_b=True))
    contents, _ = exported(program)
    described = json.loads(contents["graph.json"])
    assert described["arguments"] == [{"name": "x", "shape": [2, 8], "dtype": "f32"}]
    assert [r["name"] for r in described["results"]] == ["y"]
    (weight,) = described["weights"]
    assert (weight["key"], weight["shape"], weight["dtype"], weight["kind"]) == ("w", [4, 8], "f32", "data")
    assert bytes(contents[weight["file"]]) == np.ascontiguousarray(w).tobytes()


def test_what_cannot_be_told_in_files_is_refused(tmp_path):
    g = SmallGraph(x=((2,), "f32"))
    program = g.done(y=g("relu", g.args["x"]))
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "w.bin").write_bytes(bytes(8))
        program.weights.add(Weight(folder, (2,), "f32", FileSource(str(tmp_path / folder / "w.bin"), 0, 8)))
    with pytest.raises(ImportModelError, match="weight 'b': .* are both called w.bin"):
        exported(program)
    program.weights.remove("b")
    assert exported(program)[1] == ["w.bin"]
    program.weights.add_per_chip("c", {0: FileSource("x", 0, 8), 1: FileSource("y", 0, 8)}, (2,), "f32")
    with pytest.raises(ImportModelError, match="weight 'c': every chip has a part"):
        exported(program)


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
