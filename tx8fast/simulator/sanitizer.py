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

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.errors import SimulationError
from tx8fast.isa.comm import mask_tiles
from tx8fast.machine import DDR_BASE, Machine
from tx8fast.numerics.layout import image_bytes
from tx8fast.program.model import Launch, Program, Segment, Tensor
from tx8fast.simulator.sanitizer_addresses import RDMA, WDMA, address_faults, first_undefined
from tx8fast.simulator.sanitizer_bytes import LOOKUPS, Range, dma_pick, number_pick, operand_pick, spans_of
from tx8fast.simulator.sanitizer_chips import OfChip
from tx8fast.simulator.sanitizer_clock import DTE, ENGINES, KCORE, ROUTINES, SENDS, Facts, Run
from tx8fast.simulator.sanitizer_ddr import Races
from tx8fast.simulator.sanitizer_order import Order
from tx8fast.simulator.sanitizer_report import MAX_FINDINGS, Enough, Finding, SanitizerError
from tx8fast.simulator.sanitizer_results import Memory
from tx8fast.simulator.sanitizer_uses import Uses
from tx8fast.simulator.sanitizer_values import Shadow


class Sanitizer:
    """Observer of a functional simulation; `findings` grows while it runs."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.machine = machine = Machine.from_dict(program.machine)
        self.findings: list[Finding] = []
        self._known: dict[tuple[str, str], Finding] = {}
        chips = range(program.n_chips)
        self.order = Order(machine.n_tiles, self.fault, program.n_chips)
        self.races = [Races(program.ddr_bytes, self.order) for _ in chips]
        self.memory = [Memory(program.ddr_bytes) for _ in chips]
        self.shadows: dict[int, Shadow] = {}
        self._facts: dict[int, tuple[Any, Facts]] = {}
        self.runs: dict[int, Run] = {}
        self.index = 0  # of the launch
        self.barriers: dict[int, int] = {}
        self.epochs = [0 for _ in chips]
        self.uses = Uses(machine.tile.spm_bytes)
        self.stores: list[tuple[Run, int, Range, str]] = []  # transfers to DDR that had undefined bytes

    # -- reports ------------------------------------------------------------------------------------------------

    def fault(self, kind: str, run: Run, at: int, text: str, span: Range = (0, 0)) -> None:
        """Remember a fault of row `at`."""
        key = (kind, run.segment.name)
        if key in self._known:
            self._known[key].count += 1
            return
        f, op = run.facts, int(run.facts.rows["op"][at]) if at < len(run.facts.rows) else -1
        self._add(
            key,
            Finding(
                kind,
                run.launch,
                run.segment.name,
                run.tile,
                at,
                f.names[at] if at < len(f.names) else "end",
                run.segment.ops[op] if 0 <= op < len(run.segment.ops) else "",
                "DDR" if span[0] >= DDR_BASE else "SPM",
                span,
                text,
            ),
        )

    def _add(self, key: tuple[str, str], finding: Finding) -> None:
        self._known[key] = finding
        self.findings.append(finding)
        if len(self.findings) >= MAX_FINDINGS:
            raise Enough

    def _end_finding(self, kind: str, launch: str, segment: str, text: str, span: Range) -> None:
        """Remember a fault that has no single row."""
        finding = Finding(kind, launch, segment, -1, -1, "", "", "DDR" if span[0] else "SPM", span, text)
        self._add((kind, segment or text), finding)

    def of_chip(self, chip: int) -> OfChip:
        """Return the observer of the simulator of one chip among several."""
        return OfChip(self, chip)

    def _chip(self, tile: int) -> int:
        return tile // self.machine.n_tiles

    def _name(self, tile: int) -> str:
        """Return how reports name a tile."""
        return (
            f"chip {self._chip(tile)} tile {tile % self.machine.n_tiles}"
            if self.program.n_chips > 1
            else f"tile {tile}"
        )

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
                for memory in self.memory:
                    self._output(t, memory)
        except Enough:
            pass
        if self.findings:
            raise SanitizerError(self.findings)

    def _launch(self, sim: Any, launch: Launch) -> None:
        segment = self.program.segments[launch.segment]
        before = len(self.findings)
        self._addresses(launch, segment)
        if len(self.findings) > before:
            raise Enough  # it cannot be executed
        try:
            sim.run_launch(launch)
        except SimulationError as error:
            if stopped := any(run.at < len(run.facts.rows) for run in self.runs.values()):
                self._end_finding("stopped", launch.name, segment.name, str(error), (0, 0))
            self.end(not stopped)
            raise Enough from error
        for chip, memory in enumerate(self.memory):
            self._results(launch, segment, chip, memory)

    def _results(self, launch: Launch, segment: Segment, chip: int, memory: Memory) -> None:
        """Report results that the launch has not stored."""
        for name, stored, span in memory.missing(launch, segment):
            why = self._ddr_history(span, chip) if stored else "which the launch has not stored"
            where = f"chip {chip}, " if self.program.n_chips > 1 else ""
            text = f"{where}{name}: DDR bytes [{span[0]:#x}, {span[1]:#x}) have no value, {why}"
            self._end_finding("incomplete result", launch.name, segment.name, text, span)

    def _addresses(self, launch: Launch, segment: Segment) -> None:
        """Report what cannot be executed before anything runs."""
        for tile, index in enumerate(np.asarray(segment.tile_code).tolist()):
            if index < 0:
                continue
            code = segment.codes[index]
            if id(code) not in self._facts:
                isa.check_fields(code, len(segment.slot_arg), f"segment '{segment.name}'")
                rows = isa.expand(code)
                self._facts[id(code)] = (code, Facts(rows, isa.ranges(rows, np.zeros(len(rows), np.int64))))
            run = self._run(launch, segment, tile)
            for kind, at, text, span in address_faults(self.machine, self.program.ddr_bytes, run):
                self.fault(kind, run, at, text, span)

    def _run(self, launch: Launch, segment: Segment, tile: int) -> Run:
        own = tile if len(segment.tile_code) > self.machine.n_tiles else tile % self.machine.n_tiles
        facts = self._facts[id(segment.codes[int(segment.tile_code[own])])][1]
        slots = np.asarray(launch.args, np.int64)[segment.slot_arg] + segment.tile_offset[own]
        return Run(tile, self.index, launch.name, segment, facts, 0, slots)

    # -- events of the simulator --------------------------------------------------------------------------------

    def host_wrote(self, address: int, n_bytes: int, chip: int = 0) -> None:
        """The host has put data into a chip's DDR before the first launch."""
        self.memory[chip].made[address - DDR_BASE : address - DDR_BASE + n_bytes] = True

    def begin(self, launch: Launch, segment: Segment, tiles: Sequence[int]) -> None:
        """A launch starts on `tiles`: those of one chip, or of all."""
        self.runs = {}
        for chip in {self._chip(tile) for tile in tiles}:
            self.memory[chip].begin(launch, segment)
            self.epochs[chip] = 0
        for tile in tiles:
            self.runs[tile] = self._run(launch, segment, tile)
            if tile in self.shadows:
                self.shadows[tile].forget()
            else:
                self.shadows[tile] = Shadow(self.machine.tile.spm_bytes)
        self.order.begin(list(self.runs.values()))
        self.uses.begin(self.runs.values())
        self.barriers = dict.fromkeys(tiles, 0)

    def row(self, tile: int, at: int, state: Any, address: int) -> None:
        """Row `at` of a tile is about to run."""
        run = self.runs[tile]
        run.at = at
        f = run.facts
        unit, name, row = f.unit_list[at], f.names[at], f.rows[at]
        if unit < ENGINES:
            self.order.engine_row(run, at)
            reads, writes = f.spans(at)
            if name in LOOKUPS:
                row, ahead = self._look_up(run, at, state)
                address, reads = address + ahead, spans_of(row)[0]
            self.uses.read(tile, reads)
            self.uses.write(run, at, writes)
            if unit in (RDMA, WDMA):
                self._transfer(run, at, row, address, unit == WDMA)
            else:
                shadow = self.shadows[tile]
                for span, text in shadow.formats.row(row, reads, writes):
                    self.fault("another format", run, at, text, span)
                shadow.row(row, reads, writes, state.spm, lambda of, what: self._undefined(run, at, of, what))
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
                    text = f"does not wait for {self.order.say(run, int(open_rows[0]), run)} before it"
                    self.fault("barrier without wait", run, at, text)
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
            if self.barriers[tile] > self.epochs[self._chip(tile)]:
                self._all_met(self._chip(tile))
        else:
            self.order.meet(run, name, p)
        run.at = at + 1

    def _all_met(self, chip: int) -> None:
        self.epochs[chip] += 1
        tiles = self.order.tiles_of(chip)
        self._open_sends("a barrier", tiles)
        self.order.begin_epoch(tiles)
        self.races[chip].begin_epoch()

    def _open_sends(self, where: str, tiles: Iterable[int]) -> None:
        for tile in tiles:
            run = self.runs.get(tile)
            if run is None:
                continue
            done = self.order.finished(tile, SENDS, tile)
            for m in self.order.sends[tile]:
                if m.run is run and m.run.base + m.at >= done and any(leg.done < 0 for leg in m.legs):
                    text = f"is not waited for before {where}; no send_wait, and not every receiver has a recv for it"
                    self.fault("send under way", run, m.at, text, m.src)

    def end(self, complete: bool = True) -> None:
        """The launch is over; not `complete`: the tiles could not go on."""
        if complete:
            for kind, run, at, text in self.uses.faults():
                self.fault(kind, run, at, text)
            self._open_sends("the end of its segment", self.runs)
        for tile, monitors in enumerate(self.order.monitors):
            for number, monitor in enumerate(monitors):
                for leg in monitor.open[:1]:
                    m = leg.message
                    text = f"sends {leg.dst[1] - leg.dst[0]} bytes to {self._name(tile)}, monitor {number}, which no recv takes"
                    self.fault("message not received", m.run, m.at, text, leg.dst)
            self.order.monitors[tile] = [type(m)() for m in monitors]
            self.order.landing[tile] = []

    # -- what rows do to values and DDR -------------------------------------------------------------------------

    def _undefined(self, run: Run, at: int, span: Range, what: str) -> None:
        text = f"{what} SPM bytes [{span[0]:#x}, {span[1]:#x}), {self._history(run, at, span[0])}"
        self.fault("uninitialised read", run, at, text, span)

    def _history(self, run: Run, at: int, byte: int) -> str:
        """Say which row last wrote an undefined SPM byte."""
        table = run.facts.writes[:at]
        covers = (table[..., 0] <= byte) & (table[..., 1] > byte) & (run.facts.units[:at, None] != DTE)
        hit = np.flatnonzero(covers.any(axis=1))
        if not len(hit):
            return "which nothing has written in this launch"
        return f"whose last writer, {self.order.say(run, int(hit[-1]), run)}, had no defined value for them"

    def _transfer(self, run: Run, at: int, row: np.void, address: int, store: bool) -> None:
        p = row["p"].tolist()
        pick, span = dma_pick(address, p)
        chip = self._chip(run.tile)
        self.races[chip].access(run, at, pick, span, store)
        ddr, addr = pick(self.memory[chip].made), int(row["spm"][0])
        spm = self.shadows[run.tile].spm[addr : addr + ddr.size]
        if not store:
            spm[...] = np.where(ddr.reshape(-1), 0, 0xFF)
            self.shadows[run.tile].formats.kind[addr : addr + ddr.size] = 0
            if ddr.size and not ddr.any():
                text = f"reads DDR bytes [{span[0]:#x}, {span[1]:#x}), {self._ddr_history(span, chip)}"
                self.fault("uninitialised read", run, at, text, span)
            return
        if spm.size and spm.all():
            self._undefined(run, at, (addr, addr + ddr.size), "stores")
        elif spm.any():
            byte = addr + int(np.argmax(spm != 0))
            self.stores.append((run, at, span, f"stores SPM byte {byte:#x}, {self._history(run, at, byte)}"))
        self.memory[chip].store(pick, (spm == 0).reshape(ddr.shape))

    def _look_up(self, run: Run, at: int, state: Any) -> tuple[np.void, int]:
        """The kernel core reads a row number from DDR. Return the transfer it starts, and how far behind the first row."""
        row = run.facts.rows[at]
        pick, span = number_pick(row, run.slots)
        chip = self._chip(run.tile)
        self.races[chip].access(run, at, pick, span, False, core=True)
        if not pick(self.memory[chip].made).all():
            text = f"takes its row number from DDR bytes [{span[0]:#x}, {span[1]:#x}), {self._ddr_history(span, chip)}"
            self.fault("uninitialised read", run, at, text, span)
        number = isa.lookup.row_number(state, int(row["fmt"]), row["p"].tolist())
        return isa.class_of(int(row["opcode"])).plain(row, number)  # type: ignore[attr-defined]

    def _ddr_history(self, span: Range, chip: int) -> str:
        """Say where undefined DDR bytes come from."""
        for run, at, (lo, hi), text in reversed(self.stores):
            if lo < span[1] and span[0] < hi and self._chip(run.tile) == chip:
                return f"where launch '{run.launch}', {self._name(run.tile)}, {self.order.say(run, at, run)} {text}"
        return "which no input, parameter or launch has written"

    def _send(self, run: Run, at: int, row: np.void) -> None:
        p, (src, dst) = row["p"].tolist(), row["spm"][:2].tolist()
        (span,), _ = run.facts.spans(at) if p[0] else ([(src, src)], [])
        cls = isa.class_of(int(row["opcode"]))
        chip = p[3] - 1 if "chip" in cls.FIELDS_P and p[3] > 0 else self._chip(run.tile)
        home = chip * self.machine.n_tiles
        self.order.send(run, at, span, (dst, dst + p[0]), [home + t for t in mask_tiles(p[1])], p[2])
        self.uses.read(run.tile, [span])
        for other, data in cls.pieces(self.shadows[run.tile].spm, src, p):  # type: ignore[attr-defined]
            if p[0] and data.all():
                self._undefined(run, at, span, "sends")
            if home + other in self.shadows:
                self.shadows[home + other].spm[dst : dst + p[0]] = data
                self.uses.write(run, at, [(dst, dst + p[0])], home + other)
        for other, kinds in cls.pieces(self.shadows[run.tile].formats.kind, src, p):  # type: ignore[attr-defined]
            if home + other in self.shadows:
                self.shadows[home + other].formats.kind[dst : dst + p[0]] = kinds

    def _routine(self, run: Run, at: int, routine: dict[str, Any]) -> None:
        chip = self._chip(run.tile)
        races, memory = self.races[chip], self.memory[chip]
        for operand in routine["inputs"]:
            if operand is not None:
                pick, span = operand_pick(operand, run.slots)
                races.access(run, at, pick, span, False)
                if bad := first_undefined(pick(memory.made), operand, span[0]):
                    history = self._ddr_history(bad, chip)
                    text = f"({routine['routine']}) needs DDR bytes [{bad[0]:#x}, {bad[1]:#x}), {history}"
                    self.fault("uninitialised read", run, at, text, bad)
        for operand in routine["outputs"]:
            if operand is not None:
                pick, span = operand_pick(operand, run.slots)
                races.access(run, at, pick, span, True)
                memory.store(pick, True)
        self.order.join(run, at + 1, (ROUTINES,))

    def _output(self, t: Tensor, memory: Memory) -> None:
        """A program output must be defined in all logical elements."""
        start = t.address - DDR_BASE
        size = image_bytes(t.shape, t.ddr_dtype, t.layout)
        operand = {"shape": t.shape, "dtype": t.ddr_dtype, "layout": t.layout}
        if bad := first_undefined(memory.made[start : start + size], operand, t.address):
            history = self._ddr_history(bad, self.memory.index(memory))
            text = f"DDR bytes [{bad[0]:#x}, {bad[1]:#x}) have no defined value, {history}"
            self._end_finding("undefined result", "", "", f"output '{t.name}': {text}", bad)
