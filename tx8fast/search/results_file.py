"""Reading a file of search results: is it one, of this version, with entries of the right types?

May import: search.results, errors, files. Must not: know graphs or machines (see `search.given`).
"""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from tx8fast.errors import ConfigError, raise_all
from tx8fast.files import read_input
from tx8fast.search.exact import FunctionReport
from tx8fast.search.results import FORMAT, VERSION

MAX_BYTES = 256 << 20
MAX_INT = 1 << 53  # what every reader of JSON keeps exactly
SHOWN = 10  # problems of one kind


class Maybe:
    """A form that may be null."""

    def __init__(self, form: Any) -> None:
        self.form = form


TYPES = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}
CHOICE = {"parts": [int], "slices": [int], "order": [int], "shared": [int], "estimate_cycles": int}
NEST = {
    **CHOICE,
    "op": str,
    "engine": str,
    "variant": int,
    "sizes": [int],
    "bufs": int,
    "held": [int],
    "kept": [int],
    "gathered": [[int]],
    "delivered": [int],
    "copies": [int],
    "spm_bytes": int,
    "bound": str,
    "candidates": int,
    "runner_up": Maybe(CHOICE),
}
PLAN = {"op": str, "estimate_cycles": int, "bound": str, "nests": [NEST], "holds": [[[int]]]}
STEP = {"kind": str, "nests": [[str]], "plan": Maybe(str)}
CUT = {"first": str, "second": str, "bytes": int, "apart_cycles": int, "merged_cycles": Maybe(int), "why": str}
REPORT = {f.name: {"str": str, "int": int, "float": float}[str(f.type)] for f in fields(FunctionReport)}
FILE = {
    "format": str,
    "version": int,
    "machine_digest": str,
    "opt": int,
    "sharing": bool,
    "search": [REPORT],
    "functions": [{"name": str, "turned": [str], "steps": [STEP], "cuts": [CUT]}],
    "plans": (str, PLAN),
}


def read_results(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content of a file of search results, of the form FILE. Raises ConfigError."""
    doing = f"reading plans {path}"
    data = _parse(Path(path), doing)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ConfigError(f"{doing}: this is no file of plans; --save-plans writes one")
    if type(data.get("version")) is not int or data["version"] != VERSION:
        raise ConfigError(
            f"{doing}: format version {data.get('version')!r:.40}, required {VERSION}; save the plans again"
        )
    problems: list[str] = []
    match(data, FILE, "$", problems)
    stop(doing, problems)
    if data["opt"] not in (1, 2, 3):
        problems.append(f"$.opt: found {data['opt']}, required 1, 2 or 3")
    for i, fn in enumerate(data["functions"]):
        for j, step in enumerate(fn["steps"]):
            if step["plan"] is not None and step["plan"] not in data["plans"]:
                problems.append(f"$.functions[{i}].steps[{j}].plan: there is no plan {step['plan']!r:.60}")
    stop(doing, problems)
    return data


def stop(doing: str, problems: list[str]) -> None:
    """Raise a ConfigError with the first problems if there are any."""
    more = [f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN + 1 else problems[SHOWN:]
    raise_all(ConfigError, doing, [*problems[:SHOWN], *more])


def _parse(path: Path, doing: str) -> Any:
    try:
        raw = read_input(path, MAX_BYTES)
    except OSError as e:
        raise ConfigError(f"{doing}: {e.strerror or e}") from None
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_number)
    except UnicodeDecodeError:
        raise ConfigError(f"{doing}: it is no UTF-8 text") from None
    except (ValueError, RecursionError) as e:
        why = "nested too deeply" if isinstance(e, RecursionError) else str(e)
        raise ConfigError(f"{doing}: not valid JSON, or not all of it: {why:.200}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the name {next(n for n in names if names.count(n) > 1)!r:.60} stands twice in one object")
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")


def match(value: Any, form: Any, where: str, problems: list[str]) -> None:
    """Add to `problems` where `value` differs from `form`: a type; [form] a list; {name: form} an object; (str, form) one of any
    names."""
    if isinstance(form, Maybe):
        if value is None:
            return
        form = form.form
    kind: Any = form if isinstance(form, type) else list if isinstance(form, list) else dict
    if type(value) not in ((float, int) if kind is float else (kind,)):
        problems.append(f"{where}: found {_brief(value)}, required {TYPES[kind]}")
        return
    if kind in (int, float) and not -1 <= value <= MAX_INT:
        problems.append(f"{where}: found {_brief(value)}, required -1 to {MAX_INT}")
    inner: list[tuple[str, Any, Any]] = []
    if isinstance(form, list):
        inner = [(f"{where}[{i}]", item, form[0]) for i, item in enumerate(value)]
    elif isinstance(form, tuple):
        inner = [(f"{where}[{name!r:.60}]", item, form[1]) for name, item in value.items()]
    elif isinstance(form, dict):
        problems += [f"{where}.{name}: missing" for name in form if name not in value]
        problems += [f"{where}: unknown entry {name!r:.60}" for name in value if name not in form]
        inner = [(f"{where}.{name}", value[name], form[name]) for name in form if name in value]
    for place, item, wanted in inner:
        match(item, wanted, place, problems)


def _brief(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MAX_INT:
        return "a number too large" if value > 0 else "a number too small"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
