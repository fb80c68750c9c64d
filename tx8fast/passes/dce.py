"""Dead code: unused ops without effects, dead groups, subgraphs nothing calls.

May import: ir, passes.base, passes.effects. Must not: remove an entry function or its arguments.
"""

from __future__ import annotations

from typing import ClassVar

from tx8fast.ir.core import SYMBOL, Op
from tx8fast.ir.program import IRProgram
from tx8fast.ir.symbols import SymbolTable
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.effects import has_no_effect
from tx8fast.records import dataclass


@dataclass(frozen=True)
class Dce(CompilerPass):
    """Keeps writes, sends, barriers and calls of subgraphs that contain any of these."""

    name: ClassVar[str] = "dce"
    per_function: ClassVar[bool] = True

    def run(self, program: IRProgram) -> PassResult:
        table = SymbolTable(program.module)
        effects = _Callees(table)
        ops = 0
        for symbol in table.symbols.values():
            ops += _sweep(symbol, effects)
        subgraphs = remove_uncalled(table) if program.whole is program else 0
        return PassResult(ops + subgraphs > 0, {"ops": ops, "subgraphs": subgraphs})


class _Callees:
    """Answers, once per subgraph, whether calling it has no effect."""

    def __init__(self, table: SymbolTable) -> None:
        self.table = table
        self.known: dict[str, bool] = {}

    def __call__(self, name: str) -> bool:
        found = self.known.get(name)
        if found is None:
            self.known[name] = False  # recursion is illegal; should it occur, nothing is removed
            symbol = self.table.get(name)
            found = symbol is not None and all(
                op.info.traits & SYMBOL == SYMBOL or op.next is None or has_no_effect(op, self)
                for region in symbol.regions
                for block in region.blocks
                for op in block
            )
            self.known[name] = found
        return found


def _sweep(parent: Op, effects: _Callees) -> int:
    """Visit blocks backwards, so that a user goes before its producers; return the number of ops erased."""
    erased = 0
    for region in parent.regions:
        for block in region.blocks:
            op = block.last
            while op is not None:
                previous = op.prev
                if any(r.uses for r in op.results) or not op.results or not has_no_effect(op, effects):
                    if op.regions:
                        erased += _sweep(op, effects)
                else:
                    op.erase()
                    erased += 1
                op = previous
    return erased


def remove_uncalled(table: SymbolTable) -> int:
    """Erase subgraphs that nothing calls, until none is left; return how many went."""
    removed = 0
    while True:
        counts = table.call_counts()
        unused = [name for name, n in counts.items() if n == 0 and is_private(table.lookup(name))]
        if not unused:
            return removed
        for name in unused:
            table.erase(name)
        removed += len(unused)


def is_private(symbol: Op) -> bool:
    """True for a symbol that only calls can reach: a subgraph; functions are entries."""
    return symbol.kind == "subgraph"
