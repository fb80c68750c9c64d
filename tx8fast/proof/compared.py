"""Comparisons of drawn numbers as further results of a launch: which elements are compared, and how.

May import: numpy, proof.cells. Must not: know rows or ops.

A truth value is 0 or 1 by the order that was drawn, so a wrong comparison gives the right one in half of the seeds. Each is therefore
noted as a word made of both operands and the relation. a < b, b > a, not a >= b and -b < -a are one comparison, which of them is
written down does not matter; a <= b is another one, as it differs where both are equal.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np

from tx8fast.proof.cells import ABSENT, HIDDEN, RESIDUE, UNDEFINED, Elements
from tx8fast.records import dataclass

Words = np.ndarray
#: stands for a residue of what hides; all residues are smaller
_HIDES = RESIDUE
_EQUAL = np.uint64(1 << 63)
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass
class Comparisons:
    """What was compared: words (uint64) of the residues modulo p, and of those modulo both primes, 0 where some is absent."""

    one: list[Words] = field(default_factory=list)
    both: list[Words] = field(default_factory=list)

    def note(self, name: str, a: Elements, b: Elements, primes: tuple[int, int]) -> None:
        """Note the comparison a `name` b, element by element, operands broadcast; undefined elements are left out."""
        one, both = _words(name, a, b, primes)
        self.one.append(one)
        self.both.append(both)

    def take(self, other: Comparisons) -> None:
        self.one += other.one
        self.both += other.both

    def joined(self) -> tuple[Words, Words]:
        """Return the words of all comparisons."""
        none = [np.zeros(0, np.uint64)]
        return np.concatenate(self.one or none), np.concatenate(self.both or none)

    def missing(self, found: Comparisons) -> tuple[int, int]:
        """Return how many different comparisons there are, and how many of them are not among those found."""
        (one, both), (its_one, its_both) = self.joined(), found.joined()
        pairs = np.unique(np.stack([one, both], 1), axis=0)
        one, both = pairs[:, 0], pairs[:, 1]
        # where one side has no residue modulo q, the other prime alone decides
        alone = np.isin(one, np.where(its_both == 0, its_one, 0)) | ((both == 0) & np.isin(one, its_one))
        return len(pairs), int((~(np.isin(both, its_both[its_both != 0]) | alone)).sum())


def _words(name: str, a: Elements, b: Elements, primes: tuple[int, int]) -> tuple[Words, Words]:
    if name in ("gt", "le"):  # a > b is b < a, and a <= b what is not so
        a, b = b, a
    shape = np.broadcast_shapes(a.shape, b.shape)
    known = np.broadcast_to((a.p | b.p) & np.uint32(UNDEFINED) == 0, shape)
    ap, bp = (np.broadcast_to(_plain(x.p), shape)[known] for x in (a, b))
    aq, bq = (np.broadcast_to(_absent(x) if x.q is None else x.q, shape)[known].astype(np.uint64) for x in (a, b))
    absent = (aq == ABSENT) | (bq == ABSENT)
    ways = [
        (ap, bp, aq, bq),
        (_minus(bp, primes[0]), _minus(ap, primes[0]), _minus(bq, primes[1]), _minus(aq, primes[1])),
    ]
    if name in ("eq", "ne"):
        ways += [(y, x, v, u) for x, y, u, v in ways]
    one = both = np.full(ap.shape, np.iinfo(np.uint64).max)
    for x, y, u, v in ways:
        first = x << np.uint64(24) | y
        second = _mixed(first ^ _mixed(u << np.uint64(24) | v))
        less = (first < one) | ((first == one) & (second < both))
        one, both = np.where(less, first, one), np.where(less, second, both)
    kind = _EQUAL if name in ("eq", "ne") else np.uint64(0)
    return one | kind, np.where(absent, np.uint64(0), both | np.uint64(1)) ^ np.where(absent, np.uint64(0), kind)


def _plain(p: Words) -> Words:
    return np.where(p & np.uint32(HIDDEN), np.uint32(_HIDES), p & np.uint32(RESIDUE)).astype(np.uint64)


def _absent(a: Elements) -> Words:
    return np.full(a.shape, ABSENT, np.uint32)


def _minus(x: Words, modulus: int) -> Words:
    """Return the negatives; what hides or is absent is no residue and stays."""
    m = np.uint64(modulus)
    return np.where((x == 0) | (x >= m), x, m - x)


def _mixed(x: Words) -> Words:
    """Return 64 bits that all bits of a word decide (the finaliser of splitmix64, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9) + _MIX
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
