"""What a tile waits for, in words: shared by the simulators when nothing can go on.

May import: isa, errors, timing beside it. Must not: run anything.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tx8fast import isa
from tx8fast.isa.comm import mask_tiles
from tx8fast.simulator.timing import Part


def tile_name(tile: int, per_chip: int) -> str:
    """Return what a tile is called; `per_chip`: tiles of a chip if there are several chips, else 0."""
    return f"chip {tile // per_chip} tile {tile % per_chip}" if per_chip else f"tile {tile}"


def waiting_line(
    tile: int, at: int, record: np.ndarray, ops: Sequence[str], monitors: Sequence[int], per_chip: int = 0
) -> str:
    """Return one line for a tile stopped at instruction `at`; `monitors`: bytes arrived and not yet taken; `per_chip` as
    for `tile_name`."""
    row = isa.decode(record)
    name = row["name"]
    if name == "recv":
        m = row["monitor"]
        arrived = int(monitors[m]) if 0 <= m < len(monitors) else 0
        waits = f"{row['bytes']} bytes on monitor {m}, {arrived} have arrived"
    elif name == "barrier":
        waits = "all tiles at the barrier"
    elif name == "barrier_sub":
        waits = f"tiles {mask_tiles(row['mask'])} at their barrier"
    elif name == "handshake":
        chip = f" of chip {row['chip'] - 1}" if row["chip"] else ""
        waits = f"a handshake with tile {row['peer']}{chip}"
    else:
        waits = "work that does not end"
    of = f" of op '{ops[row['op']]}'" if 0 <= row["op"] < len(ops) else ""
    return f"{tile_name(tile, per_chip)}, instruction {at} ({name}){of} waits for {waits}"


def leftover_lines(monitors, per_chip: int = 0) -> list[str]:
    """Return one line per (tile, monitor) of `monitors` (n_tiles, 4) that still holds bytes."""
    return [
        f"{tile_name(tile, per_chip)} monitor {m}: {int(n)} bytes were sent to it and never received"
        for tile, row in enumerate(monitors)
        for m, n in enumerate(row)
        if n
    ]


def stuck_line(parts: Sequence[Part], tile: int, at: int, monitors: list[int], per_chip: int) -> str:
    """Return what a tile waits for at row `at` of its stretch."""
    for part in parts:
        code = part.code.code(tile)
        if at < len(code.place):
            line = waiting_line(tile, at, code.body[code.place[at]], part.code.segment.ops, monitors, per_chip)
            return f"segment '{part.code.segment.name}', {line}"
        at -= len(code.place)
    return f"{tile_name(tile, per_chip)}, after its last instruction"
