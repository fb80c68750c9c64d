"""A cycle simulation as a file for trace viewers: Chrome JSON, or Perfetto's protobuf.

May import: numpy, isa, machine, program.model, errors, simulator.cycle, simulator.detail, simulator.network, simulator.trace_view. Must not: open files or simulate itself.

One process per tile with a track per engine, and one for the whole chip: its launches, and the bytes per cycle that DDR
and the links between tiles carry. Times are those of the machine's clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePath
from typing import IO, Any

import numpy as np

from tx8fast import isa
from tx8fast.errors import ConfigError
from tx8fast.isa.comm import mask_tiles
from tx8fast.machine import Machine, noc
from tx8fast.program.model import Program
from tx8fast.simulator.cycle import StretchTrace
from tx8fast.simulator.detail import Run, binned
from tx8fast.simulator.trace_view import Chosen, TraceView, bins, choose, clip, drawn
from tx8fast.simulator.trace_view import lanes as trace_lanes

#: tracks of a tile, by the units of the instruction set
TRACKS = {
    "ne": "NE",
    "ct": "CT",
    "tdma": "TDMA",
    "rdma": "RDMA",
    "wdma": "WDMA",
    "kcore": "kernel core",
    "sync": "waits",
    "dte": "DTE",
    "scalar": "scalar unit",
}
CHIP = 1  # process number; tile t is CHIP + 1 + t
LAUNCHES = 1  # track of the chip
SUFFIXES = (".json", ".pftrace")
SEQUENCE = 1
SLICE_BEGIN, SLICE_END, COUNTER = 1, 2, 4


def check_name(path: PurePath) -> None:
    """Raise ConfigError unless the name says which format is meant."""
    if path.suffix not in SUFFIXES:
        raise ConfigError(
            f"writing trace {path}: found suffix '{path.suffix}', required {' (Chrome) or '.join(SUFFIXES)} (Perfetto)"
        )


def write_trace(
    program: Program, file: IO[bytes], suffix: str, serial: bool | None = None, view: TraceView | None = None
) -> Chosen:
    """Simulate `program` and write the part that `view` asks for to an open binary file; return what that is. Without a view: every
    instruction. Raises as `trace_view.choose`."""
    view = TraceView(detail="instructions") if view is None else view
    chosen = choose(program, view, serial)
    machine = Machine.from_dict(program.machine)
    out = (_Chrome if suffix == ".json" else _Perfetto)(file, machine.chip.clock_hz)
    out.process(CHIP, "chip")
    out.track(CHIP, LAUNCHES, "launches")
    out.counter(CHIP, "DDR", "bytes/cycle")
    out.counter(CHIP, "NoC", "bytes/cycle")
    lanes, links, cut = _Lanes(machine, out), _Links(machine), clip(view.window)
    joined: dict[int, Any] = {}
    for stretch, with_tiles in drawn(chosen):
        span = cut(stretch.start, stretch.start + stretch.cycles)
        if span is not None:
            out.slice(CHIP, LAUNCHES, stretch.name, *span, {"launches": len(stretch.launches)})
        if not with_tiles:
            continue
        if chosen.resolution and stretch.group not in joined:
            joined[stretch.group] = _joined(program, stretch, chosen.resolution, links)
        for tile in stretch.tiles:
            if chosen.resolution:
                rows = _run_slices(program, stretch, joined[stretch.group][0][tile.tile], lanes)
            else:
                rows = _slices(program, stretch, tile.tile, lanes)
            for track, name, lo, hi, args in rows:
                span = cut(stretch.start + lo, stretch.start + hi)
                if span is not None:
                    out.slice(CHIP + 1 + tile.tile, track, name, *span, args)
        counters = joined[stretch.group][1] if chosen.resolution else _exact_counters(stretch, links)
        for name, steps in counters:
            for at, value in steps:
                if view.window[0] <= stretch.start + at <= view.window[1]:
                    out.count(CHIP, name, stretch.start + at, value)
    out.close()
    return chosen


def _exact_counters(stretch: StretchTrace, links: _Links) -> list[tuple[str, list[tuple[int, float]]]]:
    return [("DDR", _steps(*_transfers(stretch))), ("NoC", _steps(*links.messages(stretch)))]


def _joined(program: Program, stretch: StretchTrace, resolution: int, links: _Links) -> tuple[Any, Any]:
    """Return the joined runs of every tile and the counters of a stretch, of which equal ones have the same."""
    tiles = [trace_lanes(stretch, t, program, resolution) for t in range(len(stretch.tiles))]
    n, counters = bins(stretch, resolution), []
    for name, (start, end, amount) in (("DDR", _transfers(stretch)), ("NoC", links.messages(stretch))):
        values = binned(start, end, amount, 0, resolution, n) / resolution
        steps = [
            (i * resolution, round(v, 3))
            for i, v in enumerate(values.tolist())
            if i == 0 or round(v, 3) != round(values[i - 1], 3)
        ]
        counters.append((name, [*steps, (stretch.cycles, 0.0)]))
    return tiles, counters


def _run_slices(
    program: Program, stretch: StretchTrace, found: dict[int, list[Run]], lanes: _Lanes
) -> Iterator[tuple[int, str, int, int, dict[str, Any]]]:
    """Yield slices as `_slices`, of joined runs."""
    for unit, some in found.items():
        if isa.UNITS[unit] not in lanes.number:
            continue
        track = lanes.number[isa.UNITS[unit]]
        for run in some:
            part, op = run.name  # type: ignore[misc]
            segment = program.segments[program.launches[stretch.launches[part]].segment]
            name = segment.ops[op] if 0 <= op < len(segment.ops) else segment.name
            others = len(run.busy) - 1
            busy = min(100, round(100 * sum(run.busy.values()) / (run.end - run.start)))
            details = {"instructions": run.count, "busy %": busy}
            yield track, f"{name} and {others} more" if others else name, run.start, run.end, details


class _Lanes:
    """Track numbers; messages of one tile that overlap go to tracks of their own."""

    def __init__(self, machine: Machine, out: Any) -> None:
        self.number: dict[str, int] = {}
        for tile in range(machine.n_tiles):
            out.process(CHIP + 1 + tile, f"tile {tile}")
            for unit, name in TRACKS.items():
                for k in range(machine.dte.engines if unit == "dte" else 1):
                    self.number.setdefault(unit, len(self.number) + 1)
                    out.track(CHIP + 1 + tile, self.number[unit] + k, f"{name} {k}" if k else name)


def _slices(
    program: Program, stretch: StretchTrace, tile: int, lanes: _Lanes
) -> Iterator[tuple[int, str, int, int, dict[str, Any]]]:
    """Yield (track, name, start, end, details) of every row that takes time, by track in the order of time."""
    trace = stretch.tiles[tile]
    units = isa.units(trace.rows)
    part = np.repeat(np.arange(len(stretch.launches)), stretch.counts[tile])
    names = [isa.class_of(op).NAME for op in trace.rows["opcode"].tolist()]
    for unit in TRACKS:
        which = np.flatnonzero((units == isa.UNITS.index(unit)) & (trace.end > trace.start))
        free: list[int] = []
        for at in which[np.argsort(trace.start[which], kind="stable")].tolist():
            lo, hi = int(trace.start[at]), int(trace.end[at])
            lane = next((k for k, busy in enumerate(free) if busy <= lo), len(free))
            free[lane : lane + 1] = [hi]
            launch = program.launches[stretch.launches[part[at]]]
            segment = program.segments[launch.segment]
            op = int(trace.rows["op"][at])
            name = segment.ops[op] if 0 <= op < len(segment.ops) else segment.name
            details = {
                "instruction": names[at],
                "segment": segment.name,
                "launch": launch.name,
                "worker": int(trace.rows["worker"][at]),
            }
            yield lanes.number[unit] + lane, f"{name}: {names[at]}", lo, hi, details


def _steps(start: np.ndarray, end: np.ndarray, amount: np.ndarray) -> list[tuple[int, float]]:
    """Return (cycle, value) where the rate changes at which amounts move, each evenly over its [start, end)."""
    if not len(start):
        return []
    rate = amount / (end - start)
    at = np.concatenate([start, end])
    change = np.concatenate([rate, -rate])
    when, index = np.unique(at, return_inverse=True)
    total = np.zeros(len(when))
    np.add.at(total, index, change)
    level = np.round(np.cumsum(total), 6) + 0.0
    return list(zip(when.tolist(), level.tolist()))


def _transfers(stretch: StretchTrace) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return start, end and bytes of all that crosses the DDR."""
    start, end, size = (
        np.concatenate(x) for x in ([t.start for t in stretch.tiles], [t.end for t in stretch.tiles], stretch.ddr_bytes)
    )
    some = (size > 0) & (end > start)
    return start[some], end[some], size[some]


