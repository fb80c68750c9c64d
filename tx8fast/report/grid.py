"""Tables as plain text: one line per row, whatever the width.

May import: report.markup, report.units. Must not: compute figures or know what is shown.

With a width, columns go by importance and long texts are shortened in the middle; without one (a pipe, a file) everything is there.
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tx8fast.errors import ConfigError
from tx8fast.records import dataclass
from tx8fast.report.markup import plain

Row = Mapping[str, Any]
GAP, DOTS = "  ", "..."
#: what a column that can be shortened keeps before another one is left out
KEPT = 30
LEAST = 8


def whole(value: Any) -> str:
    return f"{value:,}"


@dataclass(frozen=True)
class Column:
    """key: of a row's value, and what options call it. rank: 0 always stays, larger ones are left out first. stretch: it may be shortened.
    hidden: shown only if it is asked for."""

    key: str
    heading: str
    show: Callable[[Any], str] = str
    right: bool = False
    rank: int = 0
    stretch: bool = False
    hidden: bool = False

    def text(self, row: Row) -> str:
        value = row.get(self.key)
        return "" if value is None else plain(self.show(value))


def number(key: str, heading: str, rank: int = 0, show: Callable[[Any], str] = whole, hidden: bool = False) -> Column:
    """Return a right-aligned column."""
    return Column(key, heading, show, True, rank, hidden=hidden)


@dataclass(frozen=True)
class Grid:
    """most: rows that are shown, of which `hint` says how to see the others."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    title: str = ""
    most: int = 1 << 60
    hint: str = "--json has all"

    def chosen(self, names: Sequence[str], sort: str) -> Grid:
        """Return the table with the columns of these keys or headings, sorted by one of them; "" leaves both as they are. A sort key may end in
        ":up" or ":down"; otherwise numbers fall and texts rise. Raises ConfigError."""
        columns = [self._find(n) for n in names] or self.columns
        rows = self.rows
        if sort:
            key, _, way = sort.rpartition(":") if sort.endswith((":up", ":down")) else (sort, "", "")
            column = self._find(key)
            values = [r.get(column.key) for r in rows]
            numeric = all(isinstance(v, int | float) or v is None for v in values)
            down = way == "down" or not way and numeric

            def order(i: int) -> Any:
                return values[i] if numeric else column.text(rows[i])

            # equal rows keep their order, those without a value come last
            given = sorted((i for i, v in enumerate(values) if v is not None), key=order, reverse=down)
            rows = [rows[i] for i in [*given, *(i for i, v in enumerate(values) if v is None)]]
        if names:
            columns = [replace(c, rank=0 if i == 0 else i, hidden=False) for i, c in enumerate(columns)]
        return replace(self, columns=columns, rows=rows)

    def _find(self, name: str) -> Column:
        for c in self.columns:
            if name in (c.key, c.heading):
                return c
        raise ConfigError(f"choosing columns: there is no '{name}'; there are {', '.join(c.key for c in self.columns)}")

    def csv(self) -> str:
        """Return all rows, unrounded, with the keys as headings. A text that a spreadsheet would take for a formula begins with an apostrophe."""
        columns = [c for c in self.columns if not c.hidden]
        return csv_text([c.key for c in columns], [[r.get(c.key) for c in columns] for r in self.rows])

    def lines(self, width: int | None = None) -> list[str]:
        """Return title, headings, rows, and what has been left out, in at most `width` cells per line; None: as wide as need be."""
        columns = [c for c in self.columns if not c.hidden]
        rows = self.rows[: self.most]
        cells = {c.key: [c.text(r) for r in rows] for c in columns}
        natural = {c.key: max(map(cell_len, (c.heading, *cells[c.key]))) for c in columns}
        dropped: list[Column] = []
        if width is not None:
            while len(columns) > 1 and _least(columns, natural) > width:
                worst = max(columns, key=lambda c: (c.rank, columns.index(c)))
                if worst.rank == 0:
                    break
                columns.remove(worst)
                dropped.append(worst)
            natural |= _widths(columns, natural, width)
        out = [self.title] if self.title else []
        table = [[c.heading for c in columns], ["-" * natural[c.key] for c in columns]]
        table += [[cells[c.key][i] for c in columns] for i in range(len(rows))]
        out += [
            GAP.join(fit(text, natural[c.key], c.right) for c, text in zip(columns, line, strict=True)).rstrip()
            for line in table
        ]
        if width is not None:
            out = [shorten(line, width) for line in out]
        if len(self.rows) > len(rows):
            out.append(f"... and {len(self.rows) - len(rows):,} more ({self.hint})")
        if dropped:
            names = ", ".join(c.key for c in self.columns if c in dropped)
            out += _hanging("", f"no room for {names} (--columns)", 2, width)
        return out


