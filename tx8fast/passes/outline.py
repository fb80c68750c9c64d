"""Repeated layers become one subgraph and calls of it.

May import: ir, passes.base, passes.repeats, passes.effects. Must not: look at weight keys.

Parameter reads (`get_param`) stay outside: weights are arguments, so one compiled body serves every layer.
Each call remembers in `rt_before` where the parameter reads that stand before it were, so that
`passes/inline.py` can restore the original order exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tx8fast.ir.clone import clone_op, structural_key
from tx8fast.ir.core import TERMINATOR, Block, Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.symbols import SymbolTable
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.effects import is_parameter
from tx8fast.passes.repeats import Run, best_cut, equally_wired, find_repeat, tokens_of
from tx8fast.records import dataclass

#: run-time attribute of a call: body position of each parameter read that stands directly before the call
BEFORE = "rt_before"


@dataclass(frozen=True)
class Outline(CompilerPass):
    """`min_ops` is the smallest layer; `max_runs` bounds how many kinds of layer are outlined per function.

    `nested` looks for repetition inside the new bodies too.
    """

    name: ClassVar[str] = "outline"
    min_ops: int = 8
    max_runs: int = 8
    nested: bool = True

    def run(self, program: IRProgram) -> PassResult:
        table = SymbolTable(program.module)
        pending = list(table.symbols.values())
        subgraphs = calls = 0
        while pending:
            symbol = pending.pop(0)
            for block in symbol.regions[0].blocks if symbol.regions else ():
                for _ in range(self.max_runs):
                    made = outline_block(program, table, block, self.min_ops)
                    if made is None:
                        break
                    body, n_calls = made
                    subgraphs += 1
                    calls += n_calls
                    if self.nested:
                        pending.append(body)
        return PassResult(subgraphs > 0, {"subgraphs": subgraphs, "calls": calls})


def outline_block(program: IRProgram, table: SymbolTable, block: Block, min_ops: int = 8) -> tuple[Op, int] | None:
    """Outline the most profitable run of equal layers of `block`; return the subgraph and the number of calls, or None."""
    ops = [op for op in block if not op.has(TERMINATOR) and not is_parameter(op)]
    found = find_repeat(tokens_of(ops), min_ops)
    if found is None:
        return None
    run = equally_wired(ops, best_cut(ops, *found))
    if run is None:
        return None
    windows = [ops[run.start + r * run.period : run.start + (r + 1) * run.period] for r in range(run.repeats)]
    arguments = _arguments(windows)
    results = _results(windows)
    body = _make_subgraph(program, table, run, windows[0], arguments, results)
    replaced: dict[Value, Value] = {}  # a window's arguments may be results of the one before it
    for window, column in zip(windows, arguments.columns):
        operands = [replaced.get(v, v) for v in column]
        replaced.update(_replace_by_call(program, body, window, operands, results))
    return body, run.repeats


class _Arguments:
    """The values each window takes from outside. Slots that carry one value in every window share an argument."""

    def __init__(self) -> None:
        self.index: dict[tuple[Value, ...], int] = {}
        self.slots: dict[tuple[int, int], int] = {}  # (op in the window, operand) -> argument
        self.columns: list[list[Value]] = []  # per window: the value of each argument


def _arguments(windows: Sequence[Sequence[Op]]) -> _Arguments:
    out = _Arguments()
    inside = set(windows[0])
    for k, op in enumerate(windows[0]):
        for i, v in enumerate(op.operands):
            if v.op is not None and v.op in inside:
                continue
            values = tuple([w[k].operands[i] for w in windows])
            out.slots[k, i] = out.index.setdefault(values, len(out.index))
    out.columns = [[values[r] for values in out.index] for r in range(len(windows))]
    return out


def _results(windows: Sequence[Sequence[Op]]) -> list[tuple[int, int]]:
    """(op in the window, result) of every value that some window's surroundings use."""
    used: set[tuple[int, int]] = set()
    for window in windows:
        inside = set(window)
        for k, op in enumerate(window):
            for r in op.results:
                if any(user not in inside for user, _ in r.uses):
                    used.add((k, r.index))
    return sorted(used)


def _make_subgraph(
    program: IRProgram,
    table: SymbolTable,
    run: Run,
    window: Sequence[Op],
    arguments: _Arguments,
    results: list[tuple[int, int]],
) -> Op:
    ctx = program.ctx
    subgraph = ctx.create("subgraph", (), (), n_regions=1, loc=window[0].loc, sym_name="layer")
    block = subgraph.regions[0].add_block([values[0].type for values in arguments.index])
    mapping: dict[Value, Value] = {}
    copies = []
    for k, op in enumerate(window):
        copy = clone_op(op, mapping)
        for i in range(len(op.operands)):
            slot = arguments.slots.get((k, i))
            if slot is not None:
                copy.set_operand(i, block.args[slot])
        copies.append(block.append(copy))
    returned = [copies[k].results[r] for k, r in results]
    block.append(ctx.create("subgraph_return", returned, ()))
    if "repeat_key" in subgraph.info.attrs:
        subgraph.attrs["repeat_key"] = structural_key(subgraph)[:16]
    table.insert(subgraph)
    return subgraph


def _replace_by_call(
    program: IRProgram, subgraph: Op, window: Sequence[Op], operands: list[Value], results: list[tuple[int, int]]
) -> dict[Value, Value]:
    """Put the call where the window's last op stands: everything it needs is above, every user below.

    Returns the call's result for each value it replaces.
    """
    before = _interleaved(window)
    attrs: dict[str, Any] = {BEFORE: before} if before else {}
    outs = [window[k].results[r] for k, r in results]
    types = [v.type for v in outs]
    call = program.ctx.create("call", operands, types, loc=window[0].loc, callee=subgraph.attrs["sym_name"], **attrs)
    block = window[-1].block
    block.insert_after(window[-1], call)  # type: ignore[union-attr]
    inside = set(window)
    for old, new in zip(outs, call.results):
        for user, i in list(old.uses):
            if user not in inside:
                user.set_operand(i, new)
    for op in reversed(window):
        op.erase()
    return dict(zip(outs, call.results))


def _interleaved(window: Sequence[Op]) -> tuple[int, ...]:
    """For each parameter read between the first and the last op of the window: the window op it stands before."""
    before = []
    k = 0
    op: Op | None = window[0]
    while op is not None and k < len(window):
        if op is window[k]:
            k += 1
        else:
            before.append(k)
        op = op.next
    return tuple(before)
