"""Products of matrices modulo a prime, exact through float64.

May import: numpy, the kernels, proof.cells. Must not: know rows or memory.

Residues are centred, so a product of two is at most (m / 2)^2 and a chunk of 2^53 / (m / 2)^2 terms sums exactly in a
float64 whatever the order in which a library adds; every chunk is reduced before it is added to the others. A product with
a thin matrix, one of low rank, is made through its factors. Which matrices are thin is seen from all of their elements, and
not taken from where they come, so that it decides nothing but the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tx8fast._kernels import _facade_field as words
from tx8fast._kernels import _facade_shadow as k
from tx8fast._kernels._facade_field import RANK, Thin
from tx8fast.proof.cells import ABSENT, RESIDUE, Elements, faults, faulty

#: elements of an operand or a result that are there as floats at a time, and the fewest rows that are multiplied at once
PIECE, ROWS = 1 << 19, 128
#: fewest rows, columns and terms of a product for which a look at its matrices pays
LOOK = 8 * RANK
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_] | npt.NDArray[np.int8]


def terms(modulus: int) -> int:
    """Return how many products of centred residues, and a residue, add up exactly in float64."""
    return (1 << 53) // (modulus // 2) ** 2 - 1


def centred(a: np.ndarray, modulus: int) -> Floats:
    """Return residues in [0, modulus) as float64 in [-modulus / 2, modulus / 2]."""
    return words.centre(a, modulus)


def sums(left: Floats, right: Floats, modulus: int, inner: Inner | None = None) -> Floats:
    """Return left @ right as integers below 2^53 that are congruent: (..., m, k) by (..., k, n) of centred residues.

    Batch axes broadcast. inner: what is known of the left operand.
    """
    if (
        math.prod(left.shape[:-2]) == math.prod(right.shape[:-2]) == 1
        and min(*left.shape[-2:], right.shape[-1]) >= LOOK
    ):
        made = _through_factors(left.reshape(left.shape[-2:]), right.reshape(right.shape[-2:]), modulus, inner)
        if made is not None:
            return made.reshape(*np.broadcast_shapes(left.shape[:-2], right.shape[:-2]), *made.shape)
    depth, step = left.shape[-1], terms(modulus)
    if depth <= step:
        return np.matmul(left, right)
    shape = (*np.broadcast_shapes(left.shape[:-2], right.shape[:-2]), left.shape[-2], right.shape[-1])
    out, part = np.zeros(shape), np.empty(shape)
    # chunks of one size: a short last one costs as much as a long one
    step = -(-depth // -(-depth // step))
    for at in range(0, depth, step):
        np.matmul(left[..., at : at + step], right[..., at : at + step, :], out=part)
        k.add_reduced(out, part, modulus)
    return out


class Inner:
    """A left operand times the left factor of a thin matrix, for the products with others of the same left factor behind it."""

    def __init__(self) -> None:
        self.factor: Floats | None = None
        self.made: Floats | None = None

    def of(self, left: Floats, factor: Floats, modulus: int) -> Floats:
        """Return left @ factor around zero. Of one object the left operand is always the same."""
        if self.made is None or self.factor is None or not np.array_equal(self.factor, factor):
            self.factor, self.made = factor, reduced(sums(left, factor, modulus), modulus)
        return self.made


def _through_factors(left: Floats, right: Floats, modulus: int, inner: Inner | None) -> Floats | None:
    """Return left @ right as `sums` does, if one of them is a thin matrix whose factors show."""
    thin = factors(right, modulus)
    if thin is not None:
        return np.matmul((inner or Inner()).of(left, thin.left, modulus), thin.right)
    thin = factors(left, modulus)
    return None if thin is None else np.matmul(thin.left, reduced(sums(thin.right, right, modulus), modulus))


def factors(a: Floats, modulus: int) -> Thin | None:
    """Return the factors of a matrix of residues around zero; None if it is not thin, or one corner of it has no inverse.

    One factor is its first rows, the other one its first columns, and the inverse of the corner where both meet belongs to the
    left one: matrices whose columns span the same have the same left factor."""
    turned = not a.flags.c_contiguous
    a = a.T if turned else a
    inverse = _inverse(a[:RANK, :RANK].astype(np.int64).tolist(), modulus) if a.flags.c_contiguous else None
    if inverse is None:
        return None
    corner = centred(np.array(inverse, np.uint32), modulus)
    rows = reduced(np.matmul(corner, a[:RANK]), modulus) if turned else a[:RANK]
    for n in (min(len(a), RANK + 1), len(a)):  # most that are not thin show it at once
        columns = a[:n, :RANK] if turned else reduced(np.matmul(a[:n, :RANK], corner), modulus)
        found = Thin(np.ascontiguousarray(columns), rows)
        if not words.spanned(a[:n], found, modulus):
            return None
    return Thin(*(np.ascontiguousarray(x.T) for x in found[::-1])) if turned else found


def _inverse(a: list[list[int]], modulus: int) -> list[list[int]] | None:
    """Return the inverse of a square matrix modulo a prime, None if it has none (Gauss and Jordan)."""
    n = len(a)
    rows = [[x % modulus for x in row] + [int(i == j) for j in range(n)] for i, row in enumerate(a)]
    for i in range(n):
        pivot = next((j for j in range(i, n) if rows[j][i]), None)
        if pivot is None or len(rows[i]) != 2 * n:
            return None
        rows[i], rows[pivot] = rows[pivot], rows[i]
        scale = pow(rows[i][i], -1, modulus)
        rows[i] = [x * scale % modulus for x in rows[i]]
        for j in range(n):
            if j != i and rows[j][i]:
                by = rows[j][i]
                rows[j] = [(x - by * y) % modulus for x, y in zip(rows[j], rows[i], strict=True)]
    return [row[n:] for row in rows]


def reduced(a: Floats, modulus: int) -> Floats:
    """Return integers below 2^53 as residues in [-modulus / 2, modulus / 2]."""
    out = np.zeros(a.shape)
    k.add_reduced(out, a, modulus)
    return out


def total(left: Floats, right: Floats, modulus: int) -> npt.NDArray[np.uint32]:
    """Return left @ right modulo `modulus`."""
    return k.residues(sums(left, right, modulus), modulus)


def chained(a: Floats, b: Floats, c: Floats, modulus: int) -> npt.NDArray[np.uint32]:
    """Return a @ b @ c modulo `modulus`: (..., m, k), (k, few), (few, n) of centred residues, some rows at a time."""
    inner = reduced(sums(a.reshape(-1, a.shape[-1]), b, modulus), modulus)
    rows = max(ROWS, PIECE // max(1, c.shape[-1]))
    out = np.empty((len(inner), c.shape[-1]), np.uint32)
    for at in range(0, len(inner), rows):
        out[at : at + rows] = total(inner[at : at + rows], c, modulus)
    return out.reshape(*a.shape[:-1], c.shape[-1])


def matmul(a: np.ndarray, b: np.ndarray, modulus: int) -> npt.NDArray[np.uint32]:
    """Return a @ b modulo `modulus` of uint32 words, of which the residues count: one product (m, k) by (k, n) after the other,
    some rows at a time, since fresh memory for all of them as floats would take longer than the products."""
    if b.ndim == 2 and a.ndim > 2:
        return matmul(a.reshape(math.prod(a.shape[:-1]), a.shape[-1]), b, modulus).reshape(*a.shape[:-1], b.shape[-1])
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (np.broadcast_to(x, batch + x.shape[-2:]) for x in (a, b))
    out = np.empty((*batch, a.shape[-2], b.shape[-1]), np.uint32)
    rows = max(ROWS, PIECE // max(1, a.shape[-1], b.shape[-1]))
    for i in np.ndindex(batch):
        right = centred(b[i], modulus)
        for at in range(0, a.shape[-2], rows):
            out[i][at : at + rows] = total(centred(a[i][at : at + rows], modulus), right, modulus)
    return out


class Operand(NamedTuple):
    """An operand of the matrix engine: centred residues of any shape modulo p and (or None) modulo q.

    `bad_p`, `bad_q`: where an element has no residue (`faults`, and truth values); None where all have one.
    """

    p: Floats
    q: Floats | None = None
    bad_p: Mask | None = None
    bad_q: Mask | None = None

    @property
    def special(self) -> bool:
        """Whether some element has no residue, or some but not all have none modulo q."""
        return self.bad_p is not None or self.bad_q is not None

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for x in self if x is not None)

    def map(self, f: Callable[[Any], Any]) -> Operand:
        return Operand(*(None if x is None else f(x) for x in self))  # type: ignore[arg-type]

    def turned(self) -> Operand:
        """Exchange the last two axes."""
        return self.map(lambda x: x.swapaxes(-1, -2))

    def shaped(self, *shape: int) -> Operand:
        return self.map(lambda x: x.reshape(shape))

    def moved(self, axes: tuple[int, ...]) -> Operand:
        return self.map(lambda x: x.transpose(axes))

    def windows(
        self,
        rows,
        columns,
        out: tuple[int, int],
        kernel: tuple[int, int],
        step: tuple[int, int],
        dilation: tuple[int, int],
    ) -> Operand:
        """Return the windows of (n, h, w, c) with zeros around it as a matrix (1, n * oh * ow, ky * kx * c)."""
        (oh, ow), (ky, kx), (sy, sx), (dy, dx) = out, kernel, step, dilation

        def f(x):
            if any((*rows, *columns)):
                x = np.pad(x, ((0, 0), rows, columns, (0, 0)))
            n, _, _, c = x.shape
            a, b, d, e = x.strides
            view = np.lib.stride_tricks.as_strided(
                x, (n, oh, ow, ky, kx, c), (a, b * sy, d * sx, b * dy, d * dx, e), writeable=False
            )
            return view.reshape(1, n * oh * ow, ky * kx * c)

        return self.map(f)


def operand(value: Elements, p: int, q: int) -> Operand:
    """Return elements as an operand."""
    bad = faults(value.p)
    left = centred(value.p & np.uint32(RESIDUE), p)
    bad_p = bad if bad.any() else None
    if value.q is None:
        return Operand(left, None, bad_p)
    absent = value.q == ABSENT
    if absent.all() and absent.size:
        return Operand(left, None, bad_p)
    return Operand(left, centred(np.where(absent, 0, value.q), q), bad_p, absent if absent.any() else None)


def _either(a: Mask | None, b: Mask | None) -> Mask | None:
    """Return the largest mark of the elements that results of a product touch."""
    if a is None and b is None:
        return None
    rows: Any = np.zeros((1, 1), bool) if a is None else np.max(a, -1, keepdims=True, initial=0)
    columns: Any = np.zeros((1, 1), bool) if b is None else np.max(b, -2, keepdims=True, initial=0)
    return np.maximum(rows, columns)


def multiply(field, a: Operand, b: Operand) -> Elements:
    """Return the product (..., m, k) by (..., k, n); a special element makes its whole row or column undefined."""
    p = total(a.p, b.p, field.p)
    bad = _either(a.bad_p, b.bad_p)
    if bad is not None:
        p = faulty(p, bad)
    if a.q is None or b.q is None:
        return Elements(p, None)
    q = total(a.q, b.q, field.q)
    absent = _either(a.bad_q, b.bad_q)
    return Elements(p, q if absent is None else np.where(absent, np.uint32(ABSENT), q))


def weigh(field, a: Operand, b: Operand) -> Elements:
    """Return sums over the second axis of (m, taps, c) times (1, taps, c)."""

    def sums(x: Floats, y: Floats, modulus: int) -> npt.NDArray[np.uint32]:
        out, step = np.zeros((x.shape[0], x.shape[2])), terms(modulus)
        for at in range(0, x.shape[1], step):
            part = np.einsum("mtc,tc->mc", x[:, at : at + step], y[0, at : at + step])
            k.add_reduced(out, part, modulus)
        return k.residues(out, modulus)

    def either(x: Mask | None, y: Mask | None) -> Mask | None:
        found: list[Any] = [np.max(z, 1, initial=0) for z in (x, y) if z is not None]
        return None if not found else np.maximum(found[0], found[-1])

    p = sums(a.p, b.p, field.p)
    bad = either(a.bad_p, b.bad_p)
    if bad is not None:
        p = faulty(p, bad)
    if a.q is None or b.q is None:
        return Elements(p, None)
    q = sums(a.q, b.q, field.q)
    absent = either(a.bad_q, b.bad_q)
    return Elements(p, q if absent is None else np.where(absent, np.uint32(ABSENT), q))
