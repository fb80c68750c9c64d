"""A program as files: graph text, a JSON description of arguments and weights, raw data beside it; and back.

May import: ir, weights, numpy, errors. Must not: copy weights that lie in model files, or write run-time attributes.

    <folder>/program.json   name, version, arguments, results, weights
    <folder>/graph.mlir     the text form
    <folder>/data/<n>.bin   dense little-endian arrays: arguments, expected results, weights owned by the table
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from tx8fast.errors import ImportModelError
from tx8fast.ir.clone import clone_op
from tx8fast.ir.core import Context
from tx8fast.ir.printer import print_op
from tx8fast.ir.program import IRProgram
from tx8fast.ir.types import TensorType
from tx8fast.ir.versions import CURRENT
from tx8fast.weights import ArraySource, DerivedSource, FileSource, MissingSource, Weight, WeightTable, np_dtype
from tx8fast.weights.dtypes import ITEM_BYTES, dtype_name

GRAPH, DESCRIPTION, DATA = "graph.mlir", "program.json", "data"


def export_text(program: IRProgram) -> str:
    """Return the program's text without run-time attributes; the program stays as it is."""
    module = clone_op(program.module)
    for op in module.walk():
        for name in [n for n in op.attrs if n not in op.info.attrs]:
            del op.attrs[name]
    return print_op(module)


def export_program(
    program: IRProgram,
    folder: str | os.PathLike[str],
    inputs: Mapping[str, np.ndarray] | None = None,
    expected: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """Write the program into `folder` (made if absent), with argument values and expected results if given.

    Weights in files are described by file, offset and length; owned arrays are written. Return the JSON file's path.
    """
    where = Path(folder)
    (where / DATA).mkdir(parents=True, exist_ok=True)
    writer = _Writer(where)
    main = program.main
    end = main.body.terminator
    given, wanted = inputs or {}, expected or {}
    results = list(end.operands) if end is not None else []
    description: dict[str, Any] = {
        "name": program.name,
        "ir_version": list(CURRENT),
        "graph": GRAPH,
        "arguments": [
            {"name": n, **_type(v.type), **writer.data(given.get(n), v.type, f"argument '{n}'")}
            for n, v in zip(_names(main.attrs.get("arg_names"), len(main.body.args)), main.body.args)
        ],
        "results": [
            {"name": n, **_type(v.type), **writer.data(wanted.get(n), v.type, f"result '{n}'")}
            for n, v in zip(_names(main.attrs.get("result_names"), len(results)), results)
        ],
        "weights": [_weight(program.weights, w, writer) for w in program.weights.values()]
        if program.weights is not None
        else [],
    }
    (where / GRAPH).write_text(export_text(program), encoding="utf-8")
    path = where / DESCRIPTION
    path.write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    return path


def load_exported(
    ctx: Context, folder: str | os.PathLike[str], weights_root: str | os.PathLike[str] | None = None
) -> tuple[IRProgram, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Read what `export_program` wrote: the program, argument values and expected results by name.

    `weights_root` is where the model files of described weights are (default: the folder); those of absent files are
    missing, so the program can be compiled but not run. Raises ImportModelError
    for a damaged description, VerifyError for damaged text.
    """
    where = Path(folder)
    try:
        description = json.loads((where / DESCRIPTION).read_text(encoding="utf-8"))
        text = Path(_inside(where, description["graph"])).read_text(encoding="utf-8")
        root = Path(weights_root or where)
        table = WeightTable(root)
        for entry in description["weights"]:
            table.add(_read_weight(entry, where, root))
        given, wanted = (
            {e["name"]: _read_data(e, where) for e in description[part] if "file" in e}
            for part in ("arguments", "results")
        )
        name = description["name"]
    except ImportModelError:
        raise
    except OSError as e:
        raise ImportModelError(f"reading the exported program in {where}: {e}") from e
    except (ValueError, KeyError, TypeError) as e:
        raise ImportModelError(f"reading the exported program in {where}: {e!r}") from e
    return IRProgram.from_text(ctx, text, table, name, str(where / GRAPH)), given, wanted


def _names(names: tuple[str, ...] | None, n: int) -> list[str]:
    listed = list(names or ())
    return listed + [f"%{i}" for i in range(len(listed), n)]


def _type(t: Any) -> dict[str, Any]:
    return {"shape": list(t.shape or ()), "dtype": t.dtype} if isinstance(t, TensorType) else {"type": str(t)}


class _Writer:
    def __init__(self, where: Path) -> None:
        self.where = where
        self.files = 0

    def data(self, array: np.ndarray | None, t: Any, what: str) -> dict[str, str]:
        """Write one array that should have type `t`; nothing for None."""
        if array is None:
            return {}
        array = np.asarray(array)
        if array.shape != t.shape or dtype_name(array.dtype) != t.dtype:
            raise ImportModelError(
                f"exporting {what}: found {dtype_name(array.dtype)} {list(array.shape)}, required {t.dtype} {list(t.shape)}"
            )
        return {"file": self.file(array)}

    def file(self, array: np.ndarray) -> str:
        name = f"{DATA}/{self.files}.bin"
        self.files += 1
        (self.where / name).write_bytes(np.ascontiguousarray(array).tobytes())
        return name


def _weight(table: WeightTable, w: Weight, writer: _Writer) -> dict[str, Any]:
    out: dict[str, Any] = {"key": w.key, "shape": list(w.shape), "dtype": w.dtype, "mutable": w.mutable}
    if w.chips is not None:
        raise ImportModelError(f"exporting weight '{w.key}': weights per chip belong to a compiled program")
    source = w.source
    if isinstance(source, ArraySource):
        return {**out, "kind": "data", "file": writer.file(source.array)}
    if isinstance(source, DerivedSource):
        return {
            **out,
            "kind": "derived",
            "expr": source.expr,
            "attrs": dict(source.attrs),
            "inputs": list(source.inputs),
        }
    place = table.describe(w.key)
    return {**out, **{k: place[k] for k in ("kind", "file", "offset", "nbytes") if k in place}}


def _inside(root: Path, name: str) -> str:
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts:
        raise ImportModelError(f"data file '{name}' leaves the directory of the program")
    return str(root / pure)


def _read_weight(e: dict[str, Any], where: Path, root: Path) -> Weight:
    key, shape, dtype, kind = e["key"], tuple(e["shape"]), e["dtype"], e["kind"]
    if kind == "data":
        nbytes = int(np.prod(shape, dtype=np.int64)) * ITEM_BYTES[dtype]
        source: Any = FileSource(_inside(where, e["file"]), 0, nbytes)
    elif kind == "file":
        path = _inside(root, e["file"])
        source = FileSource(path, e["offset"], e["nbytes"]) if os.path.exists(path) else MissingSource()
    elif kind == "derived":
        source = DerivedSource(e["expr"], e["attrs"], tuple(e["inputs"]))
    elif kind == "missing":
        source = MissingSource()
    else:
        raise ImportModelError(f"weight '{key}': unknown kind '{kind}', expected data, file, derived or missing")
    return Weight(key, shape, dtype, source, bool(e["mutable"]))


def _read_data(e: dict[str, Any], where: Path) -> np.ndarray:
    data = Path(_inside(where, e["file"])).read_bytes()
    return np.frombuffer(data, np_dtype(e["dtype"])).reshape(e["shape"])
