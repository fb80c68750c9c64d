"""Functions that are not arithmetic of the field, by name: what the rows of a program and the ops of a graph both mean.

May import: numpy, proof.field. Must not: know rows or ops.

A recipe is a fixed expression over the field's functions: the graph's op is *defined* as the expression that the compiler
emits for it, and that expression is proved to be the function apart (docs/proof.md). Everything that no identity of
the field connects to another expression is an atom: a keyed hash, equal for equal operands.
"""

from __future__ import annotations

from collections.abc import Callable

from tx8fast.errors import SimulationError
from tx8fast.proof.cells import Elements
from tx8fast.proof.field import Field

Unary = Callable[[Field, Elements], Elements]


def _atom(name: str) -> Unary:
    return lambda field, x: field.atom(name, x)


def magnitude(field: Field, x: Elements) -> Elements:
    """Return |x|: an atom of the square, so that it is even."""
    return field.atom("abs", field.square(x))


def satrelu(field: Field, x: Elements) -> Elements:
    """Return min(max(x, 0), 6)."""
    return field.minimum(field.relu(x), field.constant(6.0))


def leakyrelu(field: Field, x: Elements) -> Elements:
    """Return x for x >= 0, else 0.01 x."""
    return field.atom("leakyrelu", x)


def log2(field: Field, x: Elements) -> Elements:
    """Return ln(x) log2(e)."""
    p, q = field.constants.log2e
    return field.mul(field.atom("ln", x), field.residues_of(p, q))


#: what one row of the vector engine computes
FUNCTIONS: dict[str, Unary] = {
    "abs": magnitude,
    "recip": Field.inv,
    "square": Field.square,
    "sqrt": _atom("sqrt"),
    "rsqrt": Field.rsqrt,
    "neg": Field.neg,
    "log2": log2,
    "ln": _atom("ln"),
    "pow2": Field.pow2,
    "exp": Field.exp,
    "exp_lp": Field.exp,
    "sin": _atom("sin"),
    "cos": _atom("cos"),
    "tanh": _atom("tanh"),
    "sigmoid": _atom("sigmoid"),
    "relu": Field.relu,
    "satrelu": satrelu,
    "leakyrelu": leakyrelu,
    "softplus": _atom("softplus"),
}


def function(name: str) -> Unary:
    """Return a function by name. Raises SimulationError if the proof has none."""
    found = FUNCTIONS.get(name)
    if found is None:
        raise SimulationError(f"function '{name}' has no meaning in the proof")
    return found
