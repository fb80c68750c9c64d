"""Names for what a search puts together: steps by names that last, records by a key of their structure.

May import: graph_table, errors. Must not: search.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fnmatch import fnmatchcase

from tx8fast.errors import ConfigError, raise_all
from tx8fast.graph_table import FunctionTable, GraphTable, Record, Step

SHOWN = 6  # names in a message


def name_steps(table: GraphTable) -> None:
    """Fill `base` of every function and `nests` of its steps. The second step of a name is called name#2."""
    for fn in table.functions.values():
        fn.base = {}
        for step in fn.steps:
            name, n = step.name, 1
            while name in fn.base:
                n += 1
                name = f"{step.name}#{n}"
            step.nests = ((name,),)
            fn.base[name] = step


def record_key(record: Record) -> str:
    """Return a key that equal records have in common: ops, attributes, shapes, formats, layouts, wiring."""
    return hashlib.blake2b(repr(record).encode(errors="surrogatepass"), digest_size=8).hexdigest()


def selects(only: Sequence[str], fn: FunctionTable, step: Step) -> bool:
    """True if a pattern (`*`, `?`, `[...]`) matches one of the step's members, as "name" or "function/name"."""
    names = [n for m in step.members for n in (m, f"{fn.name}/{m}")]
    return any(fnmatchcase(name, pattern) for pattern in only for name in names)


def fix_others(table: GraphTable, only: Sequence[str]) -> None:
    """Keep the search away from every step that no pattern selects. Raises ConfigError for patterns without a step."""
    check_patterns(table, only)
    for fn in table.functions.values():
        for step in fn.steps:
            step.fixed = not selects(only, fn, step)


def check_patterns(table: GraphTable, patterns: Sequence[str]) -> None:
    """Raise ConfigError for patterns that select no step."""
    steps = [(fn, step) for fn in table.functions.values() for step in fn.steps]
    names = [f"{fn.name}/{name}" for fn in table.functions.values() for name in fn.base]
    some = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    unused = [p for p in patterns if not any(selects([p], fn, step) for fn, step in steps)]
    raise_all(ConfigError, "choosing ops by name", [f"no op is called '{p}'; there are {some}" for p in unused])
