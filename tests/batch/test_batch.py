"""Whole batches: tables, resuming, one bad model among good ones, kills at any moment, two batches with one cache."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future
from pathlib import Path

import pytest

import tx8fast.machine as machines
from tests.support.cli_case import Caller
from tests.support.cnn_models import CnnBuilder
from tx8fast.batch.journal import Journal, lines
from tx8fast.batch.manifest import read_manifest
from tx8fast.batch.runner import Runner
from tx8fast.batch.table import files, to_csv, to_markdown
from tx8fast.batch.work import run_job

ROOT = Path(__file__).resolve().parent.parent.parent
KILLS = int(os.environ.get("TX8FAST_KILLS", "1"))


class Here(Executor):
    """Runs a job at once, in this process. `after`: jobs until it is interrupted."""

    def __init__(self, after: int = 1 << 30) -> None:
        self.after = after

    def submit(self, fn, /, *args, **kwargs):
        if self.after == 0:
            raise KeyboardInterrupt
        self.after -= 1
        future: Future = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@pytest.fixture(scope="module")
def zoo(tmp_path_factory) -> Path:
    """A manifest of three small networks at two levels, and a file that is no model."""
    folder = tmp_path_factory.mktemp("zoo")
    for i, channels in enumerate((4, 8, 12)):
        b = CnnBuilder(seed=i)
        out = b.node("Relu", b.conv("x", 3, channels, 3))
        b.save(folder / f"net{i}.onnx", (1, 3, 8, 8), out, (1, channels, 8, 8))
    (folder / "broken.onnx").write_bytes(b"no model at all")
    (folder / "m.toml").write_text('schema = 1\n[[model]]\nsource = "*.onnx"\nopt = [1, 2]\ndtype = "bf16"\n')
    return folder / "m.toml"


def tree(folder: Path) -> dict[str, bytes]:
    """Everything that must not depend on the run: programs, figures, tables."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*"))
            if p.is_file() and p.name != "journal.jsonl"}  # fmt: skip


def run(zoo: Path, out: Path, cache: Path | None = None, resume: bool = False, executor: Executor | None = None):
    out.mkdir(exist_ok=True)
    journal = Journal(out)
    outcomes = []
    runner = Runner(read_manifest(zoo), out / "programs", journal, None if cache is None else (cache, 1 << 30),
                    lambda o, *_: outcomes.append(o))  # fmt: skip
    if resume:
        runner.resume()
    rows = runner.run(1, executor or Here())
    for name, text in files(rows).items():
        (out / name).write_text(text)
    journal.close()
    return rows, outcomes


