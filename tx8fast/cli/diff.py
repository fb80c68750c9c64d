"""`tx8fast diff`: what has changed between two programs, or two reports of them, and why.

May import: click, cli.*, and late: program, report, simulator. Must not: compare figures itself.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from tx8fast.cli.model import length_option, open_program
from tx8fast.cli.output import PATH, json_option, progress, show_json
from tx8fast.cli.tables import TableChoice, table_options
from tx8fast.errors import ConfigError

MOST_BYTES = 1 << 30
_BLOCK = re.compile(r'<script type="application/json" id="tx8fast-sim">(.*?)</script>', re.S)
#: what of `sim --json` is compared -> its type; `losses` hold numbers, `segments` names
_NEEDED = {"cycles": int, "groups": list, "losses": dict}
_OF_GROUPS = {
    "label": str,
    "cycles": int,
    "count": int,
    "total_cycles": int,
    "ddr_bytes": int,
    "noc_bytes": int,
    "instructions": int,
    "segments": list,
    "losses": dict,
    "bound_cycles": float,
}


@click.command()
@click.argument("first", type=PATH, metavar="FIRST")
@click.argument("second", type=PATH, metavar="SECOND")
@length_option
@json_option
@table_options
def diff(first: Path, second: Path, length: int | None, as_json: bool, table: TableChoice) -> None:
    """Tell what differs between two programs (.tx8), reports (.html) or outputs of `sim --json`, and why.

    Plans, options and machine figures are known of programs alone."""
    from tx8fast.report.compare import difference, groups_grid, head_parts, why_parts

    found = difference(*(_read(path, length, as_json) for path in (first, second)))
    if as_json:
        show_json({"first": str(first), "second": str(second), **found})
    elif table.given:
        table.show([], groups_grid(found))
    else:
        table.show(head_parts(found), groups_grid(found), why_parts(found))


def _read(path: Path, length: int | None, as_json: bool) -> dict[str, Any]:
    if path.suffix in (".html", ".htm", ".json"):
        return {"sim": _report(path)}
    from tx8fast.cli.facts import program_facts, segment_facts, simulation_facts
    from tx8fast.program.verify import verify

    compiled = open_program(path, length)
    program = compiled.program
    verify(program)
    with progress("simulating", as_json) as callback:
        result = compiled.simulate(progress=callback)
    machine = {
        f"{section}.{k}": v
        for section, figures in program.machine.items()
        for k, v in (figures.items() if isinstance(figures, dict) else [("", figures)])
    }
    options = program_facts(program)["options"]
    return {
        "sim": simulation_facts(str(path), program, result),
        "segments": segment_facts(program),
        "options": options,
        "machine": machine,
    }


def _report(path: Path) -> dict[str, Any]:
    """Return what `sim --json` printed, from a report or as it is. Raises ConfigError."""
    from tx8fast.files import read_input

    doing = f"reading report {path}"
    try:
        text = read_input(path, MOST_BYTES).decode("utf-8")
        block = _BLOCK.search(text) if path.suffix != ".json" else None
        if path.suffix != ".json" and block is None:
            raise ConfigError(f"{doing}: it is no page of `tx8fast report`")
        found = json.loads(text if block is None else block[1])
    except OSError as e:
        raise ConfigError(f"{doing}: {e.strerror or e}") from e
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"{doing}: it is not what `sim --json` prints: {e}") from e
    if not _has(found, _NEEDED) or not all(_has(g, _OF_GROUPS) for g in found["groups"]):
        raise ConfigError(f"{doing}: it is not what this version's `sim --json` prints")
    return found


def _has(found: Any, needed: dict[str, type]) -> bool:
    """Tell whether an object has these keys with values of these types, and lists and losses hold what they should."""
    if not isinstance(found, dict):
        return False
    for key, kind in needed.items():
        value = found.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
            return False
    numbers = all(isinstance(v, int | float) for v in found["losses"].values())
    return numbers and all(isinstance(s, str) for s in found.get("segments", ()))
