"""Where things go: results to stdout, messages and progress to stderr, files through a temporary name.

May import: click, errors, files, rich (late). Must not: know what a result means.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any

import click

from tx8fast import files
from tx8fast.errors import CompileWarning, ConfigError, UnusedOptionWarning

#: exit codes of all commands; WORSE: a comparison was asked for, and found something worse
DONE, DEFECT, BAD_INPUT, WORSE, INTERRUPTED = 0, 1, 2, 3, 130
#: a bar that would vanish at once only flickers
BAR_DELAY_SECONDS = 0.5
TELLING = 0.1  # share of the steps that tells how long the others take: the first ones are often the longest
EVENT_SECONDS = 0.25
#: widths of the bar, and of what stands right of it with the gaps
BAR_CELLS, LEFT_CELLS = 12, 28
#: between lines of a log, the first included
LINE_SECONDS = 10.0


#: the option of commands whose result is one object
JSON = "--json"


class PathType(click.Path):
    """A path that is not empty: `pathlib` takes the empty one for the working directory."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "" or "\0" in os.fspath(value):
            self.fail(
                "the name is empty" if value == "" else f"{value!a} is no name: it has a null character", param, ctx
            )
        return super().convert(value, param, ctx)


PATH = PathType()


def json_option(command: Callable) -> Callable:
    """Add `--json` to a command."""
    text = "Print one JSON object on stdout; progress and messages go to stderr as JSON lines."
    return click.option(JSON, "as_json", is_flag=True, help=text)(command)


#: name of the option that turns warnings into errors
STRICT = "strict"


