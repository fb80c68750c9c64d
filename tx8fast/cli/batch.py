"""`tx8fast batch`: many models at once, from a manifest to programs and a table.

May import: click, cli.*, and late: batch, report. Must not: hold logic of a stage.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tx8fast.cli.output import (
    BAD_INPUT,
    DONE,
    HEADS,
    PATH,
    json_option,
    progress,
    replacing,
    show_json,
    strict,
    tell,
    warn_unused,
)
from tx8fast.cli.tables import TableChoice, table_options
from tx8fast.cli.unused import given
from tx8fast.errors import ConfigError

PROGRAMS = "programs"


@click.command()
@click.argument("manifest", type=PATH)
@click.option("-o", "--output", type=PATH, metavar="DIR", help="Directory of programs, journal and tables.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Processes (default: one per core).")
@click.option(
    "--dask", metavar="ADDRESS", help="Run on a Dask cluster that sees the same files; needs the extra 'dask'."
)
@click.option("--resume", is_flag=True, help="Go on with what an earlier run of the manifest has left.")
@click.option("--cache/--no-cache", "cached", default=True, help="Take programs that were made before (default: yes).")
@click.option(
    "--cache-dir",
    type=PATH,
    metavar="DIR",
    help="Where they are (default: TX8FAST_CACHE, or the user's cache).",
)
@click.option("--dry-run", is_flag=True, help="List the jobs and do nothing.")
@json_option
@table_options
def batch(
    manifest: Path,
    output: Path | None,
    jobs: int | None,
    dask: str | None,
    resume: bool,
    cached: bool,
    cache_dir: Path | None,
    dry_run: bool,
    as_json: bool,
    table: TableChoice,
) -> int:
    """Compile and time every model of MANIFEST.toml; one that fails does not stop the others.

    Exit code 2 if a job has failed, with --strict also if one has warnings. An interrupted batch goes on with --resume, to the same programs and tables."""
    from tx8fast.batch.manifest import read_manifest

    found = read_manifest(manifest)
    if not cached:
        warn_unused(given(["cache_dir"]), "--no-cache keeps nothing and takes nothing")
    if dry_run:
        unused = ("output", "jobs", "dask", "resume", "cached", "cache_dir")
        warn_unused(given(unused), "--dry-run lists the jobs and does nothing")
        _list(manifest, found, as_json, table)
        return DONE
    if output is None:
        raise click.UsageError("-o DIR is required (or --dry-run)")
    from tx8fast.batch.table import grid

    table.check(grid([], {}), as_json)
    _prepare(output, resume)
    from tx8fast.batch.cache import LIMIT_BYTES, Cache, default_directory
    from tx8fast.batch.journal import Journal
    from tx8fast.batch.runner import Runner

    cache = (cache_dir or default_directory(), LIMIT_BYTES) if cached else None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    workers = jobs or cores or 1
    seconds: dict[str, float] = {}
    warned: set[str] = set()
    logged = as_json or not sys.stderr.isatty()  # a line per job, then, and no bar
    with progress("jobs", as_json) as callback:

        def ended(outcome: Any, done: int, total: int) -> None:
            seconds[outcome.name] = outcome.seconds
            callback.ended(outcome.name)
            callback(done, total)
            if logged or outcome.status == "failed":
                tell(
                    f"[{done}/{total}] {outcome.name}: {_how(outcome)}", "job", name=outcome.name, status=outcome.status
                )
            for line in outcome.log:
                kind = next((k for k, head in HEADS.items() if line.startswith(head)), "log")
                if kind == "warning":  # of its model, or of a cache that cannot be written
                    warned.add(outcome.name)
                if kind != "error":
                    tell(f"{outcome.name}: {line.removeprefix(HEADS.get(kind, ''))}", kind, name=outcome.name)

        journal = Journal(output)
        runner = Runner(found, output / PROGRAMS, journal, cache, ended, begun=callback.begun)
        callback(0, len(found))
        journal.add("begin", manifest=str(manifest), jobs=len(found), resume=resume)
        if resume:
            runner.resume()
        if dask is None:
            rows = runner.run(workers)
        else:
            runner.absolute()
            with _cluster(dask) as (executor, size):
                rows = runner.run(jobs or size, executor)
        journal.add("end", failed=sum(r["status"] == "failed" for r in rows))
        journal.close()
    if cache is not None:
        Cache(*cache, tell=tell).collect()
    try:
        _write_tables(output, rows)
    finally:  # what the work has come to is told even if the disk is full
        _show(rows, seconds, as_json, table)
    strictly = strict() and bool(warned or any(r.get("warnings") for r in rows))
    return BAD_INPUT if strictly or any(r["status"] == "failed" for r in rows) else DONE


def _how(outcome: Any) -> str:
    """Return in a few words what became of a job, and what of it was in the cache."""
    if outcome.row.get("error") or outcome.from_cache:
        return outcome.row.get("error") or "cached"
    kept, asked = outcome.groups_from_cache
    groups = f", {kept} of {asked} groups cached" if kept else ""
    return outcome.status + (", plans cached" if outcome.plans_from_cache else groups)


def _prepare(output: Path, resume: bool) -> None:
    """Make the output directory. It holds a batch's files alone, so that none of somebody else's is written over."""
    from tx8fast.batch.journal import NAME

    doing = f"writing a batch to {output}"
    try:
        output.mkdir(parents=True, exist_ok=True)
        begun = (output / NAME).is_file()
        if begun and not resume:
            raise ConfigError(f"{doing}: a batch was begun there; --resume goes on with it, or name another directory")
        if not begun and any(output.iterdir()):
            raise ConfigError(f"{doing}: the directory holds other files; name a new or empty one")
    except OSError as e:
        raise ConfigError(f"{doing}: {e.strerror or e}") from e


class _cluster:
    """A Dask cluster as an executor, with the number of its workers."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __enter__(self) -> tuple[Any, int]:
        try:
            from distributed import Client  # type: ignore[import-not-found]
        except ImportError:
            raise ConfigError("--dask needs the package distributed: pip install 'tx8fast[dask]'") from None
        try:
            self.client = Client(self.address, timeout=30)
            workers = self.client.scheduler_info()["workers"]
        except (OSError, ValueError) as e:
            raise ConfigError(f"connecting to the Dask scheduler at {self.address}: {e}") from e
        if not workers:
            self.client.close()
            raise ConfigError(f"the Dask scheduler at {self.address} has no workers")
        return self.client.get_executor(), sum(w["nthreads"] for w in workers.values())

    def __exit__(self, *exc: object) -> None:
        self.client.close()


