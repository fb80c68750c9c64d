"""The exact answer to the two-form problem of one function: a minimum cut over the ops whose form is a choice.

May import: passes.layout_forms, ir.core. Must not: insert ops. Forms of arguments, results and calls stay as they are.

Blocked is the source side. A value costs its bytes once if any user needs the form it does not have, because
users share the conversion: per value and direction one auxiliary node stands between producer and users.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tx8fast.ir.core import Op, Value
from tx8fast.passes.layout_forms import BLOCKED, BOUNDARY, DENSE, FREE, LEANS, exempt, free

if TYPE_CHECKING:
    from tx8fast.passes.layout_align import Colouring

_ENDLESS = 1 << 60
_SOURCE, _SINK = 0, 1


def improve(c: Colouring) -> int:
    """Replace the greedy choices of `c` if that converts fewer bytes; return the bytes saved in one run."""
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
    """Return the bytes of all values that the present colours convert, each counted once."""
    total = 0
    for v, users in (_uses(c) if uses is None else uses).items():
        if any((u if type(u) is str else c.colours[u]) != c.forms[v] for u in users):  # type: ignore[index]
            total += v.type.size_bytes  # type: ignore[attr-defined]
    return total


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
    flow = _Flow()
    node = {op: flow.add() for op in c.either()}
    for op, n in node.items():
        if c.modes[op] == LEANS:
            flow.edge(_SOURCE, n, 1)  # among equals

    def of(user: Op | str) -> int:
        if type(user) is not str and user in node:
            return node[user]  # type: ignore[index]
        form = user if type(user) is str else c.colours[user]  # type: ignore[index]
        return _SOURCE if form == BLOCKED else _SINK

    for v, users in uses.items():
        cost = v.type.size_bytes  # type: ignore[attr-defined]
        producer = of(v.op) if v.op is not None and v.op in c.colours else of(c.forms[v])
        ends = sorted({of(u) for u in users})
        if ends == [producer]:
            continue
        to_dense, to_blocked = flow.add(), flow.add()
        flow.edge(producer, to_dense, cost)
        flow.edge(to_blocked, producer, cost)
        for end in ends:
            flow.edge(to_dense, end, _ENDLESS)
            flow.edge(end, to_blocked, _ENDLESS)
    blocked = flow.source_side()
    return {op: BLOCKED if n in blocked else DENSE for op, n in node.items()}


class _Flow:
    """Maximum flow by blocking flows (Dinic), iterative, in integers."""

    def __init__(self) -> None:
        self.adjacent: list[list[int]] = [[], []]
        self.head: list[int] = []
        self.room: list[int] = []

    def add(self) -> int:
        self.adjacent.append([])
        return len(self.adjacent) - 1

    def edge(self, a: int, b: int, capacity: int) -> None:
        for x, y, room in ((a, b, capacity), (b, a, 0)):
            self.adjacent[x].append(len(self.head))
            self.head.append(y)
            self.room.append(room)

    def source_side(self) -> set[int]:
        """Saturate the network; return the nodes the source still reaches."""
        while _SINK in (level := self._levels()):
            at = [0] * len(self.adjacent)
            while self._augment(level, at):
                pass
        return set(level)

    def _levels(self) -> dict[int, int]:
        level = {_SOURCE: 0}
        queue = deque([_SOURCE])
        while queue:
            n = queue.popleft()
            for e in self.adjacent[n]:
                if self.room[e] and self.head[e] not in level:
                    level[self.head[e]] = level[n] + 1
                    queue.append(self.head[e])
        return level

    def _augment(self, level: dict[int, int], at: list[int]) -> bool:
        path: list[int] = []
        n = _SOURCE
        while n != _SINK:
            edges = self.adjacent[n]
            while at[n] < len(edges):
                e = edges[at[n]]
                if self.room[e] and level.get(self.head[e], -1) == level[n] + 1:
                    break
                at[n] += 1
            else:
                if not path:
                    return False
                n = self.head[path.pop() ^ 1]
                at[n] += 1
                continue
            path.append(e)
            n = self.head[e]
        amount = min(self.room[e] for e in path)
        for e in path:
            self.room[e] -= amount
            self.room[e ^ 1] += amount
        return True
