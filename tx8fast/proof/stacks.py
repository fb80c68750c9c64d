"""Operands of the matrix engine that several tiles hold at one address, side by side: one product for all of them.

May import: numpy, the kernels, proof.tile, proof.products. Must not: know rows.

Tiles that hold the same cells (what was broadcast to them) share a place in a stack. A stack is made again when a tile has
written to its cells; tiles know that by the mark that the stack set there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field

import numpy as np

from tx8fast._kernels._facade_shadow import Form, centred
from tx8fast.proof import forms
from tx8fast.proof.memory import cell_of
from tx8fast.proof.products import Inner
from tx8fast.proof.tile import Mark, Tile
from tx8fast.records import dataclass

#: bytes of stacks that are kept
KEPT_BYTES = 256 << 20
Key = tuple[tuple[int, int, int], int, tuple[tuple[int, int], ...]]


@dataclass
class Stack:
    """Operands (places, positions, channels), centred modulo p and (or None) modulo q; place: that of each tile's operand.

    special: some element has no residue, so that these are no operands. inner: of places [begin, end) and a modulus, what is known of
    their products."""

    p: np.ndarray
    q: np.ndarray | None
    place: tuple[int, ...]
    marks: tuple[Mark, ...]
    special: bool = False
    inner: defaultdict[tuple[int, int, int], Inner] = field(default_factory=lambda: defaultdict(Inner))

    @property
    def count(self) -> int:
        """How many different operands there are."""
        return len(self.p)

    @property
    def nbytes(self) -> int:
        return self.p.nbytes + (0 if self.q is None else self.q.nbytes)


class Stacks:
    """The stacks of a launch, those used last."""

    def __init__(self) -> None:
        self._held: dict[Key, Stack] = {}

    def of(self, tiles: Sequence[Tile], addresses: Sequence[int], form: Form) -> Stack:
        """Return the operands of one batch that the tiles hold at their addresses."""
        key = form.shape, form.kind, tuple((t.number, a) for t, a in zip(tiles, addresses, strict=True))
        found = self._held.pop(key, None)
        if found is None or not all(t.holds(m) for t, m in zip(tiles, found.marks, strict=True)):
            found = self._made(tiles, addresses, form, found)
        self._held[key] = found  # used last
        held = sum(s.nbytes for s in self._held.values())
        while held > KEPT_BYTES and len(self._held) > 1:
            held -= self._held.pop(next(iter(self._held))).nbytes
        return found

    def _made(self, tiles: Sequence[Tile], addresses: Sequence[int], form: Form, old: Stack | None) -> Stack:
        """Read the operands; the arrays of a stack that no longer holds are used again."""
        at = [cell_of(a - t.spm.base) for t, a in zip(tiles, addresses, strict=True)]
        place: list[int] = []
        first: list[int] = []  # the first tile of every place
        for i, tile in enumerate(tiles):
            same = (n for n, j in enumerate(first) if _equal(tile, at[i], tiles[j], at[j], form.cells))
            n = next(same, len(first))
            if n == len(first):
                first.append(i)
            place.append(n)
        shape = (len(first), *form.shape[1:])
        both = tiles[0].spm.with_q
        p, q = _array(old and old.p, shape), _array(old and old.q, shape) if both else None
        special, absent = False, 0
        for n, i in enumerate(first):
            field = tiles[i].field
            words_p, words_q = tiles[i].spm.planes(at[i], at[i] + form.cells)
            special |= bool(centred(words_p, at[i], form, field.p, out=p[n : n + 1])[1])
            if q is not None and words_q is not None:
                absent += centred(words_q, at[i], form, field.q, q=True, out=q[n : n + 1])[1]
        if absent:
            special, q = special or absent < p.size, None
        size = forms.CELL_BYTES * form.cells
        return Stack(p, q, tuple(place), tuple(t.mark(a, size) for t, a in zip(tiles, addresses)), special)


def _array(old: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array; fresh memory costs more than filling it."""
    return old if old is not None and old.shape == shape else np.empty(shape)


def _equal(one: Tile, at: int, other: Tile, there: int, cells: int) -> bool:
    """Say whether two tiles hold the same cells."""
    received = one.spm.expected(at, at + cells)
    if received is not None and received == other.spm.expected(there, there + cells):
        return True
    for a, b in zip(one.spm.planes(at, at + cells), other.spm.planes(there, there + cells)):
        if a is None or b is None:
            continue
        for part in (min(64, cells), cells):  # most that differ do so at once
            if not np.array_equal(a[at : at + part], b[there : there + part]):
                return False
    return True
