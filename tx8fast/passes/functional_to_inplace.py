"""Where an update writes over its operand, and where it makes a copy: decided here, once, for all that follows.

May import: ir, passes.layout_forms, passes.inplace_to_functional, passes.base. Must not: change what is computed.

An update is an op that works in DDR and of whose first operand most stays as it is: `kv_update`, `scatter`, `scatter_nd`. The
decision is the run-time attribute `rt_mem_inplace`, the index of the operand whose bytes the result takes; without it the
result has bytes of its own.

An op may write over bytes that it or an op before it made, if everybody who reads them under any name (a reshape, the result
of a call that hands its argument back) comes before it *by the flow of data*: what only stands before it in the block may
still run at the same time, or be put behind it. Never written over are parameters, constants, what is returned under an old
name, and inputs of an entry function that are no state: state is what the function donates, or returns updated.

A function may write over an argument if all its callers can spare it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import ClassVar

from tx8fast.ir.core import REAL, TERMINATOR, Block, Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.storage import REUSE
from tx8fast.ir.symbols import SymbolTable
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.inplace_to_functional import at_level_of
from tx8fast.passes.layout_forms import CONSTANTS, callees_first, donated_pairs, form_of, is_alias
from tx8fast.records import dataclass


@dataclass(frozen=True)
class FunctionalToInplace(CompilerPass):
    """Runs when forms are decided, which it compares, and before groups hide the ops. Statistics: updates that write over
    their operand, and those that copy it."""

    name: ClassVar[str] = "functional-to-inplace"

    def run(self, program: IRProgram) -> PassResult:
        symbols, order = callees_first(program)
        functions: dict[str, _Function] = {}
        for symbol in order:
            functions[symbol.attrs["sym_name"]] = _Function(symbol, functions)
        for fn in reversed(list(functions.values())):
            fn.spare(functions)
        reused = copied = 0
        for fn in functions.values():
            for op in fn.updates:
                i = updated(op)
                op.attrs.pop(REUSE, None)
                if _fits(op.operands[i], op.results[0], symbols) and fn.may_overwrite(op, i):
                    op.attrs[REUSE] = i
                    reused += 1
                else:
                    copied += 1
        return PassResult(reused > 0, {"reused": reused, "copied": copied})


def updated(op: Op) -> int:
    """Return the operand that an update may write over, or -1 if the op is none."""
    d = op.info.decl
    return d.inplace if d is not None and d.need_load == 0 and op.has(REAL) and not is_alias(op) else -1


@dataclass(eq=False)
class _Bytes:
    """One stretch of storage under all its names. fixed: no op of the function made it, and it is no argument."""

    fixed: bool = False
    names: list[Value] = field(default_factory=list)


class _Function:
    """Who shares bytes in one function. `kept`: its arguments that somebody outside still needs."""

    def __init__(self, symbol: Op, callees: dict[str, _Function]) -> None:
        self.symbol, self.block = symbol, symbol.body
        self.bytes: dict[Value, _Bytes] = {}
        self.calls: list[Op] = []
        self.updates: list[Op] = []
        for v in self.block.args:
            self._name(v, _Bytes())
        for op in self.block:
            if op.kind == "call":
                self._call(op, callees[op.attrs["callee"]])
                continue
            if updated(op) >= 0:
                self.updates.append(op)
            made_here = op.has(REAL) and op.kind not in CONSTANTS
            for r in op.results:
                self._name(r, self.bytes[op.operands[0]] if is_alias(op) else _Bytes(not made_here))
        end = self.block.terminator
        self.returned: list[Value] = list(end.operands) if end is not None else []
        self.origin = [self._origin(v, callees) for v in self.returned]
        self.kept: set[int] = set()
        if symbol.kind == "func":
            state = {a for a, _ in donated_pairs(symbol)} | {a for a in self.origin if a is not None}
            self.kept = set(range(len(self.block.args))) - state

    def _name(self, v: Value, held: _Bytes) -> None:
        held.names.append(v)
        self.bytes[v] = held

    def _call(self, op: Op, callee: _Function) -> None:
        """Results of a call may be arguments, parameters of the function called, or one value twice."""
        self.calls.append(op)
        seen = {callee.bytes[a]: self.bytes[v] for a, v in zip(callee.block.args, op.operands, strict=True)}
        for r, v in zip(op.results, callee.returned, strict=True):
            held = callee.bytes[v]
            self._name(r, seen.setdefault(held, _Bytes(held.fixed)))

    def _origin(self, v: Value, callees: dict[str, _Function]) -> int | None:
        """Return the argument of which `v` is what views and updates have made, or None."""
        while v.op is not None:
            op = v.op
            i = callees[op.attrs["callee"]].origin[v.index] if op.kind == "call" else 0 if is_alias(op) else updated(op)
            if i is None or i < 0 or v.index and op.kind != "call":
                return None
            v = op.operands[i]
        return v.index

    def spare(self, functions: dict[str, _Function]) -> None:
        """Tell every function called here which arguments it must keep."""
        for op in self.calls:
            callee = functions[op.attrs["callee"]]
            callee.kept |= {k for k in range(len(op.operands)) if not self.may_overwrite(op, k)}

    def may_overwrite(self, op: Op, i: int) -> bool:
        """True if nobody but `op` needs the bytes of its operand `i` when it writes over them."""
        held = self.bytes[op.operands[i]]
        if held.fixed or any(v.owner is self.block and v.index in self.kept for v in held.names):
            return False
        if sum(self.bytes[v] is held for v in op.operands) != 1:
            return False
        readers = [reader for reader in self._readers(held) if reader is not op]
        return not any(r.has(TERMINATOR) for r in readers) and _all_before(readers, op, self.block)

    def _readers(self, held: _Bytes) -> Iterator[Op]:
        for name in held.names:
            for user, _ in name.uses:
                at = at_level_of(user, self.block)
                if at is not None and not is_alias(at):
                    yield at


def _all_before(readers: list[Op], op: Op, block: Block) -> bool:
    """True if `op` needs, through however many ops, a result of each reader."""
    if not readers:
        return True
    if any(op.is_before(reader) for reader in readers):
        return False  # found without a search: what every layer reads has such readers in all layers but the last
    first = min(readers, key=lambda reader: reader.order)
    found, pending = {op}, [op]
    while pending:
        for v in pending.pop().operands:
            made_by = v.op
            if made_by is None or made_by in found or made_by.block is not block or made_by.is_before(first):
                continue
            found.add(made_by)
            pending.append(made_by)
    return found.issuperset(readers)


def _fits(v: Value, r: Value, symbols: SymbolTable) -> bool:
    return v.type is r.type and form_of(v, symbols) == form_of(r, symbols)
