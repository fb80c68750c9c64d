"""What a model should give: onnxruntime with optimisations off (onnx's own evaluator where it has no kernel), in f32."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
import onnxruntime
from onnx import ModelProto

OLD_OPSET = 21
Arrays = dict[str, np.ndarray]


class NoReference(Exception):
    """The reference refuses the model, or fails to execute it."""


class Session:
    """An executable model in f32."""

    def __init__(self, model: ModelProto) -> None:
        self.names = [o.name for o in model.graph.output]
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        options.log_verbosity_level = 0
        self._ort = self._evaluator = None
        try:
            self._ort = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        except Exception as e:  # its errors have no common type below Exception
            if "NOT_IMPLEMENTED" not in str(e):
                raise NoReference(_first_line(e)) from e
            try:
                self._ort = onnxruntime.InferenceSession(_older(model), options, ["CPUExecutionProvider"])
            except Exception:
                self._evaluator = _evaluator(model)

    def run(self, feeds: Mapping[str, np.ndarray]) -> Arrays:
        """Return all outputs by name. Raises NoReference."""
        try:
            if self._ort is not None:
                found = self._ort.run(self.names, dict(feeds))
            else:
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    found = self._evaluator.run(None, dict(feeds))  # type: ignore[union-attr]
        except Exception as e:
            raise NoReference(_first_line(e)) from e
        return {n: np.asarray(a) for n, a in zip(self.names, found)}


def _older(model: ModelProto) -> bytes:
    """Return the model declared for an operator set whose kernels onnxruntime still has where newer ones are lacking."""
    old = ModelProto()
    old.CopyFrom(model)
    for opset in old.opset_import:
        if opset.domain == "":
            opset.version = min(opset.version, OLD_OPSET)
    return old.SerializeToString()


def _evaluator(model: ModelProto):
    from onnx.reference import ReferenceEvaluator

    try:
        return ReferenceEvaluator(model)
    except Exception as e:
        raise NoReference(_first_line(e)) from e


def _first_line(e: Exception) -> str:
    return str(e).split("\n")[0][:300]
