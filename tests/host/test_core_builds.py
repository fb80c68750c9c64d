"""The core built by other compilers and with other flags gives the same bytes, on any settings of the matrix library.

TX8FAST_BUILDS=1 (`make test-builds`): every compiler there is, with more flags, over more models; TX8FAST_SANITIZE_C=1 (`make
test-core`): also a build that checks itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.checkpoints import make_checkpoint
from tests.support.corpus import DATA, MODELS, exported, family, small_cnn
from tx8fast import api
from tx8fast.machine import load_machine
from tx8fast.options import CompileOptions

ROOT = Path(__file__).resolve().parents[2]
HOST = ROOT / "tx8fast" / "host"
STRICT = ["-std=c11", "-ffp-contract=off", "-pthread", "-fPIC", "-Wall", "-Wextra", "-Werror"]
CHECKED = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
#: what builds are compared by: functions of the vector engine, products of every format, calls of every routine, a compiled model
CHILD = """
import importlib.util, sys
from hashlib import sha256
if len(sys.argv) > 2:
    spec = importlib.util.spec_from_file_location("tx8fast.host._core", sys.argv[2])
    sys.modules["tx8fast.host._core"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["tx8fast.host._core"])
import numpy as np
import tx8fast
from tx8fast import isa
from tx8fast.host import core
assert len(sys.argv) < 3 or core._core.__file__ == sys.argv[2]
rng = np.random.default_rng(0)
spm = rng.integers(0, 256, 1 << 20).astype(np.uint8)
tile = core.CoreTile(spm, np.zeros(4096, np.uint8), 4096)
rows = []
for name, cls in isa.INSTRUCTIONS.items():
    if name.endswith("_v") and not name.startswith("bool"):
        for fmt in ("f32", "f16", "bf16"):
            for rnd in (0, 3, 4):
                rows.append(isa.make(name, fmt=fmt, rnd=rnd, src0=0, dst=0x80000 + 0x400 * len(rows) % 0x40000, n=200))
for fmt in ("bf16", "f16", "f32", "tf32", "i8"):
    for turned in (0, 1):
        rows.append(isa.make("gemm", left=0, right=0x8000, out=0xC0000 + 0x3000 * len(rows) % 0x30000, m=17, k=90, n=40, fmt=fmt,
                             r_trs=turned, out_fmt=5))
tile.load(isa.rows(rows), np.zeros(len(rows), np.int64), ())
assert tile.run(0, len(rows)) == len(rows)
from support.routine_calls import draw
from support.routine_runs import by_core
from tx8fast.isa.routines import ROUTINES
calls = sha256()
for k, name in enumerate(ROUTINES):
    for seed in range(3):
        for x in by_core(draw(name, np.random.default_rng([seed, k])), seed == 2)[0]:
            calls.update(x.tobytes())
print(sha256(spm.tobytes()).hexdigest(), calls.hexdigest())
from tests.simulator.planting import feed_of
for path in sys.argv[1].split(","):
    made = tx8fast.load(path)
    feed = feed_of(made.program)
    found = set()
    for level in range(core.LEVELS):  # how many there are depends on the compiler
        core.use_level(level)
        for threads in (1, 2):
            found.add(" ".join(sha256(x.tobytes()).hexdigest() for x in made.run(feed, threads=threads).values()))
    print(*found, sep=", ")
