"""Loads and stores of a group: what passes between DDR and scratchpad, and how freely the group may be cut.

May import: ir, passes.base, passes.layout_forms. Must not: place buffers. Load and store are decided per operand and
per result of the op concerned, by its own bit.
"""

from __future__ import annotations

from typing import ClassVar

from tx8fast.ir.core import Context, Op, Value
from tx8fast.ir.interfaces import is_loaded, is_stored, query_op_attr
from tx8fast.ir.ops.base import rule_for
from tx8fast.ir.program import IRProgram
from tx8fast.ir.symbols import SymbolTable
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.layout_forms import BLOCKED, DENSE, exempt, form_of
from tx8fast.records import dataclass

#: kinds that bring a vector operand into the form of the other one while loading it
_UNIFYING = frozenset({"add", "sub", "mul", "div"})
_TRANSPARENT = frozenset({"load_var", "store_var", "load_const", "none", "group_return"})
NORMAL, NO_CHANNEL_SPLIT, IN_DDR = 0, 1, 2


@dataclass(frozen=True)
class GroupLoadStore(CompilerPass):
    name: ClassVar[str] = "group-load-store"
    requires: ClassVar[tuple[str, ...]] = ("groups",)
    ensures: ClassVar[tuple[str, ...]] = ("loads",)

    def run(self, program: IRProgram) -> PassResult:
        loads = stores = 0
        symbols = program.symbols()
        for op in program.module.walk():
            if op.kind == "group":
                n, m = load_and_store(program.ctx, op, symbols)
                loads += n
                stores += m
        return PassResult(loads + stores > 0, {"loads": loads, "stores": stores})


def load_and_store(ctx: Context, group: Op, symbols: SymbolTable | None = None) -> tuple[int, int]:
    """Insert the loads and stores of one group and set its tag; return how many of each.

    `symbols` is needed if an operand of the group may be the result of a call.
    """
    body = group.body
    ops = [op for op in body if op.kind not in _TRANSPARENT]
    facts = {op: query_op_attr(op) for op in ops}
    loads: dict[tuple[Value, str], Value] = {}
    for op in ops:
        for i, v in enumerate(op.operands):
            if v.owner is not body or not is_loaded(facts[op], i):
                continue
            form = loaded_form(op, v, symbols)
            if (v, form) not in loads:
                load = ctx.create("load_var", [v], loc=op.loc, layout_str=_name(op), mem_layout=form)
                loads[v, form] = body.insert_before(op, load).result
            op.set_operand(i, loads[v, form])
    end = body.terminator
    assert end is not None
    stored: dict[Value, Value] = {}
    for i, v in enumerate(end.operands):
        if v.op is None or v.op not in facts or not is_stored(facts[v.op], v.index):
            continue
        if v not in stored:
            form = DENSE if exempt(v) else form_of(v)
            store = ctx.create("store_var", [v], loc=v.op.loc, layout_str=_name(v.op), mem_layout=form)
            stored[v] = body.insert_before(end, store).result
        end.set_operand(i, stored[v])
    in_ddr = not loads and not stored
    group.attrs["group_tag"] = IN_DDR if in_ddr else NO_CHANNEL_SPLIT if any(map(keeps_channels, ops)) else NORMAL
    return len(loads), len(stored)


def loaded_form(op: Op, v: Value, symbols: SymbolTable | None = None) -> str:
    """Return the form in scratchpad: that in DDR, or of the other operand for a vector of add, sub, mul, div."""
    if not exempt(v):
        return form_of(v, symbols)
    others = [o for o in op.operands if o is not v]
    if op.kind in _UNIFYING and any(form_of(o, symbols) == BLOCKED for o in others):
        return BLOCKED
    return DENSE


def keeps_channels(op: Op) -> bool:
    """True if every piece of the op needs all channels of its result's last dimension."""
    rule = rule_for(op)
    if rule is None or not rule.outs or not rule.outs[0]:
        return False
    last = rule.outs[0][-1]
    return bool(last.terms) and all(rule.kinds[f] == "W" for f, _ in last.terms)


def _name(op: Op) -> str:
    return op.attrs.get("layout_str", "Unknown").rpartition("-")[2]
