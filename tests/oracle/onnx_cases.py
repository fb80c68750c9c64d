"""The operator tests that come with the `onnx` package, as cases for any runner.

`cases()` lists them; `run_case(case, runner)` imports the case's model, binds inputs that decide shapes as
constants, calls `runner(program, inputs) -> list of arrays` and compares with the expected outputs.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import onnx
import onnx.numpy_helper

from tx8fast.errors import ImportModelError, Tx8Error, UnsupportedError
from tx8fast.frontend.common import ImportOptions, NeedConstant
from tx8fast.frontend.onnx import import_model
from tx8fast.ir.program import IRProgram

Runner = Callable[[IRProgram, dict[str, np.ndarray]], list[np.ndarray]]
_SCOPE_DOMAINS = ("ai.onnx.ml", "ai.onnx.preview.training")
_ROUNDS = 8  # binding one input may show that another must be bound


@lru_cache(maxsize=1)
def cases() -> tuple:
    """Return all node tests of the installed onnx package, sorted by name."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        found = list(collect_testcases(None))
    return tuple(sorted(found, key=lambda c: c.name))


def out_of_scope(case) -> str:
    """Return why a case is not about dense numeric tensors, or ""."""
    graph = case.model.graph
    for info in [*graph.input, *graph.output]:
        kind = info.type.WhichOneof("value")
        if kind != "tensor_type":
            return f"{kind} value"
        if info.type.tensor_type.elem_type == onnx.TensorProto.STRING:
            return "strings"
    for node in graph.node:
        if node.domain in _SCOPE_DOMAINS:
            return f"domain {node.domain}"
    return ""


def run_case(case, runner: Runner) -> tuple[str, str]:
    """Return (status, reason); status is pass, fail, unsupported or skip (out of scope)."""
    why = out_of_scope(case)
    if why:
        return "skip", why
    names = [i.name for i in case.model.graph.input]
    for inputs, expected in case.data_sets:
        inputs = {n: _array(v) for n, v in zip(names, inputs)}
        status, reason = _run_once(case, inputs, expected, runner)
        if status != "pass":
            return status, reason
    return "pass", ""


def _run_once(case, inputs: dict, expected: list, runner: Runner) -> tuple[str, str]:
    bound: dict[str, np.ndarray] = {}
    dims = _dims(case.model, inputs)
    for _ in range(_ROUNDS):
        try:
            program = import_model(case.model, "", ImportOptions(dims=dims, constants=dict(bound)))
            break
        except NeedConstant as e:
            if not e.inputs or all(n in bound for n in e.inputs):
                return "unsupported", str(e)
            bound.update({n: np.asarray(inputs[n]) for n in e.inputs})
        except UnsupportedError as e:
            return "unsupported", str(e)
        except ImportModelError as e:
            return "fail", f"import: {e}"
    else:
        return "unsupported", "inputs to bind were found in too many rounds"
    try:
        results = runner(program, {n: np.asarray(v) for n, v in inputs.items() if n not in bound})
    except UnsupportedError as e:
        return "unsupported", str(e)
    except Tx8Error as e:
        return "fail", f"{type(e).__name__}: {e}"
    return compare(results, expected, case.rtol, case.atol)


def _array(value) -> np.ndarray:
    """Element types that numpy lacks come as protobuf tensors."""
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def _dims(model, inputs: dict) -> dict[str, int]:
    found: dict[str, int] = {}
    for info in model.graph.input:
        for axis, d in enumerate(info.type.tensor_type.shape.dim):
            if d.WhichOneof("value") != "dim_value" and np.ndim(inputs[info.name]) > axis:
                found[d.dim_param or f"{info.name}.{axis}"] = int(np.shape(inputs[info.name])[axis])
    return found


def compare(results: list, expected: list, rtol: float, atol: float) -> tuple[str, str]:
    """Compare result lists: shapes and element types exactly, floats within the case's tolerance."""
    if len(results) != len(expected):
        return "fail", f"{len(results)} results, expected {len(expected)}"
    for i, (got, want) in enumerate(zip(results, expected)):
        want = _array(want)
        got = np.asarray(got)
        if got.shape != want.shape:
            return "fail", f"result {i}: shape {got.shape}, expected {want.shape}"
        if got.dtype != want.dtype and got.dtype.itemsize != want.dtype.itemsize:
            return "fail", f"result {i}: dtype {got.dtype}, expected {want.dtype}"
        if want.dtype.kind == "f" or "float" in want.dtype.name:
            a, b = got.astype(np.float64), want.astype(np.float64)
            narrow = want.dtype.itemsize < 4
            close = np.isclose(
                a,
                b,
                max(rtol, 1e-2 if narrow else 0),
                max(atol, 1e-3 if narrow else 1e-6),
                equal_nan=True,
            )
        else:
            close = got.astype(np.int64 if want.dtype.kind != "u" else np.uint64) == want.astype(
                np.int64 if want.dtype.kind != "u" else np.uint64
            )
        if not close.all():
            bad = np.argwhere(~close)[0].tolist() if close.shape else []
            return (
                "fail",
                f"result {i}: {int((~close).sum())} of {close.size} elements differ, first at {bad}",
            )
    return "pass", ""
