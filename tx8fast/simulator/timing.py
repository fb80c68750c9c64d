"""What the cycle simulator knows of segments: their code without loops, how long rows take, which launches run together.

May import: isa, machine, program.model, errors, _kernels, and network beside it. Must not: run anything or know the IR.

A code array is unrolled once; tiles that share it share everything but their DDR addresses. Those
change the cost of a transfer only through their position in a DDR page, so durations are computed once per
code and page position, and of rows that begin at the same place of a page once for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tx8fast import isa
from tx8fast._kernels import number_pairs
from tx8fast.errors import SimulationError
from tx8fast.isa import comm
from tx8fast.isa.control import END, LOOP
from tx8fast.isa.record import rows as make_rows
from tx8fast.machine import Machine
from tx8fast.program.model import Launch, Segment
from tx8fast.records import dataclass
from tx8fast.simulator import network

ENGINES = ("ct", "ne", "rdma", "wdma", "tdma")
KCORE, WAIT, BARRIER = 5, 6, 7
SYNC = 6  # unit of the instruction set, not a kind of the kernel
MAX_WORKERS = 3  # register windows that an instruction can name
PROBE = 1 << 44  # an address that makes an empty range distinguishable from one at address 0


def barrier_cycles(machine: Machine) -> int:
    """Cycles from the last arrival at a barrier to the release: flags cross the mesh both ways."""
    diameter = machine.chip.tiles_x - 1 + machine.chip.tiles_y - 1
    return machine.sync.barrier_base + 2 * diameter * machine.noc.hop_cycles


class Code:
    """One unrolled code array of n rows: what does not depend on the tile.

    Rows in loops are looked at once: body (k,) are those that run, place (n,) int32 says which of them runs when. kind (n,) of the
    event kernel, issue (n,) cycles, ddr (n,) offsets from the row's slot; of the body rows body_kind (k,), worker (k,), arg
    (k, 4) or None, spm_read (k, 4, 2), spm_write (k, 2, 2), ddr_read, ddr_write (k, 2) from the row's offset on, slot (k,).
    """

    def __init__(self, machine: Machine, code: np.ndarray, where: str) -> None:
        self.machine = machine
        self.launch_cycles = 0
        index, advance = isa.execution(code)
        runs = np.zeros(len(code), bool)
        runs[index] = True
        self.body = rows = code[runs]
        self.place = (np.cumsum(runs, dtype=np.int32) - 1)[index]
        del index
        self.ddr = rows["ddr"][self.place]
        if len(advance):
            self.ddr += advance
        units = isa.units(rows)
        kind = units.astype(np.uint8)
        sync = np.flatnonzero(units >= SYNC)
        opcode = rows["opcode"][sync]
        wait, barrier = (isa.INSTRUCTIONS[name].OPCODE for name in ("wait", "barrier"))
        more = [isa.INSTRUCTIONS[name].OPCODE for name in network.ROWS]
        known = (opcode == wait) | (opcode == barrier) | np.isin(opcode, more)
        if not known.all():
            bad = sorted({int(x) for x in opcode[~known]})
            raise SimulationError(
                f"cycle simulation of {where}: no timing for opcodes {', '.join(hex(b) for b in bad)}"
            )
        kind[sync] = np.where(opcode == barrier, BARRIER, WAIT)
        self.arg = network.arguments(rows, kind)
        self.body_kind, self.kind = kind, kind[self.place]
        worker = rows["worker"]
        limit = min(machine.tile.workers, MAX_WORKERS)
        if len(rows) and (worker.min() < 0 or worker.max() >= limit):
            bad = int(worker[(worker < 0) | (worker >= limit)][0])
            raise SimulationError(f"cycle simulation of {where}: found worker {bad}, required 0 to {limit - 1}")
        self.worker = worker.astype(np.uint8)
        self.issue = np.asarray(isa.issue_cycles(machine, rows), np.int64)[self.place]
        ranges = isa.ranges(rows, np.where((kind == 2) | (kind == 3), PROBE, 0))
        self.spm_read, self.spm_write = ranges["spm_read"], ranges["spm_write"]
        # empty ranges stay (0, 0)
        self.ddr_read, self.ddr_write = (
            np.where(r[:, 1:] > r[:, :1], r - PROBE, 0) for r in (ranges["ddr_read"], ranges["ddr_write"])
        )
        self.slot = rows["slot"].astype(np.int64)
        self._fixed: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}

    @property
    def rows(self) -> np.ndarray:
        """The rows (n,) as they run, loops written out."""
        out = self.body[self.place]
        out["ddr"], out["ddr_step"], out["depth"] = self.ddr, 0, 0
        return out

    @cached_property
    def dma(self) -> np.ndarray:
        """Indices of the rows that touch DDR from an engine."""
        return np.flatnonzero((self.kind == 2) | (self.kind == 3))

    @cached_property
    def ends_in_barrier(self) -> bool:
        """Whether the last row is a barrier."""
        return len(self.kind) > 0 and self.kind[-1] == BARRIER

    @cached_property
    def operands(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each operand of the rows of `body` begins in scratchpad, and how many of its bytes go through it, (k, 6) both: four
        that are read, two that are written."""
        spans = np.concatenate([self.spm_read, self.spm_write], axis=1)
        sizes = spans[..., 1] - spans[..., 0]
        sizes[:, :4] *= isa.rereads(self.machine, self.body)
        at = isa.lookup.numbers(self.body)[0]
        sizes[at, 0] = np.minimum(sizes[at, 0], sizes[at, 4])  # one row of a table
        sizes[self.body_kind == network.SEND, 4:] = 0  # what a message writes lies in other tiles
        return spans[..., 0], sizes

    @cached_property
    def n_barriers(self) -> int:
        return int((self.kind == BARRIER).sum())

    @cached_property
    def _fixed_in_scratchpad(self) -> np.ndarray:
        """Cycles (k,) of the rows of `body` but of transfers."""
        cycles = isa.durations(self.machine, self.body, np.zeros(len(self.body), np.int64))[0]
        cycles[self.body_kind == WAIT] = self.machine.kcore.wait_cycles
        cycles[self.body_kind == BARRIER] = barrier_cycles(self.machine)
        # what the links add is the event kernel's business
        for cls in (comm.Send, comm.Scatter, comm.Gather):
            at = np.flatnonzero(self.body["opcode"] == isa.INSTRUCTIONS[cls.__name__.lower()].OPCODE)
            cycles[at] = cls.setup(self.machine, self.body[at])
        return cycles

    def durations(self, base: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return cycles and DDR bytes (n,) of all rows; `base` (n_slots,) are the slots' addresses."""
        phase = base % self.machine.chip.ddr_page
        key = phase.tobytes()
        if key not in self._fixed:
            self._fixed[key] = self._durations(phase)
        return self._fixed[key]

    def forget(self) -> None:
        """Drop the durations that `durations` keeps for tiles that share them."""
        self._fixed.clear()

    def _durations(self, phase: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cycles, ddr_bytes = self._fixed_in_scratchpad[self.place], np.zeros(len(self.place), np.int64)
        if len(self.dma):
            place, ddr = self.place[self.dma], self.ddr[self.dma]
            at = ddr + _of_slot(phase, self.slot[place]) if phase.any() else np.maximum(ddr, 0)
            # what a transfer costs follows from its row and where in pages and bursts it begins: a few cases for many rows
            repeat = math.lcm(self.machine.chip.ddr_page, self.machine.chip.ddr_burst)
            at %= repeat
            first, which = number_pairs(place, at)
            found = isa.durations(self.machine, self.body[place[first]], at[first])
            cycles[self.dma], ddr_bytes[self.dma] = (f[which] for f in found)
        return cycles, ddr_bytes

    @cached_property
    def extents(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Bytes [lo, hi) that transfers touch relative to each slot that rows name, and whether one writes; all (slots,)."""
        place, ddr = self.place[self.dma], self.ddr[self.dma]
        slot = self.slot[place]
        n = int(slot.max(initial=-1)) + 1
        lo, hi, written = np.full(n, PROBE, np.int64), np.full(n, -PROBE, np.int64), np.zeros(n, np.bool_)
        for k in range(n):
            own = slot == k
            for side, writes in ((self.ddr_read, False), (self.ddr_write, True)):
                size = side[place[own], 1]
                at, size = ddr[own][size > 0], size[size > 0]
                lo[k], hi[k] = int(at.min(initial=lo[k])), int((at + size).max(initial=hi[k]))
                written[k] |= writes and len(at) > 0
        return lo, hi, written


def _of_slot(base: np.ndarray, slot: np.ndarray) -> np.ndarray:
    """Return base[slot], 0 where the row has no slot."""
    if not len(base):
        return np.zeros(len(slot), np.int64)
    return np.where(slot >= 0, base[np.maximum(slot, 0)], 0)


def _unrolled(machine: Machine, code: np.ndarray, where: str) -> Code:
    """Return a code array without its loops; what their passes cost is issue time of the row behind each."""
    out = Code(machine, code, where)
    if machine.kcore.loop_cycles and len(out.place):
        out.issue = out.issue + machine.kcore.loop_cycles * passes_before(code)
    return out


def passes_before(code: np.ndarray) -> np.ndarray:
    """Return how many passes of loops end between each row that runs (n,) and the one before it; loops are balanced."""
    body = code["opcode"]
    pending: list[tuple[np.ndarray, int]] = [
        (np.zeros(0, np.int64), 0)
    ]  # rows so far, and passes behind the last of them
    counts: list[int] = []

    def join(left: tuple[np.ndarray, int], right: tuple[np.ndarray, int]) -> tuple[np.ndarray, int]:
        rows, tail = left
        if not len(right[0]):
            return rows, tail + right[1]
        more = right[0].copy()
        more[0] += tail
        return np.concatenate([rows, more]), right[1]

    at = 0
    for mark in [*np.flatnonzero((body == LOOP) | (body == END)).tolist(), len(code)]:
        pending[-1] = join(pending[-1], (np.zeros(mark - at, np.int64), 0))
        at = mark + 1
        if mark < len(code) and body[mark] == LOOP:
            counts.append(int(code["p"][mark, 0]))
            pending.append((np.zeros(0, np.int64), 0))
        elif mark < len(code):
            rows, tail = pending.pop()
            n = counts.pop()
            passes = np.tile(rows, n)
            if len(rows):
                passes[len(rows) :: len(rows)] += tail + 1
            pending[-1] = join(pending[-1], (passes, tail + 1 if len(rows) else n * (tail + 1)))
    return pending[0][0]


class SegmentCode:
    """A segment, unrolled; `idle` stands for tiles without code: they only take part in barriers."""

    def __init__(self, machine: Machine, segment: Segment) -> None:
        self.segment = segment
        where = f"segment '{segment.name}'"
        for code in segment.codes:
            isa.check_fields(code, len(segment.slot_arg), where)
        self.codes = [_unrolled(machine, code, where) for code in segment.codes]
        for code in self.codes:
            code.launch_cycles = machine.kcore.launch_cycles
        self.spans_chips = len(segment.tile_code) > machine.n_tiles
        used = [self.codes[c] for c in sorted({int(c) for c in segment.tile_code if c >= 0})]
        barriers = max((code.n_barriers for code in used), default=0)
        row = make_rows([isa.make("barrier")] * barriers)
        self.idle = Code(machine, row, where)
        self.idle.issue = np.zeros(barriers, np.int64)
        self.ends_in_barrier = bool(used) and all(code.ends_in_barrier for code in used)
        self.instructions = sum(len(self.codes[c].place) for c in segment.tile_code if c >= 0)
        self._extent()

    def code(self, tile: int) -> Code:
        """Return the code of a tile; tiles of all chips are counted on, and most segments are the same on every chip."""
        index = int(self.segment.tile_code[tile % len(self.segment.tile_code)])
        return self.codes[index] if index >= 0 else self.idle

    def base(self, args: np.ndarray, tile: int) -> np.ndarray:
        """Return the DDR addresses (n_slots,) where the tile's slots begin."""
        return args[self.segment.slot_arg] + self.segment.tile_offset[tile % len(self.segment.tile_offset)]

    def _extent(self) -> None:
        """Bytes [lo, hi) relative to each argument that transfers of any tile touch; `written` if one writes."""
        n = self.segment.n_args
        self.lo = np.full(n, PROBE, np.int64)
        self.hi = np.full(n, -PROBE, np.int64)
        self.written = np.zeros(n, np.bool_)
        for tile, index in enumerate(self.segment.tile_code):
            if index < 0:
                continue
            lo, hi, written = self.codes[index].extents
            some = np.flatnonzero(hi > lo)
            arg = self.segment.slot_arg[some]
            at = self.segment.tile_offset[tile][some]
            np.minimum.at(self.lo, arg, lo[some] + at)
            np.maximum.at(self.hi, arg, hi[some] + at)
            np.logical_or.at(self.written, arg, written[some])


@dataclass
class Part:
    """One launch of a stretch: its segment and its arguments' addresses."""

    code: SegmentCode
    index: int
    args: np.ndarray


def stretches(launches: Sequence[Launch], segments: Sequence[SegmentCode]) -> list[list[int]]:
    """Cut the launches (indices) after every segment that ends in a barrier: all tiles are idle there."""
    out: list[list[int]] = []
    current: list[int] = []
    for i, launch in enumerate(launches):
        current.append(i)
        if segments[launch.segment].ends_in_barrier:
            out.append(current)
            current = []
    if current:
        out.append(current)
    return out


def key(parts: Sequence[Part], page: int) -> tuple:
    """Return what decides the timing of a stretch: segments, page positions, and which arguments overlap how."""
    where = np.concatenate([p.args for p in parts])
    lo = where + np.concatenate([p.code.lo for p in parts])
    hi = where + np.concatenate([p.code.hi for p in parts])
    written = np.concatenate([p.code.written for p in parts])
    meet = (lo[:, None] < hi[None, :]) & (lo[None, :] < hi[:, None]) & (written[:, None] | written[None, :])
    first, second = np.nonzero(np.triu(meet, 1))
    shift = where[second] - where[first]
    overlap = tuple(zip(first.tolist(), second.tolist(), shift.tolist()))
    return tuple(p.index for p in parts), tuple((where % page).tolist()), overlap


def chips_of(parts: Sequence[Part], chips: tuple[int, int]) -> tuple[int, int]:
    """Return the chips that a stretch has to be simulated on: one stands for all if no part goes beyond its chip."""
    return chips if any(p.code.spans_chips for p in parts) else (1, 1)
