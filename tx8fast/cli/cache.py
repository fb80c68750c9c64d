"""`tx8fast cache`: what programs are kept, why one is taken or made anew, and how to free the space.

May import: click, cli.*, and late: batch. Must not: compile.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from tx8fast.cli.model import model_options, read_options, split_lengths
from tx8fast.cli.output import PATH, json_option, progress, show, show_json, tell, warn_unused
from tx8fast.cli.tables import TableChoice, table_options
from tx8fast.cli.unused import given as given_options
from tx8fast.errors import ConfigError

_directory = click.option("--cache-dir", type=PATH, metavar="DIR", help="Default: TX8FAST_CACHE, or the user's cache.")


def _open(cache_dir: Path | None) -> Any:
    """Return the cache. What of it may not be read is told at once, and each damaged file once."""
    from tx8fast.batch.cache import LIMIT_BYTES, Cache, default_directory

    told: set[str] = set()

    def once(line: str) -> None:
        if line not in told:
            told.add(line)
            tell(line, "cache")

    store = Cache(cache_dir or default_directory(), LIMIT_BYTES, once)
    hidden = store.unreadable()
    if hidden:
        tell(f"{len(hidden):,} files or folders of the cache cannot be read, such as {hidden[0]}", "warning")
    return store


@click.group()
def cache() -> None:
    """Programs that `tx8fast batch` has made and takes again."""


@cache.command("ls")
@_directory
@json_option
@table_options
def list_(cache_dir: Path | None, as_json: bool, table: TableChoice) -> None:
    """List the programs that are kept."""
    store = _open(cache_dir)
    entries, plans, groups = list(store.entries()), store.plan_sizes(), store.group_sizes()
    if as_json:
        show_json(
            {
                "entries": [
                    {
                        "key": e.key,
                        "object": e.object,
                        "size_bytes": e.size_bytes,
                        "source": e.source,
                        "fields": e.fields,
                    }
                    for e in entries
                ],
                "plans": _files(plans),
                "groups": _files(groups),
            }
        )
        return
    from tx8fast.batch.fingerprint import other_options
    from tx8fast.batch.table import kept_grid

    rows = [
        {
            "key": e.key,
            "object": e.object,
            "size_bytes": e.size_bytes,
            "model": e.source or e.row.get("model", ""),
            "options": other_options(e.fields),
        }
        for e in entries
    ]
    totals = [
        f"{len(entries)} programs, {sum({e.object: e.size_bytes for e in entries}.values()):,} bytes",
        f"{len(plans)} results of searches, {sum(plans.values()):,} bytes",
        f"{len(groups):,} ops and groups with what is known of their plans, {sum(groups.values()):,} bytes",
    ]
    table.show([], kept_grid(rows), () if table.given else totals)


def _files(sizes: dict[Path, int]) -> list[dict[str, Any]]:
    return [{"key": path.stem.partition("-")[0], "size_bytes": size} for path, size in sizes.items()]


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
@click.option(
    "--opt", type=click.IntRange(1, 3), default=2, show_default=True, help="Level of the search, as for `compile`."
)
@click.option(
    "--only", multiple=True, metavar="PATTERN", help="Of a manifest only jobs whose name matches; repeatable."
)
@_directory
@json_option
@table_options
def why(
    model: Path,
    opt: int,
    only: tuple[str, ...],
    cache_dir: Path | None,
    as_json: bool,
    table: TableChoice,
    **given: Any,
) -> None:
    """Tell whether MODEL with these options is a hit, or by which fields it differs from the nearest program, and whether the
    plans of its groups are kept, each compared with the nearest one.

    For that a miss is searched, and nothing kept. MODEL may be a MANIFEST.toml, whose jobs are then listed."""
    from tx8fast.batch.manifest import Job, read_manifest
    from tx8fast.batch.why import explain, explain_groups, reasons

    if model.suffix == ".toml":
        unused = given_options([*given, "opt"])
        if unused:
            raise click.UsageError(f"{', '.join(sorted(unused))}: options of the jobs stand in the manifest {model}")
        jobs = [job for job in read_manifest(model) if not only or any(fnmatchcase(job.name, p) for p in only)]
        if not jobs:
            raise ConfigError(f"choosing jobs of {model} by --only: none is called {' or '.join(only)}")
        store = _open(cache_dir)
        found = [(job.name, explain(job, store)) for job in jobs]
        if as_json:
            show_json({"jobs": [{"name": name, **facts} for name, facts in found]})
            return
        from tx8fast.batch.table import why_grid

        rows = [{"name": n, "found": "hit" if f["hit"] else "miss", "why": "; ".join(reasons(f))} for n, f in found]
        table.show(
            [], why_grid(rows), () if table.given else [f"{sum(f['hit'] for _, f in found)} of {len(found)} are kept"]
        )
        return
    if only:
        warn_unused(["--only"], "it chooses jobs of a manifest")
    given, name, _ = split_lengths(given)
    if name:
        raise click.UsageError(f"several sizes are given for {name}: ask for one at a time")
    job, store = Job("", model, read_options(**given, opt=opt)), _open(cache_dir)
    facts = explain(job, store)
    if not facts["hit"]:
        with progress("search", as_json) as callback:
            facts |= explain_groups(job, store, callback)
    if as_json:
        show_json(facts)
        return
    from tx8fast.batch.table import fields_grid
    from tx8fast.report.grid import Pairs

    if facts["hit"]:
        same = [{"field": k, "kept": v, "asked": v} for k, v in facts["fields"].items()]
        if table.given:
            table.show([], fields_grid(same))
        else:
            show([f"hit: {facts['key'][:12]}, kept for", Pairs([(f"  {k}", v) for k, v in facts["fields"].items()])])
        return
    below = () if table.given else group_parts(facts)
    if facts["differs"] or table.given:
        head = f"miss: the nearest program is {facts.get('nearest', '')[:12]}, which differs in"
        table.show([head], fields_grid(facts["differs"]), below)
    else:
        show([*(f"miss: {reason}" for reason in reasons(facts)), *below])


def group_parts(facts: dict[str, Any]) -> list[Any]:
    """Return what of the search need not be done again, to stand below why there is no program."""
    from tx8fast.batch.table import why_grid
    from tx8fast.batch.why import group_reason
    from tx8fast.report.grid import Listing, Pairs

    if facts["plans_hit"]:
        return ["", Pairs([("plans", "those of the whole graph are kept: nothing is searched")])]
    rows = [{"name": r["name"], "found": "hit" if r["hit"] else "miss", "why": ""} for r in facts["groups"]]
    kept = sum(r["hit"] for r in facts["groups"])
    looked_at = f"; of {facts['known']:,} of the {facts['looked_at']:,} that the search looks at all is known"
    return [
        "",
        Pairs(
            [
                ("plans", "those of the whole graph are not kept"),
                ("groups", f"plans of {kept} of {len(rows)} are kept{looked_at}"),
            ]
        ),
        "",
        why_grid(rows, "group"),
        "",
        Listing("why:", [(r["name"], group_reason(r)) for r in facts["groups"] if not r["hit"]]),
    ]
