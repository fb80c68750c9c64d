"""The benchmark suite: what a run writes down, and what a comparison of two says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cli_case import Caller, refused
from tests.support.cnn_models import CnnBuilder
from tx8fast.batch.bench import compare, read_document


@pytest.fixture
def tx8(capsys: pytest.CaptureFixture[str]) -> Caller:
    return Caller(capsys)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    b = CnnBuilder()
    b.save(folder / "net.onnx", (1, 3, 8, 8), b.node("Relu", b.conv("x", 3, 8, 3)), (1, 8, 8, 8))
    (folder / "m.toml").write_text('schema = 1\n[[model]]\nsource = "net.onnx"\nopt = [1, 2]\ndtype = "bf16"\n')
    return folder / "m.toml"


def document(path: Path, **cycles: float | None) -> Path:
    """Write a document; a job without cycles has failed."""
    rows = [
        {"name": n, "status": "failed"} if c is None else {"name": n, "status": "done", "cycles": c, "cpu_seconds": 1.0}
        for n, c in cycles.items()
    ]
    path.write_text(json.dumps({"schema": 1, "rows": rows}))
    return path


def test_a_run_says_what_and_where(tx8: Caller, manifest: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.json"
    done = tx8("bench", manifest, "-o", out, "-j", "1", "--only", "*/opt2")
    assert done.code == 0 and "net/opt2" in done.out, done
    found = read_document(out)
    (row,) = found["rows"]
    assert row["name"] == "net/opt2" and row["cycles"] > 0 and row["roofline_ratio"] > 0
    assert row["cpu_seconds"] > 0 and row["peak_bytes"] > 10 << 20 and sum(row["losses"].values()) > 0
    assert found["host"]["cores"] >= 1 and len(found["code"]) == 32 and "commit" in found
    assert tx8("bench", "--compare", out, out).code == 0


@pytest.mark.parametrize(
    ("after", "code", "says"),
    [
        ({"a": 100, "b": 200}, 0, "nothing is worse"),
        ({"a": 100.9, "b": 150}, 0, "nothing is worse"),
        ({"a": 101.1, "b": 100}, 3, "no longer done: a"),  # one model pays for the other
        ({"a": 90, "b": None}, 3, "no longer done: b"),
        ({"a": 100, "c": 7}, 0, "c"),
    ],
)
def test_comparisons(tx8: Caller, tmp_path: Path, after, code: int, says: str) -> None:
    one, two = document(tmp_path / "1.json", a=100, b=200), document(tmp_path / "2.json", **after)
    found = tx8("bench", "--compare", one, two)
    assert found.code == code and says in found.out, found
    assert json.loads(tx8("bench", "--compare", one, two, "--json").out)["worse"] == (says[-1:].split() if code else [])


def test_the_threshold_and_the_mean(tmp_path: Path) -> None:
    one = read_document(document(tmp_path / "1.json", a=100, b=100))
    two = read_document(document(tmp_path / "2.json", a=200, b=50))
    found = compare(one, two, "cycles", 1.5)
    assert found["worse"] == [] and abs(found["mean_change"]) < 1e-12
    assert [r["name"] for r in found["rows"]] == ["a", "b"]


def test_refusals(tx8: Caller, manifest: Path, tmp_path: Path) -> None:
    good = document(tmp_path / "good.json", a=1)
    for name, text in (("no.json", "{"), ("list.json", "[]"), ("other.json", '{"schema": 2, "rows": []}'),
                       ("rows.json", '{"schema": 1, "rows": [{"name": "a", "cycles": "many"}, 7]}')):  # fmt: skip
        (tmp_path / name).write_text(text)
        refused(tx8, tmp_path, "bench", "--compare", good, tmp_path / name, says=(name,))
    refused(tx8, tmp_path, "bench", "--compare", good, tmp_path / "absent.json", says=("absent.json",))
    refused(tx8, tmp_path, "bench", "--compare", good, good, "--threshold", "nan", says=("--threshold",))
    refused(tx8, tmp_path, "bench", manifest, "--only", "nothing", says=("none is called nothing", "net/opt1"))
    refused(tx8, tmp_path, "bench", manifest, "--suite", "zoo", says=("--suite",))


def test_the_zoo_is_for_everybody(tx8: Caller, tmp_path: Path) -> None:
    listed = tx8("bench", "--list")
    assert listed.code == 0 and "deepseek-v3/prefill" in listed.out.split() and "resnet-50/b32" in listed.out.split()
    assert tx8("bench", "--write-zoo", tmp_path / "zoo").code == 0
    again = tx8("batch", tmp_path / "zoo" / "zoo.toml", "--dry-run")
    assert again.out.endswith(f"{len(listed.out.split())} jobs\n")
