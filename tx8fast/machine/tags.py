"""Where the figures of a machine file come from, and machines with other figures.

May import: machine.config, errors. Must not: simulate, or know what a key does.

A line of a machine file is `key = value  # meaning; tag, tag`. Behind the last semicolon stand the tags, each of one
of the words in TAGS and perhaps a remark behind it. That comment is the only place where the origin of a figure stands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tx8fast.errors import ConfigError, raise_all
from tx8fast.machine.config import POWERS_OF_TWO, SCHEMA, Machine, read_machine_text

#: vendor's notes, published sources, measurements of others, arithmetic on those, our choice, key of this product,
#: measured by whoever wrote the file, found by `tx8fast calibrate`
TAGS = ("seed", "public", "pub2", "derived", "assumed", "ours", "measured", "fitted")
ASSUMED = "assumed"
Value = int | float

_HEADER = re.compile(r"\s*\[\s*([\w.]+)\s*\]")
_LINE = re.compile(r"(?P<head>\s*(?P<key>[\w.]+)\s*=\s*)(?P<value>[-+.\w]+)(?P<gap>\s*)(?:#(?P<note>.*))?$")


def read_tags(source: str | Path = "tx8") -> dict[str, tuple[str, ...]]:
    """Return dotted key -> tags, of the keys for which a machine file (or a built-in machine) has some; other words behind
    a semicolon are its writer's. Raises ConfigError if the file cannot be read."""
    found = {}
    for key, match in _lines(read_machine_text(source)[0]):
        if match and key in SCHEMA and match["note"] and ";" in match["note"]:
            words = (part.split()[0] for part in match["note"].rpartition(";")[2].split(",") if part.strip())
            if tags := tuple(w for w in words if w in TAGS):
                found[key] = tags
    return found


def assumed_keys(tags: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the keys whose figures are assumptions and may be more or less, in file order. Numbers of models are not."""
    return [key for key, meta in SCHEMA.items() if ASSUMED in tags.get(key, ()) and not meta[0].get("choice")]


def value_of(machine: Machine, key: str) -> Value:
    """Return the value of a dotted key."""
    return SCHEMA[key][1](machine)


def legal(key: str, value: float) -> Value:
    """Return the value nearest to `value` that `key` may have; of powers of two the nearest in ratio, the larger of two."""
    meta = SCHEMA[key][0]
    least = max(meta["least"], meta["low"] or 0)
    value = min(max(value, least), meta["most"])
    if key in POWERS_OF_TWO:
        below = 1 << max(0, int(value).bit_length() - 1)
        return 2 * below if value * value >= 2 * below * below else below
    return int(value + 0.5) if meta["type"] is int else float(value)


def changed(machine: Machine, values: Mapping[str, Value]) -> Machine:
    """Return the machine with other values of dotted keys. Raises ConfigError if one is not legal."""
    out = machine.to_dict()
    for key, value in values.items():
        table = out
        *parents, leaf = key.split(".")
        for name in parents:
            table = table[name]
        table[leaf] = value
    return Machine.from_dict(out)


def edited(text: str, values: Mapping[str, Value], tag: str) -> str:
    """Return a machine file's text with other values, whose tags are replaced by `tag`; everything else stays.

    Raises ConfigError for keys that have no line of their own in it."""
    out, left = [], dict(values)
    for line, (key, match) in zip(text.splitlines(), _lines(text), strict=True):
        if match and key in left:
            meaning = (match["note"] or "").rpartition(";")[0].strip()
            line = f"{match['head']}{left.pop(key)} # {meaning + '; ' if meaning else '; '}{tag}"
        out.append(line)
    raise_all(ConfigError, "changing a machine file", [f"$.{key}: has no line of its own" for key in left])
    return "\n".join(out) + "\n"


def _lines(text: str) -> list[tuple[str, re.Match[str] | None]]:
    """Return per line of a file its dotted key and its parts; "" and None where it is no `key = value`."""
    out, section = [], ""
    for line in text.splitlines():
        if header := _HEADER.match(line):
            section = header[1] + "."
        match = None if header else _LINE.match(line)
        out.append((section + match["key"] if match else "", match))
    return out
