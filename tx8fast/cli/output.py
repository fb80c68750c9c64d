"""Where things go: results to stdout, messages and progress to stderr, files through a temporary name.

May import: click, errors, rich (late). Must not: know what a result means.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import click

from tx8fast.errors import ConfigError, UnusedOptionWarning

#: exit codes of all commands
DONE, DEFECT, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
#: files that commands write: in the directory of a model they may be replaced, others there belong to the model
RESULT_SUFFIXES = (".tx8", ".npz", ".pftrace")
#: columns of tables that go to a file or a pipe
PIPE_WIDTH = 160
#: a bar that would vanish at once only flickers
BAR_DELAY_SECONDS = 0.5
EVENT_SECONDS = 0.25

Progress = Callable[[int, int], None]


def json_option(command: Callable) -> Callable:
    """Add `--json` to a command."""
    text = "Print one JSON object on stdout; progress goes to stderr as JSON lines."
    return click.option("--json", "as_json", is_flag=True, help=text)(command)


def show_json(facts: dict[str, Any]) -> None:
    """Print one JSON object. Numbers that JSON cannot hold are a defect, not output."""
    click.echo(json.dumps(facts, indent=2, allow_nan=False, default=_plain))


def _plain(value: Any) -> Any:
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return value.item()
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON-able")


def show(parts: Iterable[Any]) -> None:
    """Print rich renderables on stdout; names in them are never read as markup."""
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            """Leave a closed pipe to the caller; by default the process ends here, with an exit code of its own."""
            raise BrokenPipeError

    width = None if sys.stdout.isatty() else PIPE_WIDTH
    console = Quiet(file=sys.stdout, width=width, markup=False, emoji=False, highlight=False)
    for part in parts:
        console.print(part)


@contextlib.contextmanager
def progress(label: str, as_json: bool) -> Iterator[Progress | None]:
    """Yield a callback (done, total): JSON lines with `as_json`, a bar with an ETA on a terminal, else None."""
    if as_json:
        yield _events(label)
    elif sys.stderr.isatty():
        with _Bar(label) as bar:
            yield bar
    else:
        yield None


def _events(label: str) -> Progress:
    started = last = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if done < total and now - last < EVENT_SECONDS:
            return
        last = now
        eta = (now - started) * (total - done) / done if done else None
        event = {"event": "progress", "task": label, "done": done, "total": total,
                 "eta_seconds": None if eta is None else round(eta, 3)}  # fmt: skip
        tell(json.dumps(event))

    return report


def warn_unused(options: Collection[str], why: str) -> None:
    """Tell of options that change nothing in this command."""
    for option in sorted(options):
        warnings.warn(f"{option} has no effect: {why}", UnusedOptionWarning, stacklevel=3)


def tell(line: str) -> None:
    """Print a line on stderr. Work goes on if nobody listens any more."""
    with contextlib.suppress(BrokenPipeError):
        click.echo(line, err=True)


class _Bar:
    """A bar on stderr that appears once the work has lasted long enough, and leaves nothing behind."""

    def __init__(self, label: str) -> None:
        self.label, self.started = label, time.monotonic()
        self.bar: Any = None
        self.task: Any = None

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def __call__(self, done: int, total: int) -> None:
        if self.bar is None and time.monotonic() - self.started < BAR_DELAY_SECONDS:
            return
        bar = self.bar = self.bar or self._open(total)
        bar.update(self.task, completed=done, total=total)

    def _open(self, total: int) -> Any:
        from rich import progress as rich
        from rich.console import Console

        console = Console(file=sys.stderr, markup=False, emoji=False)
        columns = (rich.TextColumn("{task.description}", markup=False), rich.BarColumn(), rich.MofNCompleteColumn(),
                   rich.TimeRemainingColumn())  # fmt: skip
        bar = rich.Progress(*columns, console=console, transient=True)
        self.task = bar.add_task(self.label, total=total)
        bar.start()
        return bar


def check_writable(path: Path, what: str, *inputs: Path) -> None:
    """Raise ConfigError if a file cannot be written at `path`, or is one of the command's `inputs` (files or directories).

    Better before long work than after it.
    """
    doing = f"writing {what} {path}"
    try:
        _check_place(path, doing)
    except OSError as e:
        raise ConfigError(f"{doing}: {e.strerror or e}") from e
    for source in inputs:
        if not path.exists() or not source.exists():
            continue
        if path.samefile(source):
            raise ConfigError(f"{doing}: this is the input file; give another name")
        if source.is_dir() and path.suffix not in RESULT_SUFFIXES and path.parent.samefile(source):
            raise ConfigError(f"{doing}: this file belongs to the model in {source}; give another name")


def _check_place(path: Path, doing: str) -> None:
    if path.is_dir():
        raise ConfigError(f"{doing}: it is a directory, a file name is required")
    if path.exists() and not path.is_file():  # a device or a pipe would be replaced by the file
        raise ConfigError(f"{doing}: it exists and is no regular file; give another name")
    if not path.parent.is_dir():
        raise ConfigError(f"{doing}: directory {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK):
        raise ConfigError(f"{doing}: no permission to write in {path.parent}")


@contextlib.contextmanager
def replacing(path: Path, what: str) -> Iterator[IO[bytes]]:
    """Yield a binary file that takes the name `path` when the block ends well; otherwise nothing is left.

    Raises ConfigError if it cannot be written.
    """
    from tx8fast.program import container  # late: not every command needs the formats

    try:
        with container.replacing(path) as f:
            yield f
    except OSError as e:
        raise ConfigError(f"writing {what} {path}: {e.strerror or e}") from e