def test_workers_elsewhere_see_the_same_files(zoo: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    """A cluster's workers have a working directory of their own; the programs are those of a batch at home."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    class Away(Here):
        def submit(self, fn, /, *args, **kwargs):
            with contextlib.chdir(elsewhere):
                return super().submit(fn, *args, **kwargs)

    monkeypatch.setattr("tx8fast.cli.batch._cluster", lambda _address: contextlib.nullcontext((Away(), 1)))
    shutil.copytree(zoo.parent, tmp_path / "home" / "models", ignore=shutil.ignore_patterns("broken*"))
    monkeypatch.chdir(tmp_path / "home")
    machine = Path(machines.__file__).parent / "configs" / "tx8.toml"
    shutil.copy(machine, "own.toml")
    rows = '[[model]]\nsource = "*.onnx"\nopt = 1\ndtype = "bf16"\nmachine = "own.toml"\n'
    Path("models/m.toml").write_text(f"schema = 1\n{rows}")
    shutil.copy(machine, "models/own.toml")
    tx8 = Caller(capsys)
    away = tx8("batch", "models/m.toml", "-o", "away", "--cache-dir", "c", "--dask", "tcp://127.0.0.1:1")
    assert away.code == 0 and not list(elsewhere.iterdir()), away
    assert tx8("batch", "models/m.toml", "-o", "here", "--no-cache", "-j", "1").code == 0
    assert tree(Path("away")) == tree(Path("here"))


@pytest.fixture(scope="module")
def undisturbed(zoo: Path, tmp_path_factory) -> Path:
    """The output of a batch that ran through, without a cache."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    run(zoo, out)
    return out


def test_a_bad_model_does_not_stop_the_others(undisturbed: Path) -> None:
    rows = json.loads((undisturbed / "results.json").read_text())
    assert [(r["name"], r["status"]) for r in rows] == [
        (f"{m}/opt{o}", "failed" if m == "broken" else "done") for m in ("broken", "net0", "net1", "net2") for o in (1, 2)
    ]  # fmt: skip
    assert all("broken.onnx" in r["error"] for r in rows[:2])
    assert all(r["cycles"] > 0 and 0 < r["roofline_ratio"] < 1 and r["chips"] == 1 for r in rows[2:])
    assert not (undisturbed / "programs" / "broken").exists() or not any((undisturbed / "programs/broken").iterdir())
    timed = {x["name"] for x in lines(undisturbed) if x.get("event") == "job" and x["seconds"] >= 0}
    assert timed == {r["name"] for r in rows}


def test_resuming_makes_what_is_missing_or_damaged_and_nothing_else(
    zoo: Path, undisturbed: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(undisturbed, tmp_path / "out"))
    whole = tree(out)
    (out / "programs/net0/opt1.tx8").write_bytes(b"cut")
    (out / "programs/net1/opt2.json").unlink()
    rows, outcomes = run(zoo, out, resume=True)
    assert tree(out) == whole
    made = [o.name for o in outcomes if o.status != "kept"]
    assert sorted(made) == ["broken/opt1", "broken/opt2", "net0/opt1", "net1/opt2"]


def test_a_changed_model_is_made_again(zoo: Path, tmp_path: Path) -> None:
    folder = tmp_path / "zoo"
    shutil.copytree(zoo.parent, folder)
    run(folder / "m.toml", tmp_path / "out")
    shutil.copy(folder / "net2.onnx", folder / "net1.onnx")
    _, outcomes = run(folder / "m.toml", tmp_path / "out", resume=True)
    assert {o.name for o in outcomes if o.status == "done"} == {"net1/opt1", "net1/opt2"}


@pytest.mark.parametrize("after", [0, 1, 3, 7])
@pytest.mark.slow
def test_an_interrupted_batch_goes_on_to_the_same_files(
    zoo: Path, undisturbed: Path, tmp_path: Path, after: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(zoo, tmp_path / "out", executor=Here(after))
    with open(tmp_path / "out" / "journal.jsonl", "a") as f:
        f.write('{"event": "job", "na')  # what a crash leaves of a line
    run(zoo, tmp_path / "out", resume=True)
    assert tree(tmp_path / "out") == tree(undisturbed)
    assert all(isinstance(x, dict) for x in lines(tmp_path / "out"))


def test_a_second_batch_takes_everything_from_the_cache(zoo: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    run(zoo, tmp_path / "one", cache)
    for path in list(cache.rglob("*.tx8"))[:1]:
        path.write_bytes(b"damaged")
    _, outcomes = run(zoo, tmp_path / "two", cache)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    hits = [o for o in outcomes if o.from_cache]
    assert len(hits) == 5 and any("damaged" in line for o in outcomes for line in o.log)


def test_nothing_is_written_through_a_link_that_leaves(zoo: Path, tmp_path: Path) -> None:
    (tmp_path / "out/programs").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out/programs/net0").symlink_to(tmp_path / "elsewhere")
    job = next(j for j in read_manifest(zoo) if j.name == "net0/opt1")
    outcome = run_job(job, tmp_path / "out/programs", None)
    assert outcome.status == "failed" and "through a link" in outcome.row["error"]
    assert not any((tmp_path / "elsewhere").iterdir())


def test_names_are_text_in_every_table() -> None:
    rows = [{"name": "=1+1", "status": "failed", "error": 'a|b\n<script>alert("x")</script>'}]
    assert "'=1+1," in to_csv(rows)
    assert "<script" not in to_markdown(rows) and "a\\|b" in to_markdown(rows)
    assert json.loads(files(rows)["results.json"])[0]["name"] == "=1+1"


def test_a_process_that_dies_takes_only_its_own_job_along(zoo: Path, tmp_path: Path, monkeypatch) -> None:
    from tests.batch import dying
    from tx8fast.batch import runner

    monkeypatch.setattr(runner, "run_job", dying.run_job)
    (tmp_path / "out").mkdir()
    jobs = [j for j in read_manifest(zoo) if j.name.endswith("opt1")]
    rows = Runner(jobs, tmp_path / "out/programs", Journal(tmp_path / "out")).run(2)
    assert [(r["name"], r["status"]) for r in rows] == [
        ("broken/opt1", "failed"), ("net0/opt1", "done"), ("net1/opt1", "failed"), ("net2/opt1", "done")]  # fmt: skip
    assert "memory" in rows[2]["error"]


def command(zoo: Path, out: Path, cache: Path, *more: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "tx8fast",
        "batch",
        str(zoo),
        "-o",
        str(out),
        "-j",
        "2",
        "--cache-dir",
        str(cache),
        *more,
    ]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.slow
def test_killed_processes_leave_nothing_that_stands_in_the_way(
    zoo: Path, undisturbed: Path, tmp_path: Path, how: signal.Signals
) -> None:
    """At any moment; TX8FAST_KILLS says how often."""
    want = tree(undisturbed)
    rng = random.Random(int(how))
    for n in range(KILLS):
        out = tmp_path / f"out{n}"
        begun = subprocess.Popen(
            command(zoo, out, tmp_path / f"c{n + 1}"),
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(rng.uniform(0.2, 4.0))
        begun.send_signal(how)
        begun.wait(30)
        resume = ["--resume"] if (out / "journal.jsonl").exists() else []
        done = subprocess.run(
            command(zoo, out, tmp_path / f"c{n + 1}", *resume), env=environment(), capture_output=True, text=True
        )
        assert done.returncode == 2, done.stderr
        found = {k: v for k, v in tree(out).items() if not k.endswith(".tmp")}
        assert found == want


def test_the_output_directory_belongs_to_the_batch(zoo: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    done = subprocess.run(
        command(zoo, tmp_path / "mine", tmp_path / "c"), env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 2 and "holds other files" in done.stderr
    assert os.listdir(tmp_path / "mine") == ["config.json"]
