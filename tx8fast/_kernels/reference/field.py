"""Twin of the field's element-wise kernels: the same cells by numpy expressions in 64 bits.

May import: numpy. Must not: share code with the kernel.

Words modulo p: residue in 24 bits, states above (`UNDEFINED`, `HIDDEN`, `MAXIMUM`, `MINIMUM`, and what `proof.cells` makes of two of them); words modulo q: a residue
or ABSENT. All arrays are uint32 and of one shape; results are new ones.
"""

from __future__ import annotations

import numpy as np

UNDEFINED, HIDDEN, MAXIMUM, MINIMUM = 1 << 31, 1 << 30, 1 << 29, 1 << 28
LOWEST, HIGHEST, FINITE, GAP = HIDDEN | MAXIMUM, UNDEFINED | MAXIMUM, UNDEFINED | MINIMUM, UNDEFINED | MAXIMUM | MINIMUM
RESIDUE, ABSENT = (1 << 24) - 1, 0xFFFFFFFF
_M1, _M2, _M3 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def _wide(x):
    return x.astype(np.int64)


def _put(p, undefined, hidden=None):
    out = p.astype(np.uint32)
    if hidden is not None:
        out = np.where(hidden, np.uint32(HIDDEN), out)
    return np.where(undefined, np.uint32(UNDEFINED), out)


def _states(out, *found):
    """Return words with other states where something holds: pairs of truth values and a state."""
    for where, state in found:
        out = np.where(where, np.uint32(state), out)
    return out


def _known(a):
    return a & (UNDEFINED | HIDDEN) == 0


def _finite(a, b):
    """Say where a sum or product is finite and else unknown: of a finite unknown one and another such or a residue."""
    return ((a == FINITE) | (b == FINITE)) & ((a == FINITE) | _known(a)) & ((b == FINITE) | _known(b))


def mix(words):
    """Return well mixed 64-bit words (the finaliser of splitmix64, Steele, Lea and Flood 2014)."""
    x = (words ^ (words >> np.uint64(30))) * _M2
    x = (x ^ (x >> np.uint64(27))) * _M3
    return x ^ (x >> np.uint64(31))


def residues(words, modulus):
    """Return the high 32 bits of 64-bit words scaled to [0, modulus)."""
    return ((words >> np.uint64(32)) * np.uint64(modulus) >> np.uint64(32)).astype(np.uint32)


def both(words, p, q):
    """Return residues modulo p and q of 64-bit words: from the high and the low half."""
    return residues(words, p), residues(words << np.uint64(32), q)


def counters(key, first, count, p, q):
    """Return random residues (modulo p, modulo q) number first .. first + count of a 64-bit key."""
    return both(mix(np.uint64(key) + (np.arange(first, first + count, dtype=np.uint64) + np.uint64(1)) * _M1), p, q)


def add_p(a, b, p):
    undefined, hidden = (a | b) & UNDEFINED != 0, (a | b) & HIDDEN != 0
    out = _put((_wide(a & RESIDUE) + _wide(b & RESIDUE)) % p, undefined, hidden)
    lowest = ((a == LOWEST) & _known(b)) | ((b == LOWEST) & _known(a))
    gap = ((a == LOWEST) & (b == HIGHEST)) | ((a == HIGHEST) & (b == LOWEST))
    return _states(out, (lowest, LOWEST), (gap, GAP), (_finite(a, b), FINITE))


def sub_p(a, b, p):
    undefined = ((a | b) & UNDEFINED != 0) | (b & HIDDEN != 0)
    out = _put((_wide(a & RESIDUE) - _wide(b & RESIDUE)) % p, undefined, a & HIDDEN != 0)
    lowest = ((a == LOWEST) & _known(b)) | (_known(a) & (b == HIGHEST))
    gap = ((a == LOWEST) & (b == LOWEST)) | ((a == HIGHEST) & (b == HIGHEST))
    hidden = (a & (UNDEFINED | HIDDEN) == HIDDEN) & (b == HIGHEST)
    return _states(out, (lowest, LOWEST), (gap, GAP), (_finite(a, b), FINITE), (hidden, HIDDEN))


def mul_p(a, b, p):
    undefined, hidden = (a | b) & UNDEFINED != 0, (a | b) & HIDDEN != 0
    zero = (a & (RESIDUE | HIDDEN) == 0) | (b & (RESIDUE | HIDDEN) == 0)
    repeated = np.where(b == 1, a, np.where(a == 1, b, 0))
    out = _put(
        (_wide(a & RESIDUE) * _wide(b & RESIDUE)) % p | repeated & (MAXIMUM | MINIMUM), undefined, hidden & ~zero
    )
    nothing = (_known(a) & (a & RESIDUE == 0)) | (_known(b) & (b & RESIDUE == 0))
    out = _states(out, (_finite(a, b), FINITE), (_finite(a, b) & nothing, 0))
    return _states(out, *((repeated == state, state) for state in (LOWEST, HIGHEST)))


