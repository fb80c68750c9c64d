"""Whole ONNX models, compiled and executed bit by bit, against onnxruntime with its optimisations off.

A value may differ from the reference by what the format rounds away, seen as the model sees it: inputs and weights are
moved by about one rounding, several times, and what that does to every element of the results is what may be wrong with it.
An element that turns over then (a comparison, an index) may be any of what was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime

import tx8fast

Arrays = dict[str, np.ndarray]
ROUNDING = {"fp32": 2.0**-19, "bf16": 2.0**-8, "fp16": 2.0**-11}
DRAWS = 4  # moved references
TIMES = 6.0  # of what was seen of an element
SHARE = 2.0  # roundings of the largest value
FLIPS = 0.005  # part of the elements in 16-bit formats: what comparisons turn over was not all seen


def random_inputs(model: onnx.ModelProto, seed: int = 0) -> Arrays:
    """Return an array for every input: floats around zero, small whole numbers, booleans."""
    rng = np.random.default_rng(seed)
    weights = {t.name for t in model.graph.initializer}
    out: Arrays = {}
    for v in model.graph.input:
        if v.name in weights:
            continue
        t = v.type.tensor_type
        shape = [d.dim_value for d in t.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(t.elem_type)
        if dtype.kind == "f":
            out[v.name] = rng.standard_normal(shape).astype(dtype)
        else:
            out[v.name] = rng.integers(0, 2 if dtype.kind == "b" else 8, shape).astype(dtype)
    return out


def reference(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the results of onnxruntime, in order."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run([o.name for o in model.graph.output], dict(inputs))


@lru_cache(maxsize=8)
def _seen(model_bytes: bytes, seed: int, rounding: float) -> tuple[Arrays, list[np.ndarray], list[list[np.ndarray]]]:
    """Return inputs, results, and the results of moved models."""
    model = onnx.load_model_from_string(model_bytes)
    inputs = random_inputs(model, seed)
    rng = np.random.default_rng(seed + 1)
    moved = []
    for _ in range(DRAWS):
        other = onnx.load_model_from_string(model_bytes)
        for t in other.graph.initializer:
            x = onnx.numpy_helper.to_array(t)
            if x.dtype.kind == "f":
                t.CopyFrom(onnx.numpy_helper.from_array(_moved(x, rounding, rng), t.name))
        moved.append(reference(other, {k: _moved(v, rounding, rng) for k, v in inputs.items()}))
    return inputs, reference(model, inputs), moved


def _moved(x: np.ndarray, rounding: float, rng: np.random.Generator) -> np.ndarray:
    if x.dtype.kind != "f":
        return x
    with np.errstate(over="ignore"):
        return (x * (1 + rounding * rng.uniform(-1, 1, x.shape))).astype(x.dtype)


def wrong_values(model: onnx.ModelProto | Path, dtype: str, opt: int, seed: int = 0, sanitize: bool = True,
                 folder: Path | None = None, share: float = SHARE, **options) -> list[str]:  # fmt: skip
    """Compile and execute a model; say per result how many of its elements are wrong. share: roundings of the largest value
    that every element may be wrong by; folder: where a model that is no file yet is put."""
    proto = onnx.load(str(model)) if isinstance(model, Path) else model
    inputs, want, moved = _seen(proto.SerializeToString(), seed, ROUNDING[dtype])
    with TemporaryDirectory() as own:
        path = model if isinstance(model, Path) else Path(folder or own) / "model.onnx"
        if not isinstance(model, Path):
            onnx.save(proto, str(path))
        program = tx8fast.compile(path, dtype=dtype, opt=opt, **options)
    found = program.run(inputs, sanitize=sanitize)
    problems = []
    for n, (info, right) in enumerate(zip(proto.graph.output, want, strict=True)):
        bad = differences(
            np.asarray(found[info.name]),
            right,
            [m[n] for m in moved],
            share * ROUNDING[dtype],
            0.0 if dtype == "fp32" else FLIPS,
        )
        if bad:
            problems.append(f"{info.name}{list(right.shape)}: {bad}")
    return problems


def differences(found: np.ndarray, right: np.ndarray, moved: list[np.ndarray], share: float,
                flips: float = 0.0) -> str:  # fmt: skip
    """Say how many elements are wrong, and where the first is; empty if none. share: of the largest value; flips: part of the
    elements that may be wrong."""
    if found.shape != right.shape:
        return f"shape {found.shape}, expected {right.shape}"
    if right.dtype.kind != "f":
        ok = found == right
        for m in moved:
            ok |= found == m
    else:
        with np.errstate(all="ignore"):
            a, b = found.astype(np.float64), right.astype(np.float64)
            spread = np.zeros(b.shape)
            for m in moved:
                spread = np.maximum(spread, np.nan_to_num(np.abs(m.astype(np.float64) - b), nan=0.0, posinf=1e30))
            finite = b[np.isfinite(b)]
            most = np.abs(finite).max() if finite.size else 0.0
            ok = np.abs(a - b) <= TIMES * spread + share * most
            ok |= (a == b) | (np.isnan(a) & np.isnan(b))
    if (~ok).sum() <= flips * ok.size:
        return ""
    at = tuple(int(i) for i in np.argwhere(~ok)[0])
    return f"{(~ok).sum()} of {ok.size} wrong, first at {at}: {found[at]}, expected {right[at]}"
