"""Reads the rows of a mixture of experts off a graph: which matrices and functions make them, and what each counts.

May import: ir, passes.effects, passes.expert_nodes, passes.lift_match. Must not: change a graph.

The rows of all tokens are one list: row t * k + j belongs to the j-th choice of token t, whatever dimensions a value has,
so views between its forms say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from tx8fast.ir.core import ELEMENTWISE, PURE, Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.rewrite import is_dead
from tx8fast.passes.effects import reads_only_state
from tx8fast.passes.expert_nodes import (
    Node,
    NoMatchError,
    Pointwise,
    Product,
    Stack,
    Weighted,
    Window,
    count,
    holds,
    leads,
    refuse,
    weighted,
)
from tx8fast.passes.lift_match import made_by, orders, static

#: more experts for each row than this are not all worth reading: a number of DDR takes the time of a hundredth of a gathered one
MOST_PER_ROW = 64
FLOATS = ("f32", "f16", "bf16")
#: a mixture is made of fewer ops; rows are read by functions that call themselves
MOST_OPS = 100
T = TypeVar("T")


class Match:
    """What is found of one mixture. `terms`: what is summed for each token, products and vectors, and the shares it is weighed by."""

    def __init__(self, program: IRProgram, written: set[Any], tokens: int, k: int) -> None:
        self.program, self.written = program, written
        self.tokens, self.k, self.rows = tokens, k, tokens * k
        self.experts = 0
        self.ids: list[Value] = []
        self.lead: tuple[int, ...] = ()
        self.terms: list[tuple[Product | Stack, tuple[Value, ...]]] = []
        self.seen: dict[Op, None] = {}
        self.known: dict[tuple[Value, Window], Node] = {}

    # ------------------------------------------------------------ the sum over a token's experts

    def sum(self, v: Value, shares: tuple[Value, ...] = ()) -> None:
        """Take `v`, rows that are summed for each token, apart into terms."""
        v, more = self.unweighted(v)
        while (op := made_by(v, "reshape", "convert")) is not None and op.operands[0].dtype in FLOATS:
            self.see(op)
            v, again = self.unweighted(op.operands[0])
            more += again
        if (op := made_by(v, "add")) is not None:
            self.see(op)
            if not static(v, *op.operands):
                refuse()
            for x in op.operands:
                vector = self.vector(x, v, (0, 1, self.width(v)))
                if vector is None and count(x) != count(v):
                    refuse()
                self.sum(x, shares + more) if vector is None else self.term(vector, shares + more)
            return
        self.term(self.node(v, (0, 1, self.width(v))), shares + more)

    def term(self, node: Node, shares: tuple[Value, ...]) -> None:
        if isinstance(node, Weighted):
            node, shares = node.rows, shares + node.shares
        if not isinstance(node, (Stack, Product)) or (isinstance(node, Product) and isinstance(node.x, Value)):
            refuse()
        self.terms.append((node, shares))

    def check(self, last: Op) -> None:
        """Refuse if nothing is saved, or if rows are read elsewhere and have to be made anyhow."""
        if not any(isinstance(t, Product) for t, _ in self.terms) or self.experts > MOST_PER_ROW * self.rows:
            refuse()
        if not self.alone(last):
            refuse()
        if len(self.ids) > 1 and any(isinstance(n, Product) and weighted(n.x) for n, _ in self.terms):
            refuse()  # an expert that searches apart from each other find may have two shares

    def alone(self, last: Op) -> bool:
        """True if nothing but `last` reads what is seen of the mixture."""
        return all(
            op is last or all(u is last or u in self.seen or is_dead(u) for r in op.results for u in r.users)
            for op in self.seen
        )

    # ------------------------------------------------------------ rows

    def see(self, op: Op) -> None:
        self.seen[op] = None
        if len(self.seen) > MOST_OPS:
            refuse()

    def width(self, v: Value) -> int:
        """Return how many numbers a row has."""
        if not static(v) or not v.shape or count(v) % self.rows or not count(v):
            refuse()
        return count(v) // self.rows

    def node(self, v: Value, window: Window) -> Node:
        """Return what makes the rows `v`, of which `window` is wanted."""
        found = self.known.get((v, window))
        if found is None:
            found = self.known[v, window] = self._node(v, window)
        return found

    def _node(self, v: Value, window: Window) -> Node:
        op, width = v.op, self.width(v)
        if op is None or op.regions or len(op.results) != 1:
            refuse()
        if op.kind == "reshape":
            self.see(op)
            return self.node(op.operands[0], window)
        if op.kind == "slice":
            self.see(op)
            start, step = self.columns(op)
            a, b, n = window
            return self.node(op.operands[0], (start + a * step, b * step, n))
        if op.kind == "gemm":
            self.see(op)
            return self.product(op, window)
        if op.kind in ("gather", "gather_nd"):
            stack, ids = self.gathered(op)
            if len(stack.shape) != 2:
                refuse()
            self.chosen(ids, stack.shape[0])
            return Stack(stack, "eo", window)
        if not op.has(ELEMENTWISE) or not op.has(PURE) or "shape" in op.attrs:
            refuse()
        rows, shares = self.unweighted(v)
        if shares:
            return Weighted(self.node(rows, window), shares)
        self.see(op)
        if width * self.rows == 1:
            refuse()
        return Pointwise(op, tuple(x if count(x) == 1 else self.operand(x, v, window) for x in op.operands))

    def operand(self, x: Value, v: Value, window: Window) -> Node:
        """Return what makes an operand of an elementwise op with result `v`."""
        vector = self.vector(x, v, window)
        if vector is None and x.shape != v.shape:
            refuse()
        return vector or self.node(x, window)

    def vector(self, x: Value, v: Value, window: Window) -> Node | None:
        """Return the vectors of experts that `x` holds, if they are repeated for all tokens in an op with result `v`."""
        return None

    def unweighted(self, v: Value) -> tuple[Value, tuple[Value, ...]]:
        """Take the factors off `v` that are one number for each row, views between them, too."""
        shares: list[Value] = []
        passed: list[Op] = []
        inner = v
        while (op := made_by(inner, "reshape", "mul")) is not None and len(passed) < MOST_OPS:
            passed.append(op)
            if op.kind == "reshape":
                inner = op.operands[0]
                continue
            found = next(((x, s) for x, s in orders(op) if self.is_share(s, x, inner)), None)
            if found is None:
                break
            for seen in passed:
                self.see(seen)
            passed = []
            v = inner = found[0]
            shares.append(found[1])
        return v, tuple(shares)

    def is_share(self, share: Value, x: Value, v: Value) -> bool:
        """True if `share` has a number for each row, and `x` all numbers of `v`."""
        if not static(share, x) or x.type is not v.type or count(share) != self.rows or count(share) == count(v):
            return False
        padded = (1,) * (len(v.shape) - len(share.shape)) + share.shape
        return leads(padded, v.shape, self.rows)

    def columns(self, op: Op) -> tuple[int, int]:
        """Return start and step of a slice that takes the same columns of every row."""
        x, attrs = op.operands[0], op.attrs
        if not static(x):
            refuse()
        cut = [i for i, n in enumerate(x.shape) if (attrs["start"][i], attrs["size"][i]) != (0, n)]
        if len(cut) != 1 or math.prod(x.shape[: cut[0]]) != self.rows or math.prod(x.shape[cut[0] + 1 :]) != 1:
            refuse()
        return attrs["start"][cut[0]], attrs["step"][cut[0]]

    # ------------------------------------------------------------ gathered weights

    def product(self, op: Op, window: Window) -> Node:
        """Return a product of one vector for each row with the matrix that was gathered for it; shares of the vectors are the product's."""
        if op.attrs["act"] != "none" or len(op.operands) != 2 or not static(*op.operands):
            refuse()
        for i, swapped in ((0, op.attrs["trans_a"]), (1, op.attrs["trans_b"])):
            found = self.matrices(op.operands[i], swapped)
            if found is not None:
                break
        else:
            refuse()
        gathered, ids, swapped = found
        out_first = swapped == (i == 1)
        first, second = gathered.shape[1:]
        out, into = (first, second) if out_first else (second, first)
        if count(op.result) != self.rows * out or op.result.shape[-2 if i else -1] != 1:
            refuse()
        self.chosen(ids, gathered.shape[0])
        stack = Stack(gathered, "eoi" if out_first else "eio", window)
        rows, shares = self.vectors(op.operands[1 - i], into, op.result.shape[:-2])
        return self.weighted(Product(rows, stack, self.rows * window[2] * into), shares)

    def weighted(self, rows: Node, shares: tuple[Value, ...]) -> Node:
        return Weighted(rows, shares) if shares else rows

    def vectors(self, v: Value, width: int, batch: tuple[int, ...]) -> tuple[Value | Node, tuple[Value, ...]]:
        """Return what matrices are multiplied with, tokens or rows, and what it is weighed by."""

        def rows() -> tuple[Value | Node, tuple[Value, ...]]:
            x, shares = self.unweighted(v)
            found = self.row_of_token(x, width, batch) if self.k > 1 else None
            if found is None and count(x) != self.rows * width:
                refuse()
            return found if found is not None else self.node(x, (0, 1, width)), shares

        # with one expert per token a row may be the token's, and a number for each row may be anything
        found = rows() if self.k > 1 else self.attempt(rows)
        return found if found is not None else (self.tokens_of(v, width), ())

    def attempt(self, find: Callable[[], T]) -> T | None:
        """Return what `find` does, None if it refuses; then nothing is remembered of it."""
        seen, known = dict(self.seen), dict(self.known)
        try:
            return find()
        except NoMatchError:
            self.seen, self.known = seen, known
            return None

    def matrices(self, v: Value, swapped: bool) -> tuple[Value, Value, bool] | None:
        """(stack, ids, whether its last two dimensions stand the other way round), if `v` is a matrix for every row."""
        passed: list[Op] = []
        while (op := made_by(v, "reshape", "transpose", "gather", "gather_nd")) is not None:
            x = op.operands[0]
            passed.append(op)
            if op.kind in ("gather", "gather_nd"):
                if len(x.shape) != 3:
                    return None
                found = self.gathered(op)
                for seen in passed:
                    self.see(seen)
                return *found, swapped
            if not static(x) or len(x.shape) < 3:
                return None
            if op.kind == "transpose":
                rank = len(x.shape)
                if list(op.attrs["perm"]) != [*range(rank - 2), rank - 1, rank - 2]:
                    return None
                swapped = not swapped
            elif x.shape[-2:] != v.shape[-2:]:
                return None
            v = x
        return None

    def gathered(self, op: Op) -> tuple[Value, Value]:
        """Return the stack that `op` takes a part from for every row, and the numbers of the parts."""
        stack, ids = op.operands
        first = op.attrs["axis"] == 0 if op.kind == "gather" else op.attrs["batch_dims"] == 0 and ids.shape[-1] == 1
        if not first or not static(stack, ids) or count(ids) != self.rows or not self.fixed(stack):
            refuse()
        self.see(op)
        return stack, ids

    def fixed(self, v: Value) -> bool:
        """True for a weight that the program does not write, or a constant."""
        op = v.op
        if op is None or op.kind == "constant":
            return op is not None
        if op.kind != "get_param" or op.attrs["key"] not in (self.program.weights or ()):
            return False
        states = reads_only_state(op)
        return bool(states) and self.written.isdisjoint(states)

    # ------------------------------------------------------------ which experts, which token

    def chosen(self, ids: Value, experts: int) -> None:
        """Note whose numbers `ids` are. They are the same for all parts of a mixture, and none is out of range."""
        found = self.choices(ids, self.k, experts)
        if self.experts and (experts != self.experts or found != self.ids):
            refuse()
        self.experts, self.ids = experts, found

    def choices(self, v: Value, k: int, experts: int) -> list[Value]:
        """Return the results of searches for the best that `v`, k for each token, is put together of."""
        while (op := made_by(v, "reshape", "convert")) is not None and op.operands[0].dtype in ("i64", "i32"):
            v = op.operands[0]
        op, v_shape = v.op, v.shape
        if op is None or not static(v) or count(v) != self.tokens * k or v.dtype not in ("i64", "i32"):
            refuse()
        if op.kind == "concat" and v_shape[-1] == k and op.attrs["axis"] % len(v_shape) == len(v_shape) - 1:
            return [c for x in op.operands for c in self.choices(x, x.shape[-1], experts)]
        if op.kind not in ("topk", "arg_reduce") or v.index != len(op.results) - 1:
            refuse()
        scores = op.operands[0].shape
        if op.attrs["axis"] % len(scores) != len(scores) - 1 or scores[-1] != experts:
            refuse()
        if (v_shape[-1] if op.kind == "topk" else 1) != k:
            refuse()
        return [v]

    def row_of_token(self, v: Value, width: int, batch: tuple[int, ...]) -> Value | None:
        """Return the rows of tokens, if `v` holds each of them once for each of its experts, or repeats it over `batch`."""
        if count(v) == self.tokens * width:
            own = ((1,) * (len(batch) + 2 - len(v.shape)) + v.shape)[:-2]
            if leads(own, batch, self.tokens):
                return self.tokens_of(v, width)
        while (op := made_by(v, "reshape")) is not None:
            v = op.operands[0]
        op = made_by(v, "broadcast", "gather")
        if op is None or not static(v, *op.operands) or count(v) != self.rows * width:
            return None
        x = op.operands[0]
        if op.kind == "gather":
            wanted = np.arange(self.rows) // self.k
            return self.tokens_of(x, width) if op.attrs["axis"] == 0 and holds(op.operands[1], wanted) else None
        shape = (1,) * (len(v.shape) - len(x.shape)) + x.shape
        grown = [i for i, n in enumerate(shape) if n != v.shape[i]]
        if len(grown) != 1 or v.shape[grown[0]] != self.k or math.prod(v.shape[: grown[0]]) != self.tokens:
            return None
        return self.tokens_of(x, width)

    def tokens_of(self, v: Value, width: int) -> Value:
        """Return `v` as it was before views put its rows together."""
        best = None
        while count(v) == self.tokens * width:
            best = v if len(v.shape) > 1 and v.shape[-1] == width else best
            op = made_by(v, "reshape")
            if op is None or not static(op.operands[0]):
                break
            v = op.operands[0]
        if best is None:
            return refuse()
        self.lead = self.lead or best.shape[:-1]
        return best