"""


ALL = os.environ.get("TX8FAST_BUILDS") == "1"
CHECKS = os.environ.get("TX8FAST_SANITIZE_C") == "1"


def compilers() -> dict[str, list[str]]:
    """Return the compilers of C that there are, by name."""
    found = {name: [path] for name in ("gcc", "clang") if (path := shutil.which(name))}
    if "clang" not in found and find_spec("ziglang"):
        found["clang"] = [sys.executable, "-m", "ziglang", "cc", "-fno-sanitize=all"]
    return found


#: hardly optimised, but with all that this processor has, fused multiply-add included; for any processor; without wide vectors
FLAGS = [["-O1", "-march=native"], ["-O3"], ["-O3", "-march=native", "-mno-avx512f"], ["-O0"]]
BUILDS = [(name, flags) for name in compilers() for flags in FLAGS]


def build(folder: Path, compiler: list[str], flags: list[str]) -> Path:
    """Return the extension, built in `folder`."""
    wrapper, out = folder / "_core.c", folder / "_core.so"
    subprocess.run([sys.executable, "-m", "cython", "-3", str(HOST / "_core.pyx"), "-o", str(wrapper)], check=True)
    sources = sorted(str(p) for p in (HOST / "csrc").glob("*.c") if not p.name.startswith("tx8_"))
    include = [f"-I{HOST / 'csrc'}", f"-I{sysconfig.get_path('include')}"]
    objects = []
    for source in sources:
        objects.append(str(folder / (Path(source).stem + ".o")))
        subprocess.run([*compiler, *flags, *STRICT, *include, "-c", source, "-o", objects[-1]], check=True)
    # the run-time library of ziglang knows no processor, and would take the narrowest vectors
    link = ["gcc"] if "ziglang" in compiler and shutil.which("gcc") else [*compiler, *flags]
    subprocess.run(
        [*link, "-fPIC", "-w", "-pthread", "-shared", *include, str(wrapper), *objects, "-o", str(out)], check=True
    )
    return out


def outcome(models: str, extension: Path | None = None, **env: str) -> str:
    call = [sys.executable, "-W", "ignore", "-c", CHILD, models, *([str(extension)] if extension else [])]
    done = subprocess.run(
        call,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))} | env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> str:
    import tx8fast

    folder = tmp_path_factory.mktemp("model")
    make_checkpoint(folder, hidden=64, heads=4, kv_heads=2, intermediate=96, vocab=50, layers=1, dtype="bfloat16")
    made = {"layer": tx8fast.compile(folder, phase="prefill", seq=6, embed_limit_bytes=1 << 30)}
    if ALL:
        for name, program in {
            **{name: exported(name) for name in MODELS[::3]},
            **{name: family(folder, name) for name in ("mixtral", "deepseek_v3", "bert")},
            "cnn": small_cnn(folder),
        }.items():
            root = folder / name if (folder / name).is_dir() else folder if name == "cnn" else DATA / "onnx"
            made[name] = api.compile_ir(program, load_machine("tx8"), CompileOptions(), root)
    for name, one in made.items():
        one.save(folder / f"{name}.tx8", standalone=True)
    return ",".join(str(folder / f"{name}.tx8") for name in made)


@pytest.fixture(scope="module")
def usual(models) -> str:
    return outcome(models)


@pytest.mark.toolchain
@pytest.mark.skipif(not BUILDS, reason="no C compiler")
@pytest.mark.parametrize(("name", "flags"), BUILDS if ALL else BUILDS[-len(FLAGS) :][:1], ids=str)
@pytest.mark.slow
def test_another_build_gives_the_same_bytes(models, usual, tmp_path, name, flags):
    assert outcome(models, build(tmp_path, compilers()[name], flags)) == usual


def test_no_byte_depends_on_the_matrix_library(models, usual):
    """Settings under which OpenBLAS takes other kernels, and numpy leaves wide vectors alone."""
    few = not (ALL or CHECKS)
    cores = ("Prescott", "Zen") if few else ("Prescott", "Haswell", "Zen", "SkylakeX")
    features = "AVX512F AVX512_SKX"
    found = [
        outcome(models, OPENBLAS_CORETYPE=core, NPY_DISABLE_CPU_FEATURES=features * (core == "Zen")) for core in cores
    ]
    assert {*found} == {usual}


@pytest.mark.toolchain
@pytest.mark.skipif(not CHECKS, reason="TX8FAST_SANITIZE_C=1: a build that checks itself")
def test_a_build_that_checks_itself(models, usual, tmp_path):
    """Addresses and undefined behaviour."""
    extension = build(tmp_path, ["gcc"], CHECKED)
    name = subprocess.run(["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True).stdout
    found = outcome(models, extension, LD_PRELOAD=name.strip(), ASAN_OPTIONS="detect_leaks=0")
    assert found == usual
