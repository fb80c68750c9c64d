"""Nodes of constants without dimensions or without elements: onnxruntime's values, or a refusal that names the node."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import AttributeProto, defs, helper, numpy_helper
from support.interpret import run_program

from tx8fast.errors import Tx8Error
from tx8fast.frontend.onnx import _handlers, import_model

ort = pytest.importorskip("onnxruntime")

VERSIONS = (12, 22)
TYPES = {"float": np.float32, "int64": np.int64, "bool": np.bool_, "uint8": np.uint8, "int8": np.int8}
VALUES: dict[int, object] = {
    AttributeProto.INT: 1, AttributeProto.INTS: [1, 1], AttributeProto.FLOAT: 1.0, AttributeProto.STRING: "LEFT"
}  # fmt: skip


def of_constants(op: str, arrays: list[np.ndarray], version: int, n_out: int = 1, **attributes):
    stored = [numpy_helper.from_array(a, f"i{k}") for k, a in enumerate(arrays)]
    outputs = [f"o{k}" for k in range(n_out)]
    node = helper.make_node(op, [t.name for t in stored], outputs, **attributes)
    graph = helper.make_graph([node], "g", [], [helper.make_empty_tensor_value_info(o) for o in outputs], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=9)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def words(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(("op", "arrays", "attributes"), [
    ("NonZero", [np.array(2.0, np.float32)], {}),
    ("NonZero", [np.array(False)], {}),
    ("NonZero", [zeros(2, 0)], {}),
    ("Softmax", [zeros(0)], {}),
    ("LogSoftmax", [zeros(2, 0)], {}),
    ("Hardmax", [zeros(0, 3)], {}),
    ("Hardmax", [zeros(0)], {}),
    ("Compress", [zeros(2, 0), np.zeros(0, bool)], {}),
    ("Clip", [np.array(3, np.int64), words(5)], {}),
    ("Expand", [np.array(2.0, np.float32), words()], {}),
    ("CumSum", [zeros(3), np.array(0)], {}),
    ("TopK", [zeros(3), words(0)], {"n_out": 2}),
])  # fmt: skip
def test_values_are_onnxruntimes(op, arrays, attributes):
    m = of_constants(op, arrays, 22, **attributes)
    wanted = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {})
    for got, want in zip(run_program(import_model(m), {}), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def _odd_nodes(op: str):
    """Nodes of an operator with constants of few shapes, valid or not."""
    for version in VERSIONS:
        try:
            schema = defs.get_schema(op, version)
        except defs.SchemaError:
            continue
        if schema.deprecated:
            continue
        allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
        required = {name: int(a.type.value) for name, a in schema.attributes.items() if a.required}  # type: ignore[attr-defined]
        attributes = {name: VALUES[kind] for name, kind in required.items() if kind in VALUES}
        if "equation" in attributes:
            attributes["equation"] = "...->..."
        least = max(schema.min_input, 1)
        for count, first, rest in itertools.product((least, least + 1), [(), (0,), (2, 0)], [(), (0,), (2,)]):
            if count <= schema.max_input:
                formals = [schema.inputs[min(i, len(schema.inputs) - 1)] for i in range(count)]
                kinds = [next((t for t in TYPES if f"tensor({t})" in allowed.get(f.type_str, [f.type_str])), "float")
                         for f in formals]  # fmt: skip
                shapes = [first, *[rest] * (count - 1)]
                arrays = [np.zeros(s, TYPES[k]) for s, k in zip(shapes, kinds)]
                yield of_constants(op, arrays, version, min(len(schema.outputs), 2), **attributes)


@pytest.mark.slow
def test_odd_constants_of_every_operator_are_taken_or_refused():
    """Nothing but the compiler's own errors leaves the importer."""
    taken = refused = 0
    for op in sorted(name for domain, name in _handlers() if not domain):
        for m in _odd_nodes(op):
            try:
                import_model(m)
                taken += 1
            except Tx8Error as e:
                refused += 1
                assert f"({op}, operator set" in str(e) or "graph output 'o0' is a sequence" in str(e)
    assert taken > 300 and refused > 300


def test_a_refusal_names_shapes():
    m = of_constants("Trilu", [zeros(2, 2), words()], 22)
    with pytest.raises(Tx8Error, match=r"node 'Trilu#0' .* input 1 \(k\) has shape \[0\], required one number"):
        import_model(m)
    for arrays, found in (
        ([zeros(), zeros(2), zeros(2)], r"input 0 has shape \[\], required \[N, C, ...\]"),
        (
            [zeros(1, 1, 2), zeros(2), zeros()],
            r"scale has shape \[2\], offset \[\], required \[1\], one number a channel",
        ),
    ):
        with pytest.raises(Tx8Error, match=found):
            import_model(of_constants("InstanceNormalization", arrays, 22))
    m = of_constants("Split", [zeros()], 12)
    with pytest.raises(Tx8Error, match=r"its inputs \(f32\[\]\) and attributes do not make a valid node of its kind"):
        import_model(m)
