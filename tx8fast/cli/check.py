"""`tx8fast check`: what will become of a model, without compiling it.

May import: click, cli.*, and late: api, machine, report. Must not: search or emit code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tx8fast.cli.kernel_core import forbid_option, state
from tx8fast.cli.model import model_options, read_options, split_lengths
from tx8fast.cli.output import json_option, show, show_json


@click.command()
@model_options
@forbid_option
@json_option
def check(model: Path, as_json: bool, forbid: tuple[str, ...], **given: Any) -> None:
    """Tell op by op what MODEL needs: engine, sizes, whether it fits, and its roofline bound."""
    given, name, _ = split_lengths(given)
    if name:
        raise click.UsageError(f"several sizes are given for {name}: check one at a time")
    options = read_options(**given)
    from tx8fast import api
    from tx8fast.cli.support import support_facts
    from tx8fast.frontend import open_model
    from tx8fast.machine import load_machine

    machine = load_machine(options.machine)
    ir = open_model(model, **options.import_options())
    view = api.lower_graph(ir, options)
    needed = api.model_demand(ir, view, machine, options)
    found, share = support_facts(view.table, machine, needed)
    facts = {"model": ir.name, "phase": ir.phase, "machine_digest": machine.digest, **found}
    state(share, forbid, f"checking {model}")
    if as_json:
        show_json(facts)
    else:
        from tx8fast.report.check import support_tables

        show(support_tables(facts))
