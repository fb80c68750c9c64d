"""Destination reuse returns: an op may write its result over an operand that dies with it.

May import: ir, passes.base, passes.const_container, passes.layout_forms. Must not: change what is computed.

The decision is the run-time attribute `rt_mem_inplace`, the index of the operand; an allocator may follow it or not.
Reused are only values made by an op of the same block, or donated arguments; never parameters, constants, or
storage that somebody still reads under any name (a reshape is another name of its operand's bytes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tx8fast.ir.core import REAL, Block, Op, Value
from tx8fast.ir.interfaces import query_op_attr
from tx8fast.ir.program import IRProgram
from tx8fast.ir.symbols import SymbolTable
from tx8fast.ir.types import TensorType
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.const_container import form_bytes
from tx8fast.passes.inplace_to_functional import at_level_of
from tx8fast.passes.layout_forms import donated_pairs, form_of, is_alias

REUSE = "rt_mem_inplace"


@dataclass(frozen=True)
class FunctionalToInplace(CompilerPass):
    """Runs after all optimisation; before or after layouts, whose forms it compares if they are decided."""

    name: ClassVar[str] = "functional-to-inplace"

    def run(self, program: IRProgram) -> PassResult:
        table = SymbolTable(program.module)
        marked = 0
        for symbol in table.symbols.values():
            pairs = donated_pairs(symbol) if symbol.kind == "func" else []
            for block in symbol.regions[0].blocks:
                end = block.terminator
                returned = end.operands if end is not None else []
                donated = {block.args[a]: returned[r] for a, r in pairs if a < len(block.args) and r < len(returned)}
                marked += _mark(block, table, donated)
        return PassResult(marked > 0, {"reused": marked})


def _mark(block: Block, table: SymbolTable, donated: dict[Value, Value]) -> int:
    """`donated`: argument -> the one value that may lie in its bytes when the function ends."""
    lives: dict[Value, _Bytes] = {}
    for v in block.args:
        lives[v] = _Bytes(v in donated)
    marked = 0
    for op in block:
        for r in op.results:
            lives[r] = lives[op.operands[0]] if is_alias(op) else _Bytes(op.has(REAL))
        for v in op.operands:
            if v in lives:
                lives[v].names[v] = None
    for v in lives:
        lives[v].names[v] = None
    for op in block:
        op.attrs.pop(REUSE, None)
        i = query_op_attr(op).mem_inplace if op.has(REAL) and len(op.results) >= 1 and not is_alias(op) else -1
        if not 0 <= i < len(op.operands):
            continue
        v, r = op.operands[i], op.results[0]
        held = lives.get(v)
        if held is None or not held.ours or not _fits(v, r, table) or not held.dies_at(op, block):
            continue
        if any(donated.get(name, r) is not r for name in held.names):
            continue
        op.attrs[REUSE] = i
        held.ours = False  # its bytes belong to the result now
        marked += 1
    return marked


class _Bytes:
    """One stretch of storage: `ours` if an op of the block made it (or it was donated), and the values in it."""

    def __init__(self, ours: bool) -> None:
        self.ours = ours
        self.names: dict[Value, None] = {}

    def dies_at(self, op: Op, block: Block) -> bool:
        """True if no name of the bytes is used behind `op`, nor by `op` other than as this one operand."""
        if sum(v in self.names for v in op.operands) != 1:
            return False
        for name in self.names:
            for user, _ in name.uses:
                at = at_level_of(user, block)
                if at is None or op.is_before(at):
                    return False
        return True


def _fits(v: Value, r: Value, table: SymbolTable) -> bool:
    a, b = v.type, r.type
    if not isinstance(a, TensorType) or not isinstance(b, TensorType) or not (a.is_static and b.is_static):
        return False
    one, two = form_of(v, table), form_of(r, table)
    return one == two and form_bytes(a.shape, a.dtype, one) == form_bytes(b.shape, b.dtype, two)  # type: ignore[arg-type]
