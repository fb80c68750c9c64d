"""Rows of a code: distinct ones with what they cost, and blocks of them that code is put together from.

May import: lower.transfer, isa, machine. Must not: know what rows are for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from tx8fast import isa
from tx8fast._kernels._facade_events import KIND_WAIT, KIND_WAIT_WORKER
from tx8fast.lower.transfer import PIECES
from tx8fast.machine import Machine
from tx8fast.records import cached_property, dataclass

WINDOWS = 3  # of registers
DDR = 1 << 40  # bytes of DDR stand behind all addresses of the scratchpad
#: what the event kernel calls rows that wait; sends are over when the tiles that wait for them are released
SYNC_KINDS = {"wait": KIND_WAIT, "wait_worker": KIND_WAIT_WORKER, "send_wait": KIND_WAIT_WORKER}


class Columns:
    """What distinct rows take and touch. kind (n,) uint8: what the event kernel calls them; issue, fixed (n,) cycles;
    ddr_bytes (n,), moved at the rate that DDR and port leave; read (n, 4, 2), write (n, 2, 2): byte ranges in scratchpad; windows
    (n,): those that a row waits for, as a mask."""

    def __init__(self, machine: Machine, rows: np.ndarray) -> None:
        families = list(isa.by_family(rows))
        fixed, charged = isa.durations(machine, rows, np.maximum(rows["ddr"], 0), families)
        self.kind = isa.units(rows).astype(np.uint8)
        for name, number in SYNC_KINDS.items():
            self.kind[rows["opcode"] == isa.INSTRUCTIONS[name].OPCODE] = number
        self.issue = np.asarray(isa.issue_cycles(machine, rows, families), np.int64)
        self.fixed, self.ddr_bytes = np.asarray(fixed, np.int64), np.asarray(charged, np.int64)
        self.read, self.write = isa.spm_ranges(rows, families)
        self.windows = np.where(rows["opcode"] == isa.INSTRUCTIONS["wait_worker"].OPCODE, rows["p"][:, 0], 0)

    def followed_by(self, more: Columns) -> Columns:
        """Return the columns of these rows and of others behind them."""
        out = object.__new__(Columns)
        out.__dict__ = {name: np.concatenate([mine, getattr(more, name)]) for name, mine in self.__dict__.items()}
        return out

    def of(self, at: np.ndarray) -> Columns:
        """Return the columns of rows by number."""
        out = object.__new__(Columns)
        out.__dict__ = {name: mine[at] for name, mine in self.__dict__.items()}
        return out

    def took(self, rate: float) -> np.ndarray:
        """Return the cycles of every row when transfers move at a rate in bytes per cycle."""
        return self.fixed + np.ceil(self.ddr_bytes / rate).astype(np.int64)


@lru_cache(maxsize=4)
def no_rows(machine: Machine) -> Columns:
    """Return the columns of no rows."""
    return Columns(machine, isa.rows([]))


@dataclass(frozen=True)
class Code:
    """Rows of a tile in the order of its nest: row i is plain[at[i]], `ddr[i]` bytes further in DDR."""

    plain: np.ndarray
    at: np.ndarray
    ddr: np.ndarray
    columns: Columns  # of `plain`

    @cached_property
    def forms(self) -> np.ndarray:
        """Of every distinct row a number that it shares with those that differ in their DDR offset alone."""
        return isa.row_forms(self.plain)

    def rows(self, order: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return the rows in such an order."""
        # as bytes: faster than by fields
        out = self.plain.view(np.uint8).reshape(-1, isa.RECORD.itemsize)[self.at[order]].reshape(-1).view(isa.RECORD)
        out["ddr"] += self.ddr[order]
        return out

    def followed_by(self, rows: np.ndarray, columns: Columns) -> Code:
        """Return the code with other rows behind it."""
        at = np.arange(len(self.plain), len(self.plain) + len(rows))
        return Code(
            np.concatenate([self.plain, rows]),
            np.concatenate([self.at, at]),
            np.append(self.ddr, np.zeros(len(rows), np.int64)),
            self.columns.followed_by(columns),
        )


