"""Readable twin of the numbering of rows.

May import: the standard library. Must not: be fast, share code with the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence


def distinct(words: Sequence[Sequence[int]], kept: Sequence[int], salt: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return a number per row, equal where the words `kept` and `salt` are, and where each number appears first."""
    known: dict[tuple[int, ...], int] = {}
    ids, first = [], []
    for i, (row, own) in enumerate(zip(words, salt, strict=True)):
        key = (own, *[row[k] for k in kept])
        if key not in known:
            known[key] = len(known)
            first.append(i)
        ids.append(known[key])
    return ids, first
