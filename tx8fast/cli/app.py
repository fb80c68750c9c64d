"""The group of all commands, and how every kind of failure becomes a message and an exit code.

May import: click, the commands (late), errors, files. Must not: import the compiler.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import click

from tx8fast import __version__
from tx8fast.cli.output import (
    BAD_INPUT,
    DEFECT,
    DONE,
    INTERRUPTED,
    JSON,
    STRICT,
    json_lines,
    says_json,
    strict_option,
    tell,
)
from tx8fast.errors import CompileWarning, Tx8Error, bounded
from tx8fast.files import Registry, watching

TRACEBACK = "TX8FAST_TRACEBACK"


#: command -> where it is: a command's module is imported when the command is called, or all are listed
COMMANDS = {
    "batch": "batch.batch",
    "bench": "bench.bench",
    "cache": "cache.cache",
    "calibrate": "calibrate.calibrate",
    "check": "check.check",
    "compile": "compile.compile_",
    "diff": "diff.diff",
    "emit-c": "emit.emit_c",
    "export": "export.export",
    "inspect": "inspect.inspect",
    "ops": "ops.ops",
    "opt": "opt.opt",
    "reduce": "reduce.reduce",
    "report": "report.report",
    "run": "simulate.run_",
    "sensitivity": "sensitivity.sensitivity",
    "serve": "serve.serve",
    "sim": "simulate.sim",
    "test-case": "emit.test_case",
    "verify": "verify.verify",
}


class _Commands(click.Group):
    """The commands of the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module, _, name = COMMANDS.get(cmd_name, "").partition(".")
        if not module:
            return None
        command = getattr(importlib.import_module(f"tx8fast.cli.{module}"), name)
        if not isinstance(command, click.Group) and all(p.name != STRICT for p in command.params):
            command.params.append(strict_option())
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            if not says_json():
                raise  # click ends the line that may stand there, with what the terminal shows of the key
            raise click.Abort from None


def _place(name: str, function: str, text: str) -> Callable:
    """Return the option that prints where a part of the host library lies."""

    def show(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        if value:
            click.echo(getattr(importlib.import_module("tx8fast.host.places"), function)())
            ctx.exit()

    return click.option(name, is_flag=True, is_eager=True, expose_value=False, callback=show, help=text)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tx8fast", message="%(prog)s %(version)s")
@_place("--include-dir", "get_include", "Print the folder of the host library's headers.")
@_place("--cmake-dir", "get_cmake_dir", "Print the folder of its CMake package (tx8fast_DIR).")
@_place("--pkgconfig-dir", "get_pkgconfig_dir", "Print the folder of its pkg-config file.")
def cli() -> None:
    """Compile neural networks for the TX8 chip, execute the programs bit by bit, and time them.

    MODEL is an ONNX, StableHLO or GGUF file, a Hugging Face directory, a config.json alone, or what `export` wrote. Exit codes: 0
    done, 1 defect in tx8fast, 2 something is wrong with the input or the options, 3 `bench --compare` found something worse, 128 + n interrupted by
    signal n (130: Ctrl-C).
    """


def run(argv: Sequence[str] | None = None, done: Callable[[], None] = lambda: None) -> int:
    """Run one command; print one message for a failure and return the exit code. done: called when all is written and printed, within
    what still undoes it for an interrupt."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever called us
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    with contextlib.suppress(AttributeError):  # names may have what a terminal or a pipe cannot show
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    as_json = JSON in (sys.argv[1:] if argv is None else argv)  # options that are wrong are told as lines too
    with warnings.catch_warnings(), json_lines(as_json):
        plain, told = warnings.showwarning, set()

        def show(text: Warning | str, kind: type[Warning], *where: Any, **more: Any) -> None:
            if not issubclass(kind, CompileWarning) and not as_json:
                plain(text, kind, *where, **more)
            elif str(text) not in told:  # several lengths are several imports
                told.add(str(text))
                tell(str(text), "warning")

        warnings.simplefilter("always", CompileWarning)
        warnings.showwarning = show
        with watching() as registry:
            return _run(argv, registry, done)


def _run(argv: Sequence[str] | None, registry: Registry, done: Callable[[], None]) -> int:
    try:
        code = cli.main(None if argv is None else list(argv), prog_name="tx8fast", standalone_mode=False)
        sys.stdout.flush()
        done()
        return code if isinstance(code, int) else DONE
    except click.exceptions.NoArgsIsHelpError as e:
        click.echo(e.format_message(), err=True)
        return BAD_INPUT
    except click.UsageError as e:
        hint = f"\ntry '{e.ctx.command_path} --help'" if e.ctx is not None else ""
        return _fail(e.format_message() + hint, registry)
    except click.ClickException as e:
        return _fail(e.format_message(), registry)
    except CompileWarning as e:
        return _fail(f"--strict: {e}", registry)
    except (click.Abort, KeyboardInterrupt):
        registry.undo()
        tell("interrupted", "interrupted")
        return INTERRUPTED
    except Tx8Error as e:
        return _fail(str(e), registry)
    except (
        BrokenPipeError,
        SystemExit,
    ):  # click ends the process if whoever reads our output has seen enough, as `head`
        return _hush()  # files are written before anything is printed
    except MemoryError as e:
        return _fail(
            f"out of memory{f': {e}' if str(e) else ''}; a smaller model, batch or sequence would help", registry
        )
    except (
        OSError
    ) as e:  # of files that no stage expects to fail: names too long, devices that fail, a full disk behind stdout
        where = "reading or writing" if e.filename is None else f"opening {e.filename}"
        return _fail(f"{where}: {e.strerror or e}", registry)
    except Exception as e:
        registry.undo()
        tell(
            f"internal error: {type(e).__name__}: {e}\nthis is a defect of tx8fast, please report it with the command line"
            + ("" if _wants_traceback() else f"; {TRACEBACK}=1 shows where it happened"),
            "defect",
        )
        _show_traceback()
        return DEFECT


def _hush() -> int:
    """Let nothing more go to stdout, whose reader is gone; Python would complain when it ends."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE


def _fail(message: str, registry: Registry) -> int:
    registry.undo()  # a command that fails leaves nothing
    tell(bounded(message), "error")
    _show_traceback()
    return BAD_INPUT


def _show_traceback() -> None:
    if _wants_traceback():
        tell(traceback.format_exc().rstrip(), "traceback")


def _wants_traceback() -> bool:
    return os.environ.get(TRACEBACK, "") not in ("", "0")
