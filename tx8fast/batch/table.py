"""The rows of a batch as a table: CSV, JSON, Markdown. The same rows give the same bytes.

May import: report.grid, report.units. Must not: know how rows are made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tx8fast.report.grid import Column, Grid, Listing, number
from tx8fast.report.units import size_text

Row = dict[str, Any]
NAMES = {"csv": "results.csv", "json": "results.json", "md": "results.md"}


#: of a job; compile seconds are of one run alone, so that they are told in a terminal and stand in no file
COLUMNS = (
    Column("name", "model", stretch=True),
    Column("status", "status"),
    number("compile_seconds", "compile, s", 3, "{:.2f}".format, hidden=True),
    number("cycles", "cycles", 4),
    number("milliseconds", "ms", 0, "{:,.2f}".format),
    number("tokens_per_second", "tokens/s", 1, "{:,.1f}".format),
    number("time_to_first_token_ms", "first token, ms", 5, "{:,.2f}".format),
    number("roofline_ratio", "roofline", 1, "{:.3f}".format),
    number("ddr_share", "DDR", 6, "{:.1%}".format),
    number("chips", "chips", 2),
    number("kernel_core_share", "kernel core", 7, "{:.2%}".format),
    Column("error", "error", rank=8, stretch=True),
)
#: of a benchmark, whose rows are of one run
BENCH_COLUMNS = (
    *(
        c
        for c in COLUMNS
        if c.key in ("name", "status", "cycles", "milliseconds", "tokens_per_second", "roofline_ratio", "chips")
    ),
    number("cpu_seconds", "CPU, s", 5, "{:.2f}".format),
    number("peak_bytes", "memory", 6, size_text),
    Column("loss", "mostly lost to", rank=8),
    number("seconds", "s", 7, "{:.2f}".format, hidden=True),
    Column("error", "error", hidden=True),
)
#: of a manifest's jobs, before anything is done
JOB_COLUMNS = (
    Column("name", "job", stretch=True),
    Column("source", "model", rank=2, stretch=True),
    Column("options", "options", rank=1, stretch=True),
)
#: of programs that a cache keeps
KEPT_COLUMNS = (
    Column("short", "key"),
    number("size_bytes", "size", 0, size_text),
    Column("model", "model", stretch=True),
    Column("options", "options", rank=1, stretch=True),
    Column("key", "whole key", hidden=True),
    Column("object", "program", hidden=True),
)
#: of why jobs are in a cache or not
WHY_COLUMNS = (
    Column("name", "job", stretch=True),
    Column("found", "cache"),
    Column("why", "why", rank=1, stretch=True),
)
FIELD_COLUMNS = (
    Column("field", "field", stretch=True),
    Column("kept", "kept", stretch=True),
    Column("asked", "asked for", stretch=True),
)
QUOTE = "'"
#: not for people, and of one file only
HIDDEN = ("key", "reads", "warnings")


def grid(rows: Sequence[Row], seconds: Mapping[str, float] | None = None) -> Grid:
    """Return the table for people; the column of errors is shown only where there is one. seconds: compile seconds by name, of a terminal's table, below
    which the errors stand as a list."""
    told = seconds is not None
    failed = any(r.get("error") for r in rows)
    hidden = {"compile_seconds": not told, "error": told or not failed}
    columns = [replace(c, hidden=hidden.get(c.key, c.hidden)) for c in COLUMNS]
    return Grid(columns, [{**r, "compile_seconds": (seconds or {}).get(r["name"])} for r in rows])


def bench_grid(rows: Sequence[Row]) -> Grid:
    """Return the table of a benchmark's rows, which have seconds and memory too."""

    def loss(row: Row) -> str:
        found = row.get("losses") or {}
        return max(found, key=lambda k: found[k]).replace("_", " ") if found else ""

    return Grid(BENCH_COLUMNS, [{**r, "loss": loss(r)} for r in rows])


def compare_grid(found: Mapping[str, Any]) -> Grid:
    """Return the table of two benchmarks' comparison, the largest rise first."""
    show = {"cycles": "{:,}".format, "peak_bytes": size_text}.get(found["figure"], "{:,.2f}".format)
    columns = (
        Column("name", "model", stretch=True),
        number("first", "before", 2, show),
        number("second", "after", 1, show),
        number("change", "change", 0, "{:+.2%}".format),
    )
    return Grid(columns, found["rows"])


def jobs_grid(rows: Sequence[Row]) -> Grid:
    """Return the table of jobs: `name`, `source`, and `options` that are not the usual ones."""
    return Grid(JOB_COLUMNS, [{**r, "options": _options_text(r["options"])} for r in rows])


def kept_grid(entries: Sequence[Row]) -> Grid:
    """Return the table of what a cache keeps: `key`, `object`, `size_bytes`, `model`, `options` of each program."""
    return Grid(KEPT_COLUMNS, [{**e, "short": e["key"][:12], "options": _options_text(e["options"])} for e in entries])


def why_grid(rows: Sequence[Row], what: str = "job") -> Grid:
    """Return the table of jobs, or of something else, and why a cache has them or not: `name`, `found`, `why`."""
    columns = [replace(c, heading=what) if c.key == "name" else c for c in WHY_COLUMNS]
    return Grid([c for c in columns if c.key != "why" or any(r["why"] for r in rows)], rows)


def fields_grid(rows: Sequence[Row]) -> Grid:
    """Return the fields that two programs differ in: `field`, `kept`, `asked`."""
    return Grid(FIELD_COLUMNS, rows)


def _options_text(options: Mapping[str, Any]) -> str:
    """Return "phase=prefill seq=512": values of text that came as they stand in Python are shown without its quotes."""
    return " ".join(f"{k}={str(v).strip(QUOTE)}" for k, v in options.items())


def errors(rows: Sequence[Row]) -> list[Any]:
    """Return what has become of the jobs that failed, to stand below the table."""
    found = [(r["name"], r["error"]) for r in rows if r.get("error")]
    return ["", Listing("failed:", found)] if found else []


def to_markdown(rows: Sequence[Row]) -> str:
    """Return the table for people; nothing in a name is read as markup."""
    columns = [c for c in grid(rows).columns if not c.hidden]
    cells = [[c.text(r) for c in columns] for r in rows]
    clean = [
        [" ".join(c.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;") for c in line]
        for line in cells
    ]
    lines = [[c.heading for c in columns], ["---"] * len(columns), *clean]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def to_csv(rows: Sequence[Row]) -> str:
    """Return all figures unrounded."""
    return Grid(COLUMNS, rows).csv()


def to_json(rows: Sequence[Row]) -> str:
    """Return the rows as one JSON list."""
    visible = [{k: v for k, v in row.items() if k not in HIDDEN} for row in rows]
    return json.dumps(visible, indent=1, sort_keys=True) + "\n"


def files(rows: Sequence[Row]) -> dict[str, str]:
    """Return file name -> text of all three."""
    return {NAMES["csv"]: to_csv(rows), NAMES["json"]: to_json(rows), NAMES["md"]: to_markdown(rows)}
