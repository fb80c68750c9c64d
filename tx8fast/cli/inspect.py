"""`tx8fast inspect`: what is in a program file, down to its instructions.

May import: click, cli.*, and late: api, report. Must not: simulate.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tx8fast.cli.model import length_option, open_program
from tx8fast.cli.output import PATH, json_option, show_json, warn_unused
from tx8fast.cli.tables import TableChoice, table_options
from tx8fast.errors import ConfigError


@click.command()
@click.argument("program", type=PATH, metavar="PROGRAM.tx8")
@click.option("--code", metavar="SEGMENT", help="Disassemble one segment, named by its index or its name.")
@click.option("--streams", is_flag=True, help="List the channels between tiles that its messages use.")
@click.option("--all", "show_all", is_flag=True, help="List every parameter and segment, not only the first ones.")
@length_option
@json_option
@table_options
def inspect(
    program: Path,
    code: str | None,
    streams: bool,
    show_all: bool,
    length: int | None,
    as_json: bool,
    table: TableChoice,
) -> None:
    """Show the tensors, segments, plans and code of PROGRAM."""
    if code is not None and streams:
        raise click.UsageError("--code and --streams are two outputs; give one of them")
    if code is not None and table.given:
        raise click.UsageError("--columns, --sort and --csv are for tables; drop --code")
    if show_all and (code is not None or as_json):
        warn_unused({"--all"}, "nothing is left out of --code" if code is not None else "nothing is left out of --json")
    from tx8fast.cli.facts import inspect_facts

    loaded = open_program(program, length).program
    if code is not None:
        _code(loaded, code, as_json)
        return
    if streams:
        _streams(loaded, show_all, as_json, table)
        return
    facts = {"program": str(program), **inspect_facts(loaded)}
    if as_json:
        show_json(facts)
    else:
        from tx8fast.report.tables import ALL, SHOWN, inspect_head, kernel_core, segments_grid

        grid = segments_grid(facts["segment_rows"], ALL if show_all or table.given else SHOWN)
        table.show([] if table.given else inspect_head(facts, show_all), grid, kernel_core(facts["kernel_core"]))


def _code(program: Any, wanted: str, as_json: bool) -> None:
    from tx8fast.report.disassembly import code_rows, disassemble

    segment = program.segments[_find(program, wanted)]
    if as_json:
        codes = [{"tiles": tiles, "instructions": rows} for tiles, rows in code_rows(segment)]
        show_json({"segment": segment.name, "codes": codes, "routines": segment.routines})
        return
    for line in disassemble(segment):
        click.echo(line)


def _streams(program: Any, show_all: bool, as_json: bool, table: TableChoice) -> None:
    from dataclasses import asdict

    from tx8fast.program.streams import streams
    from tx8fast.program.verify import verify

    verify(program)
    rows = [asdict(s) for s in streams(program)]
    if as_json:
        show_json({"streams": rows})
        return
    from tx8fast.report.tables import stream_grid

    table.show([], stream_grid(rows, show_all or table.given))


def _find(program: Any, wanted: str) -> int:
    """Return the index of the segment called `wanted` or of that index."""
    names = [s.name for s in program.segments]
    if wanted in names:
        return names.index(wanted)
    if wanted.isdecimal() and int(wanted) < len(names):
        return int(wanted)
    some = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    raise ConfigError(
        f"looking for segment '{wanted}': found none; there are {len(names)} (0 to {len(names) - 1}): {some}"
    )
