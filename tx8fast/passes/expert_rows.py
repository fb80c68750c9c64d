"""Builds what a mixture of experts gives from the weights of all of them, side by side.

May import: ir, numerics.formats, passes.expert_match, passes.expert_nodes, passes.lift_match, weights.derived. Must not: look for mixtures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tx8fast.ir.attrs import DenseAttr
from tx8fast.ir.core import Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.rewrite import Rewriter
from tx8fast.numerics.formats import np_dtype
from tx8fast.passes.expert_match import Match
from tx8fast.passes.expert_nodes import Node, Pointwise, Product, Stack, Weighted
from tx8fast.passes.lift_match import reshaped
from tx8fast.weights.derived import evaluate

#: prefix of the weight-table keys of experts that stand side by side
SIDE_PREFIX = "%side/"


class Rows:
    """The ops that replace `op`, the sum of a mixture."""

    def __init__(self, rw: Rewriter, program: IRProgram, match: Match, op: Op) -> None:
        self.rw, self.program, self.match, self.op = rw, program, match, op
        self.ids = [
            reshaped(rw, v, (match.tokens, v.shape[-1] if v.op is not None and v.op.kind == "topk" else 1), op)
            for v in match.ids
        ]
        self.made: dict[Node, Value] = {}
        self.dense: dict[tuple[Value, ...], Value] = {}
        self.spreads: dict[tuple[tuple[Value, ...], int, str], Value] = {}

    def build(self) -> None:
        total: Value | None = None
        for (
            node,
            shares,
        ) in self.match.terms:  # the order of the builder: which experts, products into them, shares of their units
            if shares or self.match.ids:
                self.weights(shares, node.value.dtype if isinstance(node, Stack) else node.stack.value.dtype)
            self.products(node)
        for node, shares in self.match.terms:
            y = self.converted(self.term(node, shares), self.op.result.dtype)
            total = y if total is None else self.insert("add", total, y)
        assert total is not None
        self.rw.replace(self.op, [reshaped(self.rw, total, self.op.result.shape, self.op)])

    def insert(self, name: str, *operands: Value, **attrs: Any) -> Value:
        return self.rw.insert(name, *operands, before=self.op, **attrs).result

    # ------------------------------------------------------------ rows

    def term(self, node: Product | Stack, shares: tuple[Value, ...]) -> Value:
        """Return the sum of one term over the experts of each token."""
        if isinstance(node, Stack):
            weights = self.weights(shares, node.value.dtype)
            return self.insert("gemm", weights, self.side(node, "eo"), useful_macs=0)
        assert not isinstance(node.x, Value)
        stack = node.stack
        into = stack.value.shape[stack.axes.index("i")]
        spread = self.spread(shares, into, stack.value.dtype) if shares or self.match.ids else None
        units = self.value(node.x)
        units = units if spread is None else self.insert("mul", units, spread)
        return self.insert("gemm", units, self.side(node.stack, "oei"), trans_b=True, useful_macs=node.macs)

    def value(self, node: Node) -> Value:
        """Return rows as [..., experts * width]; of vectors that no row differs in, one."""
        if node not in self.made:
            self.made[node] = self._value(node)
        return self.made[node]

    def products(self, node: Node) -> None:
        """Make the products that rows begin with."""
        if isinstance(node, Product) and isinstance(node.x, Value):
            self.value(node)
        elif isinstance(node, (Product, Weighted)):
            self.products(node.x if isinstance(node, Product) else node.rows)  # type: ignore[arg-type]
        elif isinstance(node, Pointwise):
            for x in node.operands:
                if not isinstance(x, Value):
                    self.products(x)

    def _value(self, node: Node) -> Value:
        if isinstance(node, Stack):
            return self.side(node, "(eo)")
        if isinstance(node, Weighted):
            rows = self.value(node.rows)
            spread = self.spread(node.shares, rows.shape[-1] // self.match.experts, rows.dtype)
            return self.insert("mul", rows, spread)
        if isinstance(node, Pointwise):
            op = node.op
            operands = [x if isinstance(x, Value) else self.value(x) for x in node.operands]
            return self.insert(op.kind, *operands, **{n: op.attrs[n] for n in op.info.attrs if n in op.attrs})
        assert isinstance(node.x, Value)
        x = reshaped(self.rw, node.x, (*self.match.lead, node.x.shape[-1]), self.op)
        return self.insert("gemm", x, self.side(node.stack, "eoi"), trans_b=True, useful_macs=node.macs)

    # ------------------------------------------------------------ shares

    def weights(self, shares: tuple[Value, ...], dtype: str) -> Value:
        """Return the share of every expert of every token, [..., experts], zero where it is not chosen."""
        if shares not in self.dense:
            self.dense[shares] = self._weights(shares, dtype)
        y = self.dense[shares]
        return self.converted(y, dtype)

    def converted(self, v: Value, dtype: str) -> Value:
        return v if v.dtype == dtype else self.insert("convert", v, dtype=dtype)

    def _weights(self, shares: tuple[Value, ...], dtype: str) -> Value:
        m = self.match
        if not m.ids:
            return self.turned(shares)
        parts = [self.parts(s) for s in shares] or [
            [self.filled(1.0, (m.tokens, v.shape[-1]), dtype) for v in self.ids]
        ]
        total = None
        for i, chosen in enumerate(self.ids):
            share = parts[0][i]
            for more in parts[1:]:
                share = self.insert("mul", share, more[i])
            none = self.filled(0.0, (m.tokens, m.experts), share.dtype)
            part = self.insert("scatter", none, chosen, share, axis=-1)
            total = part if total is None else self.insert("add", total, part)
        assert total is not None
        return self.insert("reshape", total, shape=(*m.lead, m.experts)) if m.lead != (m.tokens,) else total

    def turned(self, shares: tuple[Value, ...]) -> Value:
        """Return the product of shares that stand expert by expert, token by token."""
        m, total = self.match, None
        for share in shares:
            while (op := share.op) is not None and op.kind == "reshape":
                share = op.operands[0]
            if op is not None and op.kind == "transpose" and op.operands[0].shape == (m.tokens, m.experts):
                share = op.operands[0]
            else:
                share = self.insert("transpose", reshaped(self.rw, share, (m.experts, m.tokens), self.op), perm=(1, 0))
            total = share if total is None else self.insert("mul", total, share)
        assert total is not None
        return reshaped(self.rw, total, (*m.lead, m.experts), self.op)

    def parts(self, share: Value) -> list[Value]:
        """Return what of a share belongs to each of the searches for experts."""
        m = self.match
        while (op := share.op) is not None and op.kind == "reshape":
            share = op.operands[0]
        sizes = [v.shape[-1] for v in self.ids]
        if op is not None and op.kind == "concat" and [x.shape[-1] for x in op.operands] == sizes:
            if share.shape == (m.tokens, m.k) and op.attrs["axis"] % 2 == 1:
                return list(op.operands)
        share = reshaped(self.rw, share, (m.tokens, m.k), self.op)
        if len(sizes) == 1:
            return [share]
        at = [sum(sizes[:i]) for i in range(len(sizes))]
        return [self.insert("slice", share, start=(0, a), size=(m.tokens, n), step=(1, 1)) for a, n in zip(at, sizes)]

    def spread(self, shares: tuple[Value, ...], width: int, dtype: str) -> Value:
        """Return a share for each of an expert's numbers: a product with zeros and ones, which fuses with what is around it."""
        key, experts = (shares, width, dtype), self.match.experts
        if key not in self.spreads:
            shape = (experts, experts * width)
            ones = self.weight(f"%spread/{experts}x{width}/{dtype}", "spread", {}, (), shape, dtype)
            self.spreads[key] = self.insert("gemm", self.weights(shares, dtype), ones, useful_macs=0)
        return self.spreads[key]

    # ------------------------------------------------------------ weights

    def side(self, stack: Stack, order: str) -> Value:
        """Return the window of a stack as a matrix "eoi" [experts * out, in] or "oei" [out, experts * in] or "eo", or a vector "(eo)"."""
        steps: list[list] = []
        stored = shape = tuple(stack.value.shape)
        if stack.axes == "eo":
            shape = (stored[0], stored[-1])
            steps += [["reshape", list(shape)]] if shape != stored else []
        elif stack.axes == "eio":
            shape = (stored[0], stored[2], stored[1])
            steps.append(["transpose", [0, 2, 1]])
        steps += _cut(shape, stack.window)
        shape = (shape[0], stack.window[2], *shape[2:])
        if order == "oei":
            steps.append(["transpose", [1, 0, 2]])
            shape = (shape[1], shape[0] * shape[2])
        elif order == "eoi":
            shape = (shape[0] * shape[1], shape[2])
        elif order == "(eo)":
            shape = (shape[0] * shape[1],)
        steps.append(["reshape", list(shape)])
        source = stack.value.op
        assert source is not None
        if source.kind == "constant":
            array = evaluate(
                "view", {"steps": steps}, [source.attrs["value"].array], shape, np_dtype(stack.value.dtype)
            )
            return self.rw.insert("constant", before=self.op, value=DenseAttr(array)).result
        key = source.attrs["key"]
        name = f"{SIDE_PREFIX}{stack.axes}/{order}/{':'.join(map(str, stack.window))}/{key}"
        return self.weight(name, "view", {"steps": steps}, (key,), shape, stack.value.dtype)

    def filled(self, value: float, shape: tuple[int, ...], dtype: str) -> Value:
        name = f"%fill/{value:g}/{'x'.join(map(str, shape))}/{dtype}"
        return self.weight(name, "fill", {"value": value}, (), shape, dtype)

    def weight(
        self, key: str, expr: str, attrs: dict, inputs: Sequence[str], shape: tuple[int, ...], dtype: str
    ) -> Value:
        table = self.program.weights
        assert table is not None
        if key not in table:
            table.add_derived(key, expr, attrs, inputs, shape, table[inputs[0]].dtype if inputs else dtype)
        kind = self.rw.ctx.tensor(shape, dtype)
        return self.rw.insert("get_param", before=self.op, key=key, result_types=[kind]).result


def _cut(shape: tuple[int, ...], window: tuple[int, int, int]) -> list[list]:
    """Return the steps that take every so many of the second dimension."""
    start, step, count = window
    experts, size, *rest = shape
    if step == 1:
        return [] if count == size else [["slice", [0, start, *[0] * len(rest)], [experts, count, *rest]]]
    return [
        ["reshape", [experts, size // step, step, *rest]],
        ["slice", [0, start // step, start % step, *[0] * len(rest)], [experts, count, 1, *rest]],
        ["reshape", [experts, count, *rest]],
    ]
