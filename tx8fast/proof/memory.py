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
from typing import NamedTuple

import numpy as np

from tx8fast._kernels import _facade_shadow as k
from tx8fast._kernels._facade_shadow import Form, Stream
from tx8fast.errors import SimulationError
from tx8fast.proof.cells import ABSENT, Elements
from tx8fast.proof.forms import BYTES, CELL_BYTES, INTS, bytes_of

ONE = (0, 1, 0, 1, 0, 1)
#: a cell of two known bytes, both zero
ZERO = BYTES << 24


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


class Message(NamedTuple):
    """Cells on their way: words modulo p and (or None) q."""

    p: np.ndarray
    q: np.ndarray | None


class Memory:
    """A range of cells; `base` is the byte address of the first. `misread` counts elements read in another format than written."""

    def __init__(self, size_bytes: int, base: int = 0) -> None:
        self.base = base
        self.size = -(-size_bytes // CELL_BYTES)
        self._p = np.zeros(self.size, np.uint32)
        self._q = np.zeros(self.size, np.uint32)
        self.with_q = True
        self.misread = 0
        self._pending: list[tuple[int, int, Message]] = []

    @property
    def p(self) -> np.ndarray:
        """All words modulo p."""
        return self.planes(0, self.size)[0]

    @property
    def q(self) -> np.ndarray | None:
        return self.planes(0, self.size)[1]

    @property
    def plane_q(self) -> np.ndarray:
        """The words modulo q, or absent ones where none are kept."""
        return self._q

    def planes(self, begin: int, end: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the words modulo p and (or None) q; of these, cells [begin, end) may be read and written."""
        if self._pending:
            self._settle(begin, end)
        return self._p, self._q if self.with_q else None

    def message(self, begin: int, end: int) -> Message:
        """Return a copy of cells [begin, end). Raises SimulationError outside of this memory."""
        if not 0 <= begin <= end <= self.size:
            raise SimulationError(f"sending cells [{begin}, {end}): they are outside of the {self.size} of this memory")
        p, q = self.planes(begin, end)
        return Message(p[begin:end].copy(), None if q is None else q[begin:end].copy())

    def expect(self, at: int, message: Message) -> None:
        """Receive a message at a cell. It is written when something looks there: what only a product of several tiles reads
        never is, but in one of them."""
        end = at + len(message.p)
        if not 0 <= at <= end <= self.size:
            raise SimulationError(f"receiving cells [{at}, {end}): they are outside of the {self.size} of this memory")
        self._pending = [x for x in self._pending if not (at <= x[0] and x[1] <= end)]
        if self._pending:
            self._settle(at, end)
        self._pending.append((at, end, message))

    def expected(self, begin: int, end: int) -> tuple | None:
        """Return the messages that make up cells [begin, end), with their places, or None if they do not."""
        found = sorted((a - begin, b - begin, id(m)) for a, b, m in self._pending if a < end and begin < b)
        at = 0
        for a, b, _ in found:
            if a > at:
                return None
            at = b
        return tuple(found) if found and at >= end - begin else None

    def _settle(self, begin: int, end: int) -> None:
        """Write what was received in cells [begin, end)."""
        left = []
        for a, b, message in self._pending:
            if a >= end or begin >= b:
                left.append((a, b, message))
                continue
            self._p[a:b] = message.p
            if self.with_q and message.q is not None:
                self._q[a:b] = message.q
        self._pending = left

    def clear(self, with_q: bool) -> None:
        """Forget everything, and keep words modulo q from now on or not; without, the plane that others copy from is absent."""
        self._p, self.with_q, self._pending = _fresh(self.size), with_q, []
        self._q = _fresh(self.size) if with_q else _absent(self.size)

    def elements(self, address: int, operand: Form, sides: str = "pq") -> Elements:
        """Return an operand's elements, of the shape of its form; `sides` "p" without their q sides."""
        at = cell_of(address - self.base)
        words_p, words_q = self.planes(at, at + operand.cells)
        p, bad = k.load(words_p, at, operand)
        self.misread += bad
        q = None if words_q is None or sides == "p" else k.load(words_q, at, operand, q=True)[0].reshape(operand.shape)
        return Elements(p.reshape(operand.shape), q)

    def put(self, address: int, operand: Form, value: Elements) -> None:
        """Store elements of the operand's shape or size."""
        at = cell_of(address - self.base)
        words_p, words_q = self.planes(at, at + operand.cells)
        k.store(words_p, at, operand, value.p)
        if words_q is not None:
            q = np.full(operand.size, ABSENT, np.uint32) if value.q is None else value.q
            k.store(words_q, at, operand, q, q=True)

    # --- concrete bytes ------------------------------------------------------------------------------------------

    def bytes_at(self, where: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the bytes at byte addresses (any shape) and which of them are known."""
        at = where - self.base
        if at.size and not 0 <= int(at.min()) <= int(at.max()) < self.size * CELL_BYTES:
            raise SimulationError(
                f"reading bytes [{where.min():#x}, {where.max() + 1:#x}): they are outside of this memory"
            )
        cells, high = self.p[at >> 1], (at & 1).astype(np.uint32)
        known = ((cells >> np.uint32(24)) == BYTES) & ((cells >> (high + np.uint32(16))) & np.uint32(1) == 0)
        return (cells >> (high * np.uint32(8))).astype(np.uint8), known

    def put_bytes(self, where: np.ndarray, values: np.ndarray, known: np.ndarray | None = None) -> None:
        """Store bytes at distinct byte addresses; the other byte of a cell stays if it was one."""
        at = (where - self.base).reshape(-1)
        if at.size and not 0 <= int(at.min()) <= int(at.max()) < self.size * CELL_BYTES:
            raise SimulationError(
                f"writing bytes [{where.min():#x}, {where.max() + 1:#x}): they are outside of this memory"
            )
        values = values.reshape(-1).astype(np.uint32)
        good = np.ones(at.size, bool) if known is None else known.reshape(-1)
        words = self.p
        for half in (0, 1):
            mine = (at & 1) == half
            cell = at[mine] >> 1
            old = words[cell]
            old = np.where(old >> np.uint32(24) == BYTES, old, np.uint32(BYTES << 24 | 3 << 16))
            keep = np.uint32(0xFFFFFFFF & ~(0xFF << 8 * half | 1 << 16 + half))
            new = values[mine] << np.uint32(8 * half) | np.where(good[mine], 0, 1 << 16 + half).astype(np.uint32)
            words[cell] = old & keep | new
            if self.with_q:  # two bytes of zero are the number zero, on both sides
                self._q[cell] = np.where(words[cell] == ZERO, np.uint32(0), np.uint32(ABSENT))

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
    size >>= 1
    where = (to - dst.base) >> 1, (at - src.base) >> 1
    into, come = (m.planes(w, w + k.span(size, levels)) for m, w, levels in ((dst, where[0], d), (src, where[1], s)))
    k.move(into[0], where[0], d, come[0], where[1], s, size)
    if into[1] is not None:
        k.move(into[1], where[0], d, src.plane_q, where[1], s, size)


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
        # what has no bytes would share its address with what lies behind it
        for address, size, stream in sorted((s for s in streams if s[1]), key=lambda s: s[0]):
            if address > at:
                self._add(at, Memory(address - at, at))
            self._add(address, (address, size, stream))
            at = max(at, address + size)
        if base + size_bytes > at:
            self._add(at, Memory(base + size_bytes - at, at))

        self.streams = {at: part for at, part in zip(self.starts, self.parts, strict=True) if isinstance(part, tuple)}

    def clear(self) -> None:
        """Forget everything that was stored; random tensors that were stored over are random again."""
        for i, (at, part) in enumerate(zip(self.starts, self.parts, strict=True)):
            if at in self.streams:
                self.parts[i] = self.streams[at]
            elif isinstance(part, Memory):
                part.clear(True)

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
        cell = cell_of(to - dst.base)
        p, q = dst.planes(cell, cell + (n0 * n1 * n2 * size >> 1))
        k.draw(
            p,
            q,
            cell,
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
