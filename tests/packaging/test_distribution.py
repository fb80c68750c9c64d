"""What users get: the wheel built from the source distribution has every kernel and data file, and a C++ host is built with it."""

import ast
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.support.checkpoints import make_checkpoint
from tests.support.thorough import THOROUGH

ROOT = Path(__file__).resolve().parent.parent.parent


def kernels() -> tuple[str, ...]:
    tree = ast.parse((ROOT / "setup.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "KERNELS":
            return ast.literal_eval(node.value)
    raise AssertionError("setup.py has no KERNELS")


def run(*command: str, cwd: Path, **more: str) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith("TX8FAST_")} | {"CFLAGS": "-O0"} | more
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.toolchain
@pytest.mark.skipif(not (THOROUGH or os.environ.get("TX8FAST_PACKAGE")), reason="takes a minute: make test-package")
def test_wheel_from_sdist_is_complete(tmp_path: Path) -> None:
    # The tree is copied first: egg-info and build directories of the checkout stay untouched.
    source = tmp_path / "source"
    source.mkdir()
    run("git", "init", "--quiet", ".", cwd=source)
    shutil.copytree(ROOT / "examples", source / "examples")
    names = ["pyproject.toml", "setup.py", "MANIFEST.in", "Makefile", "README.md", "CHANGELOG.md", "LICENSE"]
    for name in names:
        if (ROOT / name).exists():
            (source / name).write_bytes((ROOT / name).read_bytes())
    for path in (ROOT / "tx8fast").rglob("*"):
        if path.is_file() and path.suffix not in {".so", ".pyc"}:
            target = source / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    build = (sys.executable, "-m", "build", "--no-isolation")
    run(*build, "--sdist", "--outdir", str(tmp_path), ".", cwd=source)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
        archive.extractall(tmp_path / "unpacked", filter="data")
    sources = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tx8fast").rglob("*")
        if path.suffix in {".py", ".pyx", ".pxd", ".pyi", ".toml", ".h", ".hpp", ".c", ".cpp", ".cmake", ".pc"}
    }
    assert sources - packed == set()

    (unpacked,) = (tmp_path / "unpacked").iterdir()
    run(*build, "--wheel", "--outdir", str(tmp_path), ".", cwd=unpacked)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    for kernel in kernels():
        built = [n for n in inside if n.startswith(f"tx8fast/_kernels/{kernel}.") and n.endswith(".so")]
        assert len(built) == 1, f"kernel {kernel} is missing from the wheel"
    assert len([n for n in inside if n.startswith("tx8fast/host/_core.") and n.endswith(".so")]) == 1
    data = {name for name in sources if name.endswith((".toml", ".pyi", ".py"))}
    assert data - inside == set()
    assert not [n for n in inside if n.endswith(".pyx") or n.startswith(("tests/", "build/"))]
    # sources of C go along where emitted programs need them, and nowhere else
    assert {n for n in inside if n.endswith(".c")} == {n for n in sources if n.endswith(".c") and "/csrc/" in n}
    assert any(n.endswith("entry_points.txt") for n in inside)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for name in ("cmake/tx8fast/tx8fastConfigVersion.cmake", "pkgconfig/tx8fast.pc"):
        assert version in (ROOT / "tx8fast/host/share" / name).read_text()
    public = {n for n in sources if n.startswith(("tx8fast/host/include/", "tx8fast/host/share/"))}
    assert len(public) == 6 and public | {"tx8fast/host/lib/libtx8fast.so"} <= inside
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    a_host_is_built_and_runs(tmp_path / "site", unpacked / "examples" / "cpp_host", tmp_path / "empty")
    if shutil.which("make"):
        a_program_in_c_is_built_and_runs(tmp_path / "site", unpacked / "examples" / "c_program")


def a_host_is_built_and_runs(site: Path, example: Path, empty: Path) -> None:
    """The example of the source distribution, with nothing but what is installed at `site`, in an empty directory."""
    make_checkpoint(
        empty / "model", hidden=16, heads=2, kv_heads=1, intermediate=16, vocab=24, layers=1, dtype="bfloat16"
    )
    python = {"PYTHONPATH": str(site)}
    where = {
        name: run(sys.executable, "-m", "tx8fast", f"--{name}-dir", cwd=empty, **python).strip()
        for name in ("include", "cmake", "pkgconfig")
    }
    assert all(path.startswith(str(site)) for path in where.values())
    if shutil.which("cmake"):
        run("cmake", "-S", str(example), "-B", "built", f"-Dtx8fast_DIR={where['cmake']}", cwd=empty)
        run("cmake", "--build", "built", cwd=empty)
    if shutil.which("pkg-config"):
        flags = run(
            "pkg-config", "--cflags", "--libs", "tx8fast", cwd=empty, PKG_CONFIG_PATH=where["pkgconfig"]
        ).split()
    else:
        flags = [f"-I{where['include']}", "-L", lib := f"{where['include']}/../lib", "-ltx8fast", f"-Wl,-rpath,{lib}"]
    if not (empty / "built" / "cpp_host").exists():
        (empty / "built").mkdir()
        run("c++", "-std=c++17", str(example / "main.cpp"), *flags, "-o", "built/cpp_host", cwd=empty)
    said = run("built/cpp_host", "model", sys.executable, cwd=empty, **python)
    assert said.startswith("compiled, and told how far it was\n") and "launches; the next token is" in said
    for text in ("estimate_cycles", "weight_bytes", "useful_macs"):
        assert text in said


def a_program_in_c_is_built_and_runs(site: Path, example: Path) -> None:
    """The example's program is emitted by what is installed, whose sources of the C model go along."""
    said = run("make", "run", "CFLAGS=-O0", f"TX8FAST={sys.executable} -m tx8fast", cwd=example, PYTHONPATH=str(site))
    assert "softmax of 175 numbers: the first are " in said and "their sum is 1.0000" in said
