"""What the rows of a mixture of experts are made of, as `expert_match` reads it off a graph and `expert_rows` builds it anew.

May import: ir, passes.lift_match. Must not: change a graph.
"""

from __future__ import annotations

import math
from typing import NoReturn

import numpy as np

from tx8fast.ir.core import Op, Value
from tx8fast.passes.lift_match import made_by
from tx8fast.records import dataclass

Window = tuple[int, int, int]


class NoMatchError(Exception):
    """The graph is no mixture of experts."""


@dataclass(frozen=True, eq=False)
class Stack:
    """A weight with a matrix or vector for each expert. `axes`: the order of experts, what comes out and what goes in;
    `window`: start, step and count of what comes out."""

    value: Value
    axes: str
    window: Window


@dataclass(frozen=True, eq=False)
class Product:
    """Rows times the matrices of their experts. `x`: a value with a row for each token, or rows."""

    x: Value | Node
    stack: Stack
    macs: int


@dataclass(frozen=True, eq=False)
class Pointwise:
    """An elementwise op; operands that are values hold one number."""

    op: Op
    operands: tuple[Value | Node, ...]


@dataclass(frozen=True, eq=False)
class Weighted:
    """Rows times their shares, each share a value with a number for each row."""

    rows: Node
    shares: tuple[Value, ...]


#: what makes rows; a stack alone has a vector for each expert
Node = Stack | Product | Pointwise | Weighted


def count(v: Value) -> int:
    return math.prod(v.shape)


def weighted(node: Value | Node) -> bool:
    """True if a share goes into rows."""
    if isinstance(node, Pointwise):
        return any(map(weighted, node.operands))
    return isinstance(node, Weighted) or (isinstance(node, Product) and weighted(node.x))


def leads(shape: tuple[int, ...], whole: tuple[int, ...], rows: int) -> bool:
    """True if `shape` has the first dimensions of `whole`, which are so many rows, and only ones behind them."""
    return any(
        shape[:at] == whole[:at] and math.prod(shape[:at]) == rows and all(n == 1 for n in shape[at:])
        for at in range(1, len(whole) + 1)
    )


def holds(v: Value, wanted: np.ndarray) -> bool:
    """True for a constant with these numbers."""
    op = made_by(v, "constant")
    array = getattr(op.attrs.get("value"), "array", None) if op is not None else None
    return array is not None and array.size == wanted.size and bool((array.reshape(-1) == wanted).all())


def refuse() -> NoReturn:
    raise NoMatchError
