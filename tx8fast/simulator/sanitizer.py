"""The sanitizer: watches a functional run and reports what only works by luck.

May import: numpy, isa, program.model, machine, numerics, errors, the functional simulator and the sanitizer_* modules.
Must not: change what a program computes.

    watch = Sanitizer(program)
    sim = FunctionalSimulator(program, observer=watch)
    ... load parameters and inputs ...
    watch.run(sim)  # raises SanitizerError

Every fault class is reported once per segment, with the place where it first occurs and how often it occurs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.errors import SimulationError
from tx8fast.isa.comm import N_MONITORS, mask_tiles
from tx8fast.machine import DDR_BASE, Machine
from tx8fast.numerics import layout
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.program.model import Launch, Program, Segment, Tensor
from tx8fast.simulator.sanitizer_bytes import Pick, Range, dma_pick, operand_pick
from tx8fast.simulator.sanitizer_ddr import Races
from tx8fast.simulator.sanitizer_order import DTE, ENGINES, KCORE, ROUTINES, SENDS, Facts, Order, Run
from tx8fast.simulator.sanitizer_values import Shadow

MAX_FINDINGS = 20
RDMA, WDMA = isa.UNITS.index("rdma"), isa.UNITS.index("wdma")


@dataclass
class Finding:
    """One fault class of one segment. tile, instruction: where it first occurs, -1 for the program's end; span: half-open
    byte range in `space` ("SPM" or "DDR"), (0, 0) if none; count: how often it occurs."""

    kind: str
    launch: str
    segment: str
    tile: int
    instruction: int
    name: str
    op: str
    space: str
    span: Range
    text: str
    count: int = 1

    def line(self) -> str:
        """Return the finding as one line."""
        where = [f"launch '{self.launch}'", f"segment '{self.segment}'"] if self.launch else []
        if self.tile >= 0:
            where += [f"tile {self.tile}", f"instruction {self.instruction} ({self.name})"]
        more = f"; {self.count - 1} more of this kind" if self.count > 1 else ""
        return f"{self.kind}: {', '.join(where)}{f' of op {self.op!r}' if self.op else ''} {self.text}{more}".replace("  ", " ")


class SanitizerError(SimulationError):
    """The program has faults; `findings` lists them."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = list(findings)
        head = f"sanitizer: {len(findings)} kind{'s' * (len(findings) > 1)} of faults"
        stop = f"\n  stopped after {MAX_FINDINGS}" if len(findings) >= MAX_FINDINGS else ""
        super().__init__(head + "".join(f"\n  - {f.line()}" for f in findings) + stop)


class _Enough(Exception):
    pass


