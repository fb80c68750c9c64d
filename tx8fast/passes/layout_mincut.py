"""The exact answer to the two-form problem of one function: a minimum cut over the ops whose form is a choice.

May import: passes.layout_forms, passes.min_cut, ir.core. Must not: insert ops. Forms of arguments, results and calls stay as they are.

Blocked is the source side. A value costs what its conversion moves, once if any user needs the form it does not have, because users
share the conversion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tx8fast.ir.core import Op, Value
from tx8fast.passes.layout_forms import BLOCKED, BOUNDARY, DENSE, FREE, LEANS, exempt, free
from tx8fast.passes.min_cut import SINK, SOURCE, MinCut

if TYPE_CHECKING:
    from tx8fast.passes.layout_align import Colouring


def improve(c: Colouring) -> int:
    """Replace the greedy choices of `c` if that moves fewer bytes; return the bytes saved in one run."""
    uses = _uses(c)
    before = conversion_bytes(c, uses)
    chosen = _cut(c, uses)
    greedy = dict(c.colours)
    for op, form in chosen.items():
        c.paint(op, form)
    saved = before - conversion_bytes(c, uses)
    if saved <= 0:
        for op in chosen:
            c.paint(op, greedy[op])
    return max(saved, 0)


def conversion_bytes(c: Colouring, uses: dict[Value, list[Op | str]] | None = None) -> int:
    """Return the bytes that the present colours move to convert values, each counted once (`_cost`)."""
    total = 0
    for v, users in (_uses(c) if uses is None else uses).items():
        if any((u if type(u) is str else c.colours[u]) != c.forms[v] for u in users):  # type: ignore[index]
            total += _cost(v, users)
    return total


def _cost(v: Value, users: list[Op | str]) -> int:
    """Return the bytes that another form of a value moves: twice its own, but for one that is stored and loaded anyhow, to be turned."""
    ends = [v.op, *users]
    turned = any(type(x) is Op and x.kind == "transpose" for x in ends)
    return v.type.size_bytes * (1 if turned else 2)  # type: ignore[attr-defined]


def _uses(c: Colouring) -> dict[Value, list[Op | str]]:
    """Per value that may need converting: its users, or the form that one with a fixed form needs."""
    out: dict[Value, list[Op | str]] = {}
    for op, mode in c.modes.items():
        for i, v in enumerate(op.operands):
            if exempt(v) or free(v) or v not in c.forms:
                continue
            if mode == BOUNDARY or mode == FREE:
                user: Op | str | None = _boundary_form(c, op, i)
            elif op.kind == "channel_norm":
                user = DENSE if op.attrs["to"] == "align" else BLOCKED
            else:
                user = op
            if user is not None:
                out.setdefault(v, []).append(user)
    return out


def _boundary_form(c: Colouring, op: Op, i: int) -> str | None:
    if op.kind == "call":
        return (c.symbols.lookup(op.attrs["callee"]).attrs["arg_layouts"] or ())[i]
    if op.kind == "return":
        return c.result_forms()[i]
    if op.kind == "subgraph_return":
        return c.forms[op.operands[i]]  # callers were promised what greedy found
    return DENSE


def _cut(c: Colouring, uses: dict[Value, list[Op | str]]) -> dict[Op, str]:
    """Return the cheapest form of every op whose form is a choice."""
    flow = MinCut()
    node = {op: flow.add() for op in c.either()}
    for op, n in node.items():
        if c.modes[op] == LEANS:
            flow.edge(SOURCE, n, 1)  # among equals

    def of(user: Op | str) -> int:
        if type(user) is not str and user in node:
            return node[user]  # type: ignore[index]
        form = user if type(user) is str else c.colours[user]  # type: ignore[index]
        return SOURCE if form == BLOCKED else SINK

    for v, users in uses.items():
        producer = of(v.op) if v.op is not None and v.op in c.colours else of(c.forms[v])
        flow.share(producer, map(of, users), _cost(v, users))
    blocked = flow.source_side()
    return {op: BLOCKED if n in blocked else DENSE for op, n in node.items()}
