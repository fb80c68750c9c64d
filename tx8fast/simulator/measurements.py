"""Measured times of single instructions, and what the simulator says of the same.

May import: the standard library, numpy, isa, machine, program.builder, errors, simulator.cycle. Must not: read files, or fit.

A measurement is what a small program takes on a tile: one instruction, or several issued at once, from the start of the
first to the end of the last. A transfer between tiles also counts the kernel core's part, `dte.setup_sw`, as its caller does.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from tx8fast.errors import ConfigError, Tx8Error, raise_all
from tx8fast.machine import DDR_BASE, Machine
from tx8fast.program.builder import CodeBuilder, make_program, make_segment
from tx8fast.program.model import Program
from tx8fast.program.verify import verify
from tx8fast.records import dataclass
from tx8fast.simulator.cycle import trace

REQUIRED = ("engine", "size", "cycles")
DEFAULTS = {"tiles": "1", "offset": "0", "source": ""}
MOST_TOGETHER = 6  # instructions of one measurement: the shortest queue holds four, and buffers need room
MOST_ROWS = 10_000
FAR = 1 << 30  # bytes between what is read and what is written in DDR


def _bytes(size: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", size) or int(size) < 1:
        raise ValueError("required a number of bytes")
    return int(size)


def _gemm(size: str, at: int, room: int) -> dict[str, Any]:
    if not re.fullmatch(r"[0-9]{1,5}x[0-9]{1,5}x[0-9]{1,5}", size):
        raise ValueError("required rows x depth x columns, for example 8x8x64")
    m, k, n = map(int, size.split("x"))
    return {
        "left": at,
        "right": at + room // 3,
        "out": at + 2 * (room // 3),
        "m": m,
        "k": k,
        "n": n,
        "fmt": "bf16",
        "out_fmt": 3,
    }


def _vector(size: str, at: int, room: int) -> dict[str, Any]:
    if _bytes(size) % 2:
        raise ValueError("required an even number of bytes")
    third = room // 3 // 256 * 256
    return {"src0": at, "src1": at + third, "dst": at + 2 * third, "n": _bytes(size) // 2, "fmt": "bf16"}


#: engine -> instruction and its fields, from the size as written, the first scratchpad byte, and the bytes there are
ENGINES: Mapping[str, tuple[str, Callable[[str, int, int], dict[str, Any]]]] = {
    "ct": ("add_vv", _vector),
    "ne": ("gemm", lambda size, at, room: _gemm(size, at // 256 * 256, room // 768 * 768)),
    "rdma": ("rdma", lambda size, at, room: {"dst": at, "run_bytes": _bytes(size), "slot": 0}),
    "wdma": ("wdma", lambda size, at, room: {"src": at, "run_bytes": _bytes(size), "slot": 1}),
    "tdma": (
        "gather_scatter",
        lambda size, at, room: {"src0": at, "dst": at + room // 512 * 256, "size": _bytes(size)},
    ),
    "dte": ("send", lambda size, at, room: {"src": at, "dst": at, "bytes": _bytes(size), "mask": 1 << 1}),
    "wait": ("wait", lambda size, at, room: {}),
    "barrier": ("barrier", lambda size, at, room: {}),
}
ALONE = ("dte", "wait", "barrier")


@dataclass(frozen=True)
class Measurement:
    """engine: one of ENGINES, or several with "+" between them. size: bytes, of products rows x depth x columns.
    low, high: cycles, between which every value was measured. tiles: how many do the same. offset: bytes by which the first
    operand in scratchpad (of transfers with DDR: the address there) misses its alignment."""

    engine: str
    size: str
    low: float
    high: float
    tiles: int = 1
    offset: int = 0

    @property
    def text(self) -> str:
        """The cycles as they are written."""
        if self.low == self.high:
            return f"{self.low:g}"
        return f">={self.low:g}" if math.isinf(self.high) else f"{self.low:g}-{self.high:g}"

    def residual(self, cycles: int) -> float:
        """How far `cycles` lie outside what was measured, as a share of it; negative: too few."""
        target = min(max(cycles, self.low), self.high)
        return (cycles - target) / target


def parse(text: str, name: str, machine: Machine) -> list[Measurement]:
    """Return the measurements of a CSV text with columns engine, size, cycles, and perhaps tiles, offset, source.

    cycles is a number, a range `78-79`, or `>=1935`. Raises ConfigError that lists every bad line."""
    doing, problems, out = f"reading measurements {name}", [], []
    try:
        rows = list(csv.reader(io.StringIO(text), strict=True))
    except csv.Error as e:
        raise ConfigError(f"{doing}: not valid CSV: {e}") from None
    head = [x.strip() for x in rows[0]] if rows else []
    problems += [f"column '{c}' is missing" for c in REQUIRED if c not in head]
    problems += [
        f"column '{c:.40}' is unknown, there are {', '.join((*REQUIRED, *DEFAULTS))}"
        for c in head
        if c not in REQUIRED and c not in DEFAULTS
    ]
    problems += [f"column '{c}' is there {head.count(c)} times" for c in dict.fromkeys(head) if head.count(c) > 1]
    if len(rows) > MOST_ROWS:
        problems.append(f"{len(rows):,} lines, at most {MOST_ROWS:,} are read")
    raise_all(ConfigError, doing, problems)
    for number, row in enumerate(rows[1:], 2):
        if not any(x.strip() for x in row):
            continue
        if len(row) != len(head):
            problems.append(f"line {number}: {len(row)} fields, required {len(head)}")
            continue
        try:
            found = _measurement({**DEFAULTS, **dict(zip(head, (x.strip() for x in row)))}, machine)
            verify(_program(machine, found))
        except (ValueError, Tx8Error) as e:
            problems.append(f"line {number}: {' '.join(str(e).split())}")
        else:
            out.append(found)
    raise_all(ConfigError, doing, problems)
    if not out:
        raise ConfigError(f"{doing}: it has no measurements")
    return out


def _measurement(cells: Mapping[str, str], machine: Machine) -> Measurement:
    names = cells["engine"].split("+")
    for name in names:
        if name not in ENGINES:
            raise ValueError(f"engine '{name:.40}' is unknown, there are {', '.join(ENGINES)}")
    if len(names) > 1 and any(name in ALONE for name in names):
        raise ValueError(f"engine '{cells['engine']:.40}': {', '.join(ALONE)} are measured alone")
    if len(names) > MOST_TOGETHER:
        raise ValueError(f"{len(names)} instructions at once, at most {MOST_TOGETHER}")
    number = r"[0-9]{1,12}(?:\.[0-9]{1,6})?"
    if match := re.fullmatch(f"({number})(?:-({number}))?", cells["cycles"]):
        low, high = float(match[1]), float(match[2] or match[1])
    elif match := re.fullmatch(f">=({number})", cells["cycles"]):
        low, high = float(match[1]), math.inf
    else:
        raise ValueError(f"cycles '{cells['cycles']:.40}', required a number, a range such as 78-79, or >=1935")
    if not 0 < low <= high:
        raise ValueError(f"cycles '{cells['cycles']:.40}', required more than 0, the smaller first")
    for name, least, most in (("tiles", 1, machine.n_tiles), ("offset", 0, 255)):
        if not re.fullmatch(r"[0-9]{1,4}", cells[name]) or not least <= int(cells[name]) <= most:
            raise ValueError(f"{name} '{cells[name]:.40}', required {least} to {most}")
    return Measurement(cells["engine"], cells["size"], low, high, int(cells["tiles"]), int(cells["offset"]))


def _program(machine: Machine, m: Measurement) -> Program:
    """Return the measured instructions as a program. Raises ValueError where there can be none."""
    names = m.engine.split("+")
    room = (machine.spm_limit - machine.spm_base) // len(names) // 256 * 256
    build, peer = CodeBuilder(), CodeBuilder()
    for k, name in enumerate(names):
        instruction, fields = ENGINES[name]
        at = machine.spm_base + k * room
        ddr: dict[str, Any] = {"ddr": m.offset} if name in ("rdma", "wdma") else {}
        try:
            given = fields(m.size, at if ddr else at + m.offset, room - 256)
        except ValueError as e:
            raise ValueError(f"{name}: size '{m.size:.40}': {e}") from None
        build.add(instruction, **given, **ddr)
        if name == "dte":
            peer.add("recv", monitor=0, bytes=given["bytes"])
    parts = [build] * m.tiles + [CodeBuilder().add("barrier") if m.engine == "barrier" else CodeBuilder()] * (
        machine.n_tiles - m.tiles
    )
    if m.engine == "dte":
        if m.tiles != 1 or machine.chip.tiles_x < 2:
            raise ValueError(
                "dte: measured from tile 0 to its neighbour along x; tiles must be 1, and the grid wide enough"
            )
        parts[1] = peer
    kinds = list(dict.fromkeys(parts))
    codes = [b.finish().code() for b in kinds]
    segment = make_segment(machine, m.engine, codes, [kinds.index(b) for b in parts], [0, 1])
    return make_program(machine, [segment], [(0, [DDR_BASE, DDR_BASE + FAR])], ddr_bytes=2 * FAR)


@lru_cache(maxsize=1 << 14)
def predicted_cycles(machine: Machine, m: Measurement) -> int:
    """Return what the simulator says the measured program takes."""
    n = m.engine.count("+") + 1
    setup = machine.dte.setup_sw if m.engine == "dte" else 0
    tiles = trace(_program(machine, m), 0)[: m.tiles]
    return max(int(t.end[:n].max() - t.start[:n].min()) + setup for t in tiles)
