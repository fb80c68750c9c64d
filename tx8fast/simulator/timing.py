"""From segments and launch addresses to the arrays of the event kernel.

May import: isa, machine, program.model, errors, _kernels. Must not: run anything or know the IR.

A code array is unrolled once; tiles that share it share everything but their DDR addresses. Those
change the cost of a transfer only through their position in a DDR page, so durations are computed once per
code and page position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tx8fast import isa
from tx8fast._kernels import EventInput, Routes
from tx8fast.errors import SimulationError
from tx8fast.isa import comm
from tx8fast.isa.control import END, LOOP
from tx8fast.isa.record import rows as make_rows
from tx8fast.machine import Machine
from tx8fast.program.model import Launch, Segment
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

    kind (n,) of the event kernel; dma (k,) indices of rows that touch DDR from an engine; ddr (n,) offsets.
    """

    def __init__(self, machine: Machine, code: np.ndarray, where: str) -> None:
        self.machine = machine
        self.launch_cycles = 0
        index, advance = isa.execution(code)
        runs = np.zeros(len(code), bool)
        runs[index] = True
        # rows in loops are looked at once: `body` are those that run, `place` (n,) says which of them runs when
        self.body, self.place = code[runs], (np.cumsum(runs) - 1)[index]
        rows, place = self.body, self.place
        self.ddr = rows["ddr"][place] + (advance if len(advance) else 0)
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
        arg = network.arguments(rows, kind)
        self.kind, self.arg = kind[place], None if arg is None else arg[place]
        worker = rows["worker"]
        limit = min(machine.tile.workers, MAX_WORKERS)
        if len(rows) and (worker.min() < 0 or worker.max() >= limit):
            bad = int(worker[(worker < 0) | (worker >= limit)][0])
            raise SimulationError(f"cycle simulation of {where}: found worker {bad}, required 0 to {limit - 1}")
        self.worker = worker.astype(np.uint8)[place]
        self.issue = np.asarray(isa.issue_cycles(machine, rows), np.int64)[place]
        self.dma = np.flatnonzero((self.kind == 2) | (self.kind == 3))
        ranges = isa.ranges(rows, np.where((kind == 2) | (kind == 3), PROBE, 0))
        self.body_kind, self._spm_read, self._spm_write = kind, ranges["spm_read"], ranges["spm_write"]
        self.slot = rows["slot"][place[self.dma]]
        # spans relative to the slot's base; an empty span stays (0, 0)
        self.span = {}
        for side in ("ddr_read", "ddr_write"):
            span = ranges[side][place[self.dma]]
            self.span[side] = np.where(span[:, 1:] > span[:, :1], span - PROBE + self.ddr[self.dma, None], 0)
        self._fixed: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}

    @cached_property
    def rows(self) -> np.ndarray:
        """The rows (n,) as they run, loops written out."""
        out = self.body[self.place]
        out["ddr"], out["ddr_step"], out["depth"] = self.ddr, 0, 0
        return out

    @cached_property
    def launched(self) -> np.ndarray:
        """Issue cycles (n,) of all rows, the launch before the first one included."""
        if not self.launch_cycles or not len(self.issue):
            return self.issue
        issue = self.issue.copy()
        issue[0] += self.launch_cycles
        return issue

    @cached_property
    def ends_in_barrier(self) -> bool:
        """Whether the last row is a barrier."""
        return len(self.kind) > 0 and self.kind[-1] == BARRIER

    @property
    def spm_read(self) -> np.ndarray:
        """Bytes (n, 4, 2) that the rows read in scratchpad. They are several times as large as all else that is known of a
        row, so that they are not kept."""
        return self._spm_read[self.place]

    @property
    def spm_write(self) -> np.ndarray:
        """Bytes (n, 2, 2) that the rows write in scratchpad."""
        return self._spm_write[self.place]

    @cached_property
    def operands(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each operand of the rows of `body` begins in scratchpad, and how many of its bytes go through it, (k, 6) both: four
        that are read, two that are written."""
        spans = np.concatenate([self._spm_read, self._spm_write], axis=1)
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
    def _fixed_at_rest(self) -> tuple[np.ndarray, np.ndarray]:
        """Cycles and DDR bytes of all rows, transfers as if their slots began at a page."""
        body = np.zeros(len(self.body), np.int64)
        cycles, ddr_bytes = (a[self.place] for a in isa.durations(self.machine, self.body, body))
        moves = self.body[self.place[self.dma]]
        at_page = np.maximum(self.ddr[self.dma], 0)
        cycles[self.dma], ddr_bytes[self.dma] = isa.durations(self.machine, moves, at_page)
        cycles[self.kind == WAIT] = self.machine.kcore.wait_cycles
        cycles[self.kind == BARRIER] = barrier_cycles(self.machine)
        # what the links add is the event kernel's business
        for cls in (comm.Send, comm.Scatter, comm.Gather):
            own = self.body["opcode"] == isa.INSTRUCTIONS[cls.__name__.lower()].OPCODE
            at = np.flatnonzero(own[self.place])
            cycles[at] = cls.setup(self.machine, self.body[self.place[at]])
        return cycles, ddr_bytes

    def durations(self, base: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return cycles and DDR bytes (n,) of all rows; `base` (n_slots,) are the slots' addresses."""
        if not len(self.dma):
            return self._fixed_at_rest
        phase = base % self.machine.chip.ddr_page
        key = phase.tobytes()
        if key not in self._fixed:
            cycles, ddr_bytes = (a.copy() for a in self._fixed_at_rest)
            if phase.any():
                address = self.ddr[self.dma] + _of_slot(phase, self.slot)
                moves = self.body[self.place[self.dma]]
                cycles[self.dma], ddr_bytes[self.dma] = isa.durations(self.machine, moves, address)
            self._fixed[key] = cycles, ddr_bytes
        return self._fixed[key]

    def ddr_ranges(self, base: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the half-open DDR ranges read and written, (n, 2) each; `base` as for `durations`."""
        at = _of_slot(base, self.slot)[:, None]
        out = []
        for side in ("ddr_read", "ddr_write"):
            full = np.zeros((len(self.place), 2), np.int64)
            span = self.span[side]
            full[self.dma] = np.where(span[:, 1:] > span[:, :1], span + at, 0)
            out.append(full)
        return out[0], out[1]


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
            code = self.codes[index]
            for side, span in code.span.items():
                some = (span[:, 1] > span[:, 0]) & (code.slot >= 0)
                slot = code.slot[some]
                arg = self.segment.slot_arg[slot]
                at = self.segment.tile_offset[tile][slot]
                np.minimum.at(self.lo, arg, span[some, 0] + at)
                np.maximum.at(self.hi, arg, span[some, 1] + at)
                if side == "ddr_write":
                    self.written[arg] = True


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


def event_input(machine: Machine, parts: Sequence[Part], chips: tuple[int, int] = (1, 1)) -> EventInput:
    """Return the event kernel's rows of a stretch, all parts one after the other on every tile of `chips`."""
    bodies: dict[tuple[int, ...], int] = {}
    code_begin, kinds, issues, reads, writes, workers, args = [], [], [], [], [], [], []
    n_code = 0
    fixed, ddr_bytes, ddr_read, ddr_write, sizes = [], [], [], [], []
    late: dict[tuple[int, ...], np.ndarray] = {}
    n_tiles = machine.n_tiles * chips[0] * chips[1]
    for tile in range(n_tiles):
        codes = [p.code.code(tile) for p in parts]
        signature = (tile // machine.n_tiles, *(id(c) for c in codes))
        if signature not in bodies:
            bodies[signature] = n_code
            kind = np.concatenate([c.kind for c in codes])
            kinds.append(kind)
            issues += [c.launched for c in codes]
            reads += [c.spm_read for c in codes]
            writes += [c.spm_write for c in codes]
            workers += [c.worker for c in codes]
            args += [(c.arg, len(c.place)) for c in codes]
            late[signature] = _hidden_waits(kind) * machine.kcore.wait_cycles
            n_code += len(kind)
        code_begin.append(bodies[signature])
        sizes.append(len(late[signature]))
        cycles = []
        for part, code in zip(parts, codes):
            base = part.code.base(part.args, tile)
            c, b = code.durations(base)
            r, w = code.ddr_ranges(base)
            cycles.append(c)
            ddr_bytes.append(b)
            ddr_read.append(r)
            ddr_write.append(w)
        fixed.append(np.concatenate(cycles) + late[signature])
    kind, arg, routes = np.concatenate(kinds), None, Routes()
    if any(a is not None for a, _ in args):
        arg = np.concatenate([np.zeros((n, 4), np.int64) if a is None else a for a, n in args])
        routes = network.connect(machine, kind, arg, code_begin, fixed, chips)
        arg = np.ascontiguousarray(arg[:, :3])
    spm_read = np.concatenate(reads)
    del reads  # a program may have millions of rows
    spm_write = np.concatenate(writes)
    del writes
    return EventInput(
        kind=kind,
        issue=np.concatenate(issues),
        spm_read=spm_read,
        spm_write=spm_write,
        code_begin=np.array(code_begin, np.int64),
        tile_begin=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        fixed=np.concatenate(fixed),
        ddr_bytes=np.concatenate(ddr_bytes),
        ddr_read=np.concatenate(ddr_read),
        ddr_write=np.concatenate(ddr_write),
        worker=np.concatenate(workers),
        arg=arg,
        routes=routes,
        chip_tiles=machine.n_tiles,
    )


def _hidden_waits(kind: np.ndarray) -> np.ndarray:
    """Return 1 for every routine that follows engine rows without a wait: it joins the engines itself."""
    at = np.arange(1, len(kind) + 1)
    engine = np.maximum.accumulate(np.where(kind < KCORE, at, 0)) if len(kind) else at
    joined = np.maximum.accumulate(np.where((kind == KCORE) | (kind == WAIT), at, 0)) if len(kind) else at
    before = np.concatenate([[0], joined[:-1]]) if len(kind) else at
    return ((kind == KCORE) & (engine > before)).astype(np.int64)
