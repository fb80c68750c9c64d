"""`tx8fast verify` and `compile --prove`: what they print and how they end."""

from __future__ import annotations

import json

import pytest

from tests.support.checkpoints import make_checkpoint
from tests.support.corpus import DATA
from tx8fast import api
from tx8fast.cli.app import run
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


def test_a_program_of_another_model_is_refused(capsys):
    other = FAULTY / "conv_pool_opt3_wrong_relu.onnx"
    assert run(["verify", str(FAULTY / "gt_only.tx8"), "--against", str(other)]) == 2
    assert "comparing the program with the model" in capsys.readouterr().err


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