class _Links:
    """Bytes on links: a broadcast crosses every link of its tree once, a scatter's parts go their own ways."""

    def __init__(self, machine: Machine) -> None:
        self.grid = noc.grid(machine)
        self.known: dict[tuple[int, int, bool], int] = {}

    def _count(self, tile: int, mask: int, scatters: bool) -> int:
        key = (tile, mask, scatters)
        if key not in self.known:
            links = [link for dst in mask_tiles(mask) for link in self.grid.links(tile, dst)]
            self.known[key] = len(links if scatters else set(links))
        return self.known[key]

    def messages(self, stretch: StretchTrace) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return start, end and bytes, added up over links, of the messages of a stretch."""
        found = []
        for t in stretch.tiles:
            for at in np.flatnonzero(isa.units(t.rows) == isa.UNITS.index("dte")).tolist():
                size, mask = t.rows["p"][at, :2].tolist()
                links = self._count(t.tile, mask, isa.class_of(int(t.rows["opcode"][at])).NAME == "scatter")
                if links and t.end[at] > t.start[at]:
                    found.append((int(t.start[at]), int(t.end[at]), size * links))
        start, end, amount = np.array(found, np.int64).reshape(-1, 3).T
        return start, end, amount


class _Chrome:
    """The JSON array of Chrome's trace viewer; times in microseconds."""

    def __init__(self, file: IO[bytes], clock_hz: float) -> None:
        self.file, self.scale = file, 1e6 / clock_hz
        self.first = True
        file.write(b'{"displayTimeUnit":"ns","traceEvents":[')

    def _event(self, **fields: Any) -> None:
        text = json.dumps(fields, separators=(",", ":"), allow_nan=False)
        self.file.write(("\n" if self.first else ",\n").encode() + text.encode())
        self.first = False

    def process(self, pid: int, name: str) -> None:
        self._event(ph="M", pid=pid, tid=0, name="process_name", args={"name": name})
        self._event(ph="M", pid=pid, tid=0, name="process_sort_index", args={"sort_index": pid})

    def track(self, pid: int, tid: int, name: str) -> None:
        self._event(ph="M", pid=pid, tid=tid, name="thread_name", args={"name": name})
        self._event(ph="M", pid=pid, tid=tid, name="thread_sort_index", args={"sort_index": tid})

    def counter(self, pid: int, name: str, unit: str) -> None:
        """Counters need no declaration."""

    def slice(self, pid: int, tid: int, name: str, start: int, end: int, details: dict[str, Any]) -> None:
        self._event(
            ph="X", pid=pid, tid=tid, name=name, ts=start * self.scale, dur=(end - start) * self.scale, args=details
        )

    def count(self, pid: int, name: str, at: int, value: float) -> None:
        self._event(ph="C", pid=pid, tid=0, name=name, ts=at * self.scale, args={"bytes/cycle": value})

    def close(self) -> None:
        self.file.write(b"\n]}\n")


