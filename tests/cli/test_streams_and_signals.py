"""Closed pipes, closed streams, interrupts: the command line as a process among others; and options without effect."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli_case import Caller

TX8 = (sys.executable, "-m", "tx8fast")


def reader_gone(*args: object, stderr_too: bool = False) -> tuple[int, str]:
    """Run a command whose stdout (or stderr) nobody reads; return its exit code and what else it printed."""
    read, write = os.pipe()
    os.close(read)
    out, err = (subprocess.PIPE, write) if stderr_too else (write, subprocess.PIPE)
    try:
        done = subprocess.run([*TX8, *map(str, args)], stdout=out, stderr=err, text=True, timeout=60)
    finally:
        os.close(write)
    return done.returncode, (done.stdout if stderr_too else done.stderr)


@pytest.mark.parametrize(
    "args", [("inspect",), ("inspect", "--json"), ("inspect", "--code", "0"), ("sim",), ("--help",)],
    ids=["tables", "json", "lines", "sim", "help"],
)  # fmt: skip
def test_a_reader_that_has_seen_enough(program: Path, args: tuple[str, ...]) -> None:
    where = () if args == ("--help",) else (program,)
    assert reader_gone(args[0], *where, *args[1:]) == (0, "")


def test_work_goes_on_when_nobody_watches_the_progress(tmp_path: Path, mlp: Path) -> None:
    code, out = reader_gone("compile", mlp, "-o", tmp_path / "m.tx8", "--json", stderr_too=True)
    assert code == 0 and json.loads(out)["file_bytes"] == (tmp_path / "m.tx8").stat().st_size


@pytest.mark.parametrize("stream", [1, 2])
def test_streams_that_are_closed_from_the_start(program: Path, stream: int) -> None:
    run = [
        sys.executable,
        "-c",
        "import os, sys; os.close(int(sys.argv[1])); os.execv(sys.executable, [sys.executable, *sys.argv[2:]])",
    ]
    done = subprocess.run([*run, str(stream), "-m", "tx8fast", "inspect", str(program)], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""


def test_an_interrupt_while_the_package_is_loaded() -> None:
    """Whatever is imported first, an interrupt in it is one line: nothing heavy comes before the command line's guard."""
    code = (
        "import sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.startswith(('tx8fast.cli.', 'click')): raise KeyboardInterrupt\n"
        "before = set(sys.modules)\n"
        "from tx8fast.cli import main\n"
        "print(*sorted(set(sys.modules) - before), file=sys.stderr)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "sys.exit(main(['--help']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    loaded, told = done.stderr.splitlines()
    assert (done.returncode, told) == (130, "interrupted")
    assert set(loaded.split()) <= {"tx8fast", "tx8fast.cli", "__future__", "collections.abc", "collections"}


def test_an_interrupt_of_long_work(tmp_path: Path, checkpoint: Path) -> None:
    args = [*TX8, "compile", str(checkpoint), "--seq", "8", "-o", str(tmp_path / "m.tx8"), "--json"]
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        process.stderr.readline()  # work has begun
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode in (0, 130) and "Traceback" not in err
    told = [json.loads(line)["event"] for line in err.splitlines()]
    assert process.returncode == 0 or (told[-1] == "interrupted" and not list(tmp_path.iterdir()))


@pytest.mark.parametrize(
    ("options", "told"),
    [(("--search-seconds", "3"), "--search-seconds has no effect: it limits the integer program of --opt 3"),
     (("--opt", "1", "--only", "act"), "--only has no effect: --opt 1 groups no ops"),
     (("--stop-after", "search", "--embed-limit-mib", "3"), "--embed-limit-mib has no effect: --stop-after search"),
     (("--stop-after", "import", "--opt", "3"), "--opt has no effect: --stop-after import ends before the search"),
     (("--stop-after", "passes", "--no-sharing"), "--sharing has no effect"),
     (("--opt", "3", "--search-seconds", "3"), ""), (("--opt", "2", "--only", "act"), ""), ((), "")],
)  # fmt: skip
def test_options_without_effect_are_told(tx8: Caller, tmp_path: Path, mlp: Path, options, told: str) -> None:
    place = () if "--stop-after" in options else ("-o", tmp_path / "m.tx8")
    done = tx8("compile", mlp, *place, *options)
    assert done.code == 0
    assert done.err.startswith(f"warning: {told}") if told else done.err == ""
    assert done.err.count("warning") == (1 if told else 0)


@pytest.mark.parametrize(
    ("options", "told"),
    [(("--code", "0", "--all"), "--all"), (("--json", "--all"), "--all"), (("--streams", "--all"), "")],
)
def test_options_of_inspect_without_effect(tx8: Caller, program: Path, options, told: str) -> None:
    done = tx8("inspect", program, *options)
    assert done.code == 0
    said = (
        [json.loads(line)["text"] for line in done.err.splitlines()]
        if "--json" in options
        else [done.err.removeprefix("warning: ")]
    )
    assert said[0].startswith(f"{told} has no effect") if told else done.err == ""
