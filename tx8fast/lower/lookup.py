"""Rows of a table by number: `embedding`, and `gather` along the first dimension.

May import: lower.base, lower.emitter, lower.movement, lower.transfer, graph_table, isa. Must not: place buffers.

The kernel core reads the numbers where they lie in DDR and starts one transfer per row (`isa.lookup`): from DDR, or out
of a copy of the table in scratchpad where a tile needs more rows than the table has. Numbers are never loaded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tx8fast import isa
from tx8fast.graph_table import Dim, GroupRecord, OpRecord, Record, TensorSpec
from tx8fast.isa.limits import COUNT
from tx8fast.isa.lookup import INDEX_FORMATS, each
from tx8fast.lower.access import Access
from tx8fast.lower.base import Lowering, NotLowerable, Slice
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.movement import relayout
from tx8fast.lower.transfer import Box, Descriptor, Local, spec_bytes
from tx8fast.machine import Machine
from tx8fast.numerics.formats import FORMAT_CODES, ITEM_BYTES
from tx8fast.numerics.layout import block_size

LOOKUPS = ("embedding", "gather")
#: rows of a result: every one is an instruction
MAX_ROWS = 1 << 20
#: bytes of a table that may be copied to scratchpad
MAX_TABLE_BYTES = 1 << 18


def looks_up(low: Lowering) -> bool:
    """True if the lowering moves rows of tables one by one, by numbers that lie in DDR."""
    return any(isinstance(a, Numbers) for a in low.reads)


def bytes_read(record: Record, k: int) -> int:
    """Return the DDR bytes that a record needs of operand k: of a table, no more than the rows that it looks up."""
    spec = record.operands[k]
    whole = spec_bytes(spec) if spec is not None else 0
    if isinstance(record, OpRecord):
        return min(whole, spec_bytes(record.results[0])) if record.kind in LOOKUPS and not k else whole
    parts = record.ops if isinstance(record, GroupRecord) else record.parts
    return min(
        whole,
        sum(
            bytes_read(part, j)
            for part, wires in zip(parts, record.wires, strict=True)
            for j, wire in enumerate(wires)
            if wire == ("in", k)
        ),
    )


class Numbers(Access):
    """Row numbers: they stay in DDR, where the kernel core reads them."""

    loaded = False

    def __init__(self, spec: TensorSpec, dims: Sequence[Dim]) -> None:
        super().__init__(spec, dims, False)

    def size_bytes(self, lo: Sequence[int], hi: Sequence[int]) -> int:
        return 0

    def transfers(self, lo: Sequence[int], hi: Sequence[int]) -> list[Descriptor]:
        return []

    def offsets(self, lo: Sequence[int], hi: Sequence[int]) -> np.ndarray:
        """Return how many bytes behind the first number of a slice each of them lies, row after row."""
        out = np.zeros(1, np.int64)
        stride = ITEM_BYTES[self.spec.dtype]
        for (a, b), n in zip(reversed(self.box(lo, hi)), reversed(self.spec.shape), strict=True):
            out = (np.arange(b - a, dtype=np.int64)[:, None] * stride + out).reshape(-1)
            stride *= n
        return out


class TableRows(Access):
    """Rows of a table in DDR, seen as the dense tensor of all looked-up rows; read access `numbers` says which."""

    def __init__(self, spec: TensorSpec, dims: Sequence[Dim], table: TensorSpec, index: Numbers) -> None:
        super().__init__(spec, dims, False)
        self.table, self.index = table, index
        self.numbers = 1

    def origins(self, box: Box) -> tuple[int, int]:
        begin = box[-1][0] * ITEM_BYTES[self.spec.dtype]
        return begin, begin

    def load(self, lo: Sequence[int], hi: Sequence[int], address: int, **fields: int) -> list[tuple]:
        """Return the instructions that load a slice to `address`. Numbers count from the slice's first one in read access
        `index_slot`; `fields` say where the table's columns are."""
        offsets = self.index.offsets(lo, hi).tolist()
        row, size = self.load_one(lo, hi, address, **fields), self.run_bytes(lo, hi)
        return each(row, zip(range(0, size * len(offsets), size), offsets, strict=True))

    def load_one(self, lo: Sequence[int], hi: Sequence[int], address: int, **fields: int) -> tuple:
        """Return the first instruction of `load`."""
        width = self.spec.shape[-1] * ITEM_BYTES[self.spec.dtype]
        return isa.make(
            "rdma_row",
            dst=address,
            run_bytes=self.run_bytes(lo, hi),
            stride=width,
            entries=self.table.shape[0],
            index_slot=self.numbers,
            index_ddr=0,
            fmt=FORMAT_CODES[self.index.spec.dtype],
            **fields,
        )

    def run_bytes(self, lo: Sequence[int], hi: Sequence[int]) -> int:
        """Return the bytes of a row that a slice needs."""
        a, b = self.box(lo, hi)[-1]
        return (b - a) * ITEM_BYTES[self.spec.dtype]


