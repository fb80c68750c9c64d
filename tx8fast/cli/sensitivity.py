"""`tx8fast sensitivity`: how much a program's cycles depend on what the machine file assumes.

May import: click, cli.*, and late: api, machine, simulator, report. Must not: simulate by itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tx8fast.cli.model import length_option, model_options, open_program, read_options, split_lengths
from tx8fast.cli.output import json_option, progress, show_json
from tx8fast.cli.tables import TableChoice, table_options
from tx8fast.errors import ConfigError


@click.command()
@model_options
@length_option
@json_option
@table_options
def sensitivity(model: Path, length: int | None, as_json: bool, table: TableChoice, **given: Any) -> None:
    """Simulate MODEL, a model or a PROGRAM.tx8, with each assumed figure of the machine at x0.5 and x1.5."""
    from tx8fast import api
    from tx8fast.cli.facts import program_facts
    from tx8fast.machine import Machine, load_machine
    from tx8fast.machine.tags import assumed_keys, read_tags
    from tx8fast.program.verify import verify
    from tx8fast.report.assumptions import sensitivity_tables
    from tx8fast.simulator.sensitivity import sensitivity as find

    context = click.get_current_context()
    machine_given = _is_given(context, "machine")
    if model.suffix == ".tx8":
        unused = [
            p.opts[0]
            for p in context.command.params
            if p.name not in ("model", "machine", "length", "as_json", "columns", "sort", "as_csv")
            and p.name is not None
            and _is_given(context, p.name)
        ]
        if unused:
            raise click.UsageError(f"{model} is a program: drop {', '.join(unused)}, its model is bound already")
        program = open_program(model, length).program
        verify(program)
        if machine_given and load_machine(given["machine"]) != Machine.from_dict(program.machine):
            raise ConfigError(f"reading tags of {given['machine']}: {model} was compiled for another machine")
    else:
        if length is not None:
            raise click.UsageError("--length chooses a program of a file; give --seq, --past or --batch for a model")
        given, name, _ = split_lengths(given)
        if name:
            raise click.UsageError(f"several sizes are given for {name}: look at one at a time")
        program = api.compile(model, read_options(**given)).program
    tags = read_tags() | (read_tags(given["machine"]) if machine_given else {})
    with progress("simulating", as_json) as callback:
        found = find(program, assumed_keys(tags), callback)
    head = program_facts(program)
    facts = {
        "program": str(model),
        **{k: head[k] for k in ("model", "phase", "compute_dtype", "machine_digest")},
        **found.to_json(),
    }
    if as_json:
        show_json(facts)
    else:
        before, grid, after = sensitivity_tables(facts)
        table.show([] if table.given else before, grid, () if table.given else after)


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
