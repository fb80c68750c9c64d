"""The field: pairs of residues as numbers, exact and without an order of summation.

May import: numpy, the kernels, proof.cells, proof.constants, proof.primes. Must not: know rows, ops or memory.

An element is a pair (x modulo p, x modulo q), p = 2 q + 1 both prime, and exponentials are a homomorphism from the
second to the first: exp(x) = omega^(x mod q) mod p, omega of order q, so exp(a + b) = exp(a) exp(b). What has been an
exponential has no value modulo q (ABSENT) until it is sealed. Source: Mirage's equivalence by random tests over two
finite fields (Wu et al. 2024), maxima as sums of hashes (multiset hashing, Clarke et al. 2003).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tx8fast._kernels import _facade_field as k
from tx8fast._kernels._facade_field import RANK, Thin
from tx8fast.errors import SimulationError
from tx8fast.proof import products
from tx8fast.proof.cells import (
    ABSENT,
    FINITE,
    GAP,
    HIDDEN,
    INFINITE,
    LOWEST,
    MARKS,
    MAXIMUM,
    RESIDUE,
    SPECIAL,
    UNDEFINED,
    Elements,
    choose,
    faults,
    faulty,
)
from tx8fast.proof.constants import Constants, hides, lowest
from tx8fast.proof.primes import primes_of, word

#: thin streams whose factors are kept, those used last
MOST_FACTORS = 8


class Field:
    """Arithmetic of one seed. Operands broadcast as in numpy; results are new arrays.

    Special cases: undefined spreads; hidden + x and hidden - x are hidden, x - hidden is undefined, hidden * 0 is 0,
    hidden * x hidden, exp(hidden) is exact zero; the inverse of zero is zero. Of what hides and is a finite number: the difference
    of two is a gap, and a gap's exponential finite, as are sums and products with it; times zero it is 0. `constants` takes the graph's constants (`constants.register`), before the first use.
    thin: streams whose elements are those of a matrix of rank RANK, with its (rows, columns); its factors are what is drawn.
    """

    def __init__(self, seed: int, thin: Mapping[str, tuple[int, int]] | None = None) -> None:
        self.seed = seed
        self._thin, self._factors = thin or {}, dict[str, tuple[Thin, Thin]]()
        self.p, self.q, self.omega = primes_of(seed)
        self.constants = Constants(seed, self.p, self.q)
        self._order, self._maximum = word("order", seed), word("maximum", seed)

    # --- where elements come from --------------------------------------------------------------------------------

    def random(self, key: str, shape: tuple[int, ...], first: int = 0, sides: str = "pq") -> Elements:
        """Return random elements number `first` and on of the stream `key`; element i depends on seed, key and i alone.

        `sides` "p" leaves the q side out."""
        if key in self._thin:
            p, q = self.factors(key)
            made = k.thin_words(p, first, shape, self.p)
            return Elements(made, k.thin_words(q, first, shape, self.q) if "q" in sides else None)
        return Elements(*k.counters(self.key(key), first, shape, self.p, self.q, sides))

    def is_thin(self, stream: str) -> bool:
        """Say whether a stream is a matrix of low rank."""
        return stream in self._thin

    def factors(self, stream: str) -> tuple[Thin, Thin]:
        """Return the factors of a thin stream, modulo p and modulo q."""
        found = self._factors.pop(stream, None)
        if found is None:
            rows, columns = self._thin[stream]
            sides = (
                k.counters(self.key(f"{side} of {stream}"), 0, shape, self.p, self.q)
                for side, shape in (("rows", (rows, RANK)), ("columns", (RANK, columns)))
            )
            (left_p, left_q), (right_p, right_q) = sides
            assert left_q is not None and right_q is not None
            found = (
                Thin(*(products.centred(x, self.p) for x in (left_p, right_p))),
                Thin(*(products.centred(x, self.q) for x in (left_q, right_q))),
            )
        self._factors[stream] = found  # used last
        for old in list(self._factors)[:-MOST_FACTORS]:
            self._factors.pop(old, None)
        return found

    def key(self, name: str) -> int:
        """Return the 64-bit key of a named stream or function."""
        return word("key", self.seed, name)

    def constant(self, value: float, fmt: str = "f32", shape: tuple[int, ...] = ()) -> Elements:
        """Return a constant as the format `fmt` ("f32", "bf16", "f16", "tf32") holds it, repeated to `shape`.

        At most -1e30 (in f16 -3e4) hides; NaN is undefined, and so is +inf to all but comparisons.
        """
        p, q = self.constant_words(value, fmt)
        return Elements(np.full(shape, p, np.uint32), np.full(shape, q, np.uint32))

    def constant_words(self, value: float, fmt: str, stored: bool = False) -> tuple[int, int]:
        """Return the words (p, q) of a constant; `stored`: that lies among the model's own."""
        if hides(value, fmt):
            return (LOWEST if lowest(value, fmt) else HIDDEN), 0
        if not np.isfinite(value):
            return (INFINITE if value > 0 else UNDEFINED), 0
        return self.constants.stored(value, fmt) if stored else self.constants.pair(value, fmt)

    def numbers(self, values: np.ndarray, fmt: str = "f32") -> Elements:
        """Return concrete numbers (integers, truth values or floats of any shape) as elements."""
        values = np.asarray(values)
        if values.dtype.kind in "iub":
            wide = values.astype(np.int64)
            return Elements((wide % self.p).astype(np.uint32), (wide % self.q).astype(np.uint32))
        found, where = np.unique(values.astype(np.float64), return_inverse=True)
        table = np.array([self.constant_words(x, fmt, stored=True) for x in found.tolist()], np.uint32).reshape(-1, 2)
        where = where.reshape(values.shape)
        return Elements(table[where, 0], table[where, 1])

    def residues_of(self, p: int, q: int) -> Elements:
        """Return the element of two residues, of shape ()."""
        return Elements(np.full((), p, np.uint32), np.full((), q, np.uint32))

    def inverse_of(self, count: int) -> Elements:
        """Return 1 / count, of shape ()."""
        return self.residues_of(pow(count, -1, self.p), pow(count, -1, self.q))

    def undefined(self, shape: tuple[int, ...]) -> Elements:
        return Elements(np.full(shape, UNDEFINED, np.uint32), np.zeros(shape, np.uint32))

    def seal(self, a: Elements) -> Elements:
        """Return fresh elements with both sides, a hash of each one's p side: what the next launch starts from.

        Hidden and undefined stay so; maxima lose their mark.
        """
        p, q = k.hashes(a.p, self.key("seal"), self.p, self.q)
        return Elements(np.where(a.p & HIDDEN, np.uint32(HIDDEN), p), q)

    # --- arithmetic ----------------------------------------------------------------------------------------------

    def add(self, a: Elements, b: Elements) -> Elements:
        return self._two("add_p", "add_q", a, b)

    def sub(self, a: Elements, b: Elements) -> Elements:
        return self._two("sub_p", "sub_q", a, b)

    def mul(self, a: Elements, b: Elements) -> Elements:
        return self._two("mul_p", "mul_q", a, b)

    def square(self, a: Elements) -> Elements:
        return self.mul(a, a)

    def neg(self, a: Elements) -> Elements:
        """Return -a; minus a maximum is the minimum of the negatives."""
        return Elements(k.negate(a.p, self.p), None if a.q is None else k.negate(a.q, self.q, True))

    def inv(self, a: Elements) -> Elements:
        return Elements(k.invert(a.p, self.p), None if a.q is None else k.invert(a.q, self.q, True))

    def div(self, a: Elements, b: Elements) -> Elements:
        return self.mul(a, self.inv(b))

    def exp(self, a: Elements) -> Elements:
        """Return omega^a, without a q side. Of an element that has no q side: an atom, which knows no law of exponents."""
        if a.q is None:
            absent: Any = True
            p = a.p
        else:
            absent = a.q == ABSENT
            p = k.exponential(a.p, a.q, self.p, self.omega)
            if not absent.any():
                return Elements(p, None)
        other = np.where(a.p & HIDDEN, np.uint32(0), self.atom("exp", a).p)
        other = np.where(a.p == GAP, np.uint32(FINITE), other)
        return Elements(np.where(absent, other, p), None)

    def pow2(self, a: Elements) -> Elements:
        """Return exp(a ln 2), ln 2 a symbol whose inverse is the constant log2(e)."""
        return self.exp(self.mul(a, self.residues_of(*self.constants.ln2)))

    def rsqrt(self, a: Elements) -> Elements:
        """Return the inverse of the atom sqrt."""
        return self.inv(self.atom("sqrt", a))

    def atom(self, name: str, *operands: Elements) -> Elements:
        """Return a function of which nothing is known but that equal operands give equal results: a hash of the p sides."""
        if not operands:
            raise SimulationError(f"function '{name}' over the field: found no operand, required one at least")
        p, q = k.hashes(operands[0].p, self.key(name), self.p, self.q)
        for i, other in enumerate(operands[1:]):
            # a chain of hashes: the result so far, moved by a hash of the next operand
            more, _ = k.hashes(other.p, self.key(f"{name} {i}"), self.p, self.q)
            p, q = k.hashes(k.binary("add_p", p, more, self.p), self.key(f"{name} chain"), self.p, self.q)
        return Elements(p, q)

    # --- sums and products ---------------------------------------------------------------------------------------

    def sum(self, a: Elements, axis: int | tuple[int, ...], keepdims: bool = False) -> Elements:
        """Return sums over an axis or several; of hidden elements: hidden."""
        states = np.bitwise_or.reduce(a.p, axis=axis, keepdims=keepdims) & np.uint32(SPECIAL)
        total = np.sum(a.p & RESIDUE, axis=axis, keepdims=keepdims, dtype=np.int64) % self.p
        p = np.where(
            states & UNDEFINED, np.uint32(UNDEFINED), np.where(states, np.uint32(HIDDEN), total.astype(np.uint32))
        )
        if (states & UNDEFINED).any():
            p = np.where(np.max(faults(a.p), axis, keepdims=keepdims, initial=0) == 1, np.uint32(FINITE), p)
        if a.q is None:
            return Elements(p, None)
        absent = np.any(a.q == ABSENT, axis=axis, keepdims=keepdims)
        total = np.sum(np.where(a.q == ABSENT, 0, a.q), axis=axis, keepdims=keepdims, dtype=np.int64) % self.q
        return Elements(p, np.where(absent, np.uint32(ABSENT), total.astype(np.uint32)))

    def mean(self, a: Elements, axis: int | tuple[int, ...], keepdims: bool = False) -> Elements:
        """Return sums over an axis or several times the inverse of the count; of no elements: one number that nothing else gives."""
        axes = (axis,) if isinstance(axis, int) else axis
        count = int(np.prod([a.shape[x] for x in axes]))
        if not count:
            return self.random("mean of nothing", ()).broadcast_to(self.sum(a, axis, keepdims).shape)
        return self.mul(self.sum(a, axis, keepdims), self.inverse_of(count))

    def matmul(self, a: Elements, b: Elements, sides: str = "pq") -> Elements:
        """Return the product (..., m, k) by (..., k, n); batch axes broadcast. `sides` "p" leaves the q side out.

        The sum over no terms is zero; a special element makes its whole row or column undefined, or finite and else unknown,
        but where there is one term alone, which `mul` makes: a matrix of ones repeats what hides.
        """
        if a.shape[-1] != b.shape[-2]:
            raise SimulationError(
                f"product over the field: found shapes {a.shape} and {b.shape}, required equal inner axes"
            )
        if a.shape[-1] == 1:
            return self.mul(a, b) if sides == "pq" else self.mul(Elements(a.p, None), b)
        p = products.matmul(a.p, b.p, self.p)
        if (np.bitwise_or.reduce(a.p, None) | np.bitwise_or.reduce(b.p, None)) & np.uint32(SPECIAL):
            rows, columns = np.max(faults(a.p), -1, initial=0), np.max(faults(b.p), -2, initial=0)
            p = faulty(p, np.maximum(rows[..., None], columns[..., None, :]))
        if a.q is None or b.q is None or sides == "p":
            return Elements(p, None)
        q = products.matmul(a.q, b.q, self.q)
        if max(np.max(x, initial=0) for x in (a.q, b.q)) != ABSENT:
            return Elements(p, q)
        absent = np.any(a.q == ABSENT, -1)[..., None] | np.any(b.q == ABSENT, -2)[..., None, :]
        return Elements(p, np.where(absent, np.uint32(ABSENT), q))

    # --- order ---------------------------------------------------------------------------------------------------

    def maximum(self, a: Elements, b: Elements) -> Elements:
        """Return the maximum as a sum of hashes: each operand counts once, a maximum adds what it stands for.

        Commutative and associative, not idempotent: an operand that comes in twice counts twice. Beside a hidden one the
        other operand stays what it is. Of two hidden ones one that is finite suffices.
        """
        out = self._two("join_p", "add_q", self._share(a), self._share(b))
        for one, other in ((a, b), (b, a)):
            hidden = one.p & HIDDEN != 0
            if hidden.any():
                out = choose(hidden, other, out)
        if (out.p & HIDDEN).any():
            return Elements(np.where(out.p & HIDDEN, (a.p | b.p) & np.uint32(LOWEST), out.p), out.q)
        return out

    def minimum(self, a: Elements, b: Elements) -> Elements:
        return self.neg(self.maximum(self.neg(a), self.neg(b)))

    def at_most(self, a: Elements, bound: float, fmt: str = "f32") -> Elements:
        """Return the minimum of elements and a constant; one so large that its negative hides bounds nothing."""
        return a if hides(-bound, fmt) else self.minimum(a, self.constant(bound, fmt))

    def reduce_max(self, a: Elements, axis: int | tuple[int, ...], keepdims: bool = False) -> Elements:
        """Return the maximum over an axis or several; of hidden elements alone hidden, of one other element that element."""
        shared = self._share(a)
        there = a.p & HIDDEN == 0
        count = np.sum(there, axis=axis, keepdims=keepdims)
        total = self.sum(_only(there, shared), axis, keepdims)
        p = total.p | np.where(total.p & UNDEFINED, np.uint32(0), np.uint32(MAXIMUM))
        none = count == 0
        if none.any():
            p = np.where(none, np.bitwise_or.reduce(a.p, axis=axis, keepdims=keepdims) & np.uint32(LOWEST), p)
        out = Elements(p, total.q)
        if (count != 1).all():
            return out
        single = self.sum(_only(there, a), axis, keepdims)
        marks = np.bitwise_or.reduce(np.where(there, a.p, 0), axis=axis, keepdims=keepdims) & np.uint32(MARKS)
        return choose(count == 1, Elements(single.p | np.where(single.p & UNDEFINED, 0, marks), single.q), out)

    def reduce_min(self, a: Elements, axis: int | tuple[int, ...], keepdims: bool = False) -> Elements:
        return self.neg(self.reduce_max(self.neg(a), axis, keepdims))

    def relu(self, a: Elements) -> Elements:
        """Return max(a, 0)."""
        return self.maximum(a, Elements(np.zeros((), np.uint32), np.zeros((), np.uint32)))

    def order(self, a: Elements) -> np.ndarray:
        """Return int64 keys of a total order of elements: odd under negation, hidden lowest, infinite highest. For comparisons, sorting, top-k."""
        x = (a.p & np.uint32(RESIDUE)).astype(np.int64)
        upper = x > self.p // 2
        size = np.where(upper, self.p - x, x)
        p, q = k.hashes(size.astype(np.uint32), self._order, self.p, self.q)
        key = (p.astype(np.int64) << 23 | q.astype(np.int64) >> 1) + 1
        key = np.where(((q & 1) != 0) ^ upper, -key, key)
        key = np.where(x == 0, 0, key)
        least = np.int64(-1) << 62
        return np.where(a.p & SPECIAL, np.where(a.p == INFINITE, -least, least), key)

    # --- helpers -------------------------------------------------------------------------------------------------

    def _share(self, a: Elements) -> Elements:
        q = np.full_like(a.p, ABSENT) if a.q is None else a.q
        return Elements(*k.hashes(a.p, self._maximum, self.p, self.q, q))

    def _two(self, f_p: str, f_q: str, a: Elements, b: Elements) -> Elements:
        p = k.binary(f_p, a.p, b.p, self.p)
        return Elements(p, None if a.q is None or b.q is None else k.binary(f_q, a.q, b.q, self.q))


def _only(there: np.ndarray, a: Elements) -> Elements:
    """Return `a` with zeros elsewhere; what hides has a word modulo q that says nothing."""
    zero = np.uint32(0)
    return Elements(np.where(there, a.p, zero), None if a.q is None else np.where(there, a.q, zero))
