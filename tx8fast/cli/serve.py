"""`tx8fast serve --stdio`: a worker for hosts that are no Python, one request after the other.

May import: click, cli.*. Must not: hold logic of a command: each runs as on the command line.

A request is a line of JSON, {"do": "compile" | "check", "arguments": [...]} as on the command line, or {"do": "quit"}; the end of the input ends the
worker, too. Answers are lines: {"event": TEXT} with a line of progress as --json writes it, any number of them, then {"exit_code": 0, "result":
TEXT} with what --json prints, or {"exit_code": N, "error": TEXT} with what the command line would say. Warnings and other messages are
events, too: {"event": "warning", "text": TEXT}.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from tx8fast.cli.output import BAD_INPUT, DONE, FAILURES, HEADS
from tx8fast.errors import ConfigError

SERVED = ("check", "compile")
MAX_REQUEST_CHARACTERS = 1 << 24


@click.command("serve")
@click.option("--stdio", is_flag=True, help="Requests come from stdin, answers go to stdout, as lines of JSON.")
def serve(stdio: bool) -> int:
    """Do commands for a host program, one after the other."""
    if not stdio:
        raise click.UsageError("--stdio is required: requests come from stdin, answers go to stdout")
    # what a library prints must not get among the answers
    with (
        os.fdopen(os.dup(0), encoding="utf-8", errors="surrogateescape") as requests,
        os.fdopen(os.dup(1), "w", encoding="utf-8") as answers,
    ):
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)

        def answer(what: dict[str, Any]) -> None:
            answers.write(json.dumps(what) + "\n")
            answers.flush()

        with contextlib.suppress(BrokenPipeError):  # the host is gone
            work(iter(lambda: requests.readline(MAX_REQUEST_CHARACTERS), ""), answer)
    return DONE


def work(lines: Iterable[str], answer: Callable[[dict[str, Any]], None]) -> None:
    """Do what requests say until one says quit; `answer` takes what is to be told of each."""
    for line in lines:
        try:
            command, arguments = _request(line)
        except ConfigError as e:
            answer({"exit_code": BAD_INPUT, "error": f"error: {e}"})
            continue
        if command == "quit":
            return
        answer(once(command, arguments, lambda event: answer({"event": event})))


def _request(line: str) -> tuple[str, list[str]]:
    doing = "reading a request"
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"{doing}: it is no line of JSON ({e})") from None
    command = found.get("do") if isinstance(found, dict) else None
    if command not in (*SERVED, "quit"):
        raise ConfigError(f"{doing}: found command {command!r}, required one of {', '.join((*SERVED, 'quit'))}")
    arguments = found.get("arguments", [])
    if not isinstance(arguments, list) or not all(isinstance(a, str) for a in arguments):
        raise ConfigError(f"{doing}: 'arguments' must be a list of texts, as on the command line")
    return command, arguments


def once(command: str, arguments: Sequence[str], event: Callable[[str], None]) -> dict[str, Any]:
    """Do one command and return its answer; `event` takes lines of progress."""
    from tx8fast.cli.app import run

    out, err = io.StringIO(), _Lines(event)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([command, *arguments, "--json"])
    err.close()
    if code == DONE:
        return {"exit_code": code, "result": out.getvalue()}
    return {"exit_code": code, "error": "\n".join(err.said) or out.getvalue()}


class _Lines(io.TextIOBase):
    """A stderr whose lines of JSON are events; those of failures, and what is no JSON, are kept: they are what the answer says."""

    def __init__(self, event: Callable[[str], None]) -> None:
        self.event, self.said, self.rest = event, list[str](), ""

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        *lines, self.rest = (self.rest + text).split("\n")
        for line in lines:
            self._line(line)
        return len(text)

    def _line(self, line: str) -> None:
        found = json.loads(line) if line.startswith('{"event":') else {}
        if found.get("event") in FAILURES:
            self.said.append(HEADS.get(found["event"], "") + found["text"])
        elif found:
            self.event(line)
        elif line or self.said:
            self.said.append(line)

    def close(self) -> None:
        """Take the last line, which may have no end."""
        if self.rest:
            self._line(self.rest)
            self.rest = ""
        super().close()
