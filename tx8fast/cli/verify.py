"""`tx8fast verify`: prove that a program file computes a model.

May import: click, cli.*, and late: api. Must not: know how a proof works.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tx8fast.cli.model import length_option, open_program
from tx8fast.cli.output import BAD_INPUT, DONE, PATH, json_option, progress, show_json


@click.command()
@click.argument("program", type=PATH, metavar="PROGRAM.tx8")
@click.option(
    "--against",
    "model",
    type=PATH,
    required=True,
    metavar="MODEL",
    help="The model that PROGRAM was compiled from.",
)
@click.option(
    "--constants",
    type=PATH,
    metavar="FILE.npz",
    help="The model inputs that were bound when it was compiled.",
)
@click.option(
    "--group-table",
    default="",
    metavar="FILE",
    help="The pattern table that it was compiled with, if that was a file.",
)
@click.option(
    "--quick", is_flag=True, help="Use one seed: faster, and a wrong program passes with about 2^-20 instead of 2^-40."
)
@length_option
@json_option  # fmt: skip
def verify(
    program: Path, model: Path, constants: Path | None, group_table: str, quick: bool, length: int | None, as_json: bool
) -> int:
    """Prove that PROGRAM computes MODEL: execute it over a finite field and compare every element with the graph's expression.

    Needs no weights. Exit code 0: proved; 2: the program does not compute the model, or is not of it.
    """
    from tx8fast import api

    loaded = open_program(program, length).program
    options = api.options_of(loaded, _constants(constants), group_table)
    with progress("proving", as_json) as callback:
        report = api.prove(loaded, model, options, quick=quick, progress=callback)
    facts: dict[str, Any] = {"program": str(program), "model": str(model), **report.to_json()}
    if as_json:
        show_json(facts)
    else:
        for line in report.lines():
            click.echo(line)
    return DONE if report.proved else BAD_INPUT


def _constants(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    from tx8fast.cli.npz import read_npz

    return read_npz(path, "constants")
