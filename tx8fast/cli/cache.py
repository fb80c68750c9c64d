"""`tx8fast cache`: what programs are kept, why one is taken or made anew, and how to free the space.

May import: click, cli.*, and late: batch. Must not: compile.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tx8fast.cli.model import model_options, read_options, split_lengths
from tx8fast.cli.output import PATH, json_option, show_json, tell

_directory = click.option("--cache-dir", type=PATH, metavar="DIR", help="Default: TX8FAST_CACHE, or the user's cache.")


def _open(cache_dir: Path | None) -> Any:
    from tx8fast.batch.cache import LIMIT_BYTES, Cache, default_directory

    return Cache(cache_dir or default_directory(), LIMIT_BYTES, tell)


@click.group()
def cache() -> None:
    """Programs that `tx8fast batch` has made and takes again."""


@cache.command("ls")
@_directory
@json_option
def list_(cache_dir: Path | None, as_json: bool) -> None:
    """List the programs that are kept."""
    store = _open(cache_dir)
    entries, plans = list(store.entries()), store.plans()
    if as_json:
        show_json(
            {
                "entries": [
                    {"key": e.key, "object": e.object, "size_bytes": e.size_bytes, "fields": e.fields} for e in entries
                ],
                "plans": [{"key": p.stem.partition("-")[0], "size_bytes": p.stat().st_size} for p in plans],
            }
        )
        return
    for e in entries:
        options = ", ".join(
            f"{k.removeprefix('option ')}={v}" for k, v in e.fields.items() if k.startswith("option ") and v != "None"
        )
        click.echo(f"{e.key[:12]} {e.size_bytes:>12,} bytes  {e.row.get('model', '')}: {options}")
    click.echo(f"{len(entries)} programs, {sum({e.object: e.size_bytes for e in entries}.values()):,} bytes")
    click.echo(f"{len(plans)} results of searches, {sum(p.stat().st_size for p in plans):,} bytes")


@cache.command("gc")
@_directory
@click.option("--limit-mib", type=click.IntRange(min=0), metavar="MIB", help="What may stay (default: 8192).")
@json_option
def collect(cache_dir: Path | None, limit_mib: int | None, as_json: bool) -> None:
    """Remove what was used longest ago until the rest fits, and files that belong to nothing."""
    files, freed = _open(cache_dir).collect(None if limit_mib is None else limit_mib << 20)
    if as_json:
        show_json({"files": files, "freed_bytes": freed})
    else:
        click.echo(f"removed {files} files, {freed:,} bytes")


@cache.command("why")
@model_options
@_directory
@json_option
def why(model: Path, cache_dir: Path | None, as_json: bool, **given: Any) -> None:
    """Tell whether MODEL with these options is a hit, or by which fields it differs from the nearest program."""
    given, name, _ = split_lengths(given)
    if name:
        raise click.UsageError(f"several sizes are given for {name}: ask for one at a time")
    from tx8fast.batch.fingerprint import changed_reads, digest
    from tx8fast.batch.manifest import Job
    from tx8fast.batch.work import job_fields

    fields = job_fields(Job("", model, read_options(**given)))
    store = _open(cache_dir)
    root = model if model.is_dir() else model.parent
    facts: dict[str, Any] = {
        "key": digest(fields),
        "hit": store.find(fields, root) is not None,
        "fields": fields,
        "differs": [],
    }
    nearest = None if facts["hit"] else store.nearest(fields)
    if nearest is not None:
        entry, other = nearest
        facts["nearest"] = entry.key
        facts["differs"] = [{"field": k, "kept": entry.fields.get(k), "asked": fields.get(k)} for k in other]
        facts["changed_weights"] = changed_reads(root, entry.reads) if not other else []
    if as_json:
        show_json(facts)
    elif facts["hit"]:
        click.echo(f"hit: {facts['key'][:12]}, kept for")
        for field, value in fields.items():
            click.echo(f"  {field}: {value}")
    elif nearest is None:
        click.echo("miss: nothing is kept yet")
    else:
        click.echo(f"miss: the nearest program is {facts['nearest'][:12]}, which differs in")
        for row in facts["differs"]:
            click.echo(f"  {row['field']}: {row['kept']} kept, {row['asked']} asked for")
        for file in facts["changed_weights"]:
            click.echo(f"  weights in {file}: values that are part of the program have changed")