def _least(columns: Sequence[Column], natural: Mapping[str, int]) -> int:
    own = sum(max(len(c.heading), min(natural[c.key], KEPT)) if c.stretch else natural[c.key] for c in columns)
    return own + len(GAP) * (len(columns) - 1)


def _widths(columns: Sequence[Column], natural: Mapping[str, int], width: int) -> dict[str, int]:
    """Return widths of the columns that may be shortened: the more important one gets what it needs first."""
    some = sorted((c for c in columns if c.stretch), key=lambda c: c.rank)
    room = width - len(GAP) * (len(columns) - 1) - sum(natural[c.key] for c in columns if not c.stretch)
    out = {c.key: min(natural[c.key], max(len(c.heading), KEPT)) for c in some}
    if sum(out.values()) > room:  # nothing more can be left out
        return {c.key: min(natural[c.key], max(LEAST, room // len(some))) for c in some}
    for c in some:
        more = min(natural[c.key] - out[c.key], room - sum(out.values()))
        out[c.key] += more
    return out


@dataclass(frozen=True)
class Pairs:
    """Names and values; empty values are left out."""

    rows: Sequence[tuple[str, str]]

    def lines(self, width: int | None = None) -> list[str]:
        rows = [(name, plain(value)) for name, value in self.rows if value]
        left = max((len(name) for name, _ in rows), default=0) + len(GAP)
        out = []
        for name, value in rows:
            out += _hanging(f"{name:<{left}}", value, left, width)
        return out


@dataclass(frozen=True)
class Listing:
    """Longer texts by name; none without entries."""

    title: str
    rows: Sequence[tuple[str, str]]

    def lines(self, width: int | None = None) -> list[str]:
        found = [
            line for name, value in self.rows for line in _hanging("  ", f"{plain(name)}: {plain(value)}", 4, width)
        ]
        return [self.title, *found] if found else []


def _hanging(head: str, text: str, indent: int, width: int | None) -> list[str]:
    """Return head and text in lines of at most `width` cells; those after the first begin with `indent` spaces."""
    if width is None:
        return [head + text]
    pad = " " * indent
    out, line, empty = [], head, True
    for word in text.split(" "):
        if not empty and cell_len(line) + 1 + cell_len(word) > width:
            out.append(line)
            line, empty = pad, True
        while cell_len(line) + cell_len(word) > width:  # a word without a place to break
            piece = _take(word, max(1, width - cell_len(line))) or word[:1]
            out.append(line + piece)
            line, word = pad, word[len(piece) :]
        line, empty = line + word if empty else f"{line} {word}", False
    return [*out, line.rstrip()] if line.strip() else out


def csv_text(keys: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return comma-separated values; lists are joined with spaces."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(keys)
    for row in rows:
        flat = [" ".join(map(str, v)) if isinstance(v, list | tuple) else v for v in row]
        writer.writerow([f"'{v}" if isinstance(v, str) and v[:1] in ("=", "+", "-", "@") else v for v in flat])
    return out.getvalue()


def cell_len(text: str) -> int:
    """Return how many cells of a terminal a printable text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def shorten(text: str, cells: int) -> str:
    """Return the text without its middle if it is wider than that."""
    if cell_len(text) <= cells:
        return text
    room = max(0, cells - len(DOTS))
    head = _take(text, room - room // 2)
    tail = _take(text[::-1], room // 2)[::-1]
    return f"{head}{DOTS}{tail}" if cells > len(DOTS) else DOTS[:cells]


def _take(text: str, cells: int) -> str:
    used = 0
    for i, c in enumerate(text):
        used += cell_len(c)
        if used > cells:
            return text[:i]
    return text


def fit(text: str, cells: int, right: bool) -> str:
    text = shorten(text, cells)
    pad = " " * (cells - cell_len(text))
    return pad + text if right else text + pad
