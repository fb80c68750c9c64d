"""Random small graphs of products, row operations and element-wise ops, for properties of the search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.support.one_op import Arg

UNARY = ("relu", "gelu", "silu")
ROWS = ("softmax", "rmsnorm")
BINARY = ("add", "mul")


@dataclass(frozen=True)
class OpGraph:
    """`args`: x first, then what the ops need; ops: (kind, operands) where value n is argument n, then op n - len(args)."""

    args: tuple[Arg, ...]
    ops: tuple[tuple[str, tuple[int, ...]], ...]

    def body(self) -> Callable[..., list[Any]]:
        """Return what `one_op.build` takes. Every value that no op reads is a result."""

        def make(b, *values):
            known = list(values)
            for kind, operands in self.ops:
                attrs = {"mem_layout": "blocked"}
                known.append(b.op(kind, *(known[v] for v in operands), **attrs).results[0])
            read = {v for _, operands in self.ops for v in operands}
            return [known[n] for n in range(len(values), len(known)) if n not in read]

        return make


@st.composite
def op_graphs(draw, max_ops: int, sizes=(8, 16, 48, 64, 100, 128)) -> OpGraph:
    """Draw a graph; about half of its ops are products."""
    size = st.sampled_from(sizes)
    args = [Arg((draw(size), draw(size)), "bf16", "blocked")]
    made: list[tuple[str, tuple[int, int], tuple[Any, ...]]] = []  # kind, shape, operands as ("x", n) or ("op", n)
    shapes = lambda: [(("x", 0), args[0].shape), *((("op", n), m[1]) for n, m in enumerate(made))]  # noqa: E731

    def weight(shape: tuple[int, ...]) -> tuple[str, int]:
        args.append(Arg(shape, "bf16", "blocked" if len(shape) > 1 else "dense", -0.5, 0.5))
        return "x", len(args) - 1

    for _ in range(draw(st.integers(1, max_ops))):
        known = shapes()
        value, shape = known[-1] if draw(st.booleans()) else draw(st.sampled_from(known))
        kind = draw(st.sampled_from(("gemm", "gemm", "gemm", *UNARY, *ROWS, *BINARY)))
        operands: tuple[Any, ...] = (value,)
        if kind == "gemm":
            width = draw(st.sampled_from([s[1] for _, s in known])) if draw(st.booleans()) else draw(size)
            operands = value, weight((shape[1], width))
            shape = shape[0], width
        elif kind in BINARY:
            operands = value, draw(st.sampled_from([v for v, s in known if s == shape]))
        elif kind == "rmsnorm":
            operands = value, weight((shape[1],))
        made.append((kind, shape, operands))
    number = lambda v: v[1] if v[0] == "x" else len(args) + v[1]  # noqa: E731
    return OpGraph(tuple(args), tuple((kind, tuple(number(v) for v in operands)) for kind, _, operands in made))
