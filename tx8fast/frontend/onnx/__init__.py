"""ONNX import: `import_onnx(path, options) -> IRProgram`, operator sets 1 to 28 (7 and up are tested; older forms where operators still have them).

May import: frontend.common, frontend.onnx, ir, weights, errors. Must not: be imported for other formats.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from tx8fast.errors import ImportModelError, Tx8Error, UnsupportedError
from tx8fast.frontend.common import Emitter, ImportOptions, TensorList, build_program
from tx8fast.frontend.onnx.graph import Scope, built_phase
from tx8fast.frontend.onnx.importer import Importer
from tx8fast.frontend.onnx.node import MAX_OPSET, MIN_OPSET, Handler
from tx8fast.frontend.onnx.reader import DTYPES, read_model
from tx8fast.ir import new_context
from tx8fast.ir.program import IRProgram
from tx8fast.weights import WeightTable

__all__ = ["import_model", "import_onnx", "supported_ops"]


@lru_cache(maxsize=1)
def _handlers() -> dict[tuple[str, str], list[Handler]]:
    from tx8fast.frontend.onnx import (
        attention,
        contrib,
        contrib_attention,
        control,
        index,
        math,
        nn,
        quant,
        recurrent,
        reduce,
        resize,
        sequences,
        shape,
        signal,
        window,
    )

    found: dict[tuple[str, str], list[Handler]] = {}
    for family in (
        math,
        reduce,
        shape,
        index,
        nn,
        window,
        attention,
        quant,
        resize,
        signal,
        sequences,
        control,
        recurrent,
        contrib,
        contrib_attention,
    ):
        for handler in family.HANDLERS:
            found.setdefault((handler.domain, handler.op_type), []).append(handler)
    return found


def supported_ops() -> dict[tuple[str, str], tuple[tuple[int, int], ...]]:
    """Return (domain, operator) -> supported ranges of operator set versions; "" is the standard domain."""
    return {key: tuple((h.low, h.high) for h in handlers) for key, handlers in _handlers().items()}


def import_onnx(path: str | os.PathLike[str], options: ImportOptions | None = None) -> IRProgram:
    """Read an ONNX file into a program with one function "main"; weights stay in their files.

    Raises ImportModelError (damaged file, contradictions, unbound dimensions) or UnsupportedError,
    each listing all problems of the model.
    """
    return import_model(read_model(path), str(path), options)


def import_model(model: Any, path: str = "", options: ImportOptions | None = None) -> IRProgram:
    """Import a parsed ModelProto; `path` names its file for external data, or is "" for a model in memory."""
    options = options or ImportOptions()
    version = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), MAX_OPSET)
    if not MIN_OPSET <= version <= MAX_OPSET:
        newer = (
            f"is newer than {MAX_OPSET}, the newest one known: export the model for operator set {MAX_OPSET} or older"
        )
        reason = newer if version > MAX_OPSET else f"is not supported, required {MIN_OPSET} to {MAX_OPSET}"
        raise ImportModelError(f"importing {path or 'the model'}: operator set {version} {reason}")
    handlers, used = _handlers(), None
    if options.kernels:
        from tx8fast.frontend.onnx.kernels import with_kernels

        handlers, used = with_kernels(handlers, options.kernels, [o.domain for o in model.opset_import])
    ctx = new_context()
    weights = WeightTable(Path(path).parent if path else None)

    def fill(block) -> tuple[list[str], list[str], list]:
        emitter = Emitter(ctx, block, weights)
        importer = Importer(model, path, options, emitter, handlers)
        scope, arg_names = importer.declare(block)
        importer.check_ops(scope)
        importer.run_nodes(model.graph.node, scope)
        outputs = _outputs(importer, scope)
        importer.finish()
        return arg_names, [o.name for o in model.graph.output], [emitter.value(t) for t in outputs]

    name = Path(path).stem if path else (model.graph.name or "model")
    program = build_program(ctx, weights, name, fill)
    if used is not None:
        used.warn()
    program.phase = built_phase(model.graph, options)
    return program


def _outputs(importer: Importer, scope: Scope) -> list:
    """Return the tensors of the graph outputs, checked against their declared types."""
    found = []
    names = [o.name for o in importer.model.graph.output]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        importer.problems.append(ImportModelError(f"graph outputs {', '.join(map(repr, twice))} are declared twice"))
    for info in importer.model.graph.output:
        try:
            t = scope.find(info.name)
            if t is None:
                continue  # its producer failed and is reported
            if isinstance(t, TensorList):
                raise UnsupportedError(
                    f"graph output '{info.name}' is a sequence of {len(t.tensors)} tensors; only tensors are supported"
                )
            declared = info.type.tensor_type
            dtype = DTYPES.get(declared.elem_type)
            if dtype is not None and dtype != t.dtype:
                raise ImportModelError(f"graph output '{info.name}' is declared {dtype}, its node gives {t.dtype}")
            dims = [d.dim_value if d.WhichOneof("value") == "dim_value" else None for d in declared.shape.dim]
            fits = len(dims) == t.rank and all(d in (None, s) for d, s in zip(dims, t.shape))
            if declared.HasField("shape") and not fits:
                raise ImportModelError(
                    f"graph output '{info.name}' is declared with shape {dims}, its node gives {list(t.shape)}"
                )
            found.append(t)
        except KeyError:
            importer.problems.append(ImportModelError(f"graph output '{info.name}' is not defined by anything"))
        except Tx8Error as e:
            importer.problems.append(e)
    return found
