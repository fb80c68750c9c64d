"""Decides in which form a function takes its arguments, so that calls pass tensors on without conversion.

May import: ir, passes.base, passes.layout_forms. Must not: insert ops (see passes.layout_align, which also decides results).

An argument is blocked if an op that needs blocked operands uses it, directly or through ops that take
either form. Arguments of entry functions are dense, as the host delivers them, except donated state: the host
keeps it between runs and packs it once, so it takes the form that its users want.
"""

from __future__ import annotations

from typing import ClassVar

from tx8fast.ir.core import Block, Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.symbols import SymbolTable
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.layout_forms import (
    ALIGN,
    BLOCKED,
    BOTH,
    DENSE,
    LEANS,
    callees_first,
    donated_pairs,
    exempt,
    mode_of,
)
from tx8fast.records import dataclass


def wanted_blocked(block: Block, symbols: SymbolTable) -> set[Value]:
    """Return the values that an align-only use reaches through ops that take either form. One reverse walk."""
    wanted: set[Value] = set()
    for op in reversed(list(block)):
        if op.kind == "call":
            layouts = symbols.lookup(op.attrs["callee"]).attrs["arg_layouts"] or ()
            picked = [v for v, form in zip(op.operands, layouts) if form == BLOCKED]
        elif (mode := mode_of(op)) in (ALIGN, LEANS) and op.kind != "channel_norm":
            picked = op.operands
        elif mode == BOTH and any(r in wanted for r in op.results):
            picked = op.operands
        else:
            continue
        wanted.update(v for v in picked if not exempt(v))
    return wanted


def argument_layouts(symbol: Op, symbols: SymbolTable) -> tuple[str, ...]:
    """Return one form per argument; every callee must have its own decided."""
    block = symbol.body
    wanted = wanted_blocked(block, symbols)
    choosing = range(len(block.args))
    if symbol.kind == "func":
        choosing = [a for a, _ in donated_pairs(symbol)]
    chosen = {block.args[i] for i in choosing}
    return tuple(BLOCKED if v in chosen and v in wanted else DENSE for v in block.args)


@dataclass(frozen=True)
class LayoutCalls(CompilerPass):
    name: ClassVar[str] = "layout-calls"
    ensures: ClassVar[tuple[str, ...]] = ("argument-layouts",)

    def run(self, program: IRProgram) -> PassResult:
        symbols, order = callees_first(program)
        blocked = changed = 0
        for symbol in order:
            layouts = argument_layouts(symbol, symbols)
            changed += symbol.attrs["arg_layouts"] != layouts
            symbol.attrs["arg_layouts"] = layouts
            blocked += layouts.count(BLOCKED)
        return PassResult(changed > 0, {"blocked_arguments": blocked})