class Lookup(Lowering):
    """Factors: the numbers' dimensions, then the columns of a row. blocked: the form of a slice's result."""

    kind = "lookup"
    leads = "rows of tables"
    takes = frozenset({*LOOKUPS})

    def __init__(self, record: OpRecord, machine: Machine, blocked: bool = False) -> None:
        super().__init__(record, machine)
        table, index = record.operands[:2]
        out = record.results[0]
        assert table is not None and index is not None
        axis = record.attr("axis") % len(table.shape) if record.kind == "gather" else 0
        if axis:
            raise NotLowerable("only whole rows of a table are looked up")
        if any(s.layout == "blocked" and len(s.shape) > 1 for s in (table, index, out)):
            raise NotLowerable("tables of rows are dense")
        if FORMAT_CODES[index.dtype] not in INDEX_FORMATS or table.dtype != out.dtype:
            raise NotLowerable(f"rows of {table.dtype} by numbers of {index.dtype} are not looked up as they are")
        if table.shape[0] >= COUNT[1] or math.prod(index.shape) > MAX_ROWS:
            raise NotLowerable(
                f"tables below {COUNT[1]} rows and at most {MAX_ROWS} rows of them are looked up one by one"
            )
        width = math.prod(table.shape[1:])
        self.table = TensorSpec((table.shape[0], width), table.dtype)
        n = len(index.shape)
        runs = [*((f,) for f in range(n)), range(n, n + len(table.shape) - 1)]
        # to cut a row between slices would be a transfer more, with a startup of its own
        self.loop_over(runs, [*(1,) * n, min(width, block_size(out.dtype))], uncut=[n])
        spec = TensorSpec(self.sizes, out.dtype)
        dims = [Dim(size, ((i, 1),)) for i, size in enumerate(spec.shape)]
        numbers = Numbers(index, dims[:-1])
        size_bytes = math.prod(self.table.shape) * ITEM_BYTES[out.dtype]
        # loading the table once is cheaper than loading its rows one by one
        self.resident = table.shape[0] * machine.n_tiles <= math.prod(index.shape) and size_bytes <= MAX_TABLE_BYTES
        self.reads = [
            Access(self.table, [Dim(table.shape[0], full=True), dims[-1]], blocked)
            if self.resident
            else TableRows(spec, dims, self.table, numbers),
            numbers,
        ]
        self.writes = [Access(spec, dims, blocked)]
        self.numbers = 1

    def number_by(self, k: int) -> None:
        """The numbers are read access k of the launch, not this op's own."""
        self.numbers = k
        if isinstance(self.reads[0], TableRows):
            self.reads[0].numbers = k

    def emit(self, em: Emitter, s: Slice) -> None:
        dst = self.writes[0].local(self.writes[0].box(s.lo, s.hi))
        if self.resident:
            self._move_rows(em, s, dst)
        elif dst.blocked:
            em.gather(s.reads[0], s.writes[0], relayout(Local(dst.rows, dst.cols, dst.dtype, False), dst))
        else:
            em.copy(s.reads[0], s.writes[0], dst.size_bytes)

    def _move_rows(self, em: Emitter, s: Slice, dst: Local) -> None:
        """Move every row out of the copy of the table: full blocks of channels at once, then the rest."""
        numbers = self.reads[1]
        assert isinstance(numbers, Numbers)
        src = Local(self.table.shape[0], dst.cols, dst.dtype, dst.blocked)
        e, b = ITEM_BYTES[dst.dtype], block_size(dst.dtype) if dst.blocked else dst.cols
        blocks = dst.cols // b
        pieces = [(0, b, blocks), (blocks * b, dst.cols - blocks * b, 1)]
        offsets = numbers.offsets(s.lo, s.hi).tolist()
        for col, lanes, n in pieces:
            if not lanes or not n:
                continue
            steps = [x.offset(1, col) - x.offset(0, col) for x in (src, dst)]
            row = isa.make(
                "tdma_row",
                src0=s.reads[0] + src.offset(0, col),
                dst=s.writes[0] + dst.offset(0, col),
                size=lanes * e,
                stride=steps[0],
                entries=src.rows,
                index_slot=self.numbers,
                index_ddr=0,
                ss0=src.rows * b * e,
                sn0=n,
                ds0=dst.rows * b * e,
                dn0=n,
                fmt=FORMAT_CODES[numbers.spec.dtype],
            )
            em.rows += each(row, ((r * steps[1], at) for r, at in enumerate(offsets)))

    def ops_per_point(self) -> float:
        return ITEM_BYTES[self.table.dtype] / self.machine.tdma.bytes_per_cycle
