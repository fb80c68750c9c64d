"""The core built by other compilers and with other flags gives the same bytes; with TX8FAST_SANITIZE_C=1 also a build that checks itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.checkpoints import make_checkpoint

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
made = tx8fast.load(sys.argv[1])
outs = made.run({t.name: np.arange(6).reshape(t.shape) % 5 for t in made.inputs})
print(sha256(spm.tobytes()).hexdigest(), calls.hexdigest(), *(sha256(x.tobytes()).hexdigest() for x in outs.values()))
"""


def build(folder: Path, compiler: str, flags: list[str]) -> Path:
    """Return the extension, built in `folder`."""
    wrapper, out = folder / "_core.c", folder / "_core.so"
    subprocess.run([sys.executable, "-m", "cython", "-3", str(HOST / "_core.pyx"), "-o", str(wrapper)], check=True)
    sources = sorted(str(p) for p in (HOST / "csrc").glob("*.c") if not p.name.startswith("tx8_"))
    include = [f"-I{HOST / 'csrc'}", f"-I{sysconfig.get_path('include')}"]
    objects = []
    for source in sources:
        objects.append(str(folder / (Path(source).stem + ".o")))
        subprocess.run([compiler, *flags, *STRICT, *include, "-c", source, "-o", objects[-1]], check=True)
    subprocess.run(
        [compiler, *flags, "-fPIC", "-w", "-pthread", "-shared", *include, str(wrapper), *objects, "-o", str(out)],
        check=True,
    )
    return out


def outcome(model: Path, extension: Path | None = None, **env: str) -> str:
    call = [sys.executable, "-W", "ignore", "-c", CHILD, str(model), *([str(extension)] if extension else [])]
    done = subprocess.run(
        call,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))} | env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    import tx8fast

    folder = tmp_path_factory.mktemp("model")
    make_checkpoint(folder, hidden=64, heads=4, kv_heads=2, intermediate=96, vocab=50, layers=1, dtype="bfloat16")
    tx8fast.compile(folder, phase="prefill", seq=6, embed_limit_bytes=1 << 30).save(folder / "a.tx8")
    return folder / "a.tx8"


@pytest.mark.toolchain
def test_another_build_gives_the_same_bytes(model, tmp_path):
    """Hardly optimised, but with all that this processor has: fused multiply-add included."""
    compiler = shutil.which("clang") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    assert outcome(model, build(tmp_path, compiler, ["-O1", "-march=native"])) == outcome(model)


def test_no_byte_depends_on_the_matrix_library(model):
    """Settings under which OpenBLAS takes other kernels, and numpy leaves wide vectors alone."""
    few = os.environ.get("TX8FAST_SANITIZE_C") != "1"
    cores = ("Prescott", "Zen") if few else ("Prescott", "Haswell", "Zen", "SkylakeX")
    features = "AVX512F AVX512_SKX"
    found = [
        outcome(model, OPENBLAS_CORETYPE=core, NPY_DISABLE_CPU_FEATURES=features * (core == "Zen")) for core in cores
    ]
    assert len({*found}) == 1


@pytest.mark.toolchain
@pytest.mark.skipif(
    os.environ.get("TX8FAST_SANITIZE_C") != "1", reason="TX8FAST_SANITIZE_C=1: a build that checks itself"
)
def test_a_build_that_checks_itself(model, tmp_path):
    """Addresses and undefined behaviour."""
    extension = build(tmp_path, "gcc", CHECKED)
    name = subprocess.run(["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True).stdout
    found = outcome(model, extension, LD_PRELOAD=name.strip(), ASAN_OPTIONS="detect_leaks=0")
    assert found == outcome(model)
