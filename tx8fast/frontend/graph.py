"""The text of a graph, as `--stop-after import` and `tx8fast reduce` write it, read as a model without weights.

May import: ir, weights, frontend.common, errors, files. Must not: guess what a weight holds.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

from tx8fast.errors import ImportModelError, UnusedOptionWarning
from tx8fast.files import read_input
from tx8fast.ir import new_context
from tx8fast.ir.program import IRProgram
from tx8fast.ir.types import TensorType
from tx8fast.weights import WeightTable

#: largest text; weights are not part of it
MOST_BYTES = 1 << 28


def import_graph(path: str | os.PathLike[str], options: dict[str, Any]) -> IRProgram:
    """Read a graph's text; its parameters have shapes and no bytes, so that it compiles and does not run. Raises ImportModelError, VerifyError."""
    where = Path(path)
    return program_of(graph_text(where, options), where.stem, str(where))


def graph_text(where: Path, options: dict[str, Any]) -> str:
    """Return the text of a graph, and tell of options that it leaves no choice for. Raises ImportModelError."""
    try:
        text = read_input(where, MOST_BYTES).decode("utf-8", "surrogatepass")
    except OSError as e:
        raise ImportModelError(f"reading graph {where}: {e.strerror or e}") from e
    except UnicodeDecodeError as e:
        raise ImportModelError(f"reading graph {where}: this is no text: {e}") from e
    unused = [name for name in ("phase", "seq", "past", "batch", "dims", "constants") if options.get(name)]
    if unused:
        warnings.warn(
            f"{', '.join(unused)} has no effect, the sizes of a graph's text are fixed",
            UnusedOptionWarning,
            stacklevel=3,
        )
    return text


def program_of(text: str, name: str, filename: str = "<text>") -> IRProgram:
    """Return the program of a graph's text. Raises ImportModelError for parameters of two shapes, VerifyError for what is no graph."""
    program = IRProgram.from_text(new_context(), text, None, name, filename)
    table = WeightTable()
    for op in program.module.walk():
        keys = op.attrs["keys"] if "keys" in op.attrs else [op.attrs["key"]] if "key" in op.attrs else []
        for key, value in zip(keys, op.results, strict=False):
            if not isinstance(value.type, TensorType) or None in (value.type.shape or ()):
                raise ImportModelError(f"reading graph {filename}: parameter '{key}' has no static shape")
            if key not in table:
                table.add_missing(key, value.shape, value.dtype)
            elif (table[key].shape, table[key].dtype) != (tuple(value.shape), value.dtype):
                raise ImportModelError(f"reading graph {filename}: parameter '{key}' has two shapes or formats")
    program.weights = table
    program.mark_mutable()
    program.verify(2, f"reading graph {filename}")
    return program
