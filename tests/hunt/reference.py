"""What a model should give: onnxruntime with optimisations off, in f32; operators that it lacks are onnx's own evaluator's."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
import onnxruntime
from onnx import ModelProto, NodeProto, helper

Arrays = dict[str, np.ndarray]
#: an operator set whose kernels onnxruntime still has where newer ones are lacking
OLD_OPSET = 21
#: below it a deviation changes by more than some roundings of f32 when 1e-9 is added
DEVIATION = 1e-3


class NoReference(Exception):
    """The reference refuses the model, or fails to execute it."""


class Session:
    """An executable model in f32."""

    def __init__(self, model: ModelProto) -> None:
        self.names = [o.name for o in model.graph.output]
        self._ort = _ort_session(model)
        self._parts = None if self._ort is not None else _Parts(model)

    def run(self, feeds: Mapping[str, np.ndarray]) -> Arrays:
        """Return all outputs by name. Raises NoReference."""
        if self._parts is not None:
            return self._parts.run(feeds, self.names)
        try:
            found = self._ort.run(self.names, dict(feeds))  # type: ignore[union-attr]
        except Exception as e:  # its errors have no common type below Exception
            raise NoReference(_first_line(e)) from e
        return {n: np.asarray(a) for n, a in zip(self.names, found)}


def differs(node: NodeProto, values: Arrays) -> bool:
    """True for what the reference does otherwise than ONNX says: aligned corners of an image with a part of an element; attention of
    no numbers, whose softmax it makes nothing in some rows; numbers so near their mean that the 1e-9 matters which ONNX adds to their
    deviation."""
    if node.op_type == "MeanVarianceNormalization" and (x := values.get(node.input[0])) is not None:
        axes = next((tuple(a.ints) for a in node.attribute if a.name == "axes"), (0, 2, 3))
        return bool((x.astype(np.float64).std(axis=axes) < DEVIATION).any())
    if node.op_type.endswith("Attention"):
        given = [values[n] for n in node.input if n in values]
        return any(x.dtype.kind == "f" and bool(np.isnan(x).any()) for x in given)
    if node.op_type != "Resize" or not any(a.s == b"align_corners" for a in node.attribute):
        return False
    x, scales = (values.get(node.input[k] if k < len(node.input) else "") for k in (0, 2))
    return x is not None and scales is not None and bool((scales * x.shape[-scales.size :] % 1).any())


def with_all_values(model: ModelProto) -> ModelProto:
    """Return the model with every result of its main graph as an output."""
    full = ModelProto()
    full.CopyFrom(model)
    known = {o.name for o in full.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in known:
                full.graph.output.append(helper.make_empty_tensor_value_info(name))
                known.add(name)
    return full


def _ort_session(model: ModelProto) -> onnxruntime.InferenceSession | None:
    """Return a session, or None if a kernel is lacking. Raises NoReference for a model that is not valid."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    except Exception as e:
        if "NOT_IMPLEMENTED" not in str(e):
            raise NoReference(_first_line(e)) from e
    return None


class _Parts:
    """A model node by node, so that only nodes without a kernel are left to the evaluator."""

    def __init__(self, model: ModelProto) -> None:
        self.model = model
        self.stored = {t.name: t for t in model.graph.initializer}
        self.sessions: dict[tuple, object] = {}

    def run(self, feeds: Mapping[str, np.ndarray], names: list[str]) -> Arrays:
        values: Arrays = dict(feeds)
        for k, node in enumerate(self.model.graph.node):
            used = [n for n in dict.fromkeys(_reads(node)) if n in values]
            key = k, *(values[n].shape for n in used)
            if key not in self.sessions:
                self.sessions[key] = self._session(node, {n: values[n] for n in used})
            session = self.sessions[key]
            outputs = [o for o in node.output if o]
            try:
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    found = session.run(outputs, {n: values[n] for n in used})  # type: ignore[attr-defined]
            except Exception as e:
                raise NoReference(_first_line(e)) from e
            values.update(zip(outputs, map(np.asarray, found)))
        try:
            return {n: values[n] for n in names}
        except KeyError as e:
            raise NoReference(f"nothing gives {e}") from e

    def _session(self, node: NodeProto, given: Arrays):
        reads = _reads(node)
        infos = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in given.items()
        ]
        graph = helper.make_graph([node], "one", infos, [helper.make_empty_tensor_value_info(o) for o in node.output if o],
                                  [self.stored[n] for n in dict.fromkeys(reads) if n in self.stored])  # fmt: skip
        for limit in (None, OLD_OPSET):
            opsets = [
                helper.make_opsetid(o.domain, min(o.version, limit or o.version)) for o in self.model.opset_import
            ]
            one = helper.make_model(graph, opset_imports=opsets, ir_version=self.model.ir_version)
            try:
                if (session := _ort_session(one)) is not None:
                    return session
            except NoReference:
                if limit is None:
                    raise
        from onnx.reference import ReferenceEvaluator

        try:
            one.opset_import[0].version = self.model.opset_import[0].version
            return ReferenceEvaluator(one)
        except Exception as e:
            raise NoReference(_first_line(e)) from e


def _reads(node: NodeProto) -> list[str]:
    """The names that a node and its subgraphs read."""
    inner = [n for a in node.attribute if a.HasField("g") for m in a.g.node for n in _reads(m)]
    return [*(i for i in node.input if i), *inner]


def _first_line(e: Exception) -> str:
    return str(e).split("\n")[0][:300]
