"""`tx8fast verify`: prove that a program file computes a model.

May import: click, cli.*, proof.report, and late: api. Must not: know how a proof works.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tx8fast.cli.model import length_option, open_program
from tx8fast.cli.output import BAD_INPUT, DONE, PATH, json_option, progress, show_json
from tx8fast.proof.report import BITS

#: ops that are named in one line of losses
MOST_LOSSES = 4


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
@click.option("--kernels", default="", metavar="FILE.py", help="The kernels that it was compiled with.")
@click.option(
    "--quick",
    is_flag=True,
    help=f"Use one seed instead of as many as reach 2^-{BITS}: faster. The report says how probable a missed error is.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Exit with 2 if anything is outside the proof: an op or a kernel-core routine that it has no expression for.",
)
@length_option
@json_option
def verify(
    program: Path,
    model: Path,
    constants: Path | None,
    group_table: str,
    kernels: str,
    quick: bool,
    strict: bool,
    length: int | None,
    as_json: bool,
) -> int:
    """Prove that PROGRAM computes MODEL: execute it over a finite field and compare every element with the graph's expression.

    Needs no weights. Exit code 0: proved, or proved only in part (the first line says so, and with --strict it is 2); 2: the
    program does not compute the model, or is not of it. What the program holds in fewer bits than it could is listed, too.
    """
    from tx8fast import api

    loaded = open_program(program, length).program
    options = api.options_of(loaded, _constants(constants), group_table, kernels)
    with progress("proving", as_json) as callback:
        report = api.prove(loaded, model, options, quick=quick, progress=callback)
    losses = api.precision(loaded)
    if as_json:
        facts: dict[str, Any] = {"program": str(program), "model": str(model), **report.to_json()}
        show_json({**facts, "precision": [asdict(loss) for loss in losses]})
    else:
        for line in [*report.lines(), *_losses(losses)]:
            click.echo(line)
    return DONE if report.complete or (report.proved and not strict) else BAD_INPUT


def _losses(found: Sequence[Any]) -> list[str]:
    """Return what the program rounds that it need not, in lines; rounding is no part of the proof."""
    kinds: dict[str, list[Any]] = {}
    for loss in found:
        kinds.setdefault(loss.what, []).append(loss)
    lines = []
    for what, own in kinds.items():
        where = ", ".join(f"{x.op} ({x.rows:,} rows)" for x in own[:MOST_LOSSES])
        more = f" and {len(own) - MOST_LOSSES} more" if len(own) > MOST_LOSSES else ""
        lines.append(f"precision: {what}: {where}{more}")
    return lines


def _constants(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    from tx8fast.cli.npz import read_npz

    return read_npz(path, "constants")
