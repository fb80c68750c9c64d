"""The cycle simulator: how long a program takes, where the time goes, how far it is from the roofline.

May import: program.model, machine, errors, and counters, losses, roofline, rows, stretch, timing beside it. Must not: execute
instructions or know the IR.

A stretch of launches that ends in a barrier leaves all tiles idle, so equal stretches take equal time and are
simulated once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from typing import Any

import numpy as np

from tx8fast.errors import ProgramError
from tx8fast.machine import Machine, noc
from tx8fast.program.model import Program
from tx8fast.records import dataclass
from tx8fast.simulator import counters, losses, timing
from tx8fast.simulator.roofline import Roofline, group_roofline, roofline
from tx8fast.simulator.rows import event_input
from tx8fast.simulator.stretch import name_of, parts_of, run, unroll

UNITS: tuple[str, ...] = ("ct", "ne", "rdma", "wdma", "tdma", "kcore", "sync", "issue", "dte")
# A DMA engine is bound by the DDR if this much of its busy time is DDR time at full rate.
DDR_SHARE = 0.75


@dataclass
class Group:
    """Launches that take the same time. busy, blocked: cycles by unit, summed over tiles, of ONE launch.

    noc_bytes: bytes over links between tiles, added up over the links; c2c_bytes: the same of links between chips;
    port_bytes: through the tiles' write ports, if the machine has any.
    Of a program for several chips the rest is of one chip: the mean where chips differ. losses: cycles of ONE launch above its bound,
    by name (`losses.LOSSES`).
    """

    name: str
    segments: tuple[str, ...]
    cycles: int
    count: int
    bound: str
    instructions: int
    ddr_bytes: int
    busy: dict[str, int]
    blocked: dict[str, int]
    noc_bytes: int = 0
    c2c_bytes: int = 0
    port_bytes: int = 0
    roofline: Roofline = Roofline(0.0, 0.0)
    losses: dict[str, float] = field(default_factory=dict)
    engine_instructions: dict[str, int] = field(default_factory=dict)
    union_busy: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the row of a report, JSON-able, stable keys."""
        return {
            "name": self.name,
            "segments": list(self.segments),
            "cycles": self.cycles,
            "count": self.count,
            "total_cycles": self.cycles * self.count,
            "bound": self.bound,
            "instructions": self.instructions,
            "ddr_bytes": self.ddr_bytes,
            "noc_bytes": self.noc_bytes,
            **({"c2c_bytes": self.c2c_bytes} if self.c2c_bytes else {}),
            **({"port_bytes": self.port_bytes} if self.port_bytes else {}),
            "busy": self.busy,
            "blocked": self.blocked,
            **self.roofline.to_json(),
            "roofline_ratio": self.roofline.ratio(self.cycles),
            "losses": self.losses,
        }


