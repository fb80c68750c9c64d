"""`tx8fast verify` and `compile --prove`: what they print and how they end."""

from __future__ import annotations

import json

import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.checkpoints import make_checkpoint
from tests.support.corpus import DATA
from tx8fast import api, isa
from tx8fast.cli.app import run
from tx8fast.numerics.formats import FORMAT_CODES
from tx8fast.program import io
from tx8fast.proof.report import Failure, Report

FAULTY = DATA / "proof"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    make_checkpoint(path)
    return path


def test_a_program_is_verified(model, tmp_path, capsys):
    out = tmp_path / "p.tx8"
    assert run(["compile", str(model), "--seq", "16", "-o", str(out), "--prove"]) == 0
    assert "proved: " in capsys.readouterr().out
    assert run(["verify", str(out), "--against", str(model), "--quick"]) == 0
    assert "over 1 seed" in capsys.readouterr().out
    assert run(["verify", str(out), "--against", str(model), "--quick", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["proved"] and facts["outside"] == [] and facts["elements_compared"] > 0 and facts["seeds"] == 1


def test_a_wrong_program_is_refused(capsys):
    given = [
        "verify",
        str(FAULTY / "conv_pool_opt3_wrong_relu.tx8"),
        "--against",
        str(FAULTY / "conv_pool_opt3_wrong_relu.onnx"),
        "--quick",
    ]
    assert run(given) == 2
    assert capsys.readouterr().out.startswith("not proved: 1 problem\n  - launch 0 (")


def test_what_is_proved_only_in_part_is_said_loudly(tmp_path, capsys):
    model, out = tmp_path / "det.onnx", tmp_path / "det.tx8"
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (4, 3, 3)), ("y", (4,))))
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Det", ["h"], ["y"])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y])), model)
    assert run(["compile", str(model), "-o", str(out)]) == 0
    capsys.readouterr()
    given = ["verify", str(out), "--against", str(model), "--quick"]
    assert run(given) == 0
    text = capsys.readouterr().out
    assert text.startswith("PROVED ONLY IN PART: ") and "det: this kind has no expression" in text
    assert run([*given, "--strict"]) == 2
    capsys.readouterr()
    assert run([*given, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["proved"] and not facts["complete"] and facts["outside"][0]["elements"] == 4


def test_what_a_program_rounds_is_listed(model, tmp_path, capsys):
    out, gemm = tmp_path / "p.tx8", isa.instruction("gemm")
    program = api.compile(model, seq=16)
    for code in (c for segment in program.program.segments for c in segment.codes):
        rows = code["opcode"] == gemm.OPCODE
        for name, value in {"psum_en": 1, "psum_fmt": FORMAT_CODES["bf16"], "out_fmt": FORMAT_CODES["bf16"]}.items():
            code["p"][rows, gemm.FIELDS_P.index(name)] = value
        for name in ("psum", "out"):  # every product adds to the one before it
            code["spm"][rows, gemm.FIELDS_SPM.index(name)] = 0
    program.save(out)
    given = ["verify", str(out), "--against", str(model), "--quick"]
    assert run(given) == 2  # nobody has written such sums
    assert "precision: partial sums in bf16: " in capsys.readouterr().out
    assert run([*given, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["precision"][0]["rows"] > 0


def test_a_program_of_another_model_is_refused(capsys):
    other = FAULTY / "conv_pool_opt3_wrong_relu.onnx"
    assert run(["verify", str(FAULTY / "gt_only.tx8"), "--against", str(other)]) == 2
    assert "comparing the program with the model" in capsys.readouterr().err


@pytest.mark.parametrize("said, why", [
    ({"dtype": "fp32"}, "(1, 8, 64) bf16, the model (1, 8, 64) f32"), ({"tp": 2}, "the program is for (1, 1) chips, the model for (2, 1)"),
    ({"seq": 9}, "input 'input_ids': the program has (1, 8) i64 dense, the model (1, 9) i64 dense"), ({"opt": 9}, "opt 9 is unknown"),
])  # fmt: skip
def test_a_program_that_says_what_it_is_not_is_refused(model, tmp_path, capsys, said, why):
    program = api.compile(model, seq=8, dtype="bf16").program
    program.meta["options"] = {**program.meta["options"], **said}
    io.save(program, tmp_path / "p.tx8")
    assert run(["verify", str(tmp_path / "p.tx8"), "--against", str(model), "--quick"]) == 2
    assert why in capsys.readouterr().err


def test_a_program_whose_model_has_lost_its_weights_is_refused(model, tmp_path, capsys):
    program, out = api.compile(model, seq=8).program, tmp_path / "p.tx8"
    io.save(program, out)
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.json").write_text((model / "config.json").read_text())
    assert run(["verify", str(out), "--against", str(bare), "--quick"]) == 2
    assert "has no file with weight" in capsys.readouterr().err
    # without any weights there is nothing to compare
    assert run(["compile", str(bare), "--seq", "8", "-o", str(out), "--prove"]) == 0
    assert run(["verify", str(out), "--against", str(bare), "--quick"]) == 0


def test_constants_with_other_bytes_are_refused(tmp_path, capsys):
    scale = helper.make_tensor("c", TensorProto.FLOAT, [], [0.25])
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 24]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "c"], ["y"])], "g", [x], [y], [scale])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), str(tmp_path / "m.onnx"))
    program = api.compile(tmp_path / "m.onnx").program
    program.data = bytes(program.data).replace(b"\x00\x00\x80\x3e", b"\x00\x00\x80\x3f")
    io.save(program, tmp_path / "p.tx8")
    assert run(["verify", str(tmp_path / "p.tx8"), "--against", str(tmp_path / "m.onnx"), "--quick"]) == 2
    assert "bytes that the program holds are not the model's" in capsys.readouterr().out


@pytest.mark.slow
def test_several_lengths(model, tmp_path, capsys):
    out = tmp_path / "p.tx8"
    assert run(["compile", str(model), "--seq", "8,16", "-o", str(out), "--prove", "--json"]) == 0
    assert [p["proved"] for p in json.loads(capsys.readouterr().out)["proofs"]] == [True, True]
    assert run(["verify", str(out), "--against", str(model), "--length", "8", "--quick"]) == 0


@pytest.mark.parametrize("seq", ["16", "8,16"])
def test_what_is_not_proved_is_not_written(model, tmp_path, capsys, monkeypatch, seq):
    wrong = Report(failures=[Failure(3, "layers.0/x", "7", "", "1 of 2 elements differ")])
    monkeypatch.setattr(api, "prove", lambda *given, **more: wrong)
    out = tmp_path / "p.tx8"
    assert run(["compile", str(model), "--seq", seq, "-o", str(out), "--prove"]) == 1
    told = capsys.readouterr()
    assert "launch 3 (layers.0/x), value 7: 1 of 2 elements differ" in told.out and "defect in tx8fast" in told.err
    assert not out.exists()


def test_nothing_to_prove(model, capsys):
    assert run(["compile", str(model), "--seq", "16", "--prove", "--stop-after", "search"]) == 2
    assert "drop --prove" in capsys.readouterr().err
