"""Shadow memory: what scratchpads and DDR hold, as cells, concrete bytes and tensors drawn when they are read.

May import: numpy, the kernels, proof.cells, proof.forms. Must not: know rows or launches. Addresses are bytes.

A cell stands for two bytes. Words modulo q are kept only where a launch needs them (`q` None otherwise). A cell of kind
BYTES has its two true bytes in the low 16 bits; bits 16 and 17 say that the low or the high one is not known.
"""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from tx8fast._kernels import _facade_shadow as k
from tx8fast._kernels._facade_shadow import Form, Stream
from tx8fast.errors import SimulationError
from tx8fast.proof.cells import ABSENT, Elements
from tx8fast.proof.forms import BYTES, CELL_BYTES, INTS, bytes_of

ONE = (0, 1, 0, 1, 0, 1)


def cell_of(address: int) -> int:
    """Return the cell at a byte address. Raises SimulationError between cells: an element would be torn."""
    if address % CELL_BYTES:
        raise SimulationError(f"an element at the odd address {address:#x} is torn")
    return address // CELL_BYTES


def _fresh(cells: int) -> np.ndarray:
    """Return zeros that the system makes when they are touched: a launch touches little of most scratchpads."""
    return np.frombuffer(mmap.mmap(-1, max(4 * cells, 4)), np.uint32, cells)


@lru_cache(maxsize=4)
def _absent(cells: int) -> np.ndarray:
    """Return a plane without words modulo q, which all scratchpads share: nothing else is ever written to it."""
    return np.full(cells, ABSENT, np.uint32)


