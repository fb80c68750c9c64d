"""Reads a mixture in which every expert sees every token: products of a stack of matrices, and a sum over the stack.

May import: ir, passes.expert_match, passes.expert_nodes, passes.lift_match. Must not: change a graph.

Here row e * tokens + t is what expert e makes of token t. Nothing is gathered, but the sum over the first dimension is no
product, and rows, wide ones too, stand in DDR on their way to it.
"""

from __future__ import annotations

import math
from typing import Any

from tx8fast.ir.core import Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.passes.expert_match import Match
from tx8fast.passes.expert_nodes import Node, Product, Stack, Window, count, refuse
from tx8fast.passes.lift_match import made_by, static


class ExpertGrid(Match):
    """What is found of a mixture whose rows stand expert by expert."""

    def __init__(self, program: IRProgram, written: set[Any], experts: int, tokens: int) -> None:
        super().__init__(program, written, tokens, experts)
        self.experts = experts

    def product(self, op: Op, window: Window) -> Node:
        """Return a product of the rows of each expert with its matrix."""
        x, w = op.operands[:2]
        if op.attrs["act"] != "none" or op.attrs["trans_a"] or len(op.operands) != 2 or not static(x, w):
            refuse()
        if len(w.shape) != 3 or op.result.shape[:-1] != (self.experts, self.tokens) or not self.fixed(w):
            refuse()
        if w.shape[0] != self.experts:
            refuse()
        rows, shares = self.vectors(x, x.shape[-1], (self.experts,))
        return self.weighted(Product(rows, Stack(w, "eoi" if op.attrs["trans_b"] else "eio", window), -1), shares)

    def vector(self, x: Value, v: Value, window: Window) -> Node | None:
        """A vector for each expert, [experts, 1, width]."""
        fits = x.shape == (self.experts, *[1] * (len(v.shape) - 2), v.shape[-1]) and v.shape[0] == self.experts
        return Stack(x, "eo", window) if fits and self.width(v) == v.shape[-1] and self.fixed(x) else None

    def gathered(self, op: Op) -> tuple[Value, Value]:
        return refuse()

    def row_of_token(self, v: Value, width: int, batch: tuple[int, ...]) -> Value | None:
        """Return the rows of tokens, if `v` holds all of them for each expert."""
        if count(v) == self.tokens * width and all(n == 1 for n in v.shape[:-2]):
            return self.tokens_of(v, width)
        while (op := made_by(v, "reshape")) is not None:
            v = op.operands[0]
        op = made_by(v, "broadcast")
        if op is None or not static(v, op.operands[0]) or count(v) != self.rows * width:
            return None
        x = op.operands[0]
        shape = (1,) * (len(v.shape) - len(x.shape)) + x.shape
        grown = [i for i, n in enumerate(shape) if n != v.shape[i]]
        if len(grown) != 1 or v.shape[grown[0]] != self.experts or math.prod(v.shape[: grown[0]]) != 1:
            return None
        return self.tokens_of(x, width)

    def check(self, last: Op) -> None:
        """Refuse if rows are read elsewhere, or if what is summed is no product of them."""
        if not any(isinstance(t, Product) for t, _ in self.terms) or not self.alone(last):
            refuse()
        if any(isinstance(t, Stack) and not shares for t, shares in self.terms):
            refuse()
