"""What the commands print and write when all is well."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import tx8fast
from tests.support.cli_case import tree
from tx8fast.cli import app

SIM_KEYS = {
    "program", "model", "phase", "cycles", "seconds", "bound_cycles", "bound", "roofline_ratio", "utilisation",
    "spm_peak_bytes", "ddr_bytes", "ddr_footprint_bytes", "groups", "instructions",
}  # fmt: skip
COMPILE_KEYS = {
    "program", "file_bytes", "model", "segments", "launches", "spm_peak_bytes", "ddr_footprint_bytes", "weight_bytes",
    "useful_macs", "unique_ddr_bytes", "bound_cycles", "bound", "kernel_core", "compile_seconds",
}  # fmt: skip

PLAN_KEYS = {
    "index", "name", "op", "engine", "ops", "parts", "slices", "order", "shared", "steps", "launches", "estimate_cycles",
    "engine_cycles", "bound_by", "candidates", "runner_up", "spm_peak_bytes", "useful_macs", "operand_bytes",
}  # fmt: skip
GROUP_KEYS = {
    "name", "segments", "cycles", "count", "bound", "bound_cycles", "compute_bound_cycles", "memory_bound_cycles",
    "roofline_ratio", "losses", "useful_macs", "unique_ddr_bytes", "noc_bytes", "ddr_bytes", "busy", "blocked",
}  # fmt: skip


def x_values() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((8, 32)).astype(np.float32)


def outputs_of(tx8, tmp_path, program, **arrays) -> np.ndarray:
    np.savez(tmp_path / "in.npz", **arrays)
    found = tx8("run", program, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz")
    assert found.code == 0, found.err
    with np.load(tmp_path / "out.npz") as z:
        assert z.files == ["y"]
        return z["y"]


def test_compile_sim_run(tx8, tmp_path, mlp):
    out = tmp_path / "m.tx8"
    found = tx8("compile", mlp, "-o", out, "--dtype", "bf16", "--json")
    facts = json.loads(found.out)
    assert facts.keys() >= COMPILE_KEYS
    assert facts["file_bytes"] == out.stat().st_size
    assert facts["useful_macs"] == 8 * 32 * 48
    assert sum(row["launches"] for row in facts["segment_rows"]) == facts["launches"]
    for row in facts["segment_rows"]:
        assert row.keys() >= PLAN_KEYS and row["bound_by"] in row["engine_cycles"]
        assert row["runner_up"] is None or row["runner_up"]["slower_by"] >= 0
    sim = json.loads(tx8("sim", out, "--json").out)
    assert sim.keys() >= SIM_KEYS
    assert 0 < sim["roofline_ratio"] < 1
    assert sim["cycles"] == sum(g["total_cycles"] for g in sim["groups"])
    assert sim["bound_cycles"] + sum(sim["losses"].values()) == pytest.approx(sim["cycles"])
    for g in sim["groups"]:
        assert g.keys() >= GROUP_KEYS
        assert g["bound_cycles"] + sum(g["losses"].values()) == pytest.approx(g["cycles"])
    assert sim["cycles"] == tx8fast.load(out).simulate().cycles
    y = outputs_of(tx8, tmp_path, out, x=x_values())
    direct = tx8fast.load(out).run({"x": x_values()})["y"]
    assert np.array_equal(y.view(direct.dtype) if y.dtype == np.uint16 else y, direct)


def test_every_spelling_of_a_bfloat16_input_gives_the_same(tx8, tmp_path, checkpoint):
    program = tmp_path / "d.tx8"
    assert tx8("compile", checkpoint, "-o", program, "--phase", "decode", "--past", "8").code == 0
    rng = np.random.default_rng(0)
    loaded = tx8fast.load(program)
    arrays = {t.name: rng.standard_normal(t.shape).astype(ml_dtypes.bfloat16) for t in loaded.inputs}
    ids = {"input_ids": np.array([[7]], np.int32), "position": np.array([3], np.int16)}
    spellings = {
        "bits": {n: a.view(np.uint16) for n, a in arrays.items()}, "wide": {n: a.astype(np.float64) for n, a in arrays.items()},
        "single": {n: a.astype(np.float32) for n, a in arrays.items()}, "raw": dict(arrays),
    }  # fmt: skip
    files = set()
    for spelling in spellings.values():
        np.savez(tmp_path / "in.npz", **(spelling | ids))
        args = ("run", program, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz")
        assert tx8(*args).code == 0
        files.add((tmp_path / "out.npz").read_bytes())
    assert len(files) == 1
    with np.load(tmp_path / "out.npz") as z:
        assert z["logits"].dtype == np.uint16
        assert set(z.files) == {t.name for t in loaded.outputs}


def test_inspect_lists_inputs_outputs_and_parameters(tx8, program):
    facts = json.loads(tx8("inspect", program, "--json").out)
    assert [(t["name"], t["shape"]) for t in facts["inputs"]] == [("x", [8, 32])]
    assert [t["name"] for t in facts["outputs"]] == ["y"]
    assert {t["source"] for t in facts["params"]} == {"embedded"}
    assert sum(t["size_bytes"] for t in facts["params"]) == facts["weight_bytes"] == facts["embedded_bytes"]
    assert sum(s["launches"] for s in facts["segment_rows"]) == facts["launches"]
    text = tx8("inspect", program).out
    for name in ("x", "y", "[8, 32]", "fused"):
        assert name in text


def test_disassembly_shows_every_instruction(tx8, program):
    facts = json.loads(tx8("inspect", program, "--json").out)
    matrix = next(s for s in facts["segment_rows"] if s["engine"] == "fused")
    code = json.loads(tx8("inspect", program, "--code", matrix["name"], "--json").out)
    assert [len(c["instructions"]) for c in code["codes"]] == matrix["rows"]
    lines = tx8("inspect", program, "--code", matrix["index"]).out.splitlines()
    assert sum(" gemm " in line and " m=" in line and " k=32 " in line for line in lines) >= 1
    assert sum(line.lstrip()[:1].isdigit() for line in lines) == sum(matrix["rows"])


def test_dumps_are_numbered_and_begin_with_the_import(tx8, tmp_path, mlp):
    dumps = tmp_path / "dumps"
    assert tx8("compile", mlp, "-o", tmp_path / "m.tx8", "--dump-dir", dumps).code == 0
    names = sorted(p.name for p in dumps.iterdir())
    assert [n[:2] for n in names] == [f"{i:02d}" for i in range(len(names))]
    assert names[0] == "00-import.mlir" and names[-1].endswith("-plans.txt") and len(names) > 5
    imported = tx8("compile", mlp, "--stop-after", "import").out
    assert (dumps / "00-import.mlir").read_text() == imported
    assert "gemm" in (dumps / names[-1]).read_text()


def test_stages_print_what_exists_and_write_nothing(tx8, tmp_path, mlp):
    before = tree(tmp_path)
    imported, passes = (tx8("compile", mlp, "--stop-after", s) for s in ("import", "passes"))
    assert '"tx8be.gemm"' in imported.out and '"tx8be.group"' not in imported.out
    assert '"tx8be.group"' in passes.out
    search = json.loads(tx8("compile", mlp, "--stop-after", "search", "--json").out)
    program = json.loads(tx8("compile", mlp, "--stop-after", "program", "--json").out)
    assert program["program"] is None
    assert len(search["segment_rows"]) == program["segments"]
    assert max(r["spm_peak_bytes"] for r in search["segment_rows"]) >= program["spm_peak_bytes"] > 0
    assert tree(tmp_path) == before


@pytest.mark.parametrize("options", [("--seq", "8"), ("--phase", "decode", "--past", "16")])
def test_check_foretells_the_program(tx8, tmp_path, checkpoint, options):
    check = json.loads(tx8("check", checkpoint, *options, "--json").out)
    args = ("compile", checkpoint, "-o", tmp_path / "p.tx8", *options, "--json")
    program = json.loads(tx8(*args, "--opt", "1").out)
    same = ("useful_macs", "unique_ddr_bytes", "bound_cycles", "bound", "weight_bytes", "compute_dtype")
    assert {k: check[k] for k in same} == {k: program[k] for k in same}
    assert check["ddr_footprint_bytes"] == program["ddr_footprint_bytes"]
    assert {r["op"]: r["reason"] for r in check["ops"] if r["reason"]} == program["kernel_core"]
    assert sum(r["count"] for r in check["ops"]) == program["launches"]
    assert check["fits_ddr"] is True
    grouped = json.loads(tx8(*args).out)
    assert {k: check[k] for k in same} == {k: grouped[k] for k in same}
    assert check["ddr_footprint_bytes"] >= grouped["ddr_footprint_bytes"]


def test_check_says_when_a_model_does_not_fit(tx8, tmp_path, checkpoint):
    found = tx8("check", checkpoint, "--phase", "decode", "--past", str(1 << 30))
    assert found.code == 0 and "DOES NOT FIT" in found.out


def test_opt_runs_passes_on_text(tx8, tmp_path, mlp):
    path = tmp_path / "g.mlir"
    path.write_text(tx8("compile", mlp, "--stop-after", "import").out)
    plain = tx8("opt", path)
    assert plain.code == 0 and plain.out == path.read_text()
    assert tx8("opt", path, "--pass", "canonicalize,dce", "--pass", "outline{min-ops=4}").code == 0


def test_equal_commands_write_equal_files(tx8, tmp_path, mlp):
    for name in ("a.tx8", "b.tx8"):
        assert tx8("compile", mlp, "-o", tmp_path / name).code == 0
    assert (tmp_path / "a.tx8").read_bytes() == (tmp_path / "b.tx8").read_bytes()


def test_progress_with_json_is_json_lines_on_stderr(tx8, tmp_path, mlp):
    found = tx8("compile", mlp, "-o", tmp_path / "m.tx8", "--json")
    events = [json.loads(line) for line in found.err.splitlines()]
    assert events[-1]["event"] == "progress" and events[-1]["done"] == events[-1]["total"] > 0
    assert [e["phase"] for e in events if e["event"] == "phase"] == ["import", "passes", "search", "emission"]


def test_progress_in_a_pipe_is_lines_and_silence_for_what_is_soon_done(tx8, tmp_path, mlp, monkeypatch):
    assert tx8("compile", mlp, "-o", tmp_path / "m.tx8").err == ""
    monkeypatch.setattr("tx8fast.cli.output.LINE_SECONDS", 0.0)
    lines = tx8("compile", mlp, "-o", tmp_path / "m.tx8").err.splitlines()
    assert lines[0] == "compiling: import" and "compiling: emission" in lines
    assert any(line.startswith("compiling: search: ") and line.endswith(" s left") for line in lines)
    lines = tx8("sim", tmp_path / "m.tx8").err.splitlines()
    assert all(line.startswith("simulating: ") for line in lines)


@pytest.mark.parametrize(("raised", "code"), [(KeyboardInterrupt, 130), (ZeroDivisionError, 1), (MemoryError, 2)])
def test_failures_inside_leave_nothing_behind(tx8, tmp_path, mlp, monkeypatch, raised, code):
    from tx8fast.program import io

    def fail(*_args):
        yield b"some bytes"
        raise raised("on purpose")

    monkeypatch.setattr(io, "arrays_of", lambda _: [("codes", fail())])
    found = tx8("compile", mlp, "-o", tmp_path / "m.tx8")
    assert found.code == code and found.out == "" and "Traceback" not in found.err
    assert tree(tmp_path) == {}


def test_traceback_on_request(tx8, tmp_path, monkeypatch):
    monkeypatch.setenv(app.TRACEBACK, "1")
    found = tx8("sim", tmp_path / "none.tx8")
    assert found.code == 2 and "Traceback" in found.err


def test_help_imports_nothing_heavy(repo_root):
    code = ("import sys; from tx8fast.cli import main; main(['--help']); main(['compile', '--help'])\n"
            "print(*sorted({'numpy', 'rich', 'onnx', 'numba', 'tx8fast.api'} & set(sys.modules)), file=sys.stderr)")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=repo_root)
    assert "check" in done.stdout and "--dump-dir" in done.stdout
    assert done.stderr.split() == []


def test_module_entry_point(repo_root):
    done = subprocess.run([sys.executable, "-m", "tx8fast", "--version"], capture_output=True, text=True, cwd=repo_root)
    assert done.stdout.split() == ["tx8fast", tx8fast.__version__]


@pytest.mark.parametrize("given, found", [({}, "4"), ({"OPENBLAS_THREAD_TIMEOUT": "9"}, "9")])
def test_threads_of_the_matrix_library_sleep_unless_told_otherwise(given: dict[str, str], found: str) -> None:
    """The library reads it when it is loaded, which is after the command line has begun."""
    code = ("import os, sys; from tx8fast.cli import main; before = 'numpy' in sys.modules; sys.argv = ['tx8fast', '--version']; main()\n"
            "print(before, os.environ['OPENBLAS_THREAD_TIMEOUT'])")  # fmt: skip
    plain = {k: v for k, v in os.environ.items() if k != "OPENBLAS_THREAD_TIMEOUT"}
    done = subprocess.run([sys.executable, "-c", code], env=plain | given, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"False {found}"
