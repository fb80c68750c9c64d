"""Every small model of the corpus through the host library, and the examples, in builds that check themselves and under Valgrind.

The default suite does none of this; `make test-sanitized` does."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tests.codegen.test_corpus_c import FAMILIES, GRAPHS, opened
from tests.support.checkpoints import make_checkpoint
from tests.support.corpus import DATA
from tests.support.sanitized import ASKED, FLAGS, OPTIONS, VALGRIND
from tx8fast import api
from tx8fast.machine import load_machine
from tx8fast.options import CompileOptions

ROOT = Path(__file__).resolve().parents[2]
HOST = ROOT / "tx8fast" / "host"
TOOL = FLAGS.get(ASKED)
EXACT = ["-std=c11", "-O1", "-g", "-ffp-contract=off", "-pthread", f"-I{HOST / 'include'}"]
#: the ways of compiling, one after the other over the models
WAYS = [(opt, sharing) for opt in (2, 1, 3) for sharing in (True, False)]

pytestmark = [
    pytest.mark.toolchain,
    pytest.mark.slow,
    pytest.mark.skipif(ASKED not in ("1", "thread", "valgrind"), reason="TX8FAST_SANITIZE_C: make test-sanitized"),
    pytest.mark.skipif(ASKED == "valgrind" and not VALGRIND[0], reason="no Valgrind"),
]


def checked(command: list[str | Path], cwd: Path, **env: str) -> str:
    """Run a program under what is asked for; nothing may be found. Returns what it prints."""
    under = VALGRIND if ASKED == "valgrind" else []
    done = subprocess.run(
        [*under, *map(str, command)], cwd=cwd, capture_output=True, text=True, env=os.environ | OPTIONS | env
    )
    assert done.returncode == 0, (
        f"{command[:1]}: exit code {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-6000:]}"
    )
    return done.stdout


@pytest.fixture(scope="module")
def driver(tmp_path_factory) -> Path:
    """The host library with a program that opens and runs files, in two threads."""
    out = tmp_path_factory.mktemp("driver") / "driver"
    sources = [str(p) for p in sorted((HOST / "csrc").glob("*.c"))]
    driver = str(ROOT / "tests/support/host_driver.c")
    subprocess.run(["gcc", *EXACT, *(TOOL or []), driver, *sources, "-lm", "-o", str(out)], check=True)
    return out


@pytest.mark.parametrize("number", range(6))
def test_every_model_of_the_corpus(driver, tmp_path, number):
    paths = []
    for k, name in list(enumerate((*GRAPHS, *FAMILIES)))[number::6]:
        opt, sharing = WAYS[k // 6 % len(WAYS)]
        root = DATA / ("onnx" if name.endswith(".onnx") else "stablehlo") if "." in name else tmp_path / name.split()[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options = CompileOptions(opt=opt, sharing=sharing)
            made = api.compile_ir(
                opened(name, tmp_path), load_machine("tx8"), options, root if root.is_dir() else tmp_path
            )
        paths.append(tmp_path / f"{name}.tx8")
        made.save(paths[-1], standalone=True)
    lines = checked([driver, *paths], tmp_path).splitlines()
    assert [(p.name, *line.split()[:2]) for p, line in zip(paths, lines)] == [(p.name, "0", "0") for p in paths]


def test_the_example_of_a_host_in_cpp(driver, tmp_path):
    make_checkpoint(
        tmp_path / "model", hidden=16, heads=2, kv_heads=1, intermediate=16, vocab=24, layers=1, dtype="bfloat16"
    )
    objects = [tmp_path / f"{p.stem}.o" for p in sorted((HOST / "csrc").glob("*.c"))]
    subprocess.run(["gcc", *EXACT, *(TOOL or []), "-c", *sorted((HOST / "csrc").glob("*.c"))], check=True, cwd=tmp_path)
    main = ROOT / "examples" / "cpp_host" / "main.cpp"
    subprocess.run(["g++", "-std=c++17", "-g", *(TOOL or []), f"-I{HOST / 'include'}", main, *objects, "-pthread", "-o", "host"],
                   check=True, cwd=tmp_path)  # fmt: skip
    said = checked([tmp_path / "host", "model", sys.executable], tmp_path, PYTHONPATH=str(ROOT))
    assert said.startswith("compiled, and told how far it was\n") and "launches; the next token is" in said


def test_the_example_of_a_program_in_c(tmp_path):
    for name in ("host.c", "Makefile"):
        (tmp_path / name).write_bytes((ROOT / "examples" / "c_program" / name).read_bytes())
    flags = " ".join(["-O1", "-g", *(TOOL or [])])
    make = ["make", "host", f"CFLAGS={flags}", f"TX8FAST={sys.executable} -m tx8fast"]
    subprocess.run(make, check=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True)
    said = checked([tmp_path / "host"], tmp_path)
    assert "softmax of 175 numbers: the first are " in said and "their sum is 1.0000" in said
