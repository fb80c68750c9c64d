"""`tx8fast calibrate`: figures of a machine file from measurements.

May import: click, files, cli.*, and late: machine, simulator, report. Must not: fit by itself.
"""

from __future__ import annotations

from pathlib import Path

import click

from tx8fast import files
from tx8fast.cli.output import PATH, json_option, replacing, show_json
from tx8fast.cli.tables import TableChoice, table_options
from tx8fast.errors import ConfigError, raise_all

MOST_BYTES = 1 << 22  # of a file of measurements


@click.command()
@click.argument("measurements", type=PATH, metavar="CSV")
@click.option("-o", "--output", type=PATH, metavar="OUT.toml", help="Machine file to write.")
@click.option("--machine", default="tx8", metavar="NAME|FILE.toml", show_default=True, help="Machine to begin with.")
@click.option(
    "--fit",
    "keys",
    multiple=True,
    metavar="KEY",
    help="Fit this key; repeatable (default: all that the machine file tags as assumed).",
)
@json_option
@table_options
def calibrate(
    measurements: Path, output: Path | None, machine: str, keys: tuple[str, ...], as_json: bool, table: TableChoice
) -> None:
    """Fit figures of the machine to the times in CSV: columns engine, size, cycles."""
    from tx8fast.machine import load_machine
    from tx8fast.machine.config import SCHEMA, read_machine_text
    from tx8fast.machine.tags import assumed_keys, edited, read_tags
    from tx8fast.report.assumptions import calibration_tables
    from tx8fast.simulator.calibrate import calibrate as fit
    from tx8fast.simulator.measurements import parse

    if output is not None:
        files.claim(output, "machine file")
    known = [k for k, (meta, _) in SCHEMA.items() if not meta.get("choice")]
    raise_all(
        ConfigError,
        "choosing figures to fit",
        [f"--fit {k:.80}: there is no such figure" for k in keys if k not in known],
    )
    base = load_machine(machine)
    try:
        text = files.read_input(measurements, MOST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise ConfigError(f"reading measurements {measurements}: no text in UTF-8, byte {e.start}") from None
    except OSError as e:
        raise ConfigError(f"reading measurements {measurements}: {e.strerror or e}") from None
    found = fit(
        base,
        parse(text, str(measurements), base),
        list(dict.fromkeys(keys)) or assumed_keys(read_tags() | read_tags(machine)),
    )
    if output is not None:
        content = edited(read_machine_text(machine)[0], found.values, "fitted")
        with replacing(output, "machine file") as f:
            f.write(content.encode())
    facts = {
        "machine": machine,
        "machine_digest": base.digest,
        "fitted_digest": found.fitted.digest,
        "output": "" if output is None else str(output),
        **found.to_json(),
    }
    if as_json:
        show_json(facts)
    else:
        before, grid, after = calibration_tables(facts)
        table.show([] if table.given else before, grid, () if table.given else after)
