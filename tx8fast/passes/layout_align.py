"""Chooses dense or blocked for every op and inserts channel_norm where producer and consumer differ.

May import: ir, passes.base, passes.layout_forms, passes.layout_calls. Must not: move constants or merge conversions.

Greedy colouring in topological order (back-end notes 7.3): kinds with one form keep it, kinds that take either
follow their producers. Deviations and their reasons: docs/layouts.md.
"""

from __future__ import annotations

from typing import ClassVar

from tx8fast.errors import ConfigError
from tx8fast.ir.core import Block, Context, Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.symbols import SymbolTable
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.layout_calls import argument_layouts, wanted_blocked
from tx8fast.passes.layout_forms import (
    BLOCKED,
    BOTH,
    BOUNDARY,
    DENSE,
    FORM_OF_MODE,
    FREE,
    LEANS,
    callees_first,
    donated_pairs,
    exempt,
    form_of,
    free,
    mode_of,
    needed_form,
)
from tx8fast.records import dataclass


@dataclass(frozen=True)
class LayoutAlign(CompilerPass):
    """`method`: greedy (follow the producers) or mincut (fewest bytes converted, never more than greedy).
    `results`: dense (converted for the host on the chip) or keep (as they were made; the host unpacks them)."""

    name: ClassVar[str] = "layout-align"
    ensures: ClassVar[tuple[str, ...]] = ("layouts",)
    method: str = "greedy"
    results: str = "dense"

    def run(self, program: IRProgram) -> PassResult:
        if self.method not in ("greedy", "mincut"):
            raise ConfigError(f"pass '{self.name}': option 'method': expected greedy or mincut, found '{self.method}'")
        if self.results not in ("dense", "keep"):
            raise ConfigError(f"pass '{self.name}': option 'results': expected dense or keep, found '{self.results}'")
        symbols, order = callees_first(program)
        inserted = 0
        for symbol in order:
            if symbol.attrs["arg_layouts"] is None:
                symbol.attrs["arg_layouts"] = argument_layouts(symbol, symbols)
            colouring = Colouring(symbol, symbols, self.results == "keep")
            if self.method == "mincut":
                from tx8fast.passes.layout_mincut import improve

                improve(colouring)
            colouring.write()
            inserted += insert_conversions(program.ctx, symbol.body, symbols)
        return PassResult(True, {"channel_norms": inserted})


class Colouring:
    """The forms of one function's values. `forms` holds every value that is neither exempt nor free."""

    def __init__(self, symbol: Op, symbols: SymbolTable, keep: bool = False) -> None:
        self.symbol, self.symbols, self.keep = symbol, symbols, keep
        self.block: Block = symbol.body
        self.modes: dict[Op, str] = {}
        self.colours: dict[Op, str] = {}  # form of each op that has one
        self.forms: dict[Value, str] = {}
        self.wanted = wanted_blocked(self.block, symbols)
        for v, form in zip(self.block.args, symbol.attrs["arg_layouts"]):
            if not exempt(v):
                self.forms[v] = form
        for op in self.block:
            self.visit(op)

    def visit(self, op: Op) -> None:
        mode = self.modes[op] = mode_of(op)
        if mode == BOUNDARY:
            if op.kind == "call":
                layouts = self.symbols.lookup(op.attrs["callee"]).attrs["result_layouts"] or ()
                self.forms.update((r, f) for r, f in zip(op.results, layouts) if not exempt(r))
        elif mode == FREE:
            for r in op.results:
                if not free(r):
                    self.forms[r] = op.attrs["mem_layout"]
        else:
            self.paint(op, FORM_OF_MODE.get(mode) or self.follow(op))

    def paint(self, op: Op, form: str) -> None:
        self.colours[op] = form
        self.forms.update((r, form) for r in op.results if not exempt(r))

    def follow(self, op: Op) -> str:
        """Form of an op that takes either: the producers' if they agree, else that of the earliest one.

        Operands that broadcast have no say beside complete ones."""
        voters = [v for v in op.operands if v in self.forms]
        whole = [v for v in voters if op.results and v.type.shape == op.results[0].type.shape]  # type: ignore[attr-defined]
        voters = whole or voters
        if not voters:
            return BLOCKED if any(r in self.wanted for r in op.results) else DENSE
        return self.forms[min(voters, key=_position)]

    def either(self) -> list[Op]:
        """The ops whose form is a choice."""
        return [op for op, mode in self.modes.items() if mode in (BOTH, LEANS)]

    def write(self) -> None:
        """Set mem_layout of the ops and result_layouts of the function."""
        for op, form in self.colours.items():
            if "mem_layout" in op.attrs:
                plain = all(exempt(v) for v in (*op.operands, *op.results))
                op.attrs["mem_layout"] = DENSE if plain else form
        self.symbol.attrs["result_layouts"] = tuple(self.result_forms())

    def result_forms(self) -> list[str]:
        """One form per returned value: as made, or dense to the host, except state, which returns as it came."""
        end = self.block.terminator
        returned = list(end.operands) if end is not None else []
        if self.symbol.kind != "func" or self.keep:
            return [self.forms.get(v, DENSE) for v in returned]
        layouts = [DENSE] * len(returned)
        for a, r in donated_pairs(self.symbol):
            layouts[r] = self.symbol.attrs["arg_layouts"][a]
        return layouts


def _position(v: Value) -> tuple[int, int]:
    return (1, v.owner.order) if isinstance(v.owner, Op) else (0, v.index)


def insert_conversions(ctx: Context, block: Block, symbols: SymbolTable) -> int:
    """Put a channel_norm on every operand whose form differs from what the op takes; return how many were made.

    One conversion per value serves all its users; it stands before the first of them.
    """
    made: dict[Value, Value] = {}
    forms = _decided_forms(block, symbols)
    for op in list(block):
        for i, v in enumerate(op.operands):
            need = needed_form(op, i, symbols)
            if need is None or need == forms.get(v, DENSE):
                continue
            if v not in made:
                to = "align" if need == BLOCKED else "compact"
                name = v.op.attrs.get("layout_str") if v.op is not None else None
                given = {"layout_str": name.rpartition("-")[2]} if name else {}
                loc = op.loc if v.op is None else v.op.loc
                norm = ctx.create("channel_norm", [v], loc=loc, to=to, mem_layout=need, **given)
                made[v] = block.insert_before(op, norm).result
            op.set_operand(i, made[v])
    return len(made)


def _decided_forms(block: Block, symbols: SymbolTable) -> dict[Value, str]:
    out: dict[Value, str] = {}
    for v in (*block.args, *(r for op in block for r in op.results)):
        if not exempt(v) and (form := form_of(v, symbols)) == BLOCKED:
            out[v] = form
    return out
