"""`tx8fast export`: the graph of a model with its weights as files, which is a model again.

May import: click, cli.*, and late: frontend, ir. Must not: hold logic of a stage.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from tx8fast import files
from tx8fast.cli.model import model_options, read_options, split_lengths
from tx8fast.cli.output import PATH, json_option, show_json, warn_unused
from tx8fast.cli.unused import given as given_options
from tx8fast.errors import ConfigError


@click.command()
@model_options
@click.option(
    "-o",
    "--output",
    "folder",
    required=True,
    type=PATH,
    metavar="DIR",
    help="A directory that is empty or not there yet.",
)
@json_option
def export(model: Path, folder: Path, as_json: bool, **given: Any) -> None:
    """Write the graph of MODEL as it is imported: its text, and what its weights are and where.

    DIR is a model: with the files that weights are in beside the graph, its programs run."""
    given, name, _ = split_lengths(given)
    if name:
        raise click.UsageError(f"several sizes are given for {name}: export one at a time")
    warn_unused(given_options(("dtype", "io_dtype", "machine")), "the graph is written as it is imported")
    options = read_options(**given)
    _check_free(folder)
    from tx8fast.frontend import open_model
    from tx8fast.ir.export import exported

    ir = open_model(model, **options.import_options())
    if ir.parts > 1:
        warn_unused(given_options(("tp",)), "a graph is cut when it is compiled")
    contents, model_files = exported(ir)
    try:
        for parent in sorted({(folder / n).parent for n in contents}):
            files.make_folder(parent)
        with files.together():
            for n, content in contents.items():
                with files.replacing(folder / n, "graph") as f:
                    f.write(content)
    except OSError as e:
        raise ConfigError(f"exporting to {folder}: {e.strerror or e}") from e
    table = ir.weights
    facts = {
        "model": str(model),
        "directory": str(folder),
        "files": list(contents),
        "ops": ir.n_ops(),
        "weights": len(table),
        "model_files": model_files,
        "missing": table.missing(),
    }
    if as_json:
        show_json(facts)
        return
    click.echo(f"{folder}: {facts['ops']:,} ops, {facts['weights']:,} weights")
    if facts["missing"]:
        click.echo(f"weights without bytes: {len(facts['missing']):,}; programs of it compile and do not run")
    if model_files:
        click.echo(f"to run its programs, put or link into it: {', '.join(model_files)}")


def _check_free(folder: Path) -> None:
    """Raise ConfigError if there is anything in the directory: nothing is ever written over."""
    try:
        with os.scandir(folder) as entries:
            found = next(entries, None)
    except FileNotFoundError:
        return
    except OSError as e:
        raise ConfigError(f"exporting to {folder}: {e.strerror or e}") from e
    if found is not None:
        raise ConfigError(
            f"exporting to {folder}: it has a file {found.name}; name a directory that is empty or not there yet"
        )
