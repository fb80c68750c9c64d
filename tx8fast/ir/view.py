"""The only door from the graph to plain data: IR functions become `GraphTable` records.

May import: ir, graph_table, numerics, errors. Must not: decide anything; layouts and groups were fixed by passes.

A group holds compute ops between loads and stores, mostly one; a record names the op, attributes, operand and
result specs and the factor rule. Of a group of several the table says which steps belong together. Reshapes of dense tensors are aliases. Constants and parameters become
value ids with a key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any

import numpy as np

from tx8fast.errors import InternalError
from tx8fast.graph_table import IN_PLACE, FunctionTable, GraphTable, OpRecord, Step, TensorSpec
from tx8fast.ir.core import COLLECTIVE, Op, Value
from tx8fast.ir.ops.base import rule_for
from tx8fast.ir.program import IRProgram
from tx8fast.ir.storage import REUSE
from tx8fast.numerics.layout import npc
from tx8fast.records import dataclass

SKIPPED_ATTRS = frozenset({"layout_str", "mem_layout", "useful_macs"})
TRANSPARENT = frozenset({"load_var", "store_var"})
STRUCTURE = frozenset({"none", "return", "subgraph_return", "group_return"})


@dataclass
class View:
    """The table plus what refers to the weight table: `params` key -> (weight key or inline array)."""

    table: GraphTable
    inline: dict[str, np.ndarray] = field(default_factory=dict)


def build_view(program: IRProgram) -> View:
    """Return all functions as tables. Every tensor must be static and every op grouped or an alias."""
    view = View(GraphTable({}, program.chips))
    for fn in program.functions:
        view.table.functions[fn.attrs["sym_name"]] = _FunctionReader(fn, view).read()
    return view


class _FunctionReader:
    def __init__(self, fn: Op, view: View) -> None:
        self.fn, self.view = fn, view
        self.table = FunctionTable(fn.attrs["sym_name"])
        self.ids: dict[Value, int] = {}
        layouts = fn.attrs.get("arg_layouts") or ()
        for i, a in enumerate(fn.body.args):
            self.table.args.append(self._value(a, layouts[i] if i < len(layouts) else "dense"))
        self.table.arg_names = list(fn.attrs.get("arg_names") or ())
        self.table.result_names = list(fn.attrs.get("result_names") or ())
        pairs = fn.attrs.get("donated") or ()
        self.table.donated = {int(r): int(a) for a, r in zip(pairs[::2], pairs[1::2], strict=True)}

    def read(self) -> FunctionTable:
        for op in self.fn.body:
            kind = op.kind
            if kind in ("return", "subgraph_return"):
                self.table.results = [self.ids[v] for v in op.operands]
            elif kind in STRUCTURE:
                continue
            elif kind in ("get_param", "constant"):
                self._param(op)
            elif kind == "call":
                self._call(op)
            elif kind == "group":
                self._group(op)
            elif kind == "reshape":
                self._alias(op)
            else:
                self._compute(op, list(op.operands), list(op.results), True)
        return self.table

    def _value(self, v: Value, layout: str) -> int:
        t: Any = v.type
        if not t.is_static:
            raise InternalError(f"a value of type {t} reached the array level; dimensions must be bound before")
        layout = layout if len(t.shape) > 1 and layout else "dense"
        self.ids[v] = len(self.table.values)
        self.table.values.append(TensorSpec(tuple(t.shape), t.dtype, layout))
        return self.ids[v]

    def _param(self, op: Op) -> None:
        if op.kind == "get_param":
            key = op.attrs["key"]
        else:
            array = op.attrs["value"].array
            key = f"%inline/{len(self.view.inline)}"
            self.view.inline[key] = array
        self.table.params[self._value(op.result, op.attrs.get("mem_layout", "") or "dense")] = key

    def _call(self, op: Op) -> None:
        callee = op.attrs["callee"]
        fn = next(f for f in self._functions() if f.attrs["sym_name"] == callee)
        if _moves_nothing(fn):
            self._inline(op, fn)
            return
        layouts = fn.attrs.get("result_layouts") or ()
        inputs = tuple(self.ids[v] for v in op.operands)
        outputs = tuple(self._value(r, layouts[i] if i < len(layouts) else "dense") for i, r in enumerate(op.results))
        self.table.steps.append(Step("call", op.loc or callee, inputs, outputs, callee=callee))

    def _inline(self, call: Op, fn: Op) -> None:
        """Take the aliases of a function for the call's own: without code there is no barrier at its end either."""
        self.ids |= {a: self.ids[v] for a, v in zip(fn.body.args, call.operands, strict=True)}
        for op in fn.body:
            if op.kind == "reshape":
                self._alias(op)
            elif op.kind in ("return", "subgraph_return"):
                self.ids |= {r: self.ids[v] for r, v in zip(call.results, op.operands, strict=True)}

    def _functions(self) -> Iterator[Op]:
        module = self.fn.parent
        assert module is not None
        return (f for f in module.body if "sym_name" in f.attrs)

    def _alias(self, op: Op) -> None:
        src = self.ids[op.operands[0]]
        spec = self.table.values[src]
        t: Any = op.result.type
        if spec.layout == "blocked" and npc(spec.shape) != npc(t.shape):
            raise InternalError(
                f"{op.loc}: a reshape of a blocked tensor from {spec.shape} to {t.shape} is not an alias"
            )
        out = self._value(op.result, spec.layout)
        self.table.steps.append(Step("alias", op.loc or "reshape", (src,), (out,)))

    def _group(self, group: Op) -> None:
        """Read a group; loads and stores inside are what the lowering does anyway."""
        outer: dict[Value, Value] = dict(zip(group.body.args, group.operands, strict=True))
        compute: list[Op] = []
        for op in group.body:
            if op.kind in TRANSPARENT:
                outer[op.result] = outer.get(op.operands[0], op.operands[0])
            elif op.kind in ("get_param", "constant", "load_const"):
                self._param(op)
                outer[op.result] = op.result
            elif op.kind not in STRUCTURE:
                compute.append(op)
        ret = group.body.last
        assert ret is not None
        inner = {outer.get(v, v): r for v, r in zip(ret.operands, group.results, strict=True)}
        barrier = bool(group.attrs.get("need_barrier", True))
        for op in compute:
            outputs = [inner.get(r) for r in op.results]
            # should the members end up apart, each has to wait for the one before
            self._compute(op, [outer.get(v, v) for v in op.operands], outputs, barrier or op is not compute[-1])
            self.ids.update((r, self.ids[out]) for r, out in zip(op.results, outputs, strict=True) if out is not None)
        if len(compute) > 1:
            self.table.given.append(tuple(self.ids[op.results[0]] for op in compute))

    def _compute(self, op: Op, operands: list[Value], outputs: list[Value | None], barrier: bool) -> None:
        layout = op.attrs.get("mem_layout", "") or "dense"
        inputs = tuple(self.ids.get(v, -1) for v in operands)
        outs = tuple(
            self._value(r if r is not None else own, layout) for r, own in zip(outputs, op.results, strict=True)
        )
        specs = tuple(self.table.values[i] if i >= 0 else None for i in inputs)
        results = tuple(self.table.values[i] for i in outs)
        attrs = tuple((k, v) for k, v in op.attrs.items() if k not in SKIPPED_ATTRS and not k.startswith("rt_"))
        if REUSE in op.attrs:
            attrs = (*attrs, (IN_PLACE, op.attrs[REUSE]))
        if op.has(COLLECTIVE):
            attrs = (*attrs, ("grid", self.view.table.chips))
        rule = rule_for(op)
        useful = op.attrs.get("useful_macs", -1)
        macs = rule.macs() if rule is not None and useful < 0 else max(useful, 0)
        record = OpRecord(op.kind, attrs, specs, results, rule, macs, op.info.decl.routine)
        name = op.loc or op.kind
        self.table.steps.append(Step("group", name, inputs, outs, record, barrier=barrier, op_names=(name,)))


def _moves_nothing(fn: Op) -> bool:
    """True if a function gives other shapes to what it takes, and computes nothing."""
    return all(op.kind == "reshape" or op.kind in STRUCTURE for op in fn.body)
