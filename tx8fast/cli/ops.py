"""`tx8fast ops`: the kinds of ops that a graph is made of.

May import: click, cli.*, and late: ir, report. Must not: know particular kinds.
"""

from __future__ import annotations

import json

import click

from tx8fast.cli.output import json_option, show_json
from tx8fast.cli.tables import TableChoice, table_options


@click.command()
@json_option
@table_options
def ops(as_json: bool, table: TableChoice) -> None:
    """List the kinds of ops of a graph's text: operands, results, attributes."""
    from tx8fast.ir import new_context
    from tx8fast.ir.definitions import definitions
    from tx8fast.ir.versions import CURRENT

    found = definitions(new_context())
    if as_json:
        show_json({"ir_version": list(CURRENT), "ops": found})
        return
    from tx8fast.report.tables import kinds_grid

    rows = [
        {
            "op": d["name"],
            "operands": ", ".join(d["operands"]),
            "results": ", ".join(d["results"]),
            "attributes": ", ".join(
                f"{a['name']}={json.dumps(a['default'])}" if "default" in a else a["name"] for a in d["attributes"]
            ),
            "traits": ", ".join(d["traits"]),
            "since": ".".join(map(str, d["since"])),
        }
        for d in found
    ]
    table.show([], kinds_grid(rows))
