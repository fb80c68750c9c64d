"""Sources of parameters as a file holds them: each distinct one once.

May import: nothing of tx8fast. Must not: know what a source means, or trust a number of a file.

A source may be made of others, its "inputs" or, per chip, its "sources": in a file these lists hold numbers of earlier entries.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

NESTED = ("inputs", "sources")
#: of a source with all that it is made of, each time it occurs: readers walk through all of them
MOST_PARTS = 1 << 22
MOST_DEPTH = 100


class SourceTable:
    """Numbers sources; `entries` are those that have one."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self._by_object: dict[int, tuple[Any, int]] = {}  # the object too, so that its id stays its own
        self._by_text: dict[str, int] = {}

    def number(self, source: Any) -> int:
        """Return the number of a source; equal ones have one."""
        known = self._by_object.get(id(source))
        if known is not None:
            return known[1]
        entry = {k: [self.number(x) for x in v] if k in NESTED else v for k, v in source.items()}
        text = json.dumps(entry, sort_keys=True, default=repr)
        n = self._by_text.setdefault(text, len(self.entries))
        if n == len(self.entries):
            self.entries.append(entry)
        self._by_object[id(source)] = source, n
        return n


def read_sources(entries: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the sources of a table, by number. Raises ValueError for a table that refers to what does not stand before, or grows without end."""
    out: list[dict[str, Any]] = []
    parts: list[int] = []
    depth: list[int] = []
    for n, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise ValueError(f"source {n} is {type(entry).__name__}, required dict")
        whole, inner = dict(entry), []
        for key in NESTED:
            if key not in entry:
                continue
            numbers = entry[key]
            if not isinstance(numbers, list) or not all(type(i) is int and 0 <= i < n for i in numbers):
                raise ValueError(f"source {n} is not made of sources before it")
            inner += numbers
            whole[key] = [out[i] for i in numbers]
        parts.append(1 + sum(parts[i] for i in inner))
        depth.append(1 + max((depth[i] for i in inner), default=0))
        if parts[n] > MOST_PARTS or depth[n] > MOST_DEPTH:
            raise ValueError(
                f"source {n} is made of {parts[n]:,} parts, {depth[n]} deep; at most {MOST_PARTS:,}, {MOST_DEPTH} deep, are read"
            )
        out.append(whole)
    return out
