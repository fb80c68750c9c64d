"""Emitted C: the C model as a library that is built once per text of its sources, programs compiled against it and run."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path

import numpy as np

from tests.support.sanitized import ASKED, FLAGS, OPTIONS
from tx8fast.api import CompiledProgram
from tx8fast.codegen.files import MODEL
from tx8fast.program.model import Program

ROOT = Path(__file__).resolve().parents[2]


def _compiler(variable: str, usual: str) -> list[str]:
    """Return the command that a variable names, or the usual one; empty if there is none."""
    return shlex.split(os.environ.get(variable, "")) or [path for path in (shutil.which(usual),) if path]


CC, CXX = _compiler("TX8FAST_CC", "cc"), _compiler("TX8FAST_CXX", "c++")
EXACT = ["-std=c11", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-pthread"]
STRICT = ["-Wall", "-Wextra", "-Werror", os.environ.get("TX8FAST_C_LEVEL", "-O0")]
#: with TX8FAST_SANITIZE_C the model and the program check themselves
MORE = FLAGS.get(ASKED, [])


def model_library(sources: Path) -> Path:
    """Return the directory that holds the built model of these sources; a build of equal sources is used again."""
    texts = sorted(sources.glob("*.[ch]"))
    key = sha256(b"".join(p.read_bytes() for p in texts) + repr((CC, EXACT, STRICT, MORE)).encode()).hexdigest()[:16]
    place = ROOT / "build" / "c_model" / key
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as made:
        names = [str(p) for p in texts if p.suffix == ".c"]
        subprocess.run([*CC, *EXACT, *STRICT, *MORE, "-c", *names], check=True, cwd=made)
        objects = sorted(p.name for p in Path(made).glob("*.o"))
        subprocess.run(["ar", "rcs", "libtx8_model.a", *objects], check=True, cwd=made)
        try:
            os.rename(shutil.copytree(made, f"{made}.done"), place)
        except OSError:  # another process was faster
            shutil.rmtree(f"{made}.done")
    return place


def compile_c(folder: Path, cxx: bool = False) -> Path:
    """Return the program of an emitted directory, compiled as C11 or as C++17, without a warning."""
    library = model_library(folder / MODEL)
    language = [*CXX, "-x", "c++", "-std=c++17"] if cxx else [*CC, "-std=c11"]
    out = folder / ("program_cxx" if cxx else "program")
    sources = [str(p) for p in sorted(folder.glob("*.c"))]
    link = ["-x", "none", str(library / "libtx8_model.a"), "-lm", "-pthread"]
    subprocess.run([*language, *STRICT, *MORE, f"-I{MODEL}", *sources, "-o", str(out), *link], check=True, cwd=folder)
    return out


def run_c(program: Path) -> subprocess.CompletedProcess[str]:
    env = os.environ | OPTIONS
    return subprocess.run(
        [str(program)], cwd=program.parent, capture_output=True, text=True, timeout=600 if MORE else 60, env=env
    )


def figures(text: str) -> dict[str, tuple[int, int]]:
    """Return unit -> (instructions, cycles) as the program prints them."""
    out = {}
    for line in text.splitlines():
        unit, _, rest = line.partition(": ")
        words = rest.split()
        if words[1:2] == ["instructions,"]:
            out[unit] = int(words[0]), int(words[2])
    return out


def check_c(made: CompiledProgram | Program, folder: Path, feed: dict[str, np.ndarray], cxx: bool = False) -> str:
    """Emit a program with a test case, compile and run it; every output must be that of `Program.run`. Returns what it prints."""
    made = CompiledProgram(made) if isinstance(made, Program) else made
    made.emit_c(folder, inputs=feed)
    ran = run_c(compile_c(folder, cxx))
    assert ran.returncode == 0 and not ran.stderr, ran.stdout + ran.stderr
    chips = made.program.n_chips
    assert ran.stdout.count(": as expected\n") == chips * len(made.outputs) > 0
    want = made.run(feed)
    for k, t in enumerate(made.outputs):
        assert (folder / f"out_{k}.bin").stat().st_size == chips * t.size_bytes
        if t.layout == "dense" and t.dtype == t.ddr_dtype:
            own = want[t.name].nbytes // chips
            got = np.fromfile(folder / f"out_{k}.bin", np.uint8).reshape(chips, -1)[:, :own]
            assert got.tobytes() == np.ascontiguousarray(want[t.name]).tobytes(), t.name
    return ran.stdout