class Memory:
    """A range of cells; `base` is the byte address of the first. `misread` counts elements read in another format than written."""

    def __init__(self, size_bytes: int, base: int = 0) -> None:
        self.base = base
        cells = -(-size_bytes // CELL_BYTES)
        self.p = np.zeros(cells, np.uint32)
        self._q = np.zeros(cells, np.uint32)
        self.with_q = True
        self.misread = 0

    @property
    def q(self) -> np.ndarray | None:
        return self._q if self.with_q else None

    def clear(self, with_q: bool) -> None:
        """Forget everything, and keep words modulo q from now on or not; without, the plane that others copy from is absent."""
        self.p, self.with_q = _fresh(len(self.p)), with_q
        self._q = _fresh(len(self.p)) if with_q else _absent(len(self.p))

    def elements(self, address: int, operand: Form) -> Elements:
        """Return an operand's elements, of the shape of its form."""
        at = cell_of(address - self.base)
        p, bad = k.load(self.p, at, operand)
        self.misread += bad
        q = k.load(self._q, at, operand, q=True)[0].reshape(operand.shape) if self.with_q else None
        return Elements(p.reshape(operand.shape), q)

    def put(self, address: int, operand: Form, value: Elements) -> None:
        """Store elements of the operand's shape or size."""
        at = cell_of(address - self.base)
        k.store(self.p, at, operand, value.p)
        if self.with_q:
            q = np.full(operand.size, ABSENT, np.uint32) if value.q is None else value.q
            k.store(self._q, at, operand, q, q=True)

    # --- concrete bytes ------------------------------------------------------------------------------------------

    def bytes_at(self, where: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the bytes at byte addresses (any shape) and which of them are known."""
        at = where - self.base
        if at.size and not 0 <= int(at.min()) <= int(at.max()) < len(self.p) * CELL_BYTES:
            raise SimulationError(
                f"reading bytes [{where.min():#x}, {where.max() + 1:#x}): they are outside of this memory"
            )
        cells, high = self.p[at >> 1], (at & 1).astype(np.uint32)
        known = ((cells >> np.uint32(24)) == BYTES) & ((cells >> (high + np.uint32(16))) & np.uint32(1) == 0)
        return (cells >> (high * np.uint32(8))).astype(np.uint8), known

    def put_bytes(self, where: np.ndarray, values: np.ndarray, known: np.ndarray | None = None) -> None:
        """Store bytes at distinct byte addresses; the other byte of a cell stays if it was one."""
        at = (where - self.base).reshape(-1)
        if at.size and not 0 <= int(at.min()) <= int(at.max()) < len(self.p) * CELL_BYTES:
            raise SimulationError(
                f"writing bytes [{where.min():#x}, {where.max() + 1:#x}): they are outside of this memory"
            )
        values = values.reshape(-1).astype(np.uint32)
        good = np.ones(at.size, bool) if known is None else known.reshape(-1)
        for half in (0, 1):
            mine = (at & 1) == half
            cell = at[mine] >> 1
            old = self.p[cell]
            old = np.where(old >> np.uint32(24) == BYTES, old, np.uint32(BYTES << 24 | 3 << 16))
            keep = np.uint32(0xFFFFFFFF & ~(0xFF << 8 * half | 1 << 16 + half))
            new = values[mine] << np.uint32(8 * half) | np.where(good[mine], 0, 1 << 16 + half).astype(np.uint32)
            self.p[cell] = old & keep | new
            self._q[cell] = ABSENT

    def numbers(self, where: np.ndarray, fmt: str) -> tuple[np.ndarray, np.ndarray]:
        """Return integers of a format at byte addresses (any shape) and which of them are known."""
        size = bytes_of(fmt)
        data, known = self.bytes_at(where[..., None] + np.arange(size))
        return np.ascontiguousarray(data).view(INTS[fmt])[..., 0], np.asarray(known.all(-1))

    def put_numbers(self, where: np.ndarray, values: np.ndarray, fmt: str, known: np.ndarray | None = None) -> None:
        """Store integers of a format."""
        size = bytes_of(fmt)
        data = np.ascontiguousarray(values.astype(INTS[fmt])).reshape(*values.shape, 1).view(np.uint8)
        good = None if known is None else np.repeat(known[..., None], size, axis=-1)
        self.put_bytes(where[..., None] + np.arange(size), data, good)


def run_addresses(start: int, levels: Sequence[int], size: int) -> np.ndarray:
    """Return the byte addresses (runs, size) of strided runs, in order."""
    s0, n0, s1, n1, s2, n2 = levels
    runs = start + (np.arange(n2) * s2)[:, None, None] + (np.arange(n1) * s1)[:, None] + np.arange(n0) * s0
    return runs.reshape(-1, 1) + np.arange(size)


def copy(
    dst: Memory, to: int, dst_levels: Sequence[int], src: Memory, at: int, src_levels: Sequence[int], size: int
) -> None:
    """Copy strided runs of `size` bytes; levels are (stride, count) three times, innermost first.

    Raises SimulationError if the two sides have not equally many runs.
    """
    counts = [levels[1] * levels[3] * levels[5] for levels in (dst_levels, src_levels)]
    if counts[0] != counts[1]:
        raise SimulationError(f"moving runs: found {counts[1]} to read and {counts[0]} to write, required equally many")
    odd = size | to - dst.base | at - src.base | _strides(dst_levels) | _strides(src_levels)
    if odd & 1:
        values, known = src.bytes_at(run_addresses(at, src_levels, size))
        dst.put_bytes(run_addresses(to, dst_levels, size), values, known)
        return
    d, s = _halved(dst_levels), _halved(src_levels)
    where = (to - dst.base) >> 1, (at - src.base) >> 1
    k.move(dst.p, where[0], d, src.p, where[1], s, size >> 1)
    if dst.with_q:
        k.move(dst._q, where[0], d, src._q, where[1], s, size >> 1)


def _strides(levels: Sequence[int]) -> int:
    out = 0
    for step, count in zip(levels[::2], levels[1::2]):
        out |= step if count > 1 else 0
    return out


def _halved(levels: Sequence[int]) -> tuple[int, ...]:
    return tuple([x if i % 2 else x >> 1 if levels[i + 1] > 1 else 0 for i, x in enumerate(levels)])


class Ddr:
    """One chip's DDR: stored ranges, and random tensors (weights) that are drawn where they are read.

    `streams`: (byte address, bytes reserved, stream). Memory between them is stored, and taken from the host as it is touched.
    """

    def __init__(self, base: int, size_bytes: int, streams: Sequence[tuple[int, int, Stream]], p: int, q: int) -> None:
        self.prime_p, self.prime_q = p, q
        self.starts: list[int] = []
        self.parts: list[Memory | tuple[int, int, Stream]] = []
        at = base
        for address, size, stream in sorted(streams, key=lambda s: s[0]):
            if address > at:
                self._add(at, Memory(address - at, at))
            self._add(address, (address, size, stream))
            at = max(at, address + size)
        if base + size_bytes > at:
            self._add(at, Memory(base + size_bytes - at, at))

    def _add(self, at: int, part) -> None:
        self.starts.append(at)
        self.parts.append(part)

    def part(self, address: int) -> Memory | tuple[int, int, Stream]:
        """Return what lies at a byte address. Raises SimulationError outside of the DDR."""
        at = bisect_right(self.starts, address) - 1
        if at < 0:
            raise SimulationError(f"DDR address {address:#x} lies before the memory")
        return self.parts[at]

    def memory(self, address: int) -> Memory:
        """Return the stored range of a byte address. Raises SimulationError for a random tensor."""
        found = self.part(address)
        if not isinstance(found, Memory):
            raise SimulationError(
                f"DDR address {address:#x} lies in a parameter that is drawn at random; it cannot be written or read as bytes"
            )
        return found

    def stored(self, address: int) -> Memory:
        """Return the stored range of a byte address; a random tensor that starts there is stored from now on."""
        found = self.part(address)
        if isinstance(found, Memory) or address != found[0]:
            return self.memory(address)
        made = self.parts[self.starts.index(address)] = Memory(found[1], address)
        return made

    def load(self, address: int, levels: Sequence[int], size: int, dst: Memory, to: int) -> None:
        """Copy strided runs to consecutive bytes of another memory."""
        found = self.part(address)
        n0, n1, n2 = levels[1::2]
        if isinstance(found, Memory):
            copy(dst, to, (size, n0, size * n0, n1, size * n0 * n1, n2), found, address, levels, size)
            return
        start, reserved, stream = found
        offset = address - start
        if offset + k.span(size, levels) > reserved or offset + k.span(size, levels) > stream.form.numbers[
            0
        ] * _batch_bytes(stream):
            raise SimulationError(
                f"reading DDR [{address:#x}, +{k.span(size, levels)}): it leaves the parameter at {start:#x} of {reserved} bytes"
            )
        if (offset | size | _strides(levels)) & 1:
            raise SimulationError(f"reading DDR {address:#x}: an element is torn")
        k.draw(
            dst.p,
            dst.q,
            cell_of(to - dst.base),
            stream,
            offset >> 1,
            _halved(levels),
            size >> 1,
            self.prime_p,
            self.prime_q,
        )


def _batch_bytes(stream: Stream) -> int:
    form = stream.form
    return max(int(form.numbers[6]), form.cells) * CELL_BYTES
