"""Verification of symbols and calls.

May import: ir.core, ir.diagnostics, ir.symbols. Must not: change the graph.
"""

from __future__ import annotations

from tx8fast.ir.core import SYMBOL, Op
from tx8fast.ir.diagnostics import Collector, type_list
from tx8fast.ir.symbols import signature


def verify_symbols(table: Op, out: Collector) -> None:
    """Check the symbols of `table`: unique names, known callees, matching types, no recursion."""
    known: dict[str, Op] = {}
    for region in table.regions:
        for block in region.blocks:
            for op in block:
                name = op.attrs.get("sym_name")
                if not op.has(SYMBOL) or type(name) is not str:
                    continue
                if name in known:
                    out.add(
                        "IR010",
                        op,
                        f"sym_name: expected a free name, found '{name}' twice",
                        known[name],
                    )
                known.setdefault(name, op)
    edges: dict[str, dict[str, Op]] = {}
    for name, symbol in known.items():
        edges[name] = {}
        for op in symbol.walk():
            callee = op.attrs.get("callee")
            if type(callee) is not str:
                continue
            target = known.get(callee)
            if target is None:
                listed = ", ".join(list(known)[:6])
                out.add("IR011", op, f"callee: expected one of {listed}, found '{callee}'")
            elif target.regions and target.regions[0].blocks:
                edges[name].setdefault(callee, op)
                args, returned = signature(target)
                for what, outer, inner in (
                    ("operands", op.operands, args),
                    ("results", op.results, returned),
                ):
                    if [v.type for v in outer] != [v.type for v in inner]:
                        out.add(
                            "IR012",
                            op,
                            f"{what}: expected {type_list(inner)}, found {type_list(outer)}",
                            target,
                        )
    _recursion(edges, out)


def _recursion(edges: dict[str, dict[str, Op]], out: Collector) -> None:
    state: dict[str, int] = {}  # 1 = on the current path, 2 = done
    for root in edges:
        path = [(root, iter(edges[root].items()))] if root not in state else []
        state.setdefault(root, 1)
        while path:
            name, callees = path[-1]
            callee, op = next(callees, (None, None))
            if callee is None or op is None:
                state[name] = 2
                path.pop()
            elif state.get(callee) == 1:
                cycle = [n for n, _ in path]
                chain = " -> ".join([*cycle[cycle.index(callee) :], callee])
                out.add("IR013", op, f"callee: expected no recursion, found {chain}")
            elif callee not in state:
                state[callee] = 1
                path.append((callee, iter(edges[callee].items())))