@dataclass(frozen=True)
class OrderedCode:
    """Rows of a code in an order, each in its register window; rows behind them are `ends`, which no other row is like."""

    code: Code
    at: np.ndarray
    worker: np.ndarray
    ends: np.ndarray

    @property
    def number(self) -> np.ndarray:
        """Which of the code's distinct rows each row is, without the ends."""
        return self.code.at[self.at]

    def rolled(self, lo: int, hi: int) -> np.ndarray:
        """Return rows [lo, hi), the ends counted, with repeats folded into loops."""
        n = len(self.at)
        own, ends = slice(lo, min(hi, n)), slice(max(0, lo - n), max(0, hi - n))
        number = self.number[own]
        forms = (self.code.forms[number] * WINDOWS + self.worker[own]).astype(np.int32)
        ddr = self.code.plain["ddr"][number] + self.code.ddr[self.at[own]]
        forms = np.append(forms, -1 - np.arange(ends.start, ends.stop, dtype=np.int32))
        ddr = np.append(ddr, self.ends["ddr"][ends])
        return isa.rolled(lambda a, b: self._rows(lo + a, lo + b), ddr, forms)

    def _rows(self, lo: int, hi: int) -> np.ndarray:
        n = len(self.at)
        rows = self.code.rows(self.at[lo : min(hi, n)])
        rows["worker"] = self.worker[lo : min(hi, n)]
        return rows if hi <= n else np.concatenate([rows, self.ends[max(0, lo - n) : hi - n]])


def aliased_ranges(code: Code, begin: np.ndarray, read: np.ndarray, write: np.ndarray) -> None:
    """Put the DDR bytes of a code's loads and stores behind those of the scratchpad in read (n, 4, 2) and write (n, 2, 2). begin
    (slots,): where the bytes of a DDR slot begin, -1: bytes that nobody else has."""
    rows = code.rows()
    base = np.where(rows["slot"] >= 0, begin[rows["slot"]], -1)
    ddr = isa.ranges(rows, base + rows["ddr"])
    # loads read no scratchpad and stores write none: their last range is free
    for own, key in ((read, "ddr_read"), (write, "ddr_write")):
        there = (base >= 0) & (ddr[key] != 0).any(axis=1)
        own[:, -1] = np.where(there[:, None], DDR + ddr[key], own[:, -1])


class Blocks:
    """Numbered blocks of rows, each made once; number 0 is empty."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.rows = [isa.rows([])]
        self.columns = no_rows(machine)
        self.number: dict[tuple, int] = {}

    def of(self, key: tuple, make: Callable[[], np.ndarray]) -> int:
        """Return the number of the block with this key."""
        found = self.number.get(key)
        if found is None:
            made = make()
            found = self.number[key] = len(self.rows) if len(made) else 0
            if found:
                self.rows.append(made)
        return found

    def joined(self, blocks: np.ndarray, shift: np.ndarray) -> tuple[Code, np.ndarray]:
        """Return blocks (n,) one after the other, their DDR offsets shifted by (n, pieces) bytes, and where each begins,
        (n + 1,)."""
        counts = np.array([len(r) for r in self.rows], np.int64)
        begin = np.cumsum(counts) - counts
        size = counts[blocks]
        action = np.repeat(np.arange(len(blocks)), size)
        at = np.arange(len(action)) + (begin[blocks] - np.cumsum(size) + size)[action]
        # as bytes: numpy would work out a common record type for every block
        plain = np.concatenate([r.view(np.uint8) for r in self.rows]).view(isa.RECORD)
        known = self.columns.kind.size
        if known < len(plain):
            self.columns = self.columns.followed_by(Columns(self.machine, plain[known:]))
        ddr = shift[action, plain["slot"][at] % PIECES]  # a slot per piece
        return Code(plain, at, ddr, self.columns), np.concatenate([[0], np.cumsum(size)])
