"""The rows of a batch as a table: CSV, JSON, Markdown. The same rows give the same bytes.

May import: the standard library. Must not: know how rows are made.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
NAMES = {"csv": "results.csv", "json": "results.json", "md": "results.md"}


def _number(pattern: str) -> Callable[[Any], str]:
    return lambda v: "" if v is None else format(v, pattern)


#: key of a row, heading, how a person reads it
COLUMNS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("name", "model", str), ("status", "status", str), ("cycles", "cycles", _number(",")), ("milliseconds", "ms", _number(",.2f")),
    ("tokens_per_second", "tokens/s", _number(",.1f")), ("time_to_first_token_ms", "first token, ms", _number(",.2f")),
    ("roofline_ratio", "roofline", _number(".3f")), ("ddr_share", "DDR", _number(".1%")), ("chips", "chips", _number(",")),
    ("kernel_core_share", "kernel core", _number(".2%")), ("error", "error", str),
)  # fmt: skip
#: not for people, and of one file only
HIDDEN = ("key", "reads", "warnings")


def shown(rows: Sequence[Row], seconds: dict[str, float] | None = None) -> tuple[list[str], list[list[str]]]:
    """Return headings and cells for people; the column of errors only where there is one. seconds: compile seconds by name, of
    which only a terminal is told: they are another run's next time."""
    columns = [c for c in COLUMNS if c[0] != "error" or any(r.get("error") for r in rows)]
    head = [title for _, title, _ in columns]
    cells = [["" if r.get(key) is None else show(r[key]) for key, _, show in columns] for r in rows]
    if seconds is not None:
        head.insert(2, "compile, s")
        for row, line in zip(rows, cells, strict=True):
            line.insert(2, f"{seconds[row['name']]:.2f}" if row["name"] in seconds else "")
    return head, cells


def to_markdown(rows: Sequence[Row]) -> str:
    """Return the table for people; nothing in a name is read as markup."""
    head, cells = shown(rows)
    clean = [
        [" ".join(c.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;") for c in line]
        for line in cells
    ]
    lines = [head, ["---"] * len(head), *clean]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def to_csv(rows: Sequence[Row]) -> str:
    """Return all figures unrounded. A text that a spreadsheet would take for a formula begins with an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([key for key, *_ in COLUMNS])
    for row in rows:
        values = [row.get(key) for key, *_ in COLUMNS]
        writer.writerow([f"'{v}" if isinstance(v, str) and v[:1] in ("=", "+", "-", "@") else v for v in values])
    return out.getvalue()


def to_json(rows: Sequence[Row]) -> str:
    """Return the rows as one JSON list."""
    visible = [{k: v for k, v in row.items() if k not in HIDDEN} for row in rows]
    return json.dumps(visible, indent=1, sort_keys=True) + "\n"


def files(rows: Sequence[Row]) -> dict[str, str]:
    """Return file name -> text of all three."""
    return {NAMES["csv"]: to_csv(rows), NAMES["json"]: to_json(rows), NAMES["md"]: to_markdown(rows)}
