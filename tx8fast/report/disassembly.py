"""Code of a segment as text and as JSON-able rows.

May import: isa, numerics.formats, program.model, numpy. Must not: unroll loops or know launches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.isa.record import N_P, N_SPM
from tx8fast.numerics.formats import CODE_TO_DTYPE
from tx8fast.program.model import Segment


def code_rows(segment: Segment) -> Iterator[tuple[list[int], list[dict[str, Any]]]]:
    """Yield per distinct code array the tiles that run it and its decoded instructions."""
    for index, code in enumerate(segment.codes):
        tiles = np.flatnonzero(np.asarray(segment.tile_code) == index).tolist()
        yield tiles, [isa.decode(row) for row in code]


def disassemble(segment: Segment) -> Iterator[str]:
    """Yield lines: one per instruction, loops indented, addresses in hexadecimal, zero parameters left out."""
    yield f"segment {segment.name}: {len(segment.codes)} code arrays, {segment.n_args} arguments"
    for slot, arg in enumerate(np.asarray(segment.slot_arg).tolist()):
        offsets = np.asarray(segment.tile_offset)[:, slot]
        yield f"  slot {slot}: argument {arg}, tile offsets {offsets.min():#x} to {offsets.max():#x}"
    for i, routine in enumerate(segment.routines):
        work = [f"{n:,} {name}" for name, n in (routine.get("work") or {}).items() if n]
        yield f"  routine {i}: {', '.join([str(routine.get('routine')), *work])}"
    for index, (tiles, rows) in enumerate(code_rows(segment)):
        yield f"code {index}, tiles {_ranges(tiles)}:"
        for at, row in enumerate(rows):
            yield f"  {at:5d}  {_line(row, segment)}"


def _line(row: dict[str, Any], segment: Segment) -> str:
    cls = isa.instruction(row["name"])
    depth = max(0, row["depth"])
    parts = [f"{row['name']:<16s}"]
    if row["engine"] in ("ct", "ne", "tdma"):
        parts.append(f"{CODE_TO_DTYPE.get(row['fmt'], row['fmt'])!s:<5s}")
    parts += [f"{name}={row[name]:#x}" for name in cls.FIELDS_SPM[:N_SPM] if row[name]]
    parts += [f"{name}={row[name]}" for name in cls.FIELDS_P[:N_P] if row[name]]
    if row["worker"]:
        parts.append(f"worker={row['worker']}")
    if row["rnd"]:
        parts.append(f"rnd={row['rnd']}")
    if row["slot"] >= 0:
        steps = [s for s in row["ddr_step"] if s]
        parts.append(f"ddr=slot{row['slot']}+{row['ddr']:#x}" + "".join(f"+{s:#x}*i" for s in steps))
    text = "  " * depth + " ".join(parts)
    if len(segment.ops) > 1 and 0 <= row["op"] < len(segment.ops):
        text = f"{text}  ; {segment.ops[row['op']]}"
    return text.rstrip()


def _ranges(tiles: list[int]) -> str:
    """Return "0-3, 7"; "none" for no tile."""
    out: list[list[int]] = []
    for t in tiles:
        if out and out[-1][1] == t - 1:
            out[-1][1] = t
        else:
            out.append([t, t])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in out) or "none"
