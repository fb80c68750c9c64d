"""Every command that the documentation shows is run, in the order in which a page shows them; the site builds.

Models and sizes are replaced by small ones, so that it is the commands, options and files that are tried.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tx8fast
from tests.support.checkpoints import make_checkpoint
from tests.support.cli_case import Caller

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
#: what a page writes -> what is run
SMALLER = (("--seq 2048", "--seq 16"), ("--past 4096", "--past 16"), ("--seq 512", "--seq 16"), ("meta-llama/", "meta-llama"),
           (" MODEL ", " meta-llama "))  # fmt: skip


def commands(page: Path) -> list[str]:
    """Return the commands in the blocks of a page."""
    found, inside, language = [], False, ""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside, language = not inside, line[3:].strip()
            continue
        text = line.removeprefix("    ") if not inside else line
        shown = inside and language in ("", "sh") or not inside and line.startswith("    ")
        if shown and re.match(r"(\$ )?tx8fast ", text):
            found.append(re.split(r"\s+#\s", text.removeprefix("$ "))[0].strip())
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A directory with every file that some page's commands begin with."""
    folder = tmp_path_factory.mktemp("docs")
    make_checkpoint(folder / "meta-llama", dtype="bfloat16")
    shutil.copy(folder / "meta-llama" / "config.json", folder / "config.json")
    tx8fast.compile(folder / "meta-llama", seq=16, opt=1).save(folder / "before.tx8")
    np.savez(folder / "in.npz", input_ids=np.zeros((1, 16), np.int64))
    (folder / "manifest.toml").write_text('schema = 1\n[[model]]\nsource = "meta-llama"\nseq = 16\n')
    shutil.copy(ROOT / "tests/data/onnx/llama-prefill-op20.onnx", folder)
    shutil.copy(ROOT / "tests/data/measurements.csv", folder)
    return folder


@pytest.fixture
def here(place: Path, tmp_path: Path, monkeypatch) -> Path:
    shutil.copytree(place, tmp_path / "w")
    monkeypatch.chdir(tmp_path / "w")
    monkeypatch.setenv("TX8FAST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "w"


def prepared(tx8: Caller, page: Path) -> None:
    """Make what the pages that build on the tour find there."""
    if page.name in ("reports.md", "calibration.md", "adding.md"):
        assert tx8("bench", "--write-zoo", "zoo").code == 0
        for extra, name in (((), "prefill.tx8"), (("--opt", "1"), "single.tx8")):
            assert tx8("compile", "meta-llama", "--seq", "16", *extra, "-o", name).code == 0
    if page.name == "README.md":
        Path("graph.mlir").write_text(tx8("compile", "meta-llama", "--seq", "16", "--stop-after", "import").out)


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=lambda p: p.name)
@pytest.mark.slow(but_every=5)
def test_commands(page: Path, here: Path, capsys) -> None:
    tx8 = Caller(capsys)
    prepared(tx8, page)
    for line in commands(page):
        small = f"{line} "
        for long, short in SMALLER:
            small = small.replace(long, short)
        text, _, target = small.partition(" > ")
        argv = [a for a in shlex.split(text)[1:] if a != "--resume"]  # nothing has begun yet
        done = tx8(*argv)
        assert done.code == 0, f"{line}: {done.err}"
        if target:
            Path(target.strip()).write_text(done.out)


@pytest.mark.slow
def test_python_of_the_readme_and_its_page(here: Path) -> None:
    """The page's blocks run as they are, behind the tour's first command; the names are all that the package has."""
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    assert all(f"`tx8fast.{name}" in page for name in tx8fast.__all__ if not name.startswith("_"))
    fields = re.findall(r"`(\w+)`", page[page.index("`tx8fast.CompileOptions`") :].split("\n")[0])
    assert set(fields) == set(tx8fast.CompileOptions.__dataclass_fields__)
    from tx8fast.zoo import write_zoo

    write_zoo(here / "zoo")
    block, kernel = re.findall(r"```python\n(.*?)```", page, re.S)
    exec(compile(kernel, "docs/python.md", "exec"), {})
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "docs/python.md", "exec"), {})
    assert int(printed.getvalue().split()[0]) > 0


def test_every_page_is_in_the_site() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert sorted(re.findall(r"(\w[\w-]*\.md)", nav)) == sorted(p.name for p in PAGES if p.name != "README.md")


def test_site_builds(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed; `make docs` builds the site")
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path / "site")], cwd=ROOT,
                          capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_table_of_a_page_is_that_of_the_losses() -> None:
    from tx8fast.simulator.losses import LOSSES

    page = (ROOT / "docs/reports.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| ([a-z ]+) \| (?!means)", page, re.M)) == {n.replace("_", " ") for n in (*LOSSES, "cut")}


def test_the_table_of_methods_names_what_there_is() -> None:
    from tx8fast.cli.compile import compile_
    from tx8fast.cli.search import RECORDS

    page = (ROOT / "docs/scheduling.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (?!method)(.+?) \| (.+?) \| (.*?) ?\| (.+?) \|$", page.partition("## Order of instr")[0], re.M
    )
    assert len(rows) > 10
    options = {name for p in compile_.params for name in (*p.opts, *p.secondary_opts)}
    shown = set()
    for method, where, chosen, seen in rows:
        for module in re.findall(r"`([\w/]+\.py)`", where):
            assert (ROOT / "tx8fast" / module).is_file(), f"{method}: {module}"
        for kernel in re.findall(r"kernel `(\w+)`", where):
            assert (ROOT / f"tx8fast/_kernels/{kernel}.pyx").is_file(), f"{method}: {kernel}"
        assert {text.split()[0] for text in re.findall(r"`(--[\w -]+)`", chosen + seen)} <= options, method
        shown.update(re.findall(r"--show (\w+)", seen))
    assert shown == set(RECORDS)
