"""Launch arguments carry the graph's values as debug data: path of calls and number, whatever was grouped or inlined."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.checkpoints import make_checkpoint
from tests.support.corpus import small_cnn
from tx8fast import api
from tx8fast.errors import ProgramError
from tx8fast.frontend import open_model
from tx8fast.graph_table import FunctionTable, GraphTable
from tx8fast.options import CompileOptions
from tx8fast.program import io


def all_names(table: GraphTable) -> dict[str, tuple]:
    """Return every value of every call of every function: name -> shape and format."""
    found: dict[str, tuple] = {}

    def visit(fn: FunctionTable, calls: tuple[int, ...]) -> None:
        for v, spec in enumerate(fn.values):
            found[".".join(map(str, (*calls, v)))] = (spec.shape, spec.dtype)
        for step in fn.steps:
            if step.kind == "call":
                visit(table.functions[step.callee], (*calls, step.call_number))

    visit(table.functions["main"], ())
    return found


def check_names(program, names: dict[str, tuple]) -> None:
    segments = program.segments
    for launch in program.launches:
        assert len(launch.values) == len(launch.args) == segments[launch.segment].n_args, launch.name
        for name, address in zip(launch.values, launch.args, strict=True):
            assert (name == "" and address == 0) or name in names, launch.name


@pytest.mark.parametrize("opt", [1, 2, 3])
@pytest.mark.slow(but_every=4)
def test_names_are_those_of_the_graph_before_the_search(tmp_path, opt):
    make_checkpoint(tmp_path / "m", layers=3)
    options = CompileOptions(seq=16, opt=opt)
    table = api.lower_graph(open_model(tmp_path / "m", seq=16), options).table
    program = api.compile(tmp_path / "m", options).program
    names = all_names(table)
    assert any("." in n for n in names), "the layers should be calls"
    check_names(program, names)
    used = [v for launch in program.launches for v in launch.values if "." in v]
    assert len({v.rpartition(".")[0] for v in used}) == 3  # one path for each layer


def test_values_of_inlined_functions_keep_their_names(tmp_path):
    small_cnn(tmp_path)
    table = api.lower_graph(open_model(tmp_path / "cnn.onnx"), CompileOptions()).table
    program = api.compile(tmp_path / "cnn.onnx", opt=3).program
    check_names(program, all_names(table))
    inner = FunctionTable("f", origin={7: (3, 1)})
    assert inner.path(7) == (3, 1) and inner.path(2) == (2,)


def test_names_are_saved_and_do_not_depend_on_the_directory(tmp_path):
    for name in ("one", "another"):
        make_checkpoint(tmp_path / name / "m")
        api.compile(tmp_path / name / "m", seq=16).save(tmp_path / f"{name}.tx8")
    assert (tmp_path / "one.tx8").read_bytes() == (tmp_path / "another.tx8").read_bytes()
    program = io.load(tmp_path / "one.tx8")
    assert [x.values for x in program.launches] == [
        x.values for x in api.compile(tmp_path / "one" / "m", seq=16).program.launches
    ]


def test_a_program_without_names_is_saved_without(tmp_path):
    make_checkpoint(tmp_path / "m")
    program = api.compile(tmp_path / "m", seq=16).program
    program.launches[0] = replace(program.launches[0], values=())
    io.save(program, tmp_path / "p.tx8")
    loaded = io.load(tmp_path / "p.tx8")
    assert loaded.launches[0].values == () and loaded.launches[1].values == program.launches[1].values


def test_a_name_that_is_not_there_is_refused(tmp_path, monkeypatch):
    make_checkpoint(tmp_path / "m")
    program = api.compile(tmp_path / "m", seq=16).program
    whole = io.body_of(program)
    monkeypatch.setattr(io, "body_of", lambda _: {**whole, "values": whole["values"][:3]})
    io.save(program, tmp_path / "p.tx8")
    with pytest.raises(ProgramError, match=r"names values outside \[0, 3\)"):
        io.load(tmp_path / "p.tx8")
