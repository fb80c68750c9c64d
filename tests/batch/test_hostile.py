"""Manifests, caches and disks that work against a batch: refused or told, nothing lost, and two batches that share a cache."""

from __future__ import annotations

import resource
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.batch import test_batch as batch
from tests.batch.test_batch import environment, tree, zoo  # noqa: F401 (a fixture)
from tests.support.cli_case import Caller
from tests.support.rights import permissions_count
from tx8fast.batch.cache import Cache
from tx8fast.batch.manifest import read_manifest
from tx8fast.batch.work import run_job
from tx8fast.errors import ConfigError


def run(*args: str, limit_bytes: int | None = None) -> subprocess.CompletedProcess[str]:
    def limited() -> None:
        if limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    return subprocess.run(args, env=environment(), capture_output=True, text=True, preexec_fn=limited)


def command(manifest: Path, out: Path, cache: Path) -> list[str]:
    return [*batch.command(manifest, out, cache), "-j", "1"]


@pytest.fixture
def good(zoo: Path, tmp_path: Path) -> Path:  # noqa: F811
    """A manifest of three models, none of them broken."""
    path = zoo.parent / "good.toml"
    path.write_text('schema = 1\n[[model]]\nsource = "net*.onnx"\ndtype = "bf16"\n')
    return path


@pytest.mark.parametrize("includes", [1, 2])
def test_includes_without_end(tmp_path: Path, includes: int) -> None:
    """A long chain, and files that include the next one twice."""
    for i in range(60):
        names = ", ".join([f'"{i + 1}.toml"'] * includes)
        (tmp_path / f"{i}.toml").write_text(f"schema = 1\ninclude = [{names}]\n")
    (tmp_path / "60.toml").write_text("schema = 1\n")
    with pytest.raises(ConfigError, match="files are included, or more than 20 deep"):
        read_manifest(tmp_path / "0.toml")


def test_a_wide_tree_of_includes(tmp_path: Path) -> None:
    for i in range(12):
        (tmp_path / f"{i}.toml").write_text(f'schema = 1\ninclude = ["{i + 1}.toml", "{i + 1}.toml"]\n')
    (tmp_path / "12.toml").write_text("schema = 1\n")
    with pytest.raises(ConfigError, match="more than 1,000 files"):
        read_manifest(tmp_path / "0.toml")


def test_places_that_cannot_be_written(good: Path, tmp_path: Path) -> None:
    """Output below a file is refused; a cache that is a file is told, and the batch goes on without it."""
    (tmp_path / "file").write_text("mine")
    refused = run(*command(good, tmp_path / "file" / "out", tmp_path / "cache"))
    assert refused.returncode == 2 and "writing a batch to" in refused.stderr and "Traceback" not in refused.stderr
    done = run(*command(good, tmp_path / "out", tmp_path / "file"))
    assert done.returncode == 0 and "--no-cache does without" in done.stderr, done.stderr
    assert (tmp_path / "file").read_text() == "mine" and len(list(tmp_path.glob("out/programs/*.tx8"))) == 3


@pytest.mark.slow
def test_a_full_disk_and_then_room(good: Path, tmp_path: Path) -> None:
    """Programs that do not fit are told and leave nothing; with room, --resume makes what an undisturbed batch makes."""
    batch.run(good, tmp_path / "whole")
    full = run(*command(good, tmp_path / "out", tmp_path / "c1"), limit_bytes=6000)
    assert full.returncode == 2 and "File too large" in full.stderr and "Traceback" not in full.stderr, full.stderr
    assert not list(tmp_path.glob("out/programs/*.tx8")) and not list(tmp_path.glob("out/programs/.*"))
    batch.run(good, tmp_path / "out", resume=True)
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


def test_tables_that_cannot_be_written_are_shown(good: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    batch.run(good, out)
    (out / "results.md").unlink()
    (out / "results.md").mkdir()
    told = Caller(capsys)("batch", good, "-o", out, "--resume", "--no-cache")
    assert told.code == 2 and "error: writing results" in told.err and told.out.count("done") == 3


def test_two_batches_at_once_share_a_cache(good: Path, tmp_path: Path) -> None:
    both = [subprocess.Popen(command(good, tmp_path / name, tmp_path / "cache"), env=environment(), stderr=subprocess.PIPE, text=True,
                             stdout=subprocess.DEVNULL) for name in ("one", "two")]  # fmt: skip
    assert [p.wait(120) for p in both] == [0, 0]
    assert not any("damaged" in (p.stderr.read() if p.stderr else "") for p in both)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    _, outcomes = batch.run(good, tmp_path / "three", tmp_path / "cache")
    assert all(o.from_cache for o in outcomes) and tree(tmp_path / "three") == tree(tmp_path / "one")


@pytest.mark.parametrize(
    ("locked", "mode", "asked"),
    [
        ("v1", 0, "net0"),
        ("v1/entry/??/*", 0, "net0"),
        ("v1/object/??/*", 0, "net0"),
        ("v1/plans", 0, "net1"),
        ("v1/groups", 0, "net1"),
        ("v1/groups/??/*", 0, "net0"),
        ("v1/*", 0o555, "net1"),
    ],
)
@pytest.mark.slow(but_every=5)
def test_a_cache_that_is_not_ours(good: Path, tmp_path: Path, locked: str, mode: int, asked: str) -> None:
    """Folders that may not be listed or written, files that may not be read: told, and the programs are the same."""
    jobs = {j.name: j for j in read_manifest(good)}
    cache = tmp_path / "cache", 1 << 30
    run_job(jobs["net0"], tmp_path / "kept", cache)
    if locked.startswith("v1/groups"):  # else they are not asked
        for folder in ("entry", "plans"):
            shutil.rmtree(cache[0] / "v1" / folder)
    places = list(cache[0].glob(locked))
    for place in places:
        place.chmod(mode)
    try:
        with permissions_count() as counts:
            if not counts:
                pytest.skip("files have no permissions for this user")
            made = run_job(jobs[asked], tmp_path / "out", cache)
    finally:
        for place in places:
            place.chmod(0o755)
    assert made.status == "done" and any("cannot be read" in x or "--no-cache" in x for x in made.log), made
    run_job(jobs[asked], tmp_path / "alone", None)
    assert tree(tmp_path / "out") == tree(tmp_path / "alone")


def test_nothing_is_removed_for_what_may_not_be_read(good: Path, tmp_path: Path, capsys) -> None:
    """A program whose entry is hidden from us may be somebody else's."""
    (job,) = (j for j in read_manifest(good) if j.name == "net0")
    run_job(job, tmp_path / "out", (tmp_path / "cache", 1 << 30))
    kept = tree(tmp_path / "cache")
    (entry,) = tmp_path.glob("cache/v1/entry/??/*")
    entry.chmod(0)
    with permissions_count() as counts:
        if not counts:
            pytest.skip("files have no permissions for this user")
        Cache(tmp_path / "cache").collect()
        told = Caller(capsys)("cache", "ls", "--cache-dir", tmp_path / "cache")
    entry.chmod(0o644)
    assert tree(tmp_path / "cache") == kept
    assert told.code == 0 and "1 files or folders of the cache cannot be read, such as" in told.err
