"""Program structure: module, functions, calls, terminators, parameters, constants, tuples, conversions of tensor kind.

May import: ir.ops.base, ir.factors, ir.attrs. Must not: know compute kinds.
"""

from __future__ import annotations

from typing import Any

from tx8fast.ir import factors
from tx8fast.ir.attrs import DenseAttr
from tx8fast.ir.core import (
    CONSTANT_LIKE,
    ISOLATED,
    PURE,
    READ_ONLY,
    REQUIRED,
    SYMBOL,
    SYMBOL_TABLE,
    TERMINATOR,
    VALUE_SEMANTICS,
    VIEW,
    Op,
)
from tx8fast.ir.ops.base import OpDef, fail
from tx8fast.ir.ops.movement import infer_reshape
from tx8fast.ir.types import TupleType

_NONE: dict[str, Any] = {"engine": "none", "routine": ""}
#: form of a parameter's or constant's bytes; absent (None) until the layout passes decide it
_FORM: dict[str, Any] = {"mem_layout": (str, None)}
_SYM: dict[str, Any] = {
    "sym_name": (str, REQUIRED),
    "arg_names": (tuple, ()),
    "result_names": (tuple, ()),
    "donated": (tuple, ()),
    # forms in DDR, one per argument and result, decided by the layout passes
    "arg_layouts": (tuple, None),
    "result_layouts": (tuple, None),
}


def _no_results(op: Op):
    return []


def _get_element(op: Op):
    t, i = op.operands[0].type, op.attrs["index"]
    if not isinstance(t, TupleType):
        raise fail(op, 0, t, "a tuple")
    if not 0 <= i < len(t.elements):
        raise fail(op, "index", i, f"a value in [0, {len(t.elements)})")
    return [t.elements[i]]


def _constant(op: Op):
    v = op.attrs["value"]
    return [(tuple(v.shape), v.dtype)]


def _key_effect(op: Op) -> list[tuple[str, Any]]:
    keys = op.attrs["keys"] if "keys" in op.attrs else (op.attrs["key"],)
    verb = "write" if "set_" in op.name else "read"
    return [(verb, ("state", k)) for k in keys]


def _touches_all(op: Op) -> None:
    return None


_PURE = PURE | VALUE_SEMANTICS

OPS: tuple[OpDef, ...] = (
    OpDef("module", (), (), {"ir_version": (tuple, (2, 0)), "tile_dx": (int, 4), "tile_dy": (int, 4), "chip_x": (int, 1),
          "chip_y": (int, 1), "chip_z": (int, 1)}, SYMBOL_TABLE | ISOLATED, _no_results, **_NONE),
    OpDef("func", (), (), dict(_SYM), SYMBOL | ISOLATED, _no_results, **_NONE),
    OpDef("subgraph", (), (), {**_SYM, "repeat_key": (str, "")}, SYMBOL | ISOLATED, _no_results, **_NONE),
    OpDef("call", ("args*",), ("results*",), {"callee": (str, REQUIRED)}, 0, effects=_touches_all, **_NONE),
    *[OpDef(n, ("values*",), (), {}, TERMINATOR | READ_ONLY, _no_results, **_NONE)
      for n in ("return", "subgraph_return", "group_return")],
    OpDef("get_param", (), attrs={"key": (str, REQUIRED), **_FORM}, traits=READ_ONLY, effects=_key_effect,
          rule_of=factors.results_only, **_NONE),
    OpDef("set_param", ("value",), (), {"key": (str, REQUIRED)}, 0, _no_results, effects=_key_effect, **_NONE),
    OpDef("get_params", (), ("values*",), {"keys": (tuple, REQUIRED)}, READ_ONLY, effects=_key_effect, **_NONE),
    OpDef("set_params", ("values*",), (), {"keys": (tuple, REQUIRED)}, 0, _no_results, effects=_key_effect, **_NONE),
    OpDef("constant", (), attrs={"value": (DenseAttr, REQUIRED), **_FORM}, traits=_PURE | CONSTANT_LIKE, infer=_constant,
          rule_of=factors.results_only, **_NONE),
    OpDef("none", (), ("none",), {}, _PURE | CONSTANT_LIKE, **_NONE),
    OpDef("tuple", ("elements*",), ("tuple",), {}, _PURE, **_NONE),
    OpDef("get_element", ("tuple",), attrs={"index": (int, REQUIRED)}, traits=_PURE, infer=_get_element, **_NONE),
    OpDef("to_vtensor", ("x",), traits=PURE | READ_ONLY, rule_of=factors.copy_dma, engine="tdma", routine=""),
    OpDef("to_tensor", ("x",), traits=PURE | VALUE_SEMANTICS, rule_of=factors.copy_dma, engine="tdma", routine=""),
    OpDef("reshape_view", ("x",), attrs={"shape": (tuple, REQUIRED)}, traits=VIEW | PURE, infer=infer_reshape,
          rule_of=factors.reshape, align="nalign", **_NONE),
    OpDef("barrier", ("tokens*",), ("token",), {}, 0, effects=_touches_all, **_NONE),
)  # fmt: skip
