"""What one cell says: the residue and the state of an element, in one 32-bit word per prime.

May import: numpy. Must not: know the field's primes, memory or rows.

The word modulo p holds the residue in its low 24 bits and the state in its high 8; the word modulo q is a residue or
ABSENT. An element is a plain residue, or UNDEFINED (nothing is known; a failure in a result), or HIDDEN (so far below
everything that its exponential is exactly zero), or a residue with the mark MAXIMUM (or MINIMUM): a sum of hashes of
the elements whose maximum (minimum) it is, to which a further operand adds its hash.
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
        return Elements(self.p.reshape(*shape), None if self.q is None else self.q.reshape(*shape))

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
