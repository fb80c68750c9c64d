"""`tx8fast bench`: the model zoo compiled and timed, and two such runs compared.

May import: click, cli.*, and late: batch, zoo, report. Must not: hold logic of a stage.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from tx8fast import files
from tx8fast.cli.output import BAD_INPUT, DONE, PATH, WORSE, json_option, progress, replacing, show_json, strict, tell
from tx8fast.cli.tables import TableChoice, table_options
from tx8fast.errors import ConfigError


@click.command()
@click.argument("manifest", type=PATH, required=False)
@click.option(
    "--suite", type=click.Choice(("zoo", "lengths")), help="Which of the suites that come along (default: zoo)."
)
@click.option(
    "--only",
    multiple=True,
    metavar="PATTERN",
    help="Only jobs whose name matches, such as 'llama*/decode'; repeatable.",
)
@click.option("-o", "--output", type=PATH, metavar="OUT.json", help="Write figures, commit and machine, for --compare.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Processes (default: one per core).")
@click.option("--list", "listed", is_flag=True, help="List the jobs and do nothing.")
@click.option(
    "--write-zoo", type=PATH, metavar="DIR", help="Write models and manifests of the suites to DIR and do nothing else."
)
@click.option(
    "--compare", nargs=2, type=PATH, metavar="A.json B.json", help="Compare two results; exit code 3 if B is worse."
)
@click.option(
    "--figure",
    type=click.Choice(("cycles", "cpu_seconds", "peak_bytes")),
    default="cycles",
    show_default=True,
    help="What --compare compares; cycles alone do not depend on the machine.",
)
@click.option(
    "--threshold",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    metavar="PERCENT",
    help="By how much a figure may rise in --compare.",
)
@json_option
@table_options
def bench(
    manifest: Path | None,
    suite: str | None,
    only: tuple[str, ...],
    output: Path | None,
    jobs: int | None,
    listed: bool,
    write_zoo: Path | None,
    compare: tuple[Path, Path] | None,
    figure: str,
    threshold: float,
    as_json: bool,
    table: TableChoice,
) -> int:
    """Compile and time the model zoo, or the models of MANIFEST.toml.

    Nothing is taken from a cache and no program is kept. Exit code 2 if a job has failed, 3 if --compare finds something worse."""
    if compare is not None:
        return _compare(*compare, figure, threshold / 100, as_json, table)
    if manifest is not None and suite is not None:
        raise click.UsageError("--suite chooses one of the suites that come along; drop it or MANIFEST")
    from tx8fast import zoo

    if write_zoo is not None:
        for name in zoo.write_zoo(write_zoo):
            click.echo(write_zoo / name)
        return DONE
    if output is not None:
        files.claim(output, "benchmark")
    with tempfile.TemporaryDirectory(prefix="tx8fast-bench-") as folder:
        work = Path(folder)
        if manifest is None:
            zoo.write_zoo(work / "zoo")
        found = _chosen(manifest or work / "zoo" / f"{suite or 'zoo'}.toml", only)
        if listed:
            for job in found:
                click.echo(job.name)
            return DONE
        return _run(found, work / "out", str(manifest or suite or "zoo"), output, jobs, as_json, table)


def _chosen(manifest: Path, only: tuple[str, ...]) -> list[Any]:
    from tx8fast.batch.manifest import read_manifest

    jobs = read_manifest(manifest)
    found = [job for job in jobs if not only or any(fnmatchcase(job.name, pattern) for pattern in only)]
    if not found:
        names = ", ".join(job.name for job in jobs[:6])
        raise ConfigError(
            f"choosing jobs by --only: none is called {' or '.join(only)}; there are {names}, ... (--list)"
        )
    return found


def _run(
    found: list[Any], out: Path, suite: str, output: Path | None, jobs: int | None, as_json: bool, table: TableChoice
) -> int:
    from tx8fast.batch import bench as suites
    from tx8fast.batch.journal import Journal
    from tx8fast.batch.runner import Runner
    from tx8fast.batch.table import bench_grid, errors

    table.check(bench_grid([]), as_json)
    out.mkdir()
    outcomes: dict[str, Any] = {}
    logged = as_json or not sys.stderr.isatty()  # a line per job, then, and no bar
    with progress("jobs", as_json) as callback:

        def ended(outcome: Any, done: int, total: int) -> None:
            outcomes[outcome.name] = outcome
            callback.ended(outcome.name)
            callback(done, total)
            if logged or outcome.status == "failed":
                how = outcome.row.get("error") or outcome.status
                tell(f"[{done}/{total}] {outcome.name}: {how}", "job", name=outcome.name, status=outcome.status)

        journal = Journal(out)
        runner = Runner(found, out / "programs", journal, None, ended, begun=callback.begun)
        callback(0, len(found))
        rows = runner.run(jobs or os.cpu_count() or 1)
        journal.close()
    document = suites.document(suite, rows, outcomes)
    if output is not None:
        with replacing(output, "benchmark") as f:
            f.write((json.dumps(document, indent=1, sort_keys=True) + "\n").encode())
    if as_json:
        show_json(document)
    else:
        table.show([], bench_grid(document["rows"]), errors(rows))
    warned = strict() and any(r.get("warnings") for r in rows)
    return BAD_INPUT if warned or any(r["status"] == "failed" for r in rows) else DONE


def _compare(first: Path, second: Path, figure: str, threshold: float, as_json: bool, table: TableChoice) -> int:
    from tx8fast.batch import bench as suites
    from tx8fast.batch.table import compare_grid

    if not math.isfinite(threshold):
        raise click.UsageError("--threshold is no number that a figure could rise by")
    found = suites.compare(suites.read_document(first), suites.read_document(second), figure, threshold)
    if as_json:
        show_json({"first": str(first), "second": str(second), **found})
    else:
        table.show([], compare_grid(found), () if table.given else _verdict(found, first, second))
    return WORSE if found["worse"] else DONE


def _verdict(found: Mapping[str, Any], first: Path, second: Path) -> list[Any]:
    lines = [f"{found['figure']}: {found['mean_change']:+.2%} in the geometric mean of {len(found['rows'])} jobs"]
    lines += [
        f"only in {path}: {', '.join(found[key])}"
        for path, key in ((first, "only_first"), (second, "only_second"))
        if found[key]
    ]
    worse = f"worse by more than {found['threshold']:.2%}, or no longer done: {', '.join(found['worse'])}"
    return ["", *lines, worse if found["worse"] else f"nothing is worse by more than {found['threshold']:.2%}"]
