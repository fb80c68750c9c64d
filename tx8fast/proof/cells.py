"""What one cell says: the residue and the state of an element, in one 32-bit word per prime.

May import: numpy. Must not: know the field's primes, memory or rows.

The word modulo p holds the residue in its low 24 bits and the state in its high 8; the word modulo q is a residue or
ABSENT. An element is a plain residue, or UNDEFINED (nothing is known; a failure in a result), or HIDDEN (so far below
everything that its exponential is exactly zero), or a residue with the mark MAXIMUM (or MINIMUM): a sum of hashes of
the elements whose maximum (minimum) it is, to which a further operand adds its hash.

A row of attention that has seen nothing yet computes with what hides itself. What is said of that: LOWEST is hidden and a
finite number, HIGHEST the negative of one, GAP the difference of two, FINITE what comes of a gap's exponential: a finite
number, else unknown, which nothing but a product with zero makes known. INFINITE is the constant above all numbers, which
nothing but comparisons makes something of. All but the first are UNDEFINED, too, so that whoever does not know them takes
them for that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Cells = npt.NDArray[np.uint32]

UNDEFINED = 1 << 31
HIDDEN = 1 << 30
MAXIMUM = 1 << 29
MINIMUM = 1 << 28
LOWEST = HIDDEN | MAXIMUM
HIGHEST = UNDEFINED | MAXIMUM
FINITE = UNDEFINED | MINIMUM
GAP = UNDEFINED | MAXIMUM | MINIMUM
INFINITE = UNDEFINED | 1
#: states without a residue
SPECIAL = UNDEFINED | HIDDEN
MARKS = MAXIMUM | MINIMUM
STATES = SPECIAL | MARKS
RESIDUE = (1 << 24) - 1
#: the word modulo q of an element that has no value there: results of exponentials
ABSENT = 0xFFFFFFFF


class Elements(NamedTuple):
    """Field elements of any shape: `p` uint32 words modulo p, `q` uint32 words modulo q of the same shape.

    `q` is None where no element has a value there. Indexing with `at`, `reshape` and `transpose` do what numpy does, to both.
    """

    p: Cells
    q: Cells | None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.p.shape

    def at(self, index) -> Elements:
        """Return the elements at a numpy index."""
        return Elements(np.asarray(self.p[index]), None if self.q is None else np.asarray(self.q[index]))

    def reshape(self, *shape: int) -> Elements:
        return Elements(self.p.reshape(shape), None if self.q is None else self.q.reshape(shape))

    def transpose(self, *axes: int) -> Elements:
        return Elements(self.p.transpose(*axes), None if self.q is None else self.q.transpose(*axes))

    def broadcast_to(self, shape: tuple[int, ...]) -> Elements:
        return Elements(np.broadcast_to(self.p, shape), None if self.q is None else np.broadcast_to(self.q, shape))

    def map(self, f) -> Elements:
        """Return `f` of both arrays of words, for what only moves elements: np.flip, np.pad with UNDEFINED, ..."""
        return Elements(f(self.p), None if self.q is None else f(self.q))

    def values(self) -> Cells:
        """Return the words modulo p without the marks of maxima: equal ones are equal elements modulo p."""
        return self.p & np.uint32(RESIDUE | SPECIAL)


def join(parts: list[Elements], axis: int, stack: bool = False) -> Elements:
    """Return elements joined along an axis (a new one with `stack`); the q words stay where any part has them."""
    f = np.stack if stack else np.concatenate
    p = f([part.p for part in parts], axis=axis)
    if all(part.q is None for part in parts):
        return Elements(p, None)
    return Elements(p, f([np.full_like(x.p, ABSENT) if x.q is None else x.q for x in parts], axis=axis))


def choose(condition: np.ndarray, a: Elements, b: Elements) -> Elements:
    """Return `a` where the concrete `condition` holds, else `b`; all three are broadcast."""
    p = np.where(condition, a.p, b.p)
    if a.q is None and b.q is None:
        return Elements(p, None)
    absent = np.uint32(ABSENT)
    return Elements(p, np.where(condition, absent if a.q is None else a.q, absent if b.q is None else b.q))


def faults(p: Cells) -> np.ndarray:
    """Return of words modulo p 0 for a residue, 1 for what is finite, 2 for the others: a sum has the largest fault of its terms."""
    return np.where(p & np.uint32(SPECIAL) == 0, 0, np.where(p == FINITE, 1, 2)).astype(np.int8)


def faulty(p: Cells, fault: np.ndarray) -> Cells:
    """Return residues, but for those of faulty elements."""
    return np.where(fault == 0, p, np.where(fault == 1, np.uint32(FINITE), np.uint32(UNDEFINED)))


def rounded(a: Elements, fmt: str) -> Elements:
    """Return elements that may come of longer significands or, in f16, of sums with scores as they are stored in a format: what hides
    may be an infinite number then."""
    if fmt == "f32" or not (a.p & np.uint32(HIDDEN)).any():
        return a
    return Elements(np.where(a.p & np.uint32(HIDDEN), np.uint32(HIDDEN), a.p), a.q)


def truths(a: Elements) -> tuple[np.ndarray, np.ndarray]:
    """Return the integers that elements are and where that is known: 0 and 1 are truth values, and of all others
    their number decides, which a field does not have.

    A number that is drawn is 0 or 1 with probability 2 / p; it is then taken for a truth value on both sides."""
    good = a.values() <= 1
    if a.q is not None:
        good &= (a.q == ABSENT) | (a.q == a.p)
    return np.where(good, a.p & np.uint32(RESIDUE), 0).astype(np.int64), good
