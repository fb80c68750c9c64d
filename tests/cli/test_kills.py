"""Processes that are ended at random moments: nothing is left of them, and a file is the old one or the new one.

`make fuzz-readers` ends 40 of each kind; TX8FAST_KILLS is their number.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.cli_case import tree
from tx8fast.files import TEMPORARY
from tx8fast.program.io import load

COUNT = int(os.environ.get("TX8FAST_KILLS", "2"))
OLD = b"what was there before"


def compiling(model: Path, where: Path) -> list[str]:
    return [sys.executable, "-m", "tx8fast", "compile", str(model), "-o", str(where / "m.tx8"),
            "--save-plans", str(where / "plans.json"), "--dump-dir", str(where / "dumps")]  # fmt: skip


def ended(args: list[str], after_seconds: float, number: int) -> tuple[int, str]:
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(after_seconds)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    return process.returncode, err


@pytest.fixture(scope="session")
def run_seconds(mlp: Path, tmp_path_factory: pytest.TempPathFactory) -> float:
    """How long such a compilation takes here."""
    started = time.perf_counter()
    subprocess.run(compiling(mlp, tmp_path_factory.mktemp("timed")), capture_output=True, check=True)
    return time.perf_counter() - started


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no such signal")
@pytest.mark.parametrize("replaces", [False, True])
def test_nothing_is_left_of_a_process_that_is_asked_to_end(tmp_path, mlp, run_seconds, replaces) -> None:
    r = random.Random(replaces)
    for i in range(COUNT):
        where = tmp_path / str(i)
        where.mkdir()
        if replaces:
            (where / "m.tx8").write_bytes(OLD)
        number = (signal.SIGTERM, signal.SIGHUP)[i % 2]
        code, err = ended(compiling(mlp, where), r.uniform(run_seconds / 5, run_seconds), number)
        assert "Traceback" not in err
        if code == 0:
            load(where / "m.tx8")
            continue
        assert code in (128 + number, -number), (code, err)  # before it listens, the system ends it
        if replaces and (where / "m.tx8").read_bytes() != OLD:
            load(where / "m.tx8")
            (where / "m.tx8").unlink()
        elif replaces:
            (where / "m.tx8").unlink()
        assert tree(where) == {}


def test_files_are_old_or_new_after_a_kill(tmp_path, mlp, run_seconds) -> None:
    r = random.Random(2)
    file = tmp_path / "m.tx8"
    file.write_bytes(OLD)
    for _ in range(COUNT):
        ended(compiling(mlp, tmp_path), r.uniform(run_seconds / 2, run_seconds * 1.05), signal.SIGKILL)
        if file.read_bytes() != OLD:
            load(file, verify_data=True)
    subprocess.run(compiling(mlp, tmp_path), capture_output=True, check=True)
    assert not [p for p in tmp_path.rglob("*") if p.name.endswith(TEMPORARY)]
