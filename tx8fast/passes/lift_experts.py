"""Turns mixtures of experts that gather the weights of every token's experts into products with the weights of all.

May import: ir, passes.base, passes.effects, passes.expert_grid, passes.expert_match, passes.expert_nodes, passes.expert_rows, passes.lift_match. Must not: go by names.

Exporters spell a mixture row by row: row t * k + j is what the j-th expert chosen for token t makes of it, by a matrix
that is gathered for this row alone, and the rows of a token are summed, each times its share. Gathering copies weights
one number after the other on the kernel core. Here all experts stand side by side, as the builder of Hugging Face models
has them: one tall matrix into them and one wide matrix out of them, and between them the units of an expert are multiplied
by its share of the token, zero where it was not chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from tx8fast.ir.core import Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.rewrite import Pattern, Rewriter, rewrite_greedily
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.effects import written_states
from tx8fast.passes.expert_grid import ExpertGrid
from tx8fast.passes.expert_match import FLOATS, Match
from tx8fast.passes.expert_nodes import NoMatchError
from tx8fast.passes.expert_rows import Rows
from tx8fast.passes.lift_match import static
from tx8fast.records import dataclass


def _summed(program: IRProgram, root: str) -> Pattern:
    written = written_states(program.module)

    def apply(op: Op, rw: Rewriter) -> bool:
        """The sum over a token's experts; with one expert per token there is none, and a share stands for it."""
        if not static(*op.operands, op.result) or op.result.dtype not in FLOATS:
            return False
        for match, rows in _readings(program, written, op):
            try:
                match.sum(rows)
                match.check(op)
            except NoMatchError:
                continue
            Rows(rw, program, match, op).build()
            return True
        return False

    return Pattern("experts", (root,), apply)


def _readings(program: IRProgram, written: set[Any], op: Op) -> Iterator[tuple[Match, Value]]:
    """What `op` may be the end of, and the rows it sums."""
    x = op.operands[0]
    if op.kind == "mul" and len(op.result.shape) > 1 and 0 not in op.result.shape:
        yield Match(program, written, math.prod(op.result.shape[:-1]), 1), op.result
    if op.kind != "reduce" or op.attrs["op"] != "add" or len(op.attrs["axes"]) != 1 or len(x.shape) < 3 or 0 in x.shape:
        return
    axis = op.attrs["axes"][0] % len(x.shape)
    before = math.prod(x.shape[:axis])
    yield Match(program, written, before, x.shape[axis]), x
    if before == 1 and axis < len(x.shape) - 1 and x.shape[axis] > 1:
        yield ExpertGrid(program, written, x.shape[axis], math.prod(x.shape[axis + 1 : -1])), x


@dataclass(frozen=True)
class LiftExperts(CompilerPass):
    """Makes products with the weights of all experts of those with gathered weights."""

    name: ClassVar[str] = "lift-experts"

    def run(self, program: IRProgram) -> PassResult:
        if program.weights is None:
            return PassResult()
        experts = dead = 0
        stacks = any(
            op.kind in ("get_param", "constant") and static(op.result) and len(op.result.shape) == 3
            for op in program.module.walk()
        )
        if not stacks:
            return PassResult()
        for root in ("tx8be.reduce", "tx8be.mul"):  # a share that no sum is behind comes last
            result = rewrite_greedily(program.ctx, program.module, (_summed(program, root),))
            experts += result.applied.get("experts", 0)
            dead += result.dead
        return PassResult(experts + dead > 0, {"experts": experts, "dead": dead})
