"""Reads an ONNX file: parsing, checks of its structure, initialisers as unread weights.

May import: frontend.common, weights, errors, onnx (late), numpy. Must not: create ops.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from tx8fast.errors import ImportModelError, UnsupportedError, raise_all
from tx8fast.files import open_input, read_input, refer
from tx8fast.frontend.common import FOLD_BYTES, Tensor, np_type
from tx8fast.frontend.onnx.wire import raw_data_places
from tx8fast.weights import ArraySource, FileSource, Weight, WeightTable, np_dtype
from tx8fast.weights.dtypes import ITEM_BYTES

#: TensorProto.DataType -> our dtype name
DTYPES = {
    1: "f32", 2: "u8", 3: "i8", 4: "u16", 5: "i16", 6: "i32", 7: "i64", 9: "pred", 10: "f16", 11: "f64", 12: "u32",
    13: "u64", 16: "bf16", 17: "f8e4m3fn", 19: "f8e5m2", 21: "u4", 22: "i4",
}  # fmt: skip
_OTHER_DTYPES = {
    8: "string",
    14: "complex64",
    15: "complex128",
    18: "float8e4m3fnuz",
    20: "float8e5m2fnuz",
    23: "float4e2m1",
    24: "float8e8m0",
    25: "uint2",
    26: "int2",
}
MAX_PROTO_BYTES = (1 << 31) - 1  # the format's own limit
ITEM_BITS = {"i4": 4, "u4": 4}  # of packed formats
#: float initialisers up to this many elements take part in folding; integers up to FOLD_BYTES do
_FOLD_FLOATS = 16


def dtype_of(code: int, what: str) -> str:
    """Return our dtype name of an ONNX element type. Raises UnsupportedError naming `what`."""
    name = DTYPES.get(code)
    if name is None:
        other = _OTHER_DTYPES.get(code, f"element type {code}")
        raise UnsupportedError(f"{what}: {other} tensors are not supported; supported are {', '.join(DTYPES.values())}")
    return name


def read_model(path: str | os.PathLike[str]) -> Any:
    """Parse an ONNX file without its external data. Raises ImportModelError if it is not a complete model."""
    import onnx
    from google.protobuf.message import DecodeError

    model, data = onnx.ModelProto(), b""
    try:
        data = read_input(path, MAX_PROTO_BYTES)
        model.ParseFromString(data)
    except OSError as e:
        raise ImportModelError(f"reading ONNX model {path}: {e.strerror or e}") from e
    except DecodeError as e:
        raise ImportModelError(
            f"reading ONNX model {path}: its {len(data)} bytes are not a complete ONNX protobuf; "
            "the file is truncated, damaged or of another format"
        ) from e
    problems = []
    if not model.HasField("graph") or (not model.graph.node and not model.graph.output):
        problems.append("the file holds no graph")
    elif not model.graph.output:
        problems.append("the graph has no outputs; the file may be truncated")
    if not model.opset_import:
        problems.append("the file names no operator set version (opset_import)")
    graphs = [model.graph, *model.functions]
    if any(type(text) is bytes for graph in graphs for text in _names(graph)):
        problems.append("names in the graph are no UTF-8 text; the file is damaged")
    raise_all(ImportModelError, f"reading ONNX model {path}", problems)
    return model


def _names(graph: Any) -> Iterator[Any]:
    """Yield every name in a graph or function, subgraphs included. The parser hands out bytes for what is no text."""
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for attribute in node.attribute:
            yield attribute.name
            for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _names(inner)
    for kind in ("input", "output", "initializer"):
        yield from (entry if isinstance(entry, str | bytes) else entry.name for entry in getattr(graph, kind, ()))


class Initializers:
    """Turns TensorProtos into tensors; main-graph weights enter the table without being read."""

    def __init__(self, path: str, weights: WeightTable) -> None:
        self.path = path
        self.weights = weights
        try:
            self._inline = raw_data_places(path) if path else {}
        except (OSError, ValueError) as e:
            raise ImportModelError(f"reading ONNX model {path}: {e}") from e

    def weight(self, proto: Any) -> Tensor:
        """Return the tensor of a main-graph initialiser."""
        what = f"initialiser '{proto.name}'"
        dtype, shape = dtype_of(proto.data_type, what), tuple(proto.dims)
        source = self._source(proto, dtype, shape, what)
        if source is None:
            array = self.array(proto, what)
            source = ArraySource(np.ascontiguousarray(array, np_dtype(dtype)).reshape(shape))
        self.weights.add(Weight(proto.name, shape, dtype, source))
        name = proto.name
        tensor = Tensor(shape, dtype, key=name, load=lambda: self.weights.view(name).astype(np_type(dtype), copy=False))
        numel = math.prod(shape)
        small = numel <= _FOLD_FLOATS if tensor.is_float else numel * ITEM_BYTES[dtype] <= FOLD_BYTES
        if small:
            tensor.array = np.array(tensor.force())  # a copy: the file map may go away
        if numel <= 1 or (small and not tensor.is_float and numel * ITEM_BYTES[dtype] <= 1024):
            tensor.key = tensor.load = None  # stands in the IR text as a constant
            self.weights.remove(name)
        return tensor

    def array(self, proto: Any, what: str) -> np.ndarray:
        """Return the values of any tensor of the model: an initialiser, an attribute, one of a subgraph or a function."""
        if any(d < 0 for d in proto.dims):
            raise ImportModelError(f"{what}: shape {list(proto.dims)} has a negative dimension")
        if proto.data_location == 1:
            place = external_place(proto, self.path, what)
            inside = type(proto)(data_type=proto.data_type, dims=proto.dims, name=proto.name)
            try:
                with open_input(place.path) as f:
                    f.seek(place.offset)
                    inside.raw_data = f.read(place.nbytes)
            except OSError as e:
                raise ImportModelError(f"{what}: reading external data file {place.path}: {e.strerror or e}") from e
            proto = inside
        return _decoded(proto, what)

    def _source(self, proto: Any, dtype: str, shape: tuple[int, ...], what: str) -> FileSource | None:
        """Return the place of the bytes in a file, or None if they must be decoded."""
        need = math.prod(shape) * ITEM_BYTES[dtype]
        if any(d < 0 for d in shape):
            raise ImportModelError(f"{what}: shape {list(shape)} has a negative dimension")
        packed = dtype in ITEM_BITS
        if proto.data_location == 1:
            return None if packed else external_place(proto, self.path, what)
        if packed or not proto.HasField("raw_data"):
            return None
        place = self._inline.get(proto.name)
        size = place[1] if place is not None else len(proto.raw_data)
        if size != need:
            raise ImportModelError(f"{what}: found {size} bytes of data, {dtype} {list(shape)} needs {need}")
        return FileSource(self.path, *place) if place is not None else None


def external_place(proto: Any, model_path: str, what: str) -> FileSource:
    """Return where external data are: in the model's directory, as many bytes as the tensor needs. Raises ImportModelError."""
    entries = {e.key: e.value for e in proto.external_data}
    location = entries.get("location", "")
    if not model_path:
        raise ImportModelError(f"{what}: its data are in file '{location}', but a model in memory has no directory")
    if type(location) is bytes or "\0" in location:
        raise ImportModelError(f"{what}: external data location {location!r:.80} is no file name")
    folder = os.path.dirname(os.path.abspath(model_path))
    path = os.path.normpath(os.path.join(folder, location))
    real_folders = (os.path.realpath(folder), os.path.dirname(os.path.realpath(model_path)))
    inside = path.startswith(folder.rstrip(os.sep) + os.sep) and any(
        os.path.realpath(path).startswith(f.rstrip(os.sep) + os.sep) for f in real_folders
    )
    if not location or os.path.isabs(location) or not inside:
        raise ImportModelError(
            f"{what}: external data location '{location}' is not inside the model's directory {folder}"
        )
    if not os.path.isfile(path):
        raise ImportModelError(f"{what}: external data file {path} does not exist; put it beside the model file")
    try:
        offset = int(entries.get("offset", "0"))
        length = int(entries["length"]) if "length" in entries else None
    except ValueError as e:
        raise ImportModelError(f"{what}: external data offset or length is not a number: {e}") from e
    if offset < 0 or (length is not None and length < 0):
        raise ImportModelError(f"{what}: external data offset {offset} or length {length} is negative")
    dtype, shape = dtype_of(proto.data_type, what), list(proto.dims)
    need = -(-math.prod(shape) * ITEM_BITS.get(dtype, 8 * ITEM_BYTES[dtype]) // 8)
    if length not in (None, need):
        raise ImportModelError(f"{what}: external data has {length} bytes, {dtype} {shape} needs {need}")
    refer(path)
    found = os.path.getsize(path)
    if offset + need > found:
        raise ImportModelError(
            f"{what}: bytes [{offset}, {offset + need}) of external data file {path} required, the file has {found}; "
            "it is truncated"
        )
    return FileSource(path, offset, need)


def _decoded(proto: Any, what: str) -> np.ndarray:
    """Decode a TensorProto, its data inside, into an array of our numpy dtype; 4-bit integers take a byte each."""
    from onnx import numpy_helper

    dtype = dtype_of(proto.data_type, what)
    try:
        array = numpy_helper.to_array(proto)
    except Exception as e:  # the decoder raises whatever its parts raise
        raise ImportModelError(f"{what}: its data do not fit {dtype} {list(proto.dims)}: {e}") from e
    return array.astype(np_type(dtype), copy=False)