@dataclass
class CycleResult:
    """Times in cycles. busy, blocked: by unit, summed over all tiles and launches; noc_bytes, c2c_bytes as in Group.

    timeline: per stretch (name, index of its group, start cycle), in execution order.
    """

    machine: Machine
    cycles: int
    instructions: int
    ddr_bytes: int
    busy: dict[str, int]
    blocked: dict[str, int]
    groups: list[Group]
    roofline: Roofline
    timeline: list[tuple[str, int, int]] = field(default_factory=list)
    noc_bytes: int = 0
    c2c_bytes: int = 0
    port_bytes: int = 0
    chips: tuple[int, int] = (1, 1)

    @property
    def seconds(self) -> float:
        return self.cycles / self.machine.chip.clock_hz

    @property
    def bound_cycles(self) -> float:
        return self.roofline.bound_cycles

    @property
    def roofline_ratio(self) -> float:
        return self.roofline.ratio(self.cycles)

    @property
    def utilisation(self) -> dict[str, float]:
        """Busy share of each unit over all tiles, of the DDR's practical bandwidth, and of the links' bandwidth."""
        whole = self.cycles * self.machine.n_tiles
        out = {unit: busy / whole if whole else 0.0 for unit, busy in self.busy.items()}
        out["dte"] /= self.machine.dte.engines
        links = noc.grid(self.machine).n_links
        carried = self.cycles * links * self.machine.noc.link_bytes
        out["noc"] = self.noc_bytes / carried if carried else 0.0
        if self.machine.dte.write_port_bytes:
            written = whole * self.machine.dte.write_port_bytes
            out["port"] = self.port_bytes / written if written else 0.0
        usable = self.cycles * self.machine.ddr_bytes_per_cycle
        out["ddr"] = self.ddr_bytes / usable if usable else 0.0
        if self.chips != (1, 1):
            between = noc.grid(self.machine, self.chips).chip_links
            carried = self.cycles * len(between) * self.machine.c2c.link_bytes
            out["c2c"] = self.c2c_bytes / carried if carried else 0.0
        return out

    @property
    def losses(self) -> dict[str, float]:
        """Cycles above the bound, by name. "cut": what the groups' bounds exceed the model's by, because intermediates
        go through the DDR and because not every group is bound by what bounds the model."""
        out = {name: sum(g.losses.get(name, 0.0) * g.count for g in self.groups) for name in losses.LOSSES}
        return {**out, "cut": sum(g.roofline.bound_cycles * g.count for g in self.groups) - self.bound_cycles}

    @property
    def counters(self) -> dict[str, Any]:
        """The performance monitor's counters, summed over tiles and launches."""
        names = (*counters.ENGINES, "dte")
        rows = {n: sum(g.engine_instructions[n] * g.count for g in self.groups) for n in names}
        union = sum(g.union_busy * g.count for g in self.groups)
        return counters.monitor(rows, self.busy, self.blocked, union, self.cycles)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the timeline, JSON-able, stable keys."""
        return {
            "cycles": self.cycles,
            "seconds": self.seconds,
            **self.roofline.to_json(),
            "bound": self.roofline.bound,
            "roofline_ratio": self.roofline_ratio,
            "losses": self.losses,
            "utilisation": self.utilisation,
            "busy_cycles": self.busy,
            "blocked_cycles": self.blocked,
            "ddr_bytes": self.ddr_bytes,
            "noc_bytes": self.noc_bytes,
            **({} if self.chips == (1, 1) else {"chips": list(self.chips), "c2c_bytes": self.c2c_bytes}),
            **({"port_bytes": self.port_bytes} if self.machine.dte.write_port_bytes else {}),
            "instructions": self.instructions,
            "counters": self.counters,
            "groups": [g.to_json() for g in self.groups],
        }


@dataclass(frozen=True)
class TileTrace:
    """Rows (n,) RECORD that one tile executed, with their start and end cycles (n,) int64."""

    tile: int
    rows: np.ndarray
    start: np.ndarray
    end: np.ndarray


@dataclass(frozen=True)
class StretchTrace:
    """Launches up to a barrier, which begins at cycle `start` and takes `cycles`.

    tiles: what each executed, cycles from the beginning of the stretch. counts[tile][k]: rows of launch k of the stretch.
    ddr_bytes: per tile, bytes that each row moves to or from DDR. group: number among the distinct stretches, as in
    `CycleResult.groups`. link_bytes: bytes over every link between tiles of the first chip, in the order of `noc.all_links`.
    """

    launches: list[int]
    name: str
    start: int
    cycles: int
    tiles: list[TileTrace]
    counts: list[list[int]]
    ddr_bytes: list[np.ndarray]
    group: int
    link_bytes: np.ndarray


def simulate(
    program: Program,
    serial: bool | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CycleResult:
    """Simulate all launches; chips begin every stretch together. `serial` = one instruction at a time per tile; None takes the machine's mode.

    `progress(done, total)` counts launches.
    Raises ProgramError if launches do not fit their segments, SimulationError for instructions without a timing
    and for tiles that wait for each other or leave messages behind.
    """
    machine = Machine.from_dict(program.machine)
    segments = unroll(machine, program)
    found: dict[tuple, int] = {}
    groups: list[Group] = []
    timeline: list[tuple[str, int, int]] = []
    clock = 0
    for stretch in timing.stretches(program.launches, segments):
        parts = parts_of(program, segments, stretch)
        key = timing.key(parts, machine.chip.ddr_page)
        name = name_of(program, stretch)
        if key not in found:
            found[key] = len(groups)
            groups.append(_simulate_group(machine, program, parts, name, serial))
        group = groups[found[key]]
        group.count += 1
        timeline.append((name, found[key], clock))
        clock += group.cycles
        if progress is not None:
            progress(stretch[-1] + 1, len(program.launches))
    return CycleResult(
        machine=machine,
        cycles=clock,
        instructions=sum(g.instructions * g.count for g in groups),
        ddr_bytes=sum(g.ddr_bytes * g.count for g in groups),
        busy={u: sum(g.busy[u] * g.count for g in groups) for u in UNITS},
        blocked={u: sum(g.blocked[u] * g.count for g in groups) for u in UNITS},
        groups=groups,
        roofline=roofline(machine, program.meta),
        timeline=timeline,
        noc_bytes=sum(g.noc_bytes * g.count for g in groups),
        c2c_bytes=sum(g.c2c_bytes * g.count for g in groups),
        port_bytes=sum(g.port_bytes * g.count for g in groups),
        chips=program.chips,
    )


def trace(program: Program, launch: int, serial: bool | None = None) -> list[TileTrace]:
    """Return per tile what happened when in the stretch (launches up to a barrier) that holds `launch`.

    Cycles count from the beginning of the stretch. Raises as `simulate`, ProgramError if there is no such launch.
    """
    machine = Machine.from_dict(program.machine)
    segments = unroll(machine, program)
    stretch = next((s for s in timing.stretches(program.launches, segments) if launch in s), None)
    if stretch is None:
        raise ProgramError(f"tracing launch {launch}: the program has {len(program.launches)} launches")
    return _trace(machine, program, segments, stretch, serial, 0, 0).tiles


def traces(program: Program, serial: bool | None = None) -> Iterator[StretchTrace]:
    """Yield what all tiles (of the first chip) do, stretch by stretch; equal stretches are simulated once. Raises as `simulate`."""
    machine = Machine.from_dict(program.machine)
    segments = unroll(machine, program)
    known: dict[tuple, StretchTrace] = {}
    clock = 0
    for stretch in timing.stretches(program.launches, segments):
        key = timing.key(parts_of(program, segments, stretch), machine.chip.ddr_page)
        if key not in known:
            known[key] = _trace(machine, program, segments, stretch, serial, clock, len(known))
        yield replace(known[key], launches=stretch, name=name_of(program, stretch), start=clock)
        clock += known[key].cycles


def _trace(
    machine: Machine,
    program: Program,
    segments: list[timing.SegmentCode],
    stretch: list[int],
    serial: bool | None,
    start: int,
    group: int,
) -> StretchTrace:
    parts, name = parts_of(program, segments, stretch), name_of(program, stretch)
    rows = event_input(machine, parts, timing.chips_of(parts, program.chips))
    times = run(machine, rows, serial, parts, name)
    tiles, counts, ddr_bytes = [], [], []
    for tile in range(machine.n_tiles):
        at = slice(rows.tile_begin[tile], rows.tile_begin[tile + 1])
        own = [p.code.code(tile).rows for p in parts]
        tiles.append(TileTrace(tile, np.concatenate(own), times.start[at], times.end[at]))
        counts.append([len(r) for r in own])
        ddr_bytes.append(rows.ddr_bytes[at])
    n_links = len(noc.all_links(noc.grid(machine)))
    links = times.link_bytes[:n_links] if len(times.link_bytes) else np.zeros(n_links, np.int64)
    return StretchTrace(stretch, name, start, int(times.cycles), tiles, counts, ddr_bytes, group, links)


def _simulate_group(
    machine: Machine, program: Program, parts: list[timing.Part], name: str, serial: bool | None
) -> Group:
    chips = timing.chips_of(parts, program.chips)
    n = chips[0] * chips[1]
    rows = event_input(machine, parts, chips)
    times = run(machine, rows, serial, parts, name)
    ddr_bytes = int(rows.ddr_bytes.sum()) // n
    ddr_cycles = ddr_bytes / machine.ddr_bytes_per_cycle
    limit = group_roofline(machine, [p.code.segment.info for p in parts], program.meta, ddr_bytes)
    busy = dict(zip(UNITS, (times.busy.sum(axis=0) // n).tolist()))
    link_bytes = times.link_bytes[: len(times.link_bytes) - rows.routes.ports]
    between = len(link_bytes) - rows.routes.slow_links
    # the transfer engines of a tile count together
    times.busy[:, UNITS.index("dte")] //= machine.dte.engines
    return Group(
        name=name,
        segments=tuple(p.code.segment.name for p in parts),
        cycles=times.cycles,
        count=0,
        bound=_bound(times.busy.max(axis=0), ddr_cycles),
        instructions=len(rows.fixed) // n if n > 1 else sum(p.code.instructions for p in parts),
        ddr_bytes=ddr_bytes,
        busy=busy,
        blocked=dict(zip(UNITS, (times.blocked.sum(axis=0) // n).tolist())),
        noc_bytes=int(link_bytes[:between].sum()) // n,
        c2c_bytes=int(link_bytes[between:].sum()),
        port_bytes=int(times.link_bytes[len(link_bytes) :].sum()) // n,
        roofline=limit,
        losses=losses.account(rows, times, limit, ddr_cycles),
        engine_instructions={k: v // n for k, v in counters.engine_instructions(rows).items()},
        union_busy=counters.union_busy(rows, times) // n,
    )


def _bound(busiest: np.ndarray, ddr_cycles: float) -> str:
    """Return the unit that is busy longest on its busiest tile, "ddr" where the shared bandwidth is the reason."""
    unit = UNITS[int(np.argmax(busiest))]
    if unit in ("rdma", "wdma") and ddr_cycles >= DDR_SHARE * int(busiest.max()):
        return "ddr"
    return unit
