"""What a row sees: the scratchpad of its tile, the chip's DDR, and operands as elements or integers.

May import: numpy, proof.field, proof.memory, proof.forms. Must not: know any opcode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tx8fast._kernels._facade_shadow import Form, centred
from tx8fast.errors import SimulationError
from tx8fast.proof import forms, products
from tx8fast.proof.cells import Elements
from tx8fast.proof.compared import Comparisons
from tx8fast.proof.field import Field
from tx8fast.proof.forms import FLOATS
from tx8fast.proof.memory import Ddr, Memory, cell_of

#: bytes of operands of the matrix engine that a tile keeps; those used last stay
KEPT_BYTES = 24 << 20
#: arrays of one shape that wait to be used again, over all tiles
MAX_FREE = 8
Key = tuple[int, tuple[int, int, int], int]
#: bytes [begin, end) of a scratchpad that are what they were when they were marked, as long as the tile holds the mark
Mark = tuple[int, int]


class Tile:
    """State of one tile during a launch. `number` counts over all chips; `free`: arrays by shape that all tiles share."""

    def __init__(
        self, field: Field, number: int, spm: Memory, ddr: Ddr, free: dict[tuple[int, ...], list[np.ndarray]]
    ) -> None:
        self.field, self.number, self.spm, self.ddr = field, number, spm, ddr
        self.slots: list[int] = []
        self.send: Callable[..., None] = _no_launch
        self.routine: Callable[[int], None] = _no_launch
        #: operands of reciprocals, in order
        self.denominators: list[Elements] = []
        self.comparisons = Comparisons()
        #: operands of the matrix engine that may be read again: (address, shape, kind) -> (first byte, end, operand)
        self.kept: dict[Key, tuple[int, int, products.Operand]] = {}
        self.free = free
        self._marks: dict[Mark, Mark] = {}

    def mark(self, address: int, size: int) -> Mark:
        """Return a mark of scratchpad bytes."""
        made = address, address + size
        return self._marks.setdefault(made, made)

    def holds(self, mark: Mark) -> bool:
        """Say whether nothing was written where the mark was set."""
        return self._marks.get(mark) is mark

    def wrote(self, address: int, size: int) -> None:
        """Note that scratchpad bytes changed: operands kept from them are no longer what they were."""
        for key in [key for key, (lo, hi, _) in self.kept.items() if address < hi and lo < address + size]:
            self._drop(key)
        for mark in [m for m in self._marks if address < m[1] and m[0] < address + size]:
            del self._marks[mark]

    def forget(self) -> None:
        """Note that anything may have changed."""
        self._marks.clear()
        for key in list(self.kept):
            self._drop(key)

    def _drop(self, key: Key) -> int:
        """Forget a kept operand, its arrays may be used again; return its bytes."""
        operand = self.kept.pop(key)[2]
        for array in (operand.p, operand.q):
            if array is not None and not operand.special:
                free = self.free.setdefault(array.shape, [])
                if len(free) < MAX_FREE:
                    free.append(array)
        return operand.nbytes

    def _array(self, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return an array of a shape that is no longer used: fresh memory costs more than filling it."""
        free = self.free.get(shape)
        return free.pop() if free else None

    # --- dense runs ----------------------------------------------------------------------------------------------

    def load(self, address: int, n: int, fmt: str) -> Elements:
        """Return `n` elements of a float format, of shape (n,)."""
        return self.spm.elements(address, forms.dense(n, fmt)).reshape(n)

    def store(self, address: int, value: Elements, fmt: str) -> None:
        form = forms.dense(value.p.size, fmt)
        self.spm.put(address, form, value)
        self.wrote(address, 2 * form.cells)

    def load_ints(self, address: int, n: int, fmt: str) -> tuple[np.ndarray, np.ndarray]:
        """Return `n` integers and which are known."""
        return self.spm.numbers(address + np.arange(n) * forms.bytes_of(fmt), fmt)

    def store_ints(self, address: int, values: np.ndarray, known: np.ndarray, fmt: str) -> None:
        self.spm.put_numbers(
            address + np.arange(values.size) * forms.bytes_of(fmt), values.reshape(-1), fmt, known.reshape(-1)
        )
        self.forget()

    # --- channel-blocked operands ----------------------------------------------------------------------------------

    def load_blocked(self, address: int, n: int, pos: int, c: int, fmt: str) -> Elements:
        """Return a channel-blocked operand (n, pos, c)."""
        return self.spm.elements(address, forms.blocked(n, pos, c, fmt))

    def store_blocked(self, address: int, value: Elements, fmt: str) -> None:
        """Store (n, pos, c) elements; padding channels become zero."""
        n, pos, c = value.shape
        form = forms.blocked(n, pos, c, fmt)
        self.spm.put(address, form, value)
        self.wrote(address, 2 * form.cells)

    def operand(self, address: int, form: Form) -> products.Operand:
        """Return an operand of the matrix engine, its residues centred. The last ones are kept for rows that read them again."""
        key = address, form.shape, form.kind
        found = self.kept.pop(key, None)
        if found is not None:
            self.kept[key] = found  # used last
            return found[2]
        made = self._operand(address, form)
        held = made.nbytes + sum(kept.nbytes for _, _, kept in self.kept.values())
        while self.kept and held > KEPT_BYTES:
            held -= self._drop(next(iter(self.kept)))
        self.kept[key] = address, address + forms.CELL_BYTES * form.cells, made
        return made

    def _operand(self, address: int, form: Form) -> products.Operand:
        field, spm, at = self.field, self.spm, cell_of(address - self.spm.base)
        words_p, words_q = spm.planes(at, at + form.cells)
        p, bad = centred(words_p, at, form, field.p, out=self._array(form.shape))
        if words_q is None:
            if not bad:
                return products.Operand(p)
            return products.operand(spm.elements(address, form), field.p, field.q)
        q, absent = centred(words_q, at, form, field.q, q=True, out=self._array(form.shape))
        if bad or 0 < absent < form.size:
            return products.operand(spm.elements(address, form), field.p, field.q)
        return products.Operand(p, None if absent else q)


def _no_launch(*_: Any) -> None:
    raise SimulationError("running a row: no launch is running")


def is_float(fmt: str) -> bool:
    return fmt in FLOATS
