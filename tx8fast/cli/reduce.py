"""`tx8fast reduce`: the smallest part of a model that still fails or is slow, as a file without weights.

May import: click, cli.*, and late: reducing, frontend, machine. Must not: hold logic of a stage.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tx8fast import files
from tx8fast.cli.model import model_options, read_options, split_lengths
from tx8fast.cli.output import PATH, json_option, progress, replacing, show_json
from tx8fast.errors import ConfigError


@click.command()
@model_options
@click.option(
    "-o", "--output", required=True, type=PATH, metavar="OUT.mlir", help="Where the part goes; `compile` takes it."
)
@click.option(
    "--opt", type=click.IntRange(1, 3), default=2, show_default=True, help="Level of the search, as for `compile`."
)
@click.option("--slow", is_flag=True, help="Look for the group that loses most cycles, not for a failure.")
@click.option(
    "--tries",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    metavar="N",
    help="Parts that are compiled at most.",
)
@json_option
def reduce(model: Path, output: Path, opt: int, slow: bool, tries: int, as_json: bool, **given: Any) -> None:
    """Find the smallest part of MODEL that still does not compile, or whose slowest group is still slow.

    The part is the text of a graph: ops, shapes and formats, no values of weights."""
    given, name, _ = split_lengths(given)
    if name:
        raise click.UsageError(f"several sizes are given for {name}: reduce one at a time")
    options = read_options(**given, opt=opt, embed_limit_bytes=0)
    files.claim(output, "part")
    from tx8fast import reducing
    from tx8fast.frontend import open_model
    from tx8fast.machine import load_machine

    machine = load_machine(options.machine)
    ir = open_model(model, **options.import_options())
    text = ir.text()
    facts: dict[str, Any]
    if slow:
        found = reducing.slow_group(text, machine, options)
        if found is None:
            raise ConfigError(
                f"reducing {model}: it does not compile, or has no group; without --slow its failure is looked for"
            )
        cycles, ratio = found
        shows = reducing.as_slow(cycles, ratio, machine, options)
        facts = {"looked_for": "slow", "cycles": cycles, "roofline_ratio": ratio}
        what = f"a group of {cycles:,} cycles at {ratio:.3f} of its roofline"
    else:
        error = reducing.failure(text, machine, options)
        if error is None:
            raise ConfigError(f"reducing {model}: it compiles; --slow looks for the group that loses most")
        kind = reducing.kind_of(error)
        shows = reducing.fails_so(kind, machine, options)
        facts = {"looked_for": "failure", "failure": kind}
        what = f"the failure {kind}"
    with progress("reducing", as_json) as callback:
        made = reducing.Reducer(ir, shows, tries, callback).run()
    with replacing(output, "part") as f:
        f.write((made.text + "\n").encode("utf-8", "surrogatepass"))
    facts = {
        "output": str(output),
        **facts,
        "ops": made.ops,
        "first_ops": made.first_ops,
        "tries": made.tries,
        "finished": made.finished,
    }
    if as_json:
        show_json(facts)
        return
    click.echo(f"{made.ops} of {made.first_ops:,} ops still show {what}")
    if not made.finished:
        click.echo(f"after {made.tries} tries; more --tries may leave out more")
    click.echo(f"written to {output}; `tx8fast compile {output}` with the same options shows it")