class Sanitizer:
    """Observer of a functional simulation; `findings` grows while it runs."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.machine = machine = Machine.from_dict(program.machine)
        self.findings: list[Finding] = []
        self._known: dict[tuple[str, str], Finding] = {}
        self.order = Order(machine.n_tiles, self.fault)
        self.races = Races(program.ddr_bytes, self.order)
        self.made = np.zeros(max(program.ddr_bytes, 1), bool)  # DDR bytes that somebody wrote
        self.shadows: dict[int, Shadow] = {}
        self._facts: dict[int, tuple[Any, Facts]] = {}
        self.runs: dict[int, Run] = {}
        self.index = 0  # of the launch
        self.barriers: dict[int, int] = {}
        self.epochs = 0
        self.stores: list[tuple[Run, int, Range, str]] = []  # transfers to DDR that had undefined bytes

    # -- reports ------------------------------------------------------------------------------------------------

    def fault(self, kind: str, run: Run, at: int, text: str, span: Range = (0, 0)) -> None:
        """Remember a fault of row `at`."""
        key = (kind, run.segment.name)
        if key in self._known:
            self._known[key].count += 1
            return
        f, op = run.facts, int(run.facts.rows["op"][at]) if at < len(run.facts.rows) else -1
        self._add(key, Finding(kind, run.launch, run.segment.name, run.tile, at, f.names[at] if at < len(f.names) else "end",
                               run.segment.ops[op] if 0 <= op < len(run.segment.ops) else "",
                               "DDR" if span[0] >= DDR_BASE else "SPM", span, text))  # fmt: skip

    def _add(self, key: tuple[str, str], finding: Finding) -> None:
        self._known[key] = finding
        self.findings.append(finding)
        if len(self.findings) >= MAX_FINDINGS:
            raise _Enough

    def run(self, sim: Any, progress: Callable[[int, int], None] | None = None) -> None:
        """Execute all launches on `sim`, whose observer this is. Raises SanitizerError if there are findings."""
        launches = self.program.launches
        try:
            for i, launch in enumerate(launches):
                self.index = i
                self._launch(sim, launch)
                if progress is not None:
                    progress(i + 1, len(launches))
            for t in self.program.outputs:
                self._output(t)
        except _Enough:
            pass
        if self.findings:
            raise SanitizerError(self.findings)

    def _launch(self, sim: Any, launch: Launch) -> None:
        segment = self.program.segments[launch.segment]
        before = len(self.findings)
        self._addresses(launch, segment)
        if len(self.findings) > before:
            raise _Enough  # it cannot be executed
        try:
            sim.run_launch(launch)
        except SimulationError as error:
            if stopped := any(run.at < len(run.facts.rows) for run in self.runs.values()):
                self._add(("stopped", segment.name), Finding("stopped", launch.name, segment.name, -1, -1, "", "", "SPM", (0, 0), str(error)))
            self.end(not stopped)
            raise _Enough from error

    def _addresses(self, launch: Launch, segment: Segment) -> None:
        """Report rows whose operands leave the memory given to buffers, or DDR, before anything runs."""
        low, high, end = self.machine.spm_base, self.machine.spm_limit, DDR_BASE + self.program.ddr_bytes
        args = np.asarray(launch.args, np.int64)
        for tile, index in enumerate(np.asarray(segment.tile_code).tolist()):
            if index < 0:
                continue
            code = segment.codes[index]
            if id(code) not in self._facts:
                rows = isa.expand(code)
                self._facts[id(code)] = (code, Facts(rows, isa.ranges(rows, np.zeros(len(rows), np.int64))))
            facts = self._facts[id(code)][1]
            slots = args[segment.slot_arg] + segment.tile_offset[tile]
            run = Run(tile, self.index, launch.name, segment, facts, 0, slots)
            for what, table in (("reads", facts.reads), ("writes", facts.writes)):
                lo, hi = table[..., 0], table[..., 1]
                for at, k in np.argwhere((hi > lo) & ((lo < low) | (hi > high)))[:MAX_FINDINGS].tolist():
                    part = "reserved bytes" if 0 <= lo[at, k] and hi[at, k] <= self.machine.tile.spm_bytes else "bytes that do not exist"
                    span = (int(lo[at, k]), int(hi[at, k]))
                    self.fault("SPM address", run, at, f"{what} SPM bytes [{span[0]:#x}, {span[1]:#x}), {part}; required within "
                               f"[{low:#x}, {high:#x})", span)  # fmt: skip
            for at in np.flatnonzero((facts.units == RDMA) | (facts.units == WDMA)).tolist():
                row = facts.rows[at]
                if not 0 <= row["slot"] < len(slots):
                    self.fault("DDR address", run, at, f"uses slot {row['slot']} of {len(slots)}")
                    continue
                _, span = dma_pick(int(slots[row["slot"]] + row["ddr"]), row["p"].tolist())
                if span[0] < DDR_BASE or span[1] > end:
                    self.fault("DDR address", run, at, f"accesses DDR bytes [{span[0]:#x}, {span[1]:#x}); required within "
                               f"[{DDR_BASE:#x}, {end:#x})", span)  # fmt: skip
            for at in np.flatnonzero(facts.units == DTE).tolist():
                _, mask, monitor = facts.rows["p"][at][:3].tolist()
                if mask <= 0 or mask >> self.machine.n_tiles or not 0 <= monitor < N_MONITORS:
                    self.fault("send target", run, at, f"sends to tiles {mask_tiles(mask)}, monitor {monitor}; the machine has "
                               f"{self.machine.n_tiles} tiles of {N_MONITORS} monitors")  # fmt: skip

    # -- events of the simulator --------------------------------------------------------------------------------

    def host_wrote(self, address: int, n_bytes: int) -> None:
        """The host has put data into DDR before the first launch."""
        self.made[address - DDR_BASE : address - DDR_BASE + n_bytes] = True

    def begin(self, launch: Launch, segment: Segment, tiles: Sequence[int]) -> None:
        """A launch starts on `tiles`."""
        self.runs = {}
        for tile in tiles:
            facts = self._facts[id(segment.codes[int(segment.tile_code[tile])])][1]
            slots = np.asarray(launch.args, np.int64)[segment.slot_arg] + segment.tile_offset[tile]
            self.runs[tile] = Run(tile, self.index, launch.name, segment, facts, 0, slots)
            if tile in self.shadows:
                self.shadows[tile].forget()
            else:
                self.shadows[tile] = Shadow(self.machine.tile.spm_bytes)
        self.order.begin(list(self.runs.values()))
        self.barriers = dict.fromkeys(tiles, 0)
        self.epochs = 0

    def row(self, tile: int, at: int, state: Any, address: int) -> None:
        """Row `at` of a tile is about to run."""
        run = self.runs[tile]
        run.at = at
        f = run.facts
        unit, name, row = f.unit_list[at], f.names[at], f.rows[at]
        if unit < ENGINES:
            self.order.engine_row(run, at)
            if unit in (RDMA, WDMA):
                self._transfer(run, at, row, address, unit == WDMA)
            else:
                self.shadows[tile].row(row, *f.spans(at), state.spm, lambda span, what: self._undefined(run, at, span, what))
        elif unit == DTE:
            self._send(run, at, row)
        elif unit == KCORE:
            self._routine(run, at, run.segment.routines[int(row["p"][0])])
        elif name == "wait":
            self.order.join(run, at, (0, 1, 2))
        elif name == "wait_worker":
            self.order.join(run, at, [w for w in range(3) if int(row["p"][0]) >> w & 1])
        elif name == "send_wait":
            self.order.join(run, at, (SENDS,))
        run.at = at + 1

    def arrived(self, tile: int, at: int) -> None:
        """A tile stands at a row at which it may have to wait for others."""
        run = self.runs[tile]
        run.at = at
        name = run.facts.names[at]
        if name == "barrier":
            for w, where in run.facts.by_worker.items():
                done = self.order.finished(tile, w, tile) - run.base
                open_rows = where[(where >= done) & (where < at)]
                if len(open_rows):
                    self.fault("barrier without wait", run, at, f"does not wait for {self.order.say(run, int(open_rows[0]), run)} before it")
        elif name != "recv":
            self.order.arrive(run, at, name, run.facts.rows["p"][at].tolist())

    def passed(self, tile: int, at: int) -> None:
        """The tile goes on behind that row."""
        run = self.runs[tile]
        name, p = run.facts.names[at], run.facts.rows["p"][at].tolist()
        if name == "recv":
            self.order.recv(run, at, p[0], p[1])
        elif name == "barrier":
            self.barriers[tile] += 1
            if self.barriers[tile] > self.epochs:
                self._all_met()
        else:
            self.order.meet(run, name, p)
        run.at = at + 1

    def _all_met(self) -> None:
        self.epochs += 1
        self._open_sends("a barrier")
        self.order.begin_epoch()
        self.races.begin_epoch()

    def _open_sends(self, where: str) -> None:
        for tile, run in self.runs.items():
            done = self.order.finished(tile, SENDS, tile)
            for m in self.order.sends[tile]:
                if m.run is run and m.run.base + m.at >= done and any(leg.done < 0 for leg in m.legs):
                    self.fault("send under way", run, m.at, f"is not waited for before {where}; no send_wait, and not every receiver has "
                               "a recv for it", m.src)  # fmt: skip

    def end(self, complete: bool = True) -> None:
        """The launch is over; not `complete`: the tiles could not go on."""
        if complete:
            self._open_sends("the end of its segment")
        for tile, monitors in enumerate(self.order.monitors):
            for number, monitor in enumerate(monitors):
                for leg in monitor.open[:1]:
                    m = leg.message
                    self.fault("message not received", m.run, m.at, f"sends {leg.dst[1] - leg.dst[0]} bytes to tile {tile}, monitor {number}, "
                               "which no recv takes", leg.dst)  # fmt: skip
            self.order.monitors[tile] = [type(m)() for m in monitors]
            self.order.landing[tile] = []

    # -- what rows do to values and DDR -------------------------------------------------------------------------

    def _undefined(self, run: Run, at: int, span: Range, what: str) -> None:
        self.fault("uninitialised read", run, at, f"{what} SPM bytes [{span[0]:#x}, {span[1]:#x}), {self._history(run, at, span[0])}", span)

    def _history(self, run: Run, at: int, byte: int) -> str:
        """Say which row last wrote an undefined SPM byte."""
        table = run.facts.writes[:at]
        hit = np.flatnonzero(((table[..., 0] <= byte) & (table[..., 1] > byte) & (run.facts.units[:at, None] != DTE)).any(axis=1))
        if not len(hit):
            return "which nothing has written in this launch"
        return f"whose last writer, {self.order.say(run, int(hit[-1]), run)}, had no defined value for them"

    def _transfer(self, run: Run, at: int, row: np.void, address: int, store: bool) -> None:
        p = row["p"].tolist()
        pick, span = dma_pick(address, p)
        self.races.access(run, at, pick, span, store)
        ddr, addr = pick(self.made), int(row["spm"][0])
        spm = self.shadows[run.tile].spm[addr : addr + ddr.size]
        if not store:
            spm[...] = np.where(ddr.reshape(-1), 0, 0xFF)
            if ddr.size and not ddr.any():
                self.fault("uninitialised read", run, at, f"reads DDR bytes [{span[0]:#x}, {span[1]:#x}), {self._ddr_history(span)}", span)
            return
        if spm.size and spm.all():
            self._undefined(run, at, (addr, addr + ddr.size), "stores")
        elif spm.any():
            byte = addr + int(np.argmax(spm != 0))
            self.stores.append((run, at, span, f"stores SPM byte {byte:#x}, {self._history(run, at, byte)}"))
        ddr[...] = (spm == 0).reshape(ddr.shape)

    def _ddr_history(self, span: Range) -> str:
        """Say where undefined DDR bytes come from."""
        for run, at, (lo, hi), text in reversed(self.stores):
            if lo < span[1] and span[0] < hi:
                return f"where launch '{run.launch}', tile {run.tile}, {self.order.say(run, at, run)} {text}"
        return "which no input, parameter or launch has written"

    def _send(self, run: Run, at: int, row: np.void) -> None:
        n, mask, monitor = row["p"][:3].tolist()
        src, dst = row["spm"][:2].tolist()
        self.order.send(run, at, (src, src + n), (dst, dst + n), mask, monitor)
        data = self.shadows[run.tile].spm[src : src + n].copy()
        if n and data.all():
            self._undefined(run, at, (src, src + n), "sends")
        for other in mask_tiles(mask):
            if other in self.shadows:
                self.shadows[other].spm[dst : dst + n] = data

    def _routine(self, run: Run, at: int, routine: dict[str, Any]) -> None:
        for operand in routine["inputs"]:
            if operand is not None:
                pick, span = operand_pick(operand, run.slots)
                self.races.access(run, at, pick, span, False)
                self._needs(operand, pick, lambda a, b: self.fault("uninitialised read", run, at, f"({routine['routine']}) needs DDR bytes "
                            f"[{a:#x}, {b:#x}), {self._ddr_history((a, b))}", (a, b)), span)  # fmt: skip
        for operand in routine["outputs"]:
            if operand is not None:
                pick, span = operand_pick(operand, run.slots)
                self.races.access(run, at, pick, span, True)
                pick(self.made)[...] = True
        self.order.join(run, at + 1, (ROUTINES,))

    def _needs(self, operand: Any, pick: Pick, complain: Callable[[int, int], None], span: Range) -> None:
        """Call `complain` with the first range of logical elements that have no value."""
        made = pick(self.made)
        if made.all():
            return
        shape, dtype = operand["shape"], operand["dtype"]
        if operand.get("layout") == "blocked":
            full = np.zeros(made.size * 0 + layout.blocked_bytes(*layout.npc(shape), dtype), np.uint8)
            full[: made.size] = ~made
            kind = {1: "u8", 2: "u16", 4: "u32", 8: "i64"}[ITEM_BYTES[dtype]]
            bad = layout.unpack(full, *layout.npc(shape), kind) != 0
            if bad.any():
                at = np.unravel_index(int(np.argmax(bad)), bad.shape)
                lo = span[0] + int(layout.element_offset(*map(int, at), *layout.npc(shape)[1:], dtype))
                complain(lo, lo + ITEM_BYTES[dtype])
            return
        address = np.zeros(0, np.int64)
        if "strides" in operand:
            grid = np.zeros(tuple(shape), np.int64)
            for axis, step in enumerate(operand["strides"]):
                grid += (np.arange(shape[axis]) * step).reshape([-1 if k == axis else 1 for k in range(len(shape))])
            address = (grid.reshape(-1, 1) + np.arange(ITEM_BYTES[dtype])).reshape(-1)
        else:
            address = np.arange(made.size)
        bad = np.flatnonzero(~made.reshape(-1))
        complain(span[0] + int(address[bad[0]]), span[0] + int(address[bad[0]]) + ITEM_BYTES[dtype])

    def _output(self, t: Tensor) -> None:
        """A program output must be defined in all logical elements."""
        n = layout.blocked_bytes(*layout.npc(t.shape), t.ddr_dtype) if t.layout == "blocked" else layout.dense_bytes(t.shape, t.ddr_dtype)
        start = t.address - DDR_BASE

        def complain(a: int, b: int) -> None:
            text = f"output '{t.name}': DDR bytes [{a:#x}, {b:#x}) have no defined value, {self._ddr_history((a, b))}"
            self._add(("undefined result", t.name), Finding("undefined result", "", "", -1, -1, "", "", "DDR", (a, b), text))

        self._needs({"shape": t.shape, "dtype": t.ddr_dtype, "layout": t.layout}, lambda array: array[start : start + n], complain,
                    (t.address, t.address + n))  # fmt: skip
