"""Calling the command line inside the test process, and small models for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tx8fast.cli import main


@dataclass(frozen=True)
class Outcome:
    """Exit code and what was printed."""

    code: int
    out: str
    err: str


class Caller:
    """`caller("sim", path)` runs one command; arguments may be paths."""

    def __init__(self, capsys: Any) -> None:
        self.capsys = capsys

    def __call__(self, *args: Any) -> Outcome:
        self.capsys.readouterr()
        code = main([str(a) for a in args])
        printed = self.capsys.readouterr()
        return Outcome(code, printed.out, printed.err)


def tree(directory: Path) -> dict[str, bytes | None]:
    """Return every file below `directory` with its content (None: a directory)."""
    return {
        str(p.relative_to(directory)): p.read_bytes() if p.is_file() else None for p in sorted(directory.rglob("*"))
    }


def refused(tx8: Caller, where: Path, *args: object, says: tuple[str, ...] = ()) -> str:
    """Run a command that must be refused cleanly and leave `where` as it was; return its message."""
    before = tree(where)
    found = tx8(*args)
    assert found.code == 2, found
    assert found.out == ""
    told = found.err
    if "--json" in args:
        told = "".join(f"{line['event']}: {line['text']}\n" for line in map(json.loads, found.err.splitlines()))
    assert told.startswith("error: ") and told.count("error: ") == 1, found.err
    assert "Traceback" not in found.err
    for text in says:
        assert text in told, found.err
    assert tree(where) == before
    return told


def compile_args(model: Path, tmp: Path, *more: object) -> tuple[object, ...]:
    return ("compile", model, "-o", tmp / "out.tx8", *more)


def write_mlp(path: Path, dims: tuple[int | str, int] = (8, 32)) -> Path:
    """Write y = relu(x @ w + b) as ONNX; the first entry of `dims` may be a symbol."""
    rng = np.random.default_rng(0)
    w, b = rng.standard_normal((dims[1], 48)).astype(np.float32), np.ones(48, np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "mm"), helper.make_node("Add", ["h", "b"], ["s"], "bias"),
             helper.make_node("Relu", ["s"], ["y"], "act")]  # fmt: skip
    return write_onnx(path, nodes, {"x": dims}, {"y": (dims[0], 48)}, {"w": w, "b": b})


def write_onnx(path: Path, nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any],
               weights: dict[str, np.ndarray] | None = None) -> Path:  # fmt: skip
    """Write an f32 ONNX model made of `nodes`."""
    infos = [
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in side.items()] for side in (inputs, outputs)
    ]
    stored = [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", *infos, stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path
