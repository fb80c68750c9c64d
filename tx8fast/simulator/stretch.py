"""One stretch of launches, up to a barrier, through the event kernel; what a whole program's stretches add up to.

May import: program.model, machine, errors, _kernels, and arbitration, banks, rows, timing, waiting beside it. Must not: report, or
know the IR.
"""

from __future__ import annotations

import numpy as np

from tx8fast._kernels import EventDeadlock, EventInput, EventResult, simulate_events
from tx8fast.errors import ProgramError, SimulationError
from tx8fast.machine import QUEUE_DEPTH, Machine
from tx8fast.program.model import Program
from tx8fast.simulator import banks, timing
from tx8fast.simulator.arbitration import arbiter_of
from tx8fast.simulator.rows import event_input
from tx8fast.simulator.waiting import leftover_lines, stuck_line

# The event kernel counts in 64 bits; a single step beyond this could overflow the sums.
LARGEST = 1 << 40


def total_cycles(program: Program, machine: Machine) -> int:
    """Return the cycles of all launches on a machine whose costs may be other than those the program was compiled for: those of
    `cycle.simulate`, without what else it finds out. Raises as it does."""
    segments = unroll(machine, program)
    known: dict[tuple, int] = {}
    total = 0
    for stretch in timing.stretches(program.launches, segments):
        parts = parts_of(program, segments, stretch)
        key = timing.key(parts, machine.chip.ddr_page)
        if key not in known:
            rows = event_input(machine, parts, timing.chips_of(parts, program.chips))
            known[key] = int(run(machine, rows, None, parts, name_of(program, stretch)).cycles)
        total += known[key]
    return total


def unroll(machine: Machine, program: Program) -> list[timing.SegmentCode]:
    """Return the segments of a program, unrolled. Raises ProgramError for code that is not for the machine's tiles."""
    for segment in program.segments:
        if len(segment.tile_code) not in (machine.n_tiles, machine.n_tiles * program.n_chips):
            raise ProgramError(
                f"cycle simulation of segment '{segment.name}': code for {len(segment.tile_code)} tiles, "
                f"the machine has {machine.n_tiles}"
            )
    return [timing.SegmentCode(machine, s) for s in program.segments]


def parts_of(program: Program, segments: list[timing.SegmentCode], stretch: list[int]) -> list[timing.Part]:
    """Return the launches of a stretch. Raises ProgramError if one does not fit its segment."""
    out = []
    for i in stretch:
        launch = program.launches[i]
        args = np.asarray(launch.args, np.int64)
        expected = segments[launch.segment].segment.n_args
        if args.shape != (expected,):
            raise ProgramError(
                f"cycle simulation of launch '{launch.name}': {args.size} arguments, required {expected}"
            )
        out.append(timing.Part(segments[launch.segment], launch.segment, args))
    return out


def name_of(program: Program, stretch: list[int]) -> str:
    """Return what a stretch is called."""
    first = program.launches[stretch[0]].name
    return first if len(stretch) == 1 else f"{first} .. {program.launches[stretch[-1]].name}"


def run(
    machine: Machine,
    rows: EventInput,
    serial: bool | None,
    parts: list[timing.Part],
    name: str,
) -> EventResult:
    """Return the times of a stretch's rows, conflicts over banks included. Raises SimulationError for times that are too long, tiles
    that wait for each other, and messages that are left over."""
    if serial is None:
        serial = bool(machine.tile.serial_mode)
    for what, values in (("issue time", rows.issue), ("duration", rows.fixed), ("transfer", rows.ddr_bytes)):
        if values.max(initial=0) >= LARGEST:
            raise SimulationError(
                f"cycle simulation: an instruction's {what} is {values.max():,} cycles or bytes, at most {LARGEST - 1:,} "
                "can be simulated; check the machine description the program was compiled for"
            )
    where = f"cycle simulation of launch '{name}'"
    port, total = float(machine.dma.port_bytes), machine.ddr_bytes_per_cycle
    per_chip = machine.n_tiles if len(rows.code_begin) > machine.n_tiles else 0

    def once(rows: EventInput) -> EventResult:
        return simulate_events(rows, QUEUE_DEPTH, port, total, serial)

    try:
        times = (
            once(rows) if machine.tile.spm_model == 1 else banks.settle(machine, parts, rows, once, arbiter_of(machine))
        )
    except EventDeadlock as error:
        lines = [stuck_line(parts, t, at, error.monitors[t].tolist(), per_chip) for t, at in error.stuck.items()]
        text = "\n  - ".join([f"{where}: no tile can go on:", *lines])
        raise SimulationError(text) from error
    left = leftover_lines(times.monitors, per_chip)
    if left:
        raise SimulationError("\n  - ".join([f"{where}: messages are left over:", *left]))
    return times
