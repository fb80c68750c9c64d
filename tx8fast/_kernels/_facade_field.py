"""The door to the field's element-wise kernels: uint32 words of any shape in, new arrays of that shape out.

May import: numpy, the compiled module beside it. Must not: know rows or memory. Words are as in `proof.cells`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tx8fast._kernels import field as _field
from tx8fast._kernels._checks import require

Words = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float64]
#: rank of a thin matrix
RANK = 8
_NONE = np.zeros(0, np.uint32)
_KINDS = {"add_p": 0, "sub_p": 1, "mul_p": 2, "join_p": 3, "add_q": 4, "sub_q": 5, "mul_q": 6}


def _flat(a: Words) -> Words:
    require("field", a.dtype == np.uint32, f"words are {a.dtype}, uint32 required")
    return np.ascontiguousarray(a).reshape(-1)


def _blocks(shape: tuple[int, ...], small: tuple[int, ...]) -> tuple[int, int, int, int] | None:
    """Return (n, m, step, wide) with which `small` broadcasts to `shape` as rows, or None if it takes more."""
    small = (1,) * (len(shape) - len(small)) + small
    size = int(np.prod(shape))
    if small == shape:
        return 1, size, 0, 1
    same = [a == b for a, b in zip(shape, small)]
    cut = len(shape)
    while cut and same[cut - 1]:
        cut -= 1
    inner = int(np.prod(shape[cut:]))
    if all(s == 1 for s in small[:cut]):
        return (size // inner, inner, 0, 1) if inner > 1 else (1, size, 0, 0)
    # axes before are equal, then come axes of one: each row of the operand, or each word, is used several times
    lead = next((k for k, ok in enumerate(same) if not ok and shape[k] > 1), 0)
    if all(same[:lead]) and all(s == 1 for s in small[lead:]):
        n = int(np.prod(shape[:lead]))
        return n, size // n, 1, 0
    return None


def binary(name: str, a: Words, b: Words, modulus: int) -> Words:
    """Return a function of two operands that broadcast: add_p, sub_p, mul_p, join_p (maxima), add_q, sub_q, mul_q."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    if a.shape != shape:
        a = np.broadcast_to(a, shape)
    blocks = _blocks(shape, b.shape)
    if blocks is None:
        b, blocks = np.broadcast_to(b, shape), (1, int(np.prod(shape)), 0, 1)
    out = np.empty(shape, np.uint32)
    _field.binary(_KINDS[name], _flat(a), _flat(b), out.reshape(-1), *blocks, modulus)
    return out


def negate(a: Words, modulus: int, words_q: bool = False) -> Words:
    out = np.empty(a.shape, np.uint32)
    _field.negate(_flat(a), out.reshape(-1), modulus, words_q)
    return out


def invert(a: Words, modulus: int, words_q: bool = False) -> Words:
    """Return inverses; of zero zero."""
    out = np.empty(a.shape, np.uint32)
    _field.invert(_flat(a), out.reshape(-1), modulus, words_q)
    return out


@lru_cache(maxsize=16)
def _tables(omega: int, modulus: int) -> tuple[Words, Words]:
    low, high = np.empty(4096, np.uint32), np.empty(4096, np.uint32)
    _field.powers(omega, low, modulus)
    _field.powers(pow(omega, 4096, modulus), high, modulus)
    return low, high


def exponential(p_words: Words, q_words: Words, modulus: int, omega: int) -> Words:
    """Return omega to the words modulo q (below 2^24); hidden gives 0, a gap FINITE, an absent word UNDEFINED."""
    require("field", p_words.shape == q_words.shape, "the two sides differ in shape")
    out = np.empty(p_words.shape, np.uint32)
    _field.exponential(_flat(p_words), _flat(q_words), out.reshape(-1), modulus, *_tables(omega, modulus))
    return out


