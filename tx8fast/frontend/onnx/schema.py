"""Checks nodes against ONNX's own operator declarations, and expands operators that are defined by others.

May import: errors, frontend.onnx.reader, onnx (late). Must not: create ops.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tx8fast.frontend.common import Imported, Tensor, TensorList
from tx8fast.frontend.onnx.reader import DTYPES
from tx8fast.records import dataclass

_ONNX_NAMES = {
    "f32": "float",
    "f16": "float16",
    "f64": "double",
    "bf16": "bfloat16",
    "pred": "bool",
    "f8e4m3fn": "float8e4m3fn",
    "f8e5m2": "float8e5m2",
    **{f"{s}{b}": f"{'u' * (s == 'u')}int{b}" for s in "iu" for b in (4, 8, 16, 32, 64)},
}
_CODES = {name: code for code, name in DTYPES.items()}


@dataclass(frozen=True)
class Signature:
    """Operand counts and, per formal operand, its type variable and the types it admits (None: anything)."""

    low: int
    high: int
    formals: tuple[tuple[str, frozenset[str] | None], ...]
    variadic: bool
    homogeneous: bool
    names: tuple[str, ...]
    optional: tuple[bool, ...]


@lru_cache(maxsize=4096)
def _schema(op_type: str, opset: int, domain: str) -> Any:
    from onnx import defs

    try:
        return defs.get_schema(op_type, opset, domain)
    except defs.SchemaError:
        return None


@lru_cache(maxsize=4096)
def signature(op_type: str, opset: int, domain: str) -> Signature | None:
    """Return the declared operands of an operator, or None if ONNX does not declare it."""
    from onnx import defs

    schema = _schema(op_type, opset, domain)
    if schema is None:
        return None
    allowed = {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints}
    if any("seq(tensor(float16))" in types for types in allowed.values()):
        # declared before there was bfloat16, and not since, though what makes sequences may take it
        allowed = {k: types | {t.replace("float16", "bfloat16") for t in types} for k, types in allowed.items()}
    formals = []
    for i in schema.inputs:
        variable = i.type_str
        types = allowed.get(variable)
        formals.append((variable, types if types is not None else frozenset([variable])))
    variadic = bool(schema.inputs) and schema.inputs[-1].option == defs.OpSchema.FormalParameterOption.Variadic
    homogeneous = not variadic or schema.inputs[-1].is_homogeneous
    names = tuple(i.name for i in schema.inputs)
    # Resize-11 declares what it does not need as required, and exporters leave it out
    may_lack = [op_type == "Resize" or i.option == defs.OpSchema.FormalParameterOption.Optional for i in schema.inputs]
    return Signature(schema.min_input, schema.max_input, tuple(formals), variadic, homogeneous, names, tuple(may_lack))


def type_problems(op_type: str, opset: int, domain: str, inputs: list[Imported | None]) -> list[str]:
    """Return what is wrong with the operands' number and element types, as sentences."""
    sig = signature(op_type, opset, domain)
    if sig is None:
        return []
    if not sig.low <= len(inputs) <= sig.high:
        return [f"found {len(inputs)} inputs, required {sig.low} to {sig.high}"]
    problems = []
    bound: dict[str, tuple[str, str]] = {}
    for i, t in enumerate(inputs):
        k = min(i, len(sig.formals) - 1)
        variable, types = sig.formals[k]
        label = f"input {i} ({sig.names[k]})"
        if t is None:
            if not sig.optional[k]:
                problems.append(f"{label} is empty, which only optional inputs may be")
        elif types is not None and kind_of(t).format(_ONNX_NAMES[t.dtype]) not in types:
            problems.append(f"{label} has element type {t.dtype}, which {op_type}-{opset} does not admit")
        elif sig.homogeneous or k < len(sig.formals) - 1:
            dtype, first = bound.setdefault(variable, (t.dtype, label))
            if dtype != t.dtype:
                problems.append(f"{label} has element type {t.dtype}, required {dtype} as {first}")
    return problems


def kind_of(t: Imported) -> str:
    """Return how ONNX names a tensor, or a sequence of them, with a place for the element type."""
    return "seq(tensor({}))" if isinstance(t, TensorList) else "tensor({})"


def attribute_problems(proto: Any, opset: int, domain: str) -> list[str]:
    """Return which attributes of a node are of another kind than declared, as sentences."""
    schema = _schema(proto.op_type, opset, domain)
    declared = schema.attributes if schema is not None else {}
    problems = []
    for a in proto.attribute:
        if not a.ref_attr_name and not settle_kind(a):
            problems.append(f"attribute '{a.name}' has no value, or several")
        elif a.name in declared and a.type not in (a.UNDEFINED, declared[a.name].type.value):
            found, required = a.AttributeType.Name(a.type), declared[a.name].type.name
            problems.append(f"attribute '{a.name}' is of kind {found}, required {required}")
    return problems


#: field of an attribute's value -> name of its kind
_KIND_OF = {
    "f": "FLOAT",
    "i": "INT",
    "s": "STRING",
    "t": "TENSOR",
    "g": "GRAPH",
    "floats": "FLOATS",
    "ints": "INTS",
    "strings": "STRINGS",
    "tensors": "TENSORS",
    "graphs": "GRAPHS",
}


def settle_kind(a: Any) -> bool:
    """Make sure that an attribute states its kind: by the value that is there, for files of the first version did not.

    Return False if that is not one value.
    """
    if a.type != a.UNDEFINED:
        return True
    found = [_KIND_OF[field.name] for field, _ in a.ListFields() if field.name in _KIND_OF]
    if len(found) == 1:
        a.type = a.AttributeType.Value(found[0])
    return len(found) == 1


def has_body(op_type: str, opset: int, domain: str) -> bool:
    """True if ONNX defines the operator by a function of other operators."""
    schema = _schema(op_type, opset, domain)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def function_body(proto: Any, opset: int, inputs: list[Imported | None]) -> Any:
    """Return the FunctionProto that defines a node of an operator set version, or None."""
    import onnx

    schema = _schema(proto.op_type, opset, proto.domain or "")
    if schema is None:
        return None
    if schema.has_context_dependent_function:
        types = []
        for t in inputs:
            tp = onnx.TypeProto()
            if isinstance(t, Tensor):
                tp.tensor_type.elem_type = _CODES[t.dtype]
                for d in t.shape:
                    tp.tensor_type.shape.dim.add().dim_value = d
            types.append(tp.SerializeToString())
        versions = sorted(v for v in schema.context_dependent_function_opset_versions if v <= opset)
        if not versions:
            return None
        raw = schema.get_context_dependent_function_with_opset_version(versions[-1], proto.SerializeToString(), types)
    elif schema.has_function:
        versions = sorted(v for v in schema.function_opset_versions if v <= opset)
        if not versions:
            return None
        raw = schema.get_function_with_opset_version(versions[-1])
    else:
        return None
    body = onnx.FunctionProto()
    body.ParseFromString(raw)
    return body if body.node else None
