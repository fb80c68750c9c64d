"""What runs on the kernel core is told by `check`, `compile` and `sim`, and refused if that is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from onnx import helper

from tests.support.cli_case import Caller, compile_args, refused, write_onnx
from tx8fast.cli.kernel_core import Row, share_of


@pytest.fixture(scope="session")
def slow(tmp_path_factory) -> Path:
    """A sum along an axis, whose parts no engine adds up."""
    nodes = [helper.make_node("Relu", ["x"], ["r"], "act"), helper.make_node("CumSum", ["r", "axis"], ["y"], "running")]
    import numpy as np

    path = tmp_path_factory.mktemp("slow") / "slow.onnx"
    return write_onnx(path, nodes, {"x": (64, 96)}, {"y": (64, 96)}, {"axis": np.array(1, np.int64)})


def test_commands_tell(tx8: Caller, slow, tmp_path):
    checked = tx8("check", slow, "--json")
    assert "kernel core: at most" in checked.err and "cumsum" in checked.err
    assert 0 < json.loads(checked.out)["kernel_core_share"] < 1
    made = tx8(*compile_args(slow, tmp_path, "--dtype", "bf16", "--json"))
    assert json.loads(made.err.splitlines()[-1])["text"].startswith("kernel core: ")
    expected = json.loads(made.out)["kernel_core_share"]
    simulated = tx8("sim", tmp_path / "out.tx8", "--json")
    facts = json.loads(simulated.out)
    assert f"kernel core: {facts['kernel_core_share']:.2%} of the time (cumsum" in simulated.err
    assert facts["kernel_core_share"] == pytest.approx(expected, rel=0.2)
    (row,) = [g for g in facts["groups"] if g["busy"]["kcore"]]
    assert 0 < facts["kernel_core_share"] <= row["total_cycles"] / facts["cycles"]


def test_forbidden(tx8: Caller, slow, tmp_path):
    says = (
        "--forbid kernel-core: routines on the kernel core take",
        "cumsum, 1 times, ",
        "first 'running'",
        "% of the time",
    )
    refused(tx8, tmp_path, "check", slow, "--forbid", "kernel-core", says=says)
    refused(tx8, tmp_path, *compile_args(slow, tmp_path, "--forbid", "kernel-core"), says=says)
    assert tx8(*compile_args(slow, tmp_path)).code == 0
    trace = tmp_path / "trace.json"
    refused(tx8, tmp_path, "sim", tmp_path / "out.tx8", "--trace", trace, "--forbid", "kernel-core", says=says)
    assert "drop --forbid" in refused(
        tx8, tmp_path, "compile", slow, "--stop-after", "search", "--forbid", "kernel-core"
    )


def test_nothing_to_tell(tx8: Caller, mlp, program, tmp_path):
    for args in (("check", mlp), ("sim", program), compile_args(mlp, tmp_path, "--dtype", "bf16")):
        done = tx8(*args, "--forbid", "kernel-core")
        assert done.code == 0 and "kernel core:" not in done.err


def test_shares_add_up():
    rows = [Row("a", "", "x", 2, 10), Row("b", "", "y", 1, 60), Row("a", "", "z", 1, 30)]
    exact = share_of(rows, 200.0)
    assert [(r.op, r.count, r.cycles, r.example) for r in exact.rows] == [("b", 1, 60, "y"), ("a", 3, 40, "x")]
    assert exact.part(exact.routine_cycles) == 0.5
    # against a bound of the rest: the routines' time comes on top
    assert share_of(rows, 100.0, exact=False).part(100) == 0.5
    assert share_of([], 0.0).part(0) == 0.0


def test_strict_refuses_what_is_otherwise_told(tx8: Caller, slow, mlp, tmp_path):
    for args in (("check", slow), compile_args(slow, tmp_path)):
        refused(tx8, tmp_path, *args, "--strict", says=("--strict: kernel core: ", "cumsum"))
    refused(tx8, tmp_path, *compile_args(mlp, tmp_path, "--opt", "1", "--search-seconds", "1", "--strict"),
            says=("--strict: ", "--search-seconds has no effect"))  # fmt: skip
    done = tx8(*compile_args(mlp, tmp_path, "--dtype", "bf16", "--strict"))
    assert done.code == 0 and done.err == ""
    assert tx8(*compile_args(slow, tmp_path)).code == 0, "the switch holds for one command"
    refused(tx8, tmp_path, "sim", tmp_path / "out.tx8", "--strict", says=("--strict: kernel core",))


def test_a_strict_batch_fails_if_a_job_has_warnings(tx8: Caller, mlp, tmp_path):
    (tmp_path / "m.toml").write_text(
        f'schema = 1\n[[model]]\nid = "m"\nsource = "{mlp}"\nopt = 1\nsearch_seconds = 1.0\nphase = "decode"\n'
    )
    args = ("batch", tmp_path / "m.toml", "-j", "1", "--no-cache", "-o")
    plain, strict = tx8(*args, tmp_path / "a"), tx8(*args, tmp_path / "b", "--strict")
    assert (plain.code, strict.code) == (0, 2) and "has no effect" in strict.err, plain
