"""Rows of code as a file holds them: each distinct row once, and of rows only the words that some row uses.

May import: numpy, isa.record, _kernels. Must not: know segments, or trust a number of a file.

A record is 64 words of four bytes, most of them zero in any one program, and tiles that do the same to other addresses share most rows.
Sections: row_words, the numbers of the words that are stored, rising; rows, the distinct rows in the order in which they first occur; code, the
number of each row, all codes of all segments one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tx8fast._kernels import distinct_rows
from tx8fast.isa.record import RECORD

WORDS = RECORD.itemsize // 4


def pack_rows(codes: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return row_words (w,) i4, rows (distinct, w) u4, and code (rows of all codes,) u4. codes: RECORD arrays."""
    words = np.concatenate([np.empty((0, WORDS), "<u4"), *map(_words, codes)])
    used = np.bitwise_or.reduce(words, axis=0)
    used[0] = 1  # the word with the opcode, so that rows have a length
    chosen = np.flatnonzero(used)
    numbers, first = distinct_rows(words.view(np.uint64), np.unique(chosen // 2).tolist())
    return chosen.astype("<i4"), np.ascontiguousarray(words[first][:, chosen]), numbers.astype("<u4")


def unpack_rows(chosen: np.ndarray, rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return the RECORD rows of all codes. chosen: (w,), rows: any length, numbers: (n,). Raises ValueError if they do not fit."""
    known = len(chosen) and chosen.min() >= 0 and chosen.max() < WORDS and (np.diff(chosen) > 0).all()
    if not known or rows.size % len(chosen):
        raise ValueError(
            f"rows of {rows.size} words are stored as {len(chosen)} words each, of the {WORDS} that a row has"
        )
    distinct = np.zeros((rows.size // len(chosen), WORDS), "<u4")
    distinct[:, chosen] = rows.reshape(-1, len(chosen))
    if numbers.size and numbers.max() >= len(distinct):
        raise ValueError(f"row {numbers.max()} of {len(distinct)} is used")
    return distinct.view(RECORD).reshape(-1)[numbers]


def _words(code: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(code, RECORD).view("<u4").reshape(-1, WORDS)
