"""Calls become copies of the subgraph's body: the inverse of outlining.

May import: ir, passes.base, passes.outline, passes.dce, passes.effects,
passes.inplace_to_functional. Must not: inline entry functions away.
"""

from __future__ import annotations

from typing import ClassVar

from tx8fast.errors import VerifyError
from tx8fast.ir.clone import clone_op
from tx8fast.ir.core import SYMBOL, TERMINATOR, Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.symbols import SymbolTable
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.dce import remove_uncalled
from tx8fast.passes.effects import is_parameter
from tx8fast.passes.inplace_to_functional import at_level_of
from tx8fast.passes.outline import BEFORE
from tx8fast.records import dataclass


@dataclass(frozen=True)
class Inline(CompilerPass):
    """Inlines every call (`single_only`: only calls of subgraphs that are called once), inner ones first.

    Subgraphs left without calls are erased. After outlining alone the text is the original one, byte for byte.
    """

    name: ClassVar[str] = "inline"
    single_only: bool = False

    def run(self, program: IRProgram) -> PassResult:
        table = SymbolTable(program.module)
        counts = table.call_counts()
        inliner = _Inliner(table, {n for n, c in counts.items() if c == 1 or not self.single_only})
        for symbol in list(table.symbols.values()):
            inliner.symbol(symbol)
        removed = remove_uncalled(table) if inliner.inlined else 0
        return PassResult(inliner.inlined > 0, {"calls": inliner.inlined, "subgraphs": removed})


class _Inliner:
    def __init__(self, table: SymbolTable, wanted: set[str]) -> None:
        self.table = table
        self.wanted = wanted
        self.done: set[Op] = set()
        self.path: list[str] = []
        self.inlined = 0

    def symbol(self, symbol: Op) -> None:
        """Inline the calls inside `symbol`; its callees come first, so that a body is complete when copied."""
        name = symbol.attrs["sym_name"]
        if name in self.path:
            raise VerifyError(f"cannot inline: calls are recursive: {' -> '.join([*self.path, name])}")
        if symbol in self.done:
            return
        self.path.append(name)
        for op in list(symbol.walk()):
            callee = op.attrs.get("callee")
            if type(callee) is not str or callee not in self.wanted:
                continue
            target = self.table.lookup(callee)
            if not (target.has(SYMBOL) and target.regions and len(target.regions[0].blocks) == 1):
                continue
            self.symbol(target)
            inline_call(op, target)
            self.inlined += 1
        self.path.pop()
        self.done.add(symbol)


def inline_call(call: Op, target: Op) -> None:
    """Replace `call` by a copy of `target`'s body; parameter reads recorded by outlining move back between its ops."""
    block = call.block
    if block is None:
        raise VerifyError(f"cannot inline {call.name} of '{call.attrs.get('callee')}': it is in no block")
    mapping: dict[Value, Value] = dict(zip(target.body.args, call.operands))
    moved = _reads_before(call)
    copies: list[Op] = []
    for op in target.body:
        if op.has(TERMINATOR):
            for old, v in zip(call.results, op.operands):
                old.replace_all_uses_with(mapping.get(v, v))
            break
        copies.append(block.insert_before(call, clone_op(op, mapping)))
    for position, read in moved:
        if position < len(copies) and not _used_before(read, copies[position]):
            read.detach()
            block.insert_before(copies[position], read)
    call.erase()


def _used_before(read: Op, op: Op) -> bool:
    """True if something uses `read` before `op`: passes have changed the body since its positions were recorded."""
    assert op.block is not None
    users = (at_level_of(user, op.block) for user, _ in read.results[0].uses)
    return any(at is not None and at.is_before(op) for at in users)


def _reads_before(call: Op) -> list[tuple[int, Op]]:
    """The parameter reads directly before the call with their body positions; [] if later passes moved them."""
    positions = call.attrs.get(BEFORE) or ()
    reads: list[Op] = []
    op = call.prev
    while op is not None and len(reads) < len(positions) and is_parameter(op):
        reads.append(op)
        op = op.prev
    if len(reads) < len(positions):
        return []
    return list(zip(positions, reversed(reads)))
