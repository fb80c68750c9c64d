"""The channels between tiles that a program's messages need, and when each of them is brought up and taken down.

May import: numpy, isa, machine, program.model. Must not: simulate, or know the compiler.
Source: TX8 hardware manual 14.2, 14.3; back-end notes 3.5. Tiles are counted on over the chips. A stream is one sender, its destinations and the monitor there: what
a runtime has to attach an engine and initialise monitors for.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np

from tx8fast import isa
from tx8fast.isa.comm import mask_tiles
from tx8fast.machine import Machine
from tx8fast.program.model import Program, Segment
from tx8fast.records import dataclass

DTE = isa.UNITS.index("dte")


@dataclass
class Stream:
    """Messages of one kind from `source` to `targets`; packets and bytes per destination are those of a whole run.

    mode: "unicast", "broadcast", "scatter" or "gather". packet_bytes: of the largest message. first, last: launches.
    """

    source: int
    mode: str
    targets: list[int]
    monitor: int
    packets: int = 0
    packet_bytes: int = 0
    total_bytes: int = 0
    first: int = -1
    last: int = -1
    segments: list[str] = field(default_factory=list)


Key = tuple[int, str, int, int, int]  # source, mode, mask, monitor, chip of the mask as rows name it


def segment_streams(segment: Segment) -> dict[Key, tuple[int, int, int]]:
    """Return (messages, largest, bytes per destination) of one launch, by stream."""
    to_chips = isa.INSTRUCTIONS["send"].OPCODE
    out: dict[Key, tuple[int, int, int]] = {}
    expanded = [isa.expand(code) if (isa.units(code) == DTE).any() else code[:0] for code in segment.codes]
    for tile, index in enumerate(np.asarray(segment.tile_code).tolist()):
        rows = expanded[index] if index >= 0 else isa.rows([])
        sends = rows[isa.units(rows) == DTE]
        for opcode, (size, mask, monitor, chip) in zip(sends["opcode"].tolist(), sends["p"][:, :4].tolist()):
            name = isa.class_of(opcode).NAME
            mode = name if name != "send" else "broadcast" if mask & (mask - 1) else "unicast"
            key = (tile, mode, mask, monitor, chip if opcode == to_chips else 0)
            n, largest, total = out.get(key, (0, 0, 0))
            out[key] = n + 1, max(largest, size), total + size
    return out


def streams(program: Program) -> list[Stream]:
    """Return all streams, by sender; launch `first` needs it brought up, behind launch `last` it may be taken down."""
    n_tiles = Machine.from_dict(program.machine).n_tiles
    per_segment = [segment_streams(s) for s in program.segments]
    found: dict[Key, Stream] = {}
    for at, launch in enumerate(program.launches):
        for key, (n, largest, total) in per_segment[launch.segment].items():
            source, mode, mask, monitor, chip = key
            home = chip - 1 if chip else source // n_tiles
            targets = [home * n_tiles + t for t in mask_tiles(mask)]
            s = found.setdefault(key, Stream(source, mode, targets, monitor, first=at))
            s.packets += n
            s.packet_bytes = max(s.packet_bytes, largest)
            s.total_bytes += total
            s.last = at
            name = program.segments[launch.segment].name
            if name not in s.segments:
                s.segments.append(name)
    return [found[key] for key in sorted(found)]
