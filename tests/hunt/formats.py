"""Element types of hunted models, and their wide twins: the same model in f32, which the reference executes."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

F32, F16, BF16, F64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE
I64, I32, I8, U8, BOOL = TensorProto.INT64, TensorProto.INT32, TensorProto.INT8, TensorProto.UINT8, TensorProto.BOOL
NARROW = (F16, BF16)
FLOATS = (F32, F16, BF16)
#: relative distance of neighbouring numbers of a format
EPS: dict[int, float] = {F32: 2.0**-23, F16: 2.0**-10, BF16: 2.0**-7, F64: 2.0**-52}
#: the smallest number of a format, by whose multiples the numbers below its smallest normal one are apart
SMALLEST: dict[int, float] = {F32: 2.0**-149, F16: 2.0**-24, BF16: 2.0**-133, F64: 2.0**-1074}
FORMAT_OF_OPTION = {"bf16": BF16, "fp16": F16, "fp32": F32}
#: attributes that name an element type
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "output_datatype", "softmax_precision", "stash_type")


def short(a: np.ndarray) -> np.ndarray:
    """Return f32 numbers that bf16 and fp16 hold exactly: rounded to 8 bits, tiny ones to zero."""
    a = np.where(np.abs(a) < 2.0**-12, 0, a)
    return a.astype(ml_dtypes.bfloat16).astype(np.float32)


def array_of(t: TensorProto) -> np.ndarray:
    """Return a tensor's elements; narrow floats as f32."""
    a = numpy_helper.to_array(t)
    return a.astype(np.float32) if t.data_type in NARROW else a


def tensor(name: str, a: np.ndarray, code: int) -> TensorProto:
    """Return `a` as a tensor of element type `code`; f32 arrays are converted to a narrow float."""
    if code == BF16:
        raw = np.asarray(a, np.float32).astype(ml_dtypes.bfloat16).tobytes()
        return helper.make_tensor(name, code, a.shape, raw, raw=True)
    if code == F16:
        a = np.asarray(a).astype(np.float16)
    return numpy_helper.from_array(np.ascontiguousarray(a).reshape(a.shape), name)


def code_of(a: np.ndarray) -> int:
    return helper.np_dtype_to_tensor_dtype(a.dtype)


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    for a in node.attribute:
        if a.HasField("g"):
            yield a.g
        yield from a.graphs


def has_narrow(model: ModelProto) -> bool:
    """True if any input, stored tensor, constant or cast of the main graph is bf16 or fp16."""
    g = model.graph
    codes = [i.type.tensor_type.elem_type for i in g.input] + [t.data_type for t in g.initializer]
    for n in g.node:
        codes += [
            a.t.data_type if a.HasField("t") else a.i
            for a in n.attribute
            if a.HasField("t") or a.name in _TYPE_ATTRIBUTES
        ]
    return any(c in NARROW for c in codes)


def widen(model: ModelProto) -> ModelProto:
    """Return a copy in which every bf16 and fp16 is f32."""
    wide = ModelProto()
    wide.CopyFrom(model)
    _widen_graph(wide.graph)
    return wide


def _widen_graph(g: GraphProto) -> None:
    for info in [*g.input, *g.output, *g.value_info]:
        t = info.type.tensor_type
        if t.elem_type in NARROW:
            t.elem_type = F32
    for t in g.initializer:
        _widen_tensor(t)
    for node in g.node:
        for a in node.attribute:
            if a.name in _TYPE_ATTRIBUTES and a.i in NARROW:
                a.i = F32
            if a.HasField("t"):
                _widen_tensor(a.t)
        for inner in subgraphs(node):
            _widen_graph(inner)


def _widen_tensor(t: TensorProto) -> None:
    if t.data_type in NARROW:
        t.CopyFrom(tensor(t.name, array_of(t), F32))
