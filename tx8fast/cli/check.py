"""`tx8fast check`: what will become of a model, without compiling it.

May import: click, cli.*, and late: graphs, cli.support, frontend, machine, report. Must not: search or emit code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tx8fast.cli.kernel_core import forbid_option, state
from tx8fast.cli.model import model_options, read_options, split_lengths
from tx8fast.cli.output import json_option, show_json
from tx8fast.cli.tables import TableChoice, table_options


@click.command()
@model_options
@forbid_option
@json_option
@table_options
def check(model: Path, forbid: tuple[str, ...], as_json: bool, table: TableChoice, **given: Any) -> None:
    """Tell op by op what MODEL needs: engine, sizes, whether it fits, and its roofline bound."""
    given, name, _ = split_lengths(given)
    if name:
        raise click.UsageError(f"several sizes are given for {name}: check one at a time")
    options = read_options(**given)
    from tx8fast.graphs import quiet_collector

    with quiet_collector():  # modules that are loaded are garbage no more than the graph is
        from tx8fast.cli.support import chips_facts, support_facts
        from tx8fast.frontend import open_model
        from tx8fast.graphs import lower_graph, model_demand
        from tx8fast.machine import load_machine

        machine = load_machine(options.machine)
        ir = open_model(model, **options.import_options())
        view = lower_graph(ir, options)
        needed = model_demand(ir, view, machine, options)
        found, share = support_facts(view.table, machine, needed)
        facts = {"model": ir.name, "family": ir.family, "phase": ir.phase, "machine_digest": machine.digest, **found}
        facts |= chips_facts(ir, view.table, facts, options.tp)
    state(share, forbid, f"checking {model}")
    if as_json:
        show_json(facts)
    else:
        from tx8fast.report.check import ops_grid, size_parts

        table.show([], ops_grid(facts), size_parts(facts))
