"""Which bytes hold values that the program made: a shadow byte per SPM and DDR byte, moved as the data move.

May import: numpy, isa, numerics, program.model, simulator.sanitizer_bytes. Must not: know order or clocks.

A byte is undefined until something defined is written to it. Undefined bytes may be moved and may go through rows
that work lane by lane; the result's lanes are undefined again. They may not meet a logical lane of a row that mixes
lanes or decides by them (matrix products, reductions, pools, searches, table look-ups), an operand of a routine, or a
program output; and no row may have an operand without a single defined byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.host.core import CoreTile
from tx8fast.isa import blocked
from tx8fast.isa.base import BY_OPCODE, FORMAT_BYTES
from tx8fast.isa.convert import Convert
from tx8fast.isa.ne import Conv, Gemm
from tx8fast.isa.peripheral import Peripheral
from tx8fast.isa.tensor import Pool, Reduce, Unpool
from tx8fast.isa.vector import BinaryVV, MaskMove, ScalarVS, UnaryV, UnitLoop, UnitVuV
from tx8fast.numerics.formats import CODE_TO_DTYPE
from tx8fast.numerics.layout import element_offset
from tx8fast.simulator.sanitizer_bytes import Range, spm_view
from tx8fast.simulator.sanitizer_formats import MOVES, Formats
from tx8fast.simulator.sanitizer_operands import operands

UNDEFINED = 0xFF
#: unsigned format code by bytes per element: their values are shadows, not numbers
PLAIN = {1: 8, 2: 9, 4: 10, 8: 12}
#: called with a range of SPM bytes and what the row does with them
Complain = Callable[[Range, str], None]


class Shadow:
    """The shadow of one scratchpad: 0 defined, UNDEFINED otherwise."""

    def __init__(self, n_bytes: int) -> None:
        self.spm = np.full(n_bytes, UNDEFINED, np.uint8)
        self.core = CoreTile(self.spm, np.zeros(0, np.uint8), 0)
        self.formats = Formats(n_bytes)

    def forget(self) -> None:
        self.spm[...] = UNDEFINED
        self.formats.kind[...] = 0

    def lanes(self, addr: int, n: int, size: int) -> np.ndarray:
        """Return per element whether it has an undefined byte."""
        return self.spm[addr : addr + n * size].view(f"u{size}") != 0

    def put(self, addr: int, undefined: Any, size: int) -> None:
        self.spm[addr : addr + undefined.size * size].reshape(-1, size)[...] = np.where(
            undefined.reshape(-1, 1), UNDEFINED, 0
        )

    def row(
        self, row: np.void, reads: Sequence[Range], writes: Sequence[Range], spm_values: np.ndarray, complain: Complain
    ) -> None:
        """Do to the shadow what an engine row (no transfer of DDR) does to the data."""
        cls, fmt = BY_OPCODE[int(row["opcode"])], int(row["fmt"])
        spm, p = row["spm"].tolist(), row["p"].tolist()
        assert cls is not None
        if cls.NAME == "memset":
            spm_view(self.spm, cls.OPCODE, fmt, spm, p, True)[...] = 0  # type: ignore[index]
            return
        if cls.NAME in MOVES:
            self._move(cls, row, reads, complain)
            return
        mixing = issubclass(cls, (Gemm, Conv, Reduce, Pool, Unpool))
        if mixing:
            self._consume(cls, int(row["opcode"]), fmt, spm, p, complain)
            self._blocked_result(cls, int(row["opcode"]), fmt, spm, p, writes)
            return
        masked = issubclass(cls, MaskMove)
        inputs = reads[:2] if masked else reads
        clean = not any(self.spm[a:b].any() for a, b in inputs)
        if clean and not masked:
            for a, b in writes:
                self.spm[a:b] = 0
            return
        for a, b in inputs:
            if self.spm[a:b].all():
                complain((a, b), "reads")
        if masked:
            self._mask_move(fmt, spm, p, spm_values)
        elif issubclass(cls, Convert):
            (a, b), (c, d) = reads[0], writes[0]
            n = p[0]
            self.put(c, self.lanes(a, n, (b - a) // n), (d - c) // n)
        elif issubclass(cls, (UnaryV, BinaryVV, ScalarVS, UnitVuV, UnitLoop)):
            self._vector(cls, fmt, spm, p, writes)
        elif issubclass(cls, Peripheral) and cls.NAME in ("bit2fp", "factorize"):
            for a, b in writes:
                self.spm[a:b] = UNDEFINED
        else:
            for a, b in inputs:
                if self.spm[a:b].any():
                    complain(self._first(a, b), "decides by")
            for a, b in writes:
                self.spm[a:b] = 0

    def _first(self, a: int, b: int) -> Range:
        """Return the first stretch of undefined bytes in [a, b)."""
        bad = self.spm[a:b] != 0
        lo = int(np.argmax(bad))
        rest = bad[lo:]
        return a + lo, a + lo + (int(np.argmin(rest)) if not rest.all() else len(rest))

    def _move(self, cls: Any, row: np.void, reads: Sequence[Range], complain: Complain) -> None:
        """A move does to shadows what it does to bytes."""
        spm, p, fmt = row["spm"].tolist(), row["p"].tolist(), int(row["fmt"])
        source = spm_view(self.spm, cls.OPCODE, fmt, spm, p, False)
        for part in [source] if source is not None else [self.spm[a:b] for a, b in reads]:
            if part.size and part.all():
                complain(reads[0], "moves")
        self.core.load(np.asarray(row).reshape(1), np.zeros(1, np.int64), ())
        self.core.run(0, 1)

    def _mask_move(self, fmt: int, spm: Sequence[int], p: Sequence[int], values: np.ndarray) -> None:
        n, e = p[0], int(FORMAT_BYTES[fmt])
        raw = values[spm[1] : spm[1] + n * e].view(f"u{e}")
        chosen = (
            (raw << 1) != 0 if CODE_TO_DTYPE[fmt] in ("bf16", "f16", "f32", "tf32") else raw != 0
        )  # -0.0 chooses nothing
        mask = self.lanes(spm[1], n, e)
        out = np.logical_or(np.where(chosen, self.lanes(spm[0], n, e), self.lanes(spm[2], n, e)), mask)
        self.put(spm[2], out, e)

    def _vector(self, cls: Any, fmt: int, spm: Sequence[int], p: Sequence[int], writes: Sequence[Range]) -> None:
        e, name = int(FORMAT_BYTES[fmt]), cls.NAME
        n = p[2] if issubclass(cls, UnitLoop) else p[0]
        if name.startswith("bool_") and name[5:8] in ("not", "and", "or_", "xor"):
            self._bits(cls, spm, p, writes)
            return
        x = self.lanes(spm[0], n, e)
        if issubclass(cls, BinaryVV):
            x = x | self.lanes(spm[1], n, e)
        elif issubclass(cls, UnitVuV):
            x = isa.vector.apply_unit(np.logical_or, x, self.lanes(spm[1], p[1], e), p[1])
        elif issubclass(cls, UnitLoop):
            x = isa.vector.apply_loop(np.logical_or, x, self.lanes(spm[1], p[3], e), p[0], p[1])
        (a, b), *_ = writes
        if name.startswith("bool_"):
            room = np.zeros((b - a) * 8, bool)
            room[: len(x)] = x
            self.put(a, room.reshape(-1, 8).any(axis=1), 1)
        else:
            self.put(a, x, e)

    def _bits(self, cls: Any, spm: Sequence[int], p: Sequence[int], writes: Sequence[Range]) -> None:
        """Packed bits are followed by whole bytes."""
        (a, b), *_ = writes
        out = self.spm[spm[0] : spm[0] + b - a] != 0
        if issubclass(cls, BinaryVV):
            out = out | (self.spm[spm[1] : spm[1] + b - a] != 0)
        elif issubclass(cls, (UnitVuV, UnitLoop)):
            unit = p[1] if issubclass(cls, UnitVuV) else p[3]
            out = out | bool(self.spm[spm[1] : spm[1] + -(-unit // 8)].any())
        self.put(a, out, 1)

    # -- channel-blocked operands ---------------------------------------------------------------------------------

    def _consume(
        self, cls: Any, opcode: int, fmt: int, spm: Sequence[int], p: Sequence[int], complain: Complain
    ) -> None:
        for addr, n, pos, c, f in operands(cls, opcode, fmt, spm, p):
            size = int(FORMAT_BYTES[f])
            span = int(blocked.span_bytes(n, pos, c, f))
            if not self.spm[addr : addr + span].any():
                continue
            bad = blocked.load(self.spm, addr, n, pos, c, PLAIN[size], np.bool_)
            if bad.any():
                at = np.unravel_index(int(np.argmax(bad)), bad.shape)
                lo = addr + int(element_offset(int(at[0]), int(at[1]), int(at[2]), pos, c, CODE_TO_DTYPE[f]))
                what = f"computes with element {tuple(map(int, at))} of {n} x {pos} x {c} {CODE_TO_DTYPE[f]} at"
                complain((lo, lo + size), what)

    def _blocked_result(
        self, cls: Any, opcode: int, fmt: int, spm: Sequence[int], p: Sequence[int], writes: Sequence[Range]
    ) -> None:
        """The engine writes all lanes of a result, zeros behind the last channel, but nothing between batches."""
        if issubclass(cls, (Gemm, Conv)):
            n, pos, c, f = (
                (max(p[3], p[4]), p[0], p[2], p[7]) if issubclass(cls, Gemm) else (p[0], p[4] * p[5], p[6], p[17])
            )
            zero = np.zeros((n, pos, c), f"u{int(FORMAT_BYTES[f])}")
            blocked.store(self.spm, spm[2], zero, PLAIN[int(FORMAT_BYTES[f])])
            return
        for a, b in writes:
            self.spm[a:b] = 0
