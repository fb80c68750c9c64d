"""`tx8fast opt`: run passes on the text of a graph.

May import: click, cli.*, and late: ir, passes. Must not: know particular passes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tx8fast.cli.output import PATH, show_graph, warn_unused
from tx8fast.errors import ConfigError
from tx8fast.files import read_input

#: largest text of a graph; weights are not part of it
MAX_TEXT_BYTES = 1 << 28


@click.command()
@click.argument("source", type=PATH, metavar="IN.mlir")
@click.option(
    "--pass",
    "passes",
    multiple=True,
    metavar="a,b{x=1}",
    help="Passes to run, in order; repeatable. Without it the text is only read, checked and printed.",
)
@click.option("--locations", is_flag=True, help="Print where each op came from.")
def opt(source: Path, passes: tuple[str, ...], locations: bool) -> None:
    """Run passes on the graph in IN.mlir ("-" reads stdin) and print it on stdout."""
    from tx8fast.ir import new_context
    from tx8fast.ir.program import IRProgram
    from tx8fast.passes.pipeline import run_pipeline

    program = IRProgram.from_text(new_context(), _read(source), None, source.stem, str(source))
    if passes and not any(text.strip(" ,") for text in passes):
        warn_unused({"--pass"}, "it names no pass")
    run_pipeline(program, ",".join(passes))
    show_graph(program.text(locations))


def _read(source: Path) -> str:
    try:
        if str(source) != "-":
            data = read_input(source, MAX_TEXT_BYTES)
        elif len(data := sys.stdin.buffer.read(MAX_TEXT_BYTES + 1)) > MAX_TEXT_BYTES:
            raise ConfigError(f"reading graph {source}: more than {MAX_TEXT_BYTES:,} bytes, which no graph has")
        return data.decode("utf-8")
    except OSError as e:
        raise ConfigError(f"reading graph {source}: {e.strerror or e}") from e
    except UnicodeDecodeError as e:
        raise ConfigError(f"reading graph {source}: this is no text: {e}") from e
