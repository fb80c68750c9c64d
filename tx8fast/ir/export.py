"""A program as the contents of files: text of the graph, a JSON description of arguments and weights, raw data that no model file has.

May import: ir, weights, numpy, errors. Must not: write files, copy weights that lie in model files, or tell run-time attributes.

    graph.mlir     the text form
    graph.json     name, arguments, results, weights, and the model files that the weights are in
    data/<n>.bin   dense little-endian arrays: weights that the table owns

`frontend/exported.py` reads them.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from tx8fast.errors import ImportModelError
from tx8fast.ir.clone import clone_op
from tx8fast.ir.printer import print_op
from tx8fast.ir.program import IRProgram
from tx8fast.ir.types import TensorType
from tx8fast.weights import ArraySource, DerivedSource, FileSource, Weight, WeightTable

GRAPH, DESCRIPTION, DATA = "graph.mlir", "graph.json", "data"
#: of the description; another number is another meaning
SCHEMA = 1


def export_text(program: IRProgram) -> str:
    """Return the program's text without run-time attributes, and where its ops came from; the program stays as it is."""
    module = clone_op(program.module)
    for op in module.walk():
        for name in [n for n in op.attrs if n not in op.info.attrs]:
            del op.attrs[name]
    return print_op(module, locations=True)


def exported(program: IRProgram) -> tuple[dict[str, bytes | memoryview], list[str]]:
    """Return the contents of the files by their names, and the model files that weights are in, which are described by file,
    offset and length.

    Raises ImportModelError for weights that chips have apart, and where two model files have one name.
    """
    main, contents = program.main, dict[str, bytes | memoryview]()
    end = main.body.terminator
    results = list(end.operands) if end is not None else []
    where: dict[str, str] = {}  # name of a model file -> its path
    described = {
        "schema": SCHEMA,
        "name": program.name,
        "phase": program.phase,
        "family": program.family,
        "config_dtype": program.config_dtype,
        "arguments": [
            {"name": n, **_type(v.type)}
            for n, v in zip(_names(main.attrs.get("arg_names"), len(main.body.args)), main.body.args, strict=True)
        ],
        "results": [
            {"name": n, **_type(v.type)}
            for n, v in zip(_names(main.attrs.get("result_names"), len(results)), results, strict=True)
        ],
        "weights": [_weight(program.weights, w, contents, where) for w in (program.weights or WeightTable()).values()],
        "files": {name: os.path.getsize(path) for name, path in where.items()},
    }
    contents[GRAPH] = export_text(program).encode("utf-8", "surrogatepass")
    contents[DESCRIPTION] = (json.dumps(described, indent=1) + "\n").encode()
    return contents, list(where)


def _names(names: tuple[str, ...] | None, n: int) -> list[str]:
    listed = list(names or ())
    return listed + [f"%{i}" for i in range(len(listed), n)]


def _type(t: Any) -> dict[str, Any]:
    return {"shape": list(t.shape or ()), "dtype": t.dtype} if isinstance(t, TensorType) else {"type": str(t)}


def _weight(
    table: WeightTable, w: Weight, contents: dict[str, bytes | memoryview], where: dict[str, str]
) -> dict[str, Any]:
    out: dict[str, Any] = {"key": w.key, "shape": list(w.shape), "dtype": w.dtype, "mutable": w.mutable}
    if w.chips is not None:
        raise ImportModelError(
            f"exporting weight '{w.key}': every chip has a part of its own of it, and each weight must be whole; "
            "the graph of one chip, which shares no layers, would help"
        )
    source = w.source
    if isinstance(source, ArraySource):
        name = f"{DATA}/{len(contents)}.bin"
        contents[name] = np.ascontiguousarray(source.array).reshape(-1).view(np.uint8).data
        return {**out, "kind": "data", "file": name}
    if isinstance(source, DerivedSource):
        facts = {"expr": source.expr, "attrs": dict(source.attrs), "inputs": list(source.inputs)}
        return {**out, "kind": "derived", **facts}
    place = table.describe(w.key)
    if isinstance(source, FileSource) and where.setdefault(place["file"], source.path) != source.path:
        raise ImportModelError(
            f"exporting weight '{w.key}': {source.path} and {where[place['file']]} are both called {place['file']} beside the "
            "graph; another name for one of them would help"
        )
    return {**out, **{k: place[k] for k in ("kind", "file", "offset", "nbytes") if k in place}}
