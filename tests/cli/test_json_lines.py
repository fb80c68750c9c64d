"""With --json every line on stderr is a JSON object, whatever a command has to say there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.support.cli_case import Caller, Outcome, compile_args, write_mlp
from tests.support.cnn_models import CnnBuilder
from tx8fast.cli import app, serve


def commands(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
    """Yield every command that takes --json."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        elif command is not None and any("--json" in p.opts for p in command.params):
            yield *path, name


def events(found: Outcome) -> list[dict]:
    lines = [json.loads(line) for line in found.err.splitlines()]
    assert all(isinstance(line, dict) and isinstance(line["event"], str) for line in lines)
    return lines


@pytest.fixture
def tx8(capsys) -> Caller:
    return Caller(capsys)


@pytest.mark.parametrize("command", list(commands(app.cli)), ids=" ".join)
def test_wrong_options_and_files(tx8: Caller, tmp_path: Path, command: tuple[str, ...]) -> None:
    found = tx8(*command, "--json", "--no-such-option", "1")
    assert found.code == 2 and [e["event"] for e in events(found)] == ["error"]
    assert "--no-such-option" in events(found)[0]["text"]
    missing = tx8(*command, "--json", tmp_path / "none")
    assert all(e["event"] == "error" for e in events(missing)) and (missing.code == 2) == bool(missing.err)


def test_warnings_and_notes(tx8: Caller, tmp_path: Path) -> None:
    """Of ignored options, of slow formats, of routines on the kernel core, of jobs."""
    b = CnnBuilder()
    b.save(tmp_path / "net.onnx", (1, 3, 8, 8), b.node("Mish", b.conv("x", 3, 8, 3)), (1, 8, 8, 8))
    found = tx8(*compile_args(tmp_path / "net.onnx", tmp_path, "--json", "--search-seconds", "9"))
    assert found.code == 0 and {"warning", "phase", "progress"} <= {e["event"] for e in events(found)}
    (tmp_path / "bad.onnx").write_bytes(b"?")
    (tmp_path / "m.toml").write_text('schema = 1\n[[model]]\nsource = "*.onnx"\n')
    found = tx8("batch", tmp_path / "m.toml", "-o", tmp_path / "o", "-j", "1", "--cache-dir", tmp_path / "c", "--json")
    jobs = [e for e in events(found) if e["event"] == "job"]
    assert found.code == 2 and {(e["name"], e["status"]) for e in jobs} == {("bad", "failed"), ("net", "done")}
    next((tmp_path / "c").rglob("*.tx8")).write_bytes(b"")
    found = tx8("cache", "why", tmp_path / "net.onnx", "--cache-dir", tmp_path / "c", "--json")
    assert any(e["event"] == "cache" and "damaged" in e["text"] for e in events(found))


@pytest.mark.parametrize(("raised", "code", "event"), [(KeyboardInterrupt, 130, "interrupted"), (ZeroDivisionError, 1, "defect")])  # fmt: skip
def test_defects_and_interrupts(tx8: Caller, tmp_path: Path, monkeypatch, raised, code: int, event: str) -> None:
    def fail(*_args):
        raise raised("on purpose")

    monkeypatch.setattr("tx8fast.program.io.load", fail)
    monkeypatch.setattr("tx8fast.cli.inspect.load", fail, raising=False)
    monkeypatch.setenv(app.TRACEBACK, "1")
    model = write_mlp(tmp_path / "m.onnx")
    assert tx8(*compile_args(model, tmp_path)).code == 0
    found = tx8("sim", tmp_path / "out.tx8", "--json")
    assert found.code == code and events(found)[0]["event"] == event


def test_a_worker_tells_messages_as_events_and_failures_in_its_answer(tmp_path: Path) -> None:
    model = write_mlp(tmp_path / "m.onnx")
    told: list[dict] = []
    found = serve.once("compile", [str(model), "-o", str(tmp_path / "m.tx8"), "--search-seconds", "9"], lambda e: told.append(json.loads(e)))  # fmt: skip
    assert found["exit_code"] == 0 and any(e["event"] == "warning" for e in told)
    found = serve.once("check", [str(tmp_path / "none.onnx")], lambda e: told.append(json.loads(e)))
    assert found["exit_code"] == 2 and found["error"].startswith("error: ") and "none.onnx" in found["error"]