def strict_option() -> click.Option:
    """Return `--strict`, which every command has: the first warning ends the command, before it writes anything."""

    def callback(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        ctx.meta[STRICT] = value
        if value:
            warnings.simplefilter("error", CompileWarning)

    text = "Warnings, and work on the kernel core, end the command with exit code 2."
    return click.Option([f"--{STRICT}"], is_flag=True, is_eager=True, expose_value=False, callback=callback, help=text)


def strict() -> bool:
    """Tell whether the running command was called with `--strict`."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.meta.get(STRICT))


def show_json(facts: dict[str, Any]) -> None:
    """Print one JSON object. Numbers that JSON cannot hold are a defect, not output."""
    click.echo(json.dumps(facts, indent=2, allow_nan=False, default=_plain))


def _plain(value: Any) -> Any:
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return value.item()
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON-able")


def show_graph(text: str) -> None:
    """Print the text of a graph as it stands in files: in UTF-8, whatever the terminal is set to."""
    click.echo(text.encode("utf-8", "surrogatepass"))


def show(parts: Iterable[Any]) -> None:
    """Print texts, and parts that have `lines(width)`, on stdout: as wide as the terminal, in a pipe as wide as need be."""
    for part in parts:
        for line in [part] if isinstance(part, str) else part.lines(terminal_width()):
            print(line)  # click would write UTF-8 to a terminal that is set to something else


def terminal_width() -> int | None:
    """Return the cells of a line on stdout, None if it is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


class Reporter:
    """How far a task has come: called with what is done and what there is to do, told of each phase. This one tells nobody."""

    def __init__(self, task: str) -> None:
        self.task, self.name, self.started = task, "", time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """`done` of `total` steps are done."""

    def phase(self, name: str) -> None:
        """A phase begins."""
        self.name = name

    def begun(self, name: str) -> None:
        """One of several pieces of work that go on at once has begun."""

    def ended(self, name: str) -> None:
        """It has ended."""

    def close(self) -> None:
        """The task has ended."""

    def eta_seconds(self, done: int, total: int) -> float | None:
        """Return the seconds that are left if the rest goes as fast as what is done; None while that is too little to tell."""
        return (time.monotonic() - self.started) * (total - done) / done if done >= TELLING * total > 0 else None


@contextlib.contextmanager
def progress(label: str, as_json: bool) -> Iterator[Reporter]:
    """Yield what tells of progress: JSON lines with `as_json`, a bar with an ETA on a terminal, else lines of text now and then."""
    reporter = (_Events if as_json else _Bar if sys.stderr.isatty() else _Lines)(label)
    try:
        yield reporter
    finally:
        reporter.close()


class _Events(Reporter):
    """JSON lines: every phase, and steps as often as is useful."""

    last = 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if done < total and now - max(self.last, self.started) < EVENT_SECONDS:
            return
        self.last = now
        eta = self.eta_seconds(done, total)
        event = {
            "event": "progress",
            "task": self.task,
            **({"phase": self.name} if self.name else {}),
            "done": done,
            "total": total,
            "eta_seconds": None if eta is None else round(eta, 3),
        }
        _line(json.dumps(event))

    def phase(self, name: str) -> None:
        super().phase(name)
        seconds = round(time.monotonic() - self.started, 3)
        _line(json.dumps({"event": "phase", "task": self.task, "phase": name, "seconds": seconds}))


class _Lines(Reporter):
    """Lines of text for a log; none for work that is soon done."""

    last = 0.0

    def __call__(self, done: int, total: int) -> None:
        eta = self.eta_seconds(done, total)
        left = "" if eta is None else f", about {eta:,.0f} s left"
        if done < total:
            self._say(f"{done:,} of {total:,}{left}")

    def phase(self, name: str) -> None:
        super().phase(name)
        self._say("")

    def _say(self, text: str) -> None:
        now = time.monotonic()
        if now - max(self.last, self.started) >= LINE_SECONDS:
            self.last = now
            _line(": ".join(filter(None, (self.task, self.name, text))))


def warn_unused(options: Collection[str], why: str) -> None:
    """Tell of options that change nothing in this command."""
    for option in sorted(options):
        warnings.warn(f"{option} has no effect: {why}", UnusedOptionWarning, stacklevel=3)


#: whether the running command was called with `--json`: then every line on stderr is a JSON object
_as_lines: ContextVar[bool] = ContextVar("as_lines", default=False)
#: what stands before a message of each kind where people read it
HEADS = {"error": "error: ", "warning": "warning: "}
#: messages that say why there is no result
FAILURES = ("error", "defect", "interrupted", "traceback")


@contextlib.contextmanager
def json_lines(on: bool) -> Iterator[None]:
    """Within the block, messages are JSON lines or lines for people."""
    token = _as_lines.set(on)
    try:
        yield
    finally:
        _as_lines.reset(token)


def says_json() -> bool:
    """Tell whether messages are JSON lines."""
    return _as_lines.get()


def tell(text: str, event: str = "note", **facts: Any) -> None:
    """Print a message on stderr: its text, or with `--json` an object of `event`, `text` and the other facts."""
    _line(json.dumps({"event": event, "text": text, **facts}) if says_json() else HEADS.get(event, "") + text)


def _line(line: str) -> None:
    """Print a line on stderr. Work goes on if nobody listens any more."""
    with contextlib.suppress(BrokenPipeError):
        click.echo(line, err=True)


class _Bar(Reporter):
    """A bar on stderr that appears once the work has lasted long enough, and leaves nothing behind."""

    bar: Any = None
    row: Any = None

    def __init__(self, task: str) -> None:
        super().__init__(task)
        self.at_work: dict[str, float] = {}  # name -> when it began
        self.rows: dict[str, Any] = {}
        self.cells = 0  # of a name
        self.total = 0

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()

    def begun(self, name: str) -> None:
        self.at_work[name] = time.monotonic()
        if self.bar is None:  # what is made of several pieces takes its time
            self._open(self.total)
        self._show_work()

    def ended(self, name: str) -> None:
        self.at_work.pop(name, None)
        if self.bar is not None:
            self._show_work()

    def _show_work(self) -> None:
        """Let the rows below the bar be those of what goes on, each with its own time."""
        from tx8fast.report.grid import shorten

        for name in [n for n in self.rows if n not in self.at_work]:
            self.bar.remove_task(self.rows.pop(name))
        for name in [n for n in self.at_work if n not in self.rows]:
            self.rows[name] = self.bar.add_task(f"  {shorten(name, self.cells)}", total=None, began=self.at_work[name])

    def phase(self, name: str) -> None:
        super().phase(name)
        if self.bar is not None:
            self.bar.update(self.row, description=self._text())

    def __call__(self, done: int, total: int) -> None:
        self.total = total
        if self.bar is None and time.monotonic() - self.started < BAR_DELAY_SECONDS:
            return
        bar = self.bar = self.bar or self._open(total)
        bar.update(self.row, completed=done, total=total)

    def _text(self) -> str:
        return f"{self.task}: {self.name}" if self.name else self.task

    def _open(self, total: int) -> Any:
        from rich import progress as rich
        from rich.console import Console

        console = Console(file=sys.stderr, markup=False, emoji=False)
        columns = (rich.TextColumn("{task.description}", markup=False), rich.BarColumn(BAR_CELLS), _left())
        self.bar = rich.Progress(*columns, console=console, transient=True)
        self.cells = max(12, console.width - BAR_CELLS - LEFT_CELLS)
        self.row = self.bar.add_task(self._text(), total=total)
        self._show_work()
        self.bar.start()
        return self.bar


def _left() -> Any:
    """Return the column that says how much is done and how long the rest may take, or how long a piece of work has taken so far."""
    from rich import progress as rich
    from rich.text import Text

    class Left(rich.ProgressColumn):
        remaining = rich.TimeRemainingColumn()

        def render(self, task: rich.Task) -> Text:
            if "began" in task.fields:
                return Text(f"for {time.monotonic() - task.fields['began']:,.0f} s", style="progress.elapsed")
            return Text.assemble(f"{task.completed:,.0f} of {task.total or 0:,.0f}, left ", self.remaining.render(task))

    return Left()


@contextlib.contextmanager
def replacing(path: Path, what: str) -> Iterator[IO[bytes]]:
    """Yield a binary file that takes the name `path` when the block ends well; otherwise nothing is left.

    Raises ConfigError if it cannot be written.
    """
    try:
        with files.replacing(path, what) as f:
            yield f
    except OSError as e:
        raise ConfigError(f"writing {what} {path}: {e.strerror or e}") from e