def varint(value: int) -> bytes:
    """Return a non-negative integer as protobuf writes it: seven bits per byte, lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: int | float | str | bytes) -> bytes:
    """Return one protobuf field: integers as varint, floats as 64 bit, text and messages with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + np.float64(value).tobytes()
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


class _Perfetto:
    """A sequence of TracePacket messages; times in nanoseconds. Names of slices are interned.

    Field numbers are those of perfetto's trace_packet.proto, track_descriptor.proto and track_event.proto.
    """

    def __init__(self, file: IO[bytes], clock_hz: float) -> None:
        self.file, self.scale = file, 1e9 / clock_hz
        self.names: dict[str, int] = {}
        self.counters: dict[tuple[int, str], int] = {}
        self.fresh = True  # the first packet says that there is no earlier state

    def _packet(self, *fields: bytes) -> None:
        flags = 1 if self.fresh else 2  # state cleared, state needed
        self.fresh = False
        body = b"".join(fields) + field(10, SEQUENCE) + field(13, flags)
        self.file.write(field(1, body))

    @staticmethod
    def _uuid(pid: int, tid: int) -> int:
        return pid << 16 | tid

    def process(self, pid: int, name: str) -> None:
        self._packet(field(60, field(1, self._uuid(pid, 0)) + field(3, field(1, pid) + field(6, name))))

    def track(self, pid: int, tid: int, name: str) -> None:
        thread = field(1, pid) + field(2, pid << 8 | tid) + field(5, name)
        self._packet(field(60, field(1, self._uuid(pid, tid)) + field(5, self._uuid(pid, 0)) + field(4, thread)))

    def counter(self, pid: int, name: str, unit: str) -> None:
        uuid = self.counters[pid, name] = self._uuid(pid, 0x8000 + len(self.counters))
        self._packet(
            field(60, field(1, uuid) + field(5, self._uuid(pid, 0)) + field(2, name) + field(8, field(6, unit)))
        )

    def _at(self, cycle: int) -> bytes:
        return field(8, round(cycle * self.scale))

    def slice(self, pid: int, tid: int, name: str, start: int, end: int, details: dict[str, Any]) -> None:
        interned = b""
        if name not in self.names:
            self.names[name] = len(self.names) + 1
            interned = field(12, field(2, field(1, self.names[name]) + field(2, name)))
        track = field(11, self._uuid(pid, tid))
        notes = b"".join(
            field(4, field(10, k) + (field(4, v) if isinstance(v, int) else field(6, v))) for k, v in details.items()
        )
        self._packet(
            self._at(start), interned, field(11, field(9, SLICE_BEGIN) + track + field(10, self.names[name]) + notes)
        )
        self._packet(self._at(end), field(11, field(9, SLICE_END) + track))

    def count(self, pid: int, name: str, at: int, value: float) -> None:
        self._packet(
            self._at(at), field(11, field(9, COUNTER) + field(11, self.counters[pid, name]) + field(44, value))
        )

    def close(self) -> None:
        """Nothing follows the last packet."""
