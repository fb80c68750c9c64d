"""What an op's expression over the field is made of: values, the registry of kinds, and what every family needs.

May import: numpy, graph_table, errors, proof.cells, proof.field, proof.forms. Must not: know lowering, search, schedules, rows or the simulators:
an expression is written from the op's definition (docs/ir.md) alone.

A value is `Elements` (numbers: random, or constants) or a numpy array (integers and truth values, which stay concrete).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tx8fast.errors import Tx8Error
from tx8fast.graph_table import OpRecord
from tx8fast.proof.cells import HIDDEN, Elements
from tx8fast.proof.compared import Comparisons
from tx8fast.proof.field import Field
from tx8fast.proof.forms import FLOATS
from tx8fast.records import dataclass


@dataclass(frozen=True)
class Drawn:
    """A large tensor of random elements that is drawn where it is used: stream and shape."""

    field: Field
    stream: str
    shape: tuple[int, ...]
    sides: str = "pq"

    def part(self, begin: int, end: int) -> Elements:
        """Return rows [begin, end) of the first axis."""
        row = int(np.prod(self.shape[1:]))
        return self.field.random(self.stream, (end - begin, *self.shape[1:]), begin * row, sides=self.sides)

    def elements(self) -> Elements:
        """Return all of them."""
        return self.field.random(self.stream, self.shape, sides=self.sides)


Value = Elements | np.ndarray
Operands = Sequence[Value | None]
Expression = Callable[["Scope", OpRecord, Operands], list[Value]]

#: numpy formats of the concrete element types; those of 4 bits lie in a byte
CONCRETE = {
    "pred": np.bool_,
    "i4": np.int8,
    "u4": np.uint8,
    "i8": np.int8,
    "u8": np.uint8,
    "i16": np.int16,
    "u16": np.uint16,
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "u64": np.uint64,
}

#: kinds whose expressions take tensors that are drawn piece by piece
DRAWN = frozenset({"gemm", "embedding"})

#: op kind -> its expression
EXPRESSIONS: dict[str, Expression] = {}


class NotExpressed(Tx8Error):
    """An op has no expression over the field; `what` names the kind and the reason."""


@dataclass
class Scope:
    """What the expressions of one launch share: the field, the denominators of its divisions, and its comparisons of numbers.
    unseen: some row of a softmax sees nothing; what it gives is undefined."""

    field: Field
    unseen: bool = False
    denominators: list[Elements] = dataclasses.field(default_factory=list)
    comparisons: Comparisons = dataclasses.field(default_factory=Comparisons)

    def number(self, value: float) -> Elements:
        """Return a constant of the graph (an attribute, in float64)."""
        if value <= -1e30 or not np.isfinite(value):
            return self.field.constant(value)
        p, q = self.field.constants.register(value)
        return Elements(np.array(p, np.uint32), np.array(q, np.uint32))

    def note(self, name: str, a: Elements, b: Elements) -> None:
        """Note the comparison a `name` b ("eq", "ne", "lt", "le", "gt", "ge") of numbers."""
        self.comparisons.note(name, a, b, (self.field.p, self.field.q))

    def inverse(self, a: Elements) -> Elements:
        """Return 1 / a and note it as a denominator."""
        self.denominators.append(a)
        return self.field.inv(a)


def expression(*kinds: str) -> Callable[[Expression], Expression]:
    """Declare a function to be the expression of op kinds."""

    def declare(f: Expression) -> Expression:
        EXPRESSIONS.update(dict.fromkeys(kinds, f))
        return f

    return declare


def evaluate(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """Return one value per result of `op`. Raises NotExpressed."""
    found = EXPRESSIONS.get(op.kind.rstrip("_"))
    if found is None:
        raise NotExpressed(f"{op.kind}: this kind has no expression")
    for spec in (*op.operands, *op.results):
        if spec is not None and spec.dtype not in FLOATS and spec.dtype not in CONCRETE:
            raise NotExpressed(f"{op.kind}: numbers of format {spec.dtype} have no cells")
    if op.kind not in DRAWN:
        operands = [v.elements() if isinstance(v, Drawn) else v for v in operands]
    made = found(scope, op, operands)
    return [_typed(v, spec) for v, spec in zip(made, op.results, strict=True)]


def _typed(value: Value, spec: Any) -> Value:
    """Give a result its shape, and concrete ones their format."""
    if isinstance(value, Elements):
        if spec.dtype in CONCRETE:
            raise NotExpressed(f"a result of format {spec.dtype} whose values are not known")
        return value if value.shape == spec.shape else value.broadcast_to(spec.shape)
    return np.broadcast_to(value, spec.shape).astype(CONCRETE[spec.dtype])


# --- helpers of the families ---------------------------------------------------------------------------------------


def need(operands: Operands, i: int) -> Value:
    """Return an operand that must be there."""
    found = operands[i]
    assert found is not None
    return found


def given(operands: Operands, i: int) -> Value | None:
    """Return an optional operand, or None."""
    return operands[i] if i < len(operands) else None


def elements(scope: Scope, value: Value | None) -> Elements:
    """Return a value as field elements; integers and truth values are themselves."""
    assert value is not None
    if isinstance(value, Drawn):
        return value.elements()
    return value if isinstance(value, Elements) else scope.field.numbers(value)


def concrete(value: Value | None, what: str) -> np.ndarray:
    """Return a concrete operand. Raises NotExpressed if its values are not known."""
    if isinstance(value, np.ndarray):
        return value
    raise NotExpressed(f"{what}: it must be known, and is a number that is drawn")


def moved(value: Value, f: Callable[[np.ndarray], np.ndarray]) -> Value:
    """Return `f`, which only moves elements, of a value."""
    return value.map(f) if isinstance(value, Elements) else f(value)


def filled(scope: Scope, like: Value, fill: float, shape: Sequence[int]) -> Value:
    """Return a value of the kind of `like`, every element `fill`."""
    if isinstance(like, Elements):
        return scope.field.constant(fill).broadcast_to(tuple(shape))
    return np.full(shape, fill, like.dtype)


def hidden(shape: Sequence[int]) -> Elements:
    """Return elements so far below all others that they never win and their exponential is zero."""
    return Elements(np.full(shape, HIDDEN, np.uint32), np.zeros(shape, np.uint32))


def axes_of(axes: Sequence[int] | int, rank: int) -> tuple[int, ...]:
    """Return axes counted from 0."""
    return tuple(a % rank for a in ((axes,) if isinstance(axes, int) else axes))


def wrapped(indices: Value | None, size: int, what: str) -> np.ndarray:
    """Return known indices into an axis; negative ones count from its end. Raises NotExpressed outside it."""
    found = concrete(indices, what).astype(np.int64)
    found = np.where(found < 0, found + size, found)
    if found.size and not (0 <= found.min() and found.max() < size):
        raise NotExpressed(f"{what}: {int(found.min())} to {int(found.max())}, required indices of {size} elements")
    return found
