"""`emit-c` and `test-case`, as a user calls them. The example of a host is built from the wheel (tests/packaging)."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.support.checkpoints import make_checkpoint
from tests.support.cli_case import Caller, refused
from tests.support.emitted import CC, MODEL, compile_c, run_c


@pytest.fixture
def call(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Caller(capsys)


@pytest.mark.toolchain
@pytest.mark.skipif(not CC, reason="no C compiler")
def test_a_random_case_is_built_and_gives_what_is_expected(call, tmp_path):
    out = call("test-case", "--random", "--seed", "5", "-o", "case").out
    assert out.startswith("seed 5: ") and "build and run: make -C case run" in out
    ran = run_c(compile_c(tmp_path / "case"))
    assert ran.returncode == 0 and "y: as expected" in ran.stdout
    first = {
        p.name: p.read_bytes()
        for p in (tmp_path / "case").glob("*")
        if p.suffix in (".c", ".h", ".bin", ".json") and not p.name.startswith("out_")
    }
    facts = json.loads(call("test-case", "--random", "--seed", "5", "-o", "again", "--json").out)
    again = {name: (tmp_path / "again" / name).read_bytes() for name in facts["files"] if "/" not in name}
    assert first == {k: v for k, v in again.items() if k in first}
    assert call("test-case", "--random", "--seed", "6", "-o", "other").out.splitlines()[0] != out.splitlines()[0]


def test_every_op_of_random_cases_is_emitted():
    from tx8fast.codegen.program import program_text
    from tx8fast.test_cases import OPS, random_case

    for seed, op in enumerate(sorted(OPS)):
        case = random_case(seed, op)
        assert case.text.startswith(f"{op} of ")
        assert "tile_main" in "".join(program_text(case.program.program))
        found = case.program.run(case.inputs)
        assert all(np.isfinite(x.astype(np.float64)).all() for x in found.values()), case.text


@pytest.mark.parametrize("op", ["map", "gelu"])
def test_the_interpreter_gives_the_bytes_of_random_cases(op):
    from tx8fast.test_cases import random_case

    cases = (random_case(seed, op) for seed in range(40))
    small = [case for case in cases if sum(x.size for x in case.inputs.values()) < 4000][:5]
    assert len(small) == 5
    for case in small:
        found, exact = (case.program.run(case.inputs, exact=way) for way in (False, True))
        assert found["y"].tobytes() == exact["y"].tobytes(), case.text


def test_a_model_is_emitted_with_weights_from_its_directory(call, tmp_path):
    make_checkpoint(tmp_path / "model", layers=1, dtype="bfloat16")
    call("compile", "model", "--seq", "4", "--opt", "1", "--embed-limit-mib", "0", "-o", "p.tx8")
    refused(call, tmp_path, "emit-c", "p.tx8", "-o", "c", says=("are not in the working directory", "--weights DIR"))
    assert "program.c has" in call("emit-c", "p.tx8", "-o", "c", "--weights", "model").out
    names = {p.name for p in (tmp_path / "c").iterdir()}
    assert {"program.c", "params.bin", "program.json", "Makefile", "CMakeLists.txt", "main.c", MODEL} <= names
    assert not [n for n in names if n.startswith(("in_", "expected_"))]
    np.savez(tmp_path / "in.npz", input_ids=np.zeros((1, 5), np.int64))
    more = ("--weights", "model", "--test-case", "in.npz")
    refused(
        call,
        tmp_path,
        "emit-c",
        "p.tx8",
        "-o",
        "d",
        *more,
        says=("input 'input_ids' has shape [1, 5], required [1, 4]",),
    )


def test_what_cannot_be_drawn_is_told(call, tmp_path):
    says = ("no case of 'conv' can be drawn; there are abs, add, cos",)
    refused(call, tmp_path, "test-case", "--random", "--op", "conv", "-o", "case", says=says)
    refused(call, tmp_path, "test-case", "-o", "case", says=("--random",))