def counters(
    key: int, first: int, shape: tuple[int, ...], p: int, q: int, sides: str = "pq"
) -> tuple[Words, Words | None]:
    """Return random residues number first, first + 1, ... of a 64-bit key, modulo p and (unless `sides` is "p") modulo q."""
    out_p = np.empty(shape, np.uint32)
    out_q = np.empty(shape, np.uint32) if "q" in sides else None
    _field.counters(key, first, out_p.reshape(-1), _NONE if out_q is None else out_q.reshape(-1), p, q)
    return out_p, out_q


def hashes(a: Words, key: int, p: int, q: int, share_q: Words | None = None) -> tuple[Words, Words]:
    """Return hashes (p, q) of the words modulo p; with `share_q`, their words modulo q: what each contributes to a maximum."""
    out_p, out_q = np.empty(a.shape, np.uint32), np.empty(a.shape, np.uint32)
    if share_q is not None:
        require("field", share_q.shape == a.shape, "the two sides differ in shape")
    given = _NONE if share_q is None else _flat(share_q)
    _field.hashes(_flat(a), given, key, out_p.reshape(-1), out_q.reshape(-1), p, q, share_q is not None)
    return out_p, out_q


def dots(a: Words, v: Words, modulus: int) -> tuple[Words, int]:
    """Return the products (n,) of the residues in words (n, k) with a vector (k,) of residues, and the states of all words
    together."""
    require("field", a.ndim == 2 and v.shape == a.shape[1:], "the vector is not as long as the rows")
    out = np.empty(len(a), np.uint32)
    return out, _field.dots(_flat(a), _flat(v), out, modulus)


def drawn_dots(key: int, first: int, rows: int, v: Words, modulus: int) -> Words:
    """Return the products (rows,) of random residues modulo p (rows, k), `counters` of a key, with a vector (k,)."""
    out = np.empty(rows, np.uint32)
    _field.drawn_dots(key, first, _flat(v), out, modulus)
    return out


def drawn_sums(key: int, first: int, v: Words, columns: int, modulus: int) -> Words:
    """Return the product (columns,) of a vector (n,) with random residues modulo p (n, columns), `counters` of a key."""
    out = np.empty(columns, np.uint32)
    _field.drawn_sums(key, first, _flat(v), np.empty(columns, np.uint64), out, modulus)
    return out


def centre(a: Words, modulus: int) -> npt.NDArray[np.float64]:
    """Return the residues of words in [-modulus / 2, modulus / 2]."""
    out = np.empty(a.shape)
    _field.centre(_flat(a), out.reshape(-1), modulus)
    return out


def drawn_centred(key: int, first: int, out: npt.NDArray[np.float64], modulus: int, high: bool) -> None:
    """Fill with `counters` modulo p (`high`) or modulo q as residues in [-modulus / 2, modulus / 2]."""
    require("field", out.flags.c_contiguous, "what is filled lies in pieces")
    _field.drawn_centred(key, first, out.reshape(-1), modulus, high)


class Thin(NamedTuple):
    """A matrix of low rank: a left factor (rows, RANK) and a right one (RANK, columns), residues around zero as float64."""

    left: Floats
    right: Floats


def _whole(thin: Thin) -> None:
    require("field", thin.left.shape[1:] == thin.right.shape[:1] == (RANK,), "the factors of a thin matrix do not fit")


def thin_words(thin: Thin, first: int, shape: tuple[int, ...], modulus: int) -> Words:
    """Return elements number first, first + 1, ... of a thin matrix, row by row, modulo the modulus."""
    _whole(thin)
    out = np.empty(shape, np.uint32)
    inside = 0 <= first and first + out.size <= len(thin.left) * thin.right.shape[1]
    require("field", inside, "elements of a thin matrix are outside of it")
    _field.thin(thin.left, thin.right, first, out.reshape(-1), modulus)
    return out


def spanned(a: Floats, thin: Thin, modulus: int) -> bool:
    """Say whether a matrix (rows, columns) of residues around zero is a thin one."""
    _whole(thin)
    require("field", a.shape == (len(thin.left), thin.right.shape[1]), "a matrix and its factors differ in shape")
    return bool(_field.spanned(a, thin.left, thin.right, modulus))
