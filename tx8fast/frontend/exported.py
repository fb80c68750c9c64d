"""A directory that `tx8fast export` wrote, read as a model.

May import: ir.export, weights, frontend.graph, errors, files. Must not: read a byte of a weight.

Model files that weights are in are looked for in the directory, where the user puts them or links to them. Weights of files that are not there
have a shape and no bytes: such a program compiles and does not run.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from tx8fast.errors import ImportModelError
from tx8fast.files import read_input
from tx8fast.frontend.graph import MOST_BYTES, graph_text
from tx8fast.ir import new_context
from tx8fast.ir.export import DESCRIPTION, GRAPH, SCHEMA
from tx8fast.ir.program import IRProgram
from tx8fast.weights import (
    EXPRESSIONS,
    ITEM_BYTES,
    DerivedSource,
    FileSource,
    MissingSource,
    Weight,
    WeightTable,
)

#: how many times weights may be computed from computed ones
MOST_ROUNDS = 16


def import_exported(folder: Path, options: dict[str, Any]) -> IRProgram:
    """Read a graph with its weights. Raises ImportModelError for a damaged description, VerifyError for damaged text, and for parameters that
    the description has not or has otherwise."""
    doing = f"reading the exported graph in {folder}"
    try:
        found = json.loads(read_input(folder / DESCRIPTION, MOST_BYTES))
        if found["schema"] != SCHEMA:
            raise ValueError(f"schema {found['schema']!r} found, {SCHEMA} required")
        table = WeightTable(folder)
        for weight in _in_turn([_weight(e, folder, found["files"]) for e in found["weights"]]):
            table.add(weight)
        named = {k: found[k] for k in ("name", "phase", "family", "config_dtype")}
        if not all(type(v) is str for v in named.values()):
            raise ValueError(f"{', '.join(named)} are to be texts")
    except OSError as e:
        raise ImportModelError(f"{doing}: {DESCRIPTION}: {e.strerror or e}") from e
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        if isinstance(e, ImportModelError):
            raise
        what = (
            f"there is no {e}"
            if isinstance(e, KeyError)
            else "nested too deeply"
            if isinstance(e, RecursionError)
            else e
        )
        raise ImportModelError(f"{doing}: {DESCRIPTION} is damaged: {what}") from e
    # a program says of what phase it is, and asks for that when it is compared with its model
    given = {k: v for k, v in options.items() if (k, v) != ("phase", named["phase"])}
    text = graph_text(folder / GRAPH, given)
    program = IRProgram.from_text(new_context(), text, table, named["name"], str(folder / GRAPH))
    program.phase, program.family, program.config_dtype = named["phase"], named["family"], named["config_dtype"]
    program.verify(2, doing)
    return program


def _weight(e: Mapping[str, Any], folder: Path, sizes: Mapping[str, int]) -> Weight:
    key, shape, dtype, kind = e["key"], e["shape"], e["dtype"], e["kind"]
    if type(key) is not str or dtype not in ITEM_BYTES or not all(_is_count(n) for n in shape):
        raise ValueError(f"weight {key!r} has no shape and format: {shape!r} {dtype!r}")
    nbytes = math.prod(shape) * ITEM_BYTES[dtype]
    source: Any = MissingSource()
    if kind == "data":
        path = _inside(folder, e["file"])
        if not os.path.isfile(path) or os.path.getsize(path) != nbytes:
            raise ValueError(f"weight '{key}' is {nbytes:,} bytes, which {e['file']} has not")
        source = FileSource(path, 0, nbytes)
    elif kind == "file":
        path, size = _inside(folder, e["file"]), sizes[e["file"]]
        if not _is_count(e["offset"]) or e["nbytes"] != nbytes or e["offset"] + nbytes > size:
            raise ValueError(f"weight '{key}' is {nbytes:,} bytes and lies elsewhere: {dict(e)!r}")
        if os.path.exists(path):
            if (there := os.path.getsize(path)) != size:
                raise ImportModelError(
                    f"reading the exported graph in {folder}: {e['file']} has {there:,} bytes, it had {size:,} when the graph was "
                    "exported; the file of that model would help, or exporting again"
                )
            source = FileSource(path, e["offset"], nbytes)
    elif kind == "derived":
        if e["expr"] not in EXPRESSIONS or type(e["inputs"]) is not list or type(e["attrs"]) is not dict:
            raise ValueError(f"weight '{key}' is computed in an unknown way: {e['expr']!r}")
        source = DerivedSource(e["expr"], e["attrs"], tuple(e["inputs"]))
    elif kind != "missing":
        raise ValueError(f"weight '{key}': kind {kind!r}, required data, file, derived or missing")
    return Weight(key, tuple(shape), dtype, source, e["mutable"] is True)


def _is_count(n: Any) -> bool:
    return type(n) is int and n >= 0


def _in_turn(weights: list[Weight]) -> list[Weight]:
    """Return the weights, of which none is computed from itself or from one that is not there."""
    known: set[str] = set()
    waiting = weights
    for _ in range(MOST_ROUNDS):
        rest = [w for w in waiting if not known.issuperset(getattr(w.source, "inputs", ()))]
        known |= {w.key for w in waiting} - {w.key for w in rest}
        waiting = rest
    if waiting:
        raise ValueError(f"weight '{waiting[0].key}' is computed from itself, or from what is not there")
    return weights


def _inside(folder: Path, name: str) -> str:
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts:
        raise ValueError(f"file '{name}' leaves the directory")
    return str(folder / pure)