def _list(manifest: Path, found: Sequence[Any], as_json: bool, table: TableChoice) -> None:
    from tx8fast.batch.table import jobs_grid

    rows = [{"name": job.name, "source": str(job.source), "options": job.other_options()} for job in found]
    if as_json:
        show_json({"jobs": rows})
    else:
        short = [{**r, "source": _beside(job.source, manifest)} for r, job in zip(rows, found, strict=True)]
        table.show([], jobs_grid(short), () if table.given else [f"{len(rows)} jobs"])


def _beside(source: Path, manifest: Path) -> str:
    """Return a path as it would stand in the manifest."""
    folder = manifest.absolute().parent
    return str(source.relative_to(folder) if source.is_relative_to(folder) else source)


def _write_tables(output: Path, rows: Sequence[dict[str, Any]]) -> None:
    from tx8fast.batch.table import files

    for name, text in files(rows).items():
        with replacing(output / name, "results") as f:
            f.write(text.encode("utf-8", "surrogateescape"))


def _show(rows: Sequence[dict[str, Any]], seconds: dict[str, float], as_json: bool, table: TableChoice) -> None:
    from tx8fast.batch.table import HIDDEN, errors, grid

    if as_json:
        show_json({"rows": [{k: v for k, v in r.items() if k not in HIDDEN} for r in rows], "seconds": seconds})
    else:
        table.show([], grid(rows, seconds), errors(rows))
