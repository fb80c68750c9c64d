"""Damaged program files and lost workers: the host library says so and goes on; with TX8FAST_SANITIZE_C=1 also in a build that checks itself."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import tx8fast
from tests.support.checkpoints import make_checkpoint
from tests.support.cli_case import Caller, write_mlp
from tests.support.host_library import NAMES, CWorker, HostError
from tests.support.host_mutants import mutants
from tests.support.one_op import Arg, build
from tx8fast.api import CompiledProgram

ROOT = Path(__file__).resolve().parents[2]
HOST = ROOT / "tx8fast" / "host"
COUNT = int(os.environ.get("TX8FAST_HOST_MUTANTS", "40"))
#: runs what it is given; a crash ends it before it has told of all
CHILD = """
import resource, sys
import numpy as np
from tests.support.host_library import CProgram, HostError
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
for path in sys.argv[1:]:
    try:
        program = CProgram(path)
        program.run({t["name"]: np.zeros(t["bytes"], np.uint8) for t in program.inputs()}, 1)
        print("ran")
    except HostError as e:
        print(e.code, str(e)[:100])
    except (MemoryError, OverflowError, UnicodeDecodeError):
        print("too large for this test")
"""


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> list[Path]:
    """Products on sixteen tiles that exchange; routines of the kernel core."""
    folder = tmp_path_factory.mktemp("sound")
    x = Arg((48, 96), "bf16")
    product = build([x, Arg((96, 80), "bf16")],
                    lambda b, x, w: b("softmax", b("gemm", x, w)))  # fmt: skip
    routine = build([Arg((3, 40), "f32")] * 2, lambda b, x, y: b("cumsum", b("add", x, y), axis=1))
    paths = []
    for name, case in (("product", product), ("routine", routine)):
        paths.append(folder / f"{name}.tx8")
        CompiledProgram(case.program).save(paths[-1], standalone=True)
    return paths


def test_damaged_files_are_refused_or_run(sound, tmp_path):
    paths = [p for s in sound for p in mutants(s, tmp_path, COUNT // 2, 1)]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *map(str, [*sound, *paths])], capture_output=True, text=True, cwd=ROOT
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == len(paths) + 2, (lines[-1:], done.stderr[-2000:])
    assert lines[:2] == ["ran", "ran"]
    assert sum(line != "ran" for line in lines) > len(paths) // 2


@pytest.mark.toolchain
@pytest.mark.skipif(
    os.environ.get("TX8FAST_SANITIZE_C") != "1", reason="TX8FAST_SANITIZE_C=1: a build that checks itself"
)
def test_damaged_files_in_a_build_that_checks_itself(sound, tmp_path):
    """Addresses, undefined behaviour, leaks; a worker that is killed and a second thread, too."""
    driver = tmp_path / "driver"
    sources = [str(p) for p in sorted((HOST / "csrc").glob("*.c"))]
    flags = [
        "-std=c11",
        "-O1",
        "-g",
        "-ffp-contract=off",
        "-pthread",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined",
    ]
    subprocess.run(["gcc", *flags, f"-I{HOST / 'include'}", str(ROOT / "tests/support/host_driver.c"), *sources,
                    "-lm", "-o", str(driver)], check=True)  # fmt: skip
    paths = [p for s in sound for p in mutants(s, tmp_path, 400, 2)]
    env = os.environ | {"ASAN_OPTIONS": "allocator_may_return_null=1:max_allocation_size_mb=3000:detect_leaks=1"}
    done = subprocess.run([driver, *map(str, [*sound, *paths])], capture_output=True, text=True, env=env)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (lines[-1:], done.stderr[-4000:])
    assert [line.split()[:2] for line in lines[:2]] == [["0", "0"]] * 2, lines[:2]
    assert lines[-1].startswith("busy ") and lines[-1].endswith("lost 4") and lines[-1] != "busy 0, lost 4"


@pytest.mark.toolchain
@pytest.mark.skipif(
    os.environ.get("TX8FAST_SANITIZE_C") != "1", reason="TX8FAST_SANITIZE_C=1: it takes a while to build"
)
def test_the_compiler_in_the_process(tmp_path):
    """Errors with the command line's text, callbacks that end it, another thread than the first."""
    pybind11 = pytest.importorskip("pybind11")
    make_checkpoint(
        tmp_path / "model", hidden=16, heads=2, kv_heads=1, intermediate=16, vocab=24, layers=1, dtype="bfloat16"
    )
    python, version = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("LDVERSION")
    include = [f"-I{p}" for p in (HOST / "include", pybind11.get_include(), sysconfig.get_path("include"))]
    link = [
        f"-L{HOST / 'lib'}",
        "-ltx8fast",
        f"-Wl,-rpath,{HOST / 'lib'}",
        f"-L{python}",
        f"-lpython{version}",
        f"-Wl,-rpath,{python}",
        "-pthread",
    ]
    subprocess.run(["g++", "-std=c++17", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", *include, str(ROOT / "tests/support/embedded_host.cpp"),
                    "-rdynamic", *link, "-o", str(tmp_path / "host")], check=True)  # fmt: skip
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *(p for p in sys.path if p.endswith("site-packages"))])
    }
    done = subprocess.run([tmp_path / "host", "model"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "10 error: opening model nix: no such file or directory",
        "8 compiling: ended, the callback asked for it",
        "thrown 7",
        "told, ran, 384 bytes of logits",
    ], done.stderr


def worker_error(worker: CWorker, *call: str, **more) -> tuple[str, str]:
    with pytest.raises(HostError) as e:
        worker.call(*call, **more)
    return NAMES[e.value.code], str(e.value)


def test_a_worker_that_is_lost_is_an_error_and_the_next_call_starts_another(tmp_path):
    answers = """read line; test -e "$0" && { echo '{"exit_code": 0, "result": "again"}'; read line; exit; }; : > "$0"; kill -9 $$"""
    worker = CWorker(["sh", "-c", answers, str(tmp_path / "was-here")])
    kind, text = worker_error(worker, "compile", "m")
    assert kind == "worker" and "was ended by signal 9" in text
    assert worker.call("compile", "m") == "again"
    assert worker.close() == 0


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["/nix"], "starting the compiler '/nix': No such file"),
        (["true"], "ended with exit code 0; 'true' should be tx8fast serve --stdio"),
        (["sh", "-c", "read line; echo hello; sleep 60"], "does not speak the protocol"),
        (["sh", "-c", """read line; echo '{"exit_code": 0}'; read line"""], "answer is none"),
    ],
)
def test_what_is_no_worker_is_an_error(command, says):
    worker = CWorker(command)
    kind, text = worker_error(worker, "check", "m")
    assert kind == "worker" and says in text
    worker.close()


