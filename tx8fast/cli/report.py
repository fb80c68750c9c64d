"""`tx8fast report`: everything about a program on one page that opens from disk.

May import: click, cli.*, and late: program, report, simulator. Must not: compute figures.
"""

from __future__ import annotations

from pathlib import Path

import click

from tx8fast import files
from tx8fast.cli.model import length_option, open_program
from tx8fast.cli.output import PATH, json_option, progress, replacing, show_json
from tx8fast.errors import ConfigError

SUFFIXES = (".html", ".htm")


@click.command()
@click.argument("program", type=PATH, metavar="PROGRAM.tx8")
@click.option("-o", "--output", type=PATH, required=True, metavar="OUT.html", help="Page to write.")
@length_option
@json_option
def report(program: Path, output: Path, length: int | None, as_json: bool) -> None:
    """Write one HTML page about PROGRAM: what bounds it, where time and memory go, and what would help."""
    if output.suffix not in SUFFIXES:
        raise ConfigError(f"writing report {output}: found suffix '{output.suffix}', required .html")
    files.claim(output, "report")
    from tx8fast.program.verify import verify

    compiled = open_program(program, length)
    verify(compiled.program)
    from tx8fast.cli.report_facts import report_facts
    from tx8fast.report.page import page

    with progress("simulating", as_json) as callback:
        result = compiled.simulate(progress=callback)
        facts = report_facts(str(program), compiled.program, result)
    text = page(facts).encode("utf-8")
    with replacing(output, "report") as f:
        f.write(text)
    if as_json:
        show_json({"report": str(output), "file_bytes": len(text), "answers": facts["sim"]["answers"]})
    else:
        click.echo(f"{output}: {len(text):,} bytes")
