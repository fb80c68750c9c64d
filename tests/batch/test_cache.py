"""The cache of programs: hits, misses and their reasons, damage, what is removed first, two at once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.cli_case import Caller, refused
from tests.support.cnn_models import CnnBuilder
from tx8fast.batch.cache import Cache
from tx8fast.batch.fingerprint import Read, bytes_digest, digest, fingerprint
from tx8fast.batch.manifest import read_manifest
from tx8fast.batch.work import run_job
from tx8fast.options import CompileOptions


@pytest.fixture
def model(tmp_path: Path) -> Path:
    b = CnnBuilder()
    out = b.node("Relu", b.conv("x", 3, 8, 3))
    return b.save(tmp_path / "net.onnx", (1, 3, 8, 8), out, (1, 8, 8, 8))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "p.tx8"
    path.write_bytes(b"program" * 100)
    return path


def keep(cache: Cache, program: Path, name: str = "a", reads: tuple[Read, ...] = ()) -> dict[str, str]:
    fields = {"name": name}
    cache.put(fields, reads, program, {"cycles": 1})
    return fields


def test_what_is_kept_is_found_again(tmp_path: Path, program: Path) -> None:
    cache = Cache(tmp_path / "c")
    fields = keep(cache, program)
    found = cache.find(fields, tmp_path)
    assert found is not None and found[1].read_bytes() == program.read_bytes() and found[0].row == {"cycles": 1}
    assert cache.find({"name": "b"}, tmp_path) is None
    near = cache.nearest({"name": "b", "opt": "2"})
    assert near is not None and near[1] == ["name", "opt"]


def test_every_field_of_model_options_machine_and_version_counts(model: Path, tmp_path: Path, monkeypatch) -> None:
    base = fingerprint(model, CompileOptions())
    assert fingerprint(model, CompileOptions()) == base
    assert digest(fingerprint(model, CompileOptions(opt=1))) != digest(base)
    small = tmp_path / "small.toml"
    import tx8fast.machine as machine

    text = (Path(machine.__file__).parent / "configs" / "tx8.toml").read_text()
    small.write_text(text.replace("ddr_bw = 200 ", "ddr_bw = 100 "))
    assert fingerprint(model, CompileOptions(machine=str(small)))["machine"] != base["machine"]
    model.write_bytes(model.read_bytes() + b"\x00\x00")
    assert fingerprint(model, CompileOptions()) != base


def test_changed_weights_are_a_miss(tmp_path: Path, program: Path) -> None:
    data = tmp_path / "w.bin"
    data.write_bytes(b"0123456789")
    cache = Cache(tmp_path / "c")
    fields = keep(cache, program, reads=(Read("w.bin", 2, 4, bytes_digest(data, 2, 4)),))
    assert cache.find(fields, tmp_path) is not None
    data.write_bytes(b"0123456xxx")
    assert cache.find(fields, tmp_path) is not None, "only what was read counts"
    data.write_bytes(b"012x456789")
    assert cache.find(fields, tmp_path) is None
    data.unlink()
    assert cache.find(fields, tmp_path) is None


@pytest.mark.parametrize("kind", ["entry", "object"])
@pytest.mark.parametrize("how", ["flip", "cut", "empty", "other", "no text"])
def test_damage_is_told_and_made_good(tmp_path: Path, program: Path, kind: str, how: str) -> None:
    told: list[str] = []
    cache = Cache(tmp_path / "c", tell=told.append)
    fields = keep(cache, program)
    (path,) = (p for p in (tmp_path / "c").rglob("*") if p.is_file() and p.parent.parent.name == kind)
    data = path.read_bytes()
    path.write_bytes({"flip": data[:-9] + b"?" + data[-8:], "cut": data[: len(data) // 2], "empty": b"",
                      "other": b"[" * 100000, "no text": data[:-9] + b"\xba" + data[-8:]}[how])  # fmt: skip
    assert cache.find(fields, tmp_path) is None
    assert len(told) == 1 and "damaged" in told[0]
    keep(cache, program)
    found = cache.find(fields, tmp_path)
    assert found is not None and found[1].read_bytes() == program.read_bytes()


def test_what_was_used_longest_ago_goes_first(tmp_path: Path, program: Path) -> None:
    cache = Cache(tmp_path / "c")
    for i, name in enumerate("abc"):
        program.write_bytes(name.encode() * 1000)
        fields = keep(cache, program, name)
        path = cache._entry(digest(fields))
        os.utime(path, (1000 + i, 1000 + i))
    cache.find({"name": "a"}, tmp_path)
    assert cache.collect(2000)[0] == 2  # an entry and its program
    assert [cache.find({"name": n}, tmp_path) is not None for n in "abc"] == [True, False, True]
    cache.collect(0)
    assert not list(cache.entries()) and not list((tmp_path / "c").rglob("*.tx8"))


def test_leftovers_of_killed_writers_go_when_they_are_old(tmp_path: Path, program: Path) -> None:
    cache = Cache(tmp_path / "c")
    fields = keep(cache, program)
    left = [cache._object("ab" * 32).parent / ".x.tmp", cache._object("ab" * 32)]
    left[0].parent.mkdir(parents=True)
    for path in left:
        path.write_bytes(b"x")
    cache.collect()
    assert all(path.exists() for path in left), "somebody may still be writing it, or the entry of a program"
    for path in left:
        os.utime(path, (1, 1))
    assert cache.collect() == (2, 2)
    assert not any(path.exists() for path in left) and cache.find(fields, tmp_path) is not None


def test_two_writers_of_one_program(tmp_path: Path, program: Path) -> None:
    caches = [Cache(tmp_path / "c") for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            list(pool.map(lambda c: keep(c, program), caches))
    found = caches[0].find({"name": "a"}, tmp_path)
    assert found is not None and found[1].read_bytes() == program.read_bytes()


def test_why_of_a_model_and_of_a_manifest(model: Path, tmp_path: Path, capsys) -> None:
    """What is asked is compared field by field; damage is a reason of its own."""
    tx8, where = Caller(capsys), ("--cache-dir", tmp_path / "c")
    manifest = tmp_path / "m.toml"
    manifest.write_text('schema = 1\n[[model]]\nsource = "net.onnx"\nopt = [1, 2]\ndtype = "bf16"\n')
    assert tx8("cache", "why", manifest, *where).out.splitlines()[2:] == [
        "net/opt1  miss   nothing is kept yet", "net/opt2  miss   nothing is kept yet", "0 of 2 are kept"]  # fmt: skip
    (job, _) = read_manifest(manifest)
    assert run_job(job, tmp_path / "out", (tmp_path / "c", 1 << 30)).status == "done"
    assert tx8("cache", "why", manifest, *where).out.splitlines()[2:] == [
        "net/opt1  hit", "net/opt2  miss   option opt: 1 kept, 2 asked for", "1 of 2 are kept"]  # fmt: skip
    assert tx8("cache", "why", model, "--dtype", "bf16", "--opt", "1", *where).out.startswith("hit: ")
    asked = tx8("cache", "why", model, "--dtype", "fp16", *where, "--csv").out.splitlines()
    assert asked == ["field,kept,asked", "option dtype,'bf16','fp16'", "option opt,1,2"]
    assert "  net.onnx  dtype=bf16 opt=1\n" in tx8("cache", "ls", *where).out
    listed = tx8("batch", manifest, "--dry-run").out.splitlines()
    assert listed[2:4] == ["net/opt1  net.onnx  dtype=bf16 opt=1", "net/opt2  net.onnx  dtype=bf16"], (
        "as in the manifest"
    )
    (kept,) = (tmp_path / "c").rglob("*.tx8")
    kept.write_bytes(b"cut")
    told = tx8("cache", "why", manifest, "--only", "*/opt1", *where)
    assert "is damaged" in told.err and "net/opt1  miss   its program is missing, damaged" in told.out
    refused(tx8, tmp_path, "cache", "why", manifest, "--opt", "1", says=("stand in the manifest",))
    refused(tx8, tmp_path, "cache", "why", manifest, "--only", "x", says=("none is called x",))
