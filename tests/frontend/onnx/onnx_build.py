"""Small ONNX models for tests."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tx8fast.frontend.common import ImportOptions
from tx8fast.frontend.onnx import import_model

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name: str, shape, dtype: int = F32):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(
    nodes, inputs, outputs, weights: dict[str, np.ndarray] | None = None, opset: int = 20, functions=(), domains=()
):
    """Make a model from nodes and value infos; `weights` become raw initialisers."""
    stored = [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), stored)
    opsets = [helper.make_opsetid("", opset), *[helper.make_opsetid(d, 1) for d in domains]]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=10)


def node(op: str, inputs: str, outputs: str, name: str = "", **attrs) -> onnx.NodeProto:
    """`inputs` and `outputs` are blank-separated names; "_" is an absent input."""
    names = ["" if i == "_" else i for i in inputs.split()]
    return helper.make_node(op, names, outputs.split(), name=name, **attrs)


def imported(*args, options: ImportOptions | None = None, **kw):
    return import_model(model(*args, **kw), "", options)
