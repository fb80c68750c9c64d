"""`tx8fast emit-c` and `tx8fast test-case`: programs as C, with what they need to be built and run.

May import: click, cli.*, and late: lengths, program, test_cases. Must not: hold text of C.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tx8fast import files
from tx8fast.cli.model import length_option, open_program
from tx8fast.cli.output import PATH, json_option, show_json
from tx8fast.errors import ConfigError

_INTO = click.option(
    "-o", "--output", "folder", required=True, type=PATH, metavar="DIR", help="The directory, made if need be."
)


@click.command("emit-c")
@click.argument("program", type=PATH, metavar="PROGRAM.tx8")
@_INTO
@click.option(
    "--test-case",
    "inputs",
    type=PATH,
    metavar="IN.npz",
    help="Also write these inputs and what the program makes of them; the C program then compares.",
)
@click.option(
    "--weights",
    type=PATH,
    metavar="DIR|FILE",
    help="Directory of the checkpoint, or a file in it, for weights that are not in the program file.",
)
@length_option
@json_option
def emit_c(
    program: Path, folder: Path, inputs: Path | None, weights: Path | None, length: int | None, as_json: bool
) -> None:
    """Write PROGRAM as C: its text, parameters, a description, and a model of the chip to run it on.

    `make run` in the directory compiles and runs it."""
    from tx8fast.cli.npz import fit_inputs, read_npz
    from tx8fast.program.verify import verify

    if weights is not None and not weights.exists():
        raise ConfigError(f"reading weights: {weights}: no such file or directory")
    if weights is not None:
        files.refer_folder(weights) if weights.is_dir() else files.refer(weights)
    compiled = open_program(program, length)
    verify(compiled.program)
    given = None
    if inputs is not None:
        given = fit_inputs(read_npz(inputs, "inputs"), compiled.inputs, str(inputs), compiled.program.n_chips)
    names = compiled.emit_c(folder, weights, given)
    _tell({"program": str(program)}, folder, names, as_json)


@click.command("test-case")
@click.option(
    "--random", "is_random", is_flag=True, required=True, help="Draw op, dims, layouts, format, shapes and values."
)
@click.option("--op", metavar="KIND", help="Draw the rest for this op.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Another seed draws another case.")
@click.option("--machine", metavar="NAME|FILE", default="tx8", show_default=True, help="The chip.")
@click.option("--opt", type=click.IntRange(1, 3), default=2, show_default=True, help="How hard plans are searched for.")
@_INTO
@json_option
def test_case(is_random: bool, op: str | None, seed: int, machine: str, opt: int, folder: Path, as_json: bool) -> None:
    """Write a program of one op as C, with inputs and what is expected."""
    from tx8fast.test_cases import random_case

    case = random_case(seed, op, machine, opt)
    names = case.program.emit_c(folder, inputs=case.inputs)
    _tell({"case": case.text, "seed": seed}, folder, names, as_json)


def _tell(facts: dict[str, Any], folder: Path, names: list[str], as_json: bool) -> None:
    if as_json:
        show_json({**facts, "directory": str(folder), "files": names})
        return
    if "case" in facts:
        click.echo(f"seed {facts['seed']}: {facts['case']}")
    lines = (folder / "program.c").read_bytes().count(b"\n")
    click.echo(f"{folder}: program.c has {lines:,} lines, params.bin {(folder / 'params.bin').stat().st_size:,} bytes")
    click.echo(f"build and run: make -C {folder} run")