def test_the_real_worker(tmp_path):
    """Errors have the command line's text; the worker goes on; progress is told and may end it."""
    worker = CWorker([sys.executable, "-m", "tx8fast", "serve", "--stdio"])
    assert worker_error(worker, "compile", str(tmp_path / "nix"), "-o", "p.tx8") == (
        "compile",
        f"error: opening model {tmp_path / 'nix'}: no such file or directory",
    )
    assert worker_error(worker, "compile", "--nix")[1].startswith("error: No such option '--nix'")
    assert worker_error(worker, "report", "p")[1] == (
        "error: reading a request: found command 'report', required one of check, compile, quit"
    )
    model, out, events = write_mlp(tmp_path / 'm "quoted" \u00e9.onnx'), tmp_path / "p.tx8", []
    result = worker.call("compile", str(model), "-o", str(out), "--standalone", "--opt", "1", event=events.append)
    assert '"launches"' in result and events[0].startswith('{"event": "phase"')
    assert tx8fast.load(out).outputs
    kind, text = worker_error(worker, "compile", str(model), "-o", str(out), event=lambda _: False)
    assert (kind, text) == ("cancelled", "compiling: ended, the callback asked for it")
    assert worker.close() == 0


@pytest.mark.parametrize("more", [("--prove", "--seq", "8"), ("-o", "p.tx8", "--seq", "8,16")])
def test_standalone_needs_a_file_of_one_length(tmp_path, capsys, more):
    found = Caller(capsys)("compile", tmp_path, "--standalone", *more)
    assert found.code == 2 and "--standalone needs -o, and one length" in found.err


def test_serve_needs_to_be_told_where_requests_come_from(capsys):
    found = Caller(capsys)("serve")
    assert found.code == 2 and "--stdio is required" in found.err