def _q(f, a, b, q):
    absent = (a == ABSENT) | (b == ABSENT)
    return np.where(absent, np.uint32(ABSENT), (f(_wide(a), _wide(b)) % q).astype(np.uint32))


def add_q(a, b, q):
    return _q(np.add, a, b, q)


def sub_q(a, b, q):
    return _q(np.subtract, a, b, q)


def mul_q(a, b, q):
    return _q(np.multiply, a, b, q)


def neg_p(a, p):
    """Negate; the negative of a maximum is a minimum."""
    marks = (a & MAXIMUM) >> 1 | (a & MINIMUM) << 1
    out = _put((-_wide(a & RESIDUE)) % p, ~_known(a)) | np.where(_known(a), marks, 0).astype(np.uint32)
    return _states(out, (a == LOWEST, HIGHEST), (a == HIGHEST, LOWEST), (a == FINITE, FINITE))


def neg_q(a, q):
    return np.where(a == ABSENT, np.uint32(ABSENT), ((-_wide(a)) % q).astype(np.uint32))


def power(base, exponent, modulus):
    """Return base ** exponent by squaring, for an array of bases."""
    out, square = np.ones_like(base), base
    while exponent:
        if exponent & 1:
            out = out * square % modulus
        square, exponent = square * square % modulus, exponent >> 1
    return out


def inv_p(a, p):
    """Invert; the inverse of zero is zero."""
    return _put(power(_wide(a & RESIDUE), p - 2, p), a & (UNDEFINED | HIDDEN) != 0)


def inv_q(a, q):
    return np.where(
        a == ABSENT, np.uint32(ABSENT), power(_wide(np.where(a == ABSENT, 0, a)), q - 2, q).astype(np.uint32)
    )


def exp_p(p_word, q_word, p, omega):
    """Return omega to the q words; hidden gives an exact zero, an absent q word is undefined."""
    hidden = p_word & HIDDEN != 0
    undefined = (p_word & UNDEFINED != 0) | ((q_word == ABSENT) & ~hidden)
    exponent = _wide(np.where(q_word == ABSENT, 0, q_word))
    out, square = np.ones_like(exponent), omega
    for bit in range(24):
        out = np.where(exponent >> bit & 1, out * square % p, out)
        square = square * square % p
    return _states(_put(np.where(hidden, 0, out), undefined), (p_word == GAP, FINITE))


def hash_pq(a, key, p, q):
    """Return fresh residues (p, q) that depend on the words modulo p (marks left out) and the key; undefined stays."""
    words = mix(
        np.uint64(key) + (np.atleast_1d(a & (RESIDUE | HIDDEN)).astype(np.uint64) + np.uint64(1)) * _M1
    ).reshape(a.shape)
    new_p, new_q = both(words, p, q)
    undefined = a & UNDEFINED != 0
    return np.where(undefined, np.uint32(UNDEFINED), new_p), np.where(undefined, np.uint32(0), new_q)


def share_pq(a_p, a_q, key, p, q):
    """Return what an element contributes to a maximum: itself if it is one, nothing if hidden, else its hash.

    A hidden element stays hidden; results carry the mark.
    """
    new_p, new_q = hash_pq(a_p, key, p, q)
    special = ~_known(a_p)
    marked = (a_p & MAXIMUM != 0) & ~special
    new_p = np.where(
        marked, a_p, np.where(special, _put(a_p, a_p & UNDEFINED != 0, special), new_p | np.uint32(MAXIMUM))
    )
    return new_p, np.where(marked, a_q, np.where(special, np.uint32(0), new_q))


def join_p(a, b, p):
    """Add two contributions to a maximum: a hidden one adds nothing."""
    total = ((_wide(a & RESIDUE) + _wide(b & RESIDUE)) % p).astype(np.uint32) | np.uint32(MAXIMUM)
    out = np.where(a & HIDDEN, b, np.where(b & HIDDEN, a, total))
    return np.where((a | b) & UNDEFINED, np.uint32(UNDEFINED), out).astype(np.uint32)


def dots(a, v, p):
    """Return the residues of the words `a` (n, k) times the vector `v` (k,)."""
    return np.array([sum(int(x & RESIDUE) * int(y) for x, y in zip(row, v)) % p for row in a], np.uint32)


def centre(a, p):
    """Return the residues of words in [-p / 2, p / 2]."""
    x = (a & np.uint32(RESIDUE)).astype(np.float64)
    return np.where(x > p // 2, x - p, x)


def thin(left, right, p):
    """Return the words of the product of two factors."""
    made = [[sum(int(x) * int(y) for x, y in zip(row, column)) % p for column in right.T] for row in left]
    return np.array(made, np.uint32)
