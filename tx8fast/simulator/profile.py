"""What every engine does when, how full the scratchpad is, and which links are busy, group by group and at a chosen resolution.

May import: numpy, isa, machine, program.model, and cycle, detail, network, trace beside it. Must not: format for people.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.machine import Machine, noc
from tx8fast.program.model import Program
from tx8fast.simulator import detail
from tx8fast.simulator.cycle import StretchTrace, traces

#: units of the instruction set that a timeline shows, in its order
LANES = ("ne", "ct", "tdma", "rdma", "wdma", "dte", "kcore")
#: intervals of all groups together; one is about 12 bytes of text
BUDGET = 120_000
FINEST, COARSEST = 512, 16  # steps of a group's time


def profile(program: Program, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
    """Simulate `program` and return JSON-able facts of its distinct stretches, numbered as `CycleResult.groups`.

    `lanes`: names of engines; `groups[i]`: `cycles`, `resolution_cycles`, `ops`, `tiles[t][lane]`: intervals (start, cycles, op or -1, busy share in
    percent) one after the other in one list, and `buffers`, those of `buffer_tile`: (address, bytes, argument, launch of the group, then start and
    cycles of every stretch of time in which instructions touch it); `link_bytes` of one launch. `links`: (from tile, to tile). `stretches`: all of them in
    order, with the indices of their launches. Raises as `cycle.simulate`.
    """
    machine = Machine.from_dict(program.machine)
    stretches: dict[int, StretchTrace] = {}
    order = []
    for stretch in traces(program):
        order.append({"group": stretch.group, "launches": stretch.launches})
        stretches.setdefault(stretch.group, stretch)
        if progress is not None:
            progress(stretch.launches[-1] + 1, len(program.launches))
    lanes_of_all = max(1, len(stretches) * machine.n_tiles * len(LANES))
    steps = min(FINEST, max(COARSEST, BUDGET // lanes_of_all * 4))
    return {
        "lanes": list(LANES),
        "tiles": [machine.chip.tiles_x, machine.chip.tiles_y],
        "links": [list(pair) for pair in noc.all_links(noc.grid(machine))],
        "stretches": order,
        "groups": [_group(program, stretches[i], steps) for i in sorted(stretches)],
    }


def _group(program: Program, stretch: StretchTrace, steps: int) -> dict[str, Any]:
    resolution = -(-stretch.cycles // steps)
    segments = [program.segments[program.launches[i].segment] for i in stretch.launches]
    names = list(dict.fromkeys(op for s in segments for op in s.ops or [s.name]))
    tiles = [
        _lanes(stretch, t, segments, {n: i for i, n in enumerate(names)}, resolution) for t in range(len(stretch.tiles))
    ]
    used = [sum(len(lane) for lane in tile) for tile in tiles]
    fullest = int(np.argmax([len(t.rows) for t in stretch.tiles]))
    return {
        "cycles": stretch.cycles,
        "resolution_cycles": resolution,
        "ops": names,
        "tiles": tiles if any(used) else [],
        "buffer_tile": fullest,
        "buffers": _buffers(stretch, fullest, segments, 4 * resolution),
        "link_bytes": stretch.link_bytes.tolist(),
    }


def _lanes(
    stretch: StretchTrace, tile: int, segments: list[Any], number: dict[str, int], resolution: int
) -> list[list[int]]:
    """Return per lane the merged intervals of one tile, four numbers each."""
    t = stretch.tiles[tile]
    part = np.repeat(np.arange(len(segments)), stretch.counts[tile])
    units = isa.units(t.rows)
    ops = np.full(len(t.rows), -1, np.int64)
    for i, s in enumerate(segments):
        table = np.array([number[op] for op in s.ops] or [-1], np.int64)
        own = (part == i) & (t.rows["op"] >= 0) & (t.rows["op"] < len(s.ops))
        ops[own] = table[t.rows["op"][own]]
    out = []
    for name in LANES:
        some = (units == isa.UNITS.index(name)) & (t.end > t.start)
        op, start, end, busy, _ = detail.merge(ops[some], t.start[some], t.end[some], resolution)
        order = np.argsort(start, kind="stable")
        share = 100 * busy // np.maximum(end - start, 1)
        rows = np.stack([start, end - start, op, share], axis=1)[order]
        out.append(rows.reshape(-1).tolist())
    return out


def _buffers(stretch: StretchTrace, tile: int, segments: list[Any], resolution: int) -> list[list[int]]:
    """Return the scratchpad buffers of one tile and when its instructions touch them."""
    t = stretch.tiles[tile]
    ranges = isa.ranges(t.rows, np.zeros(len(t.rows), np.int64))
    touched = np.concatenate([ranges["spm_read"], ranges["spm_write"]], axis=1)
    begin = np.concatenate([[0], np.cumsum(stretch.counts[tile])])
    out = []
    for i, s in enumerate(segments):
        own = slice(begin[i], begin[i + 1])
        rows, start, end = touched[own], t.start[own], t.end[own]
        for address, size, argument in np.asarray(s.buffers).tolist():
            hit = ((rows[:, :, 0] < address + size) & (rows[:, :, 1] > address)).any(axis=1) & (end > start)
            if hit.any():
                _, lo, hi, _, _ = detail.merge(np.zeros(int(hit.sum()), np.int64), start[hit], end[hit], resolution)
                out.append([address, size, argument, i, *np.stack([lo, hi - lo], axis=1).reshape(-1).tolist()])
    return out
