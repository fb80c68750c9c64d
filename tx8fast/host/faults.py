"""Why the core stopped at a row, in words.

May import: errors, isa. Must not: execute anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from tx8fast.errors import SimulationError
from tx8fast.host._core import STATUS
from tx8fast.isa.comm import N_MONITORS
from tx8fast.isa.lookup import INDEX_FORMATS, RowNumberError
from tx8fast.isa.vector import MAX_UNIT
from tx8fast.machine.topology import mask_tiles

_NAMES = {code: name for name, code in STATUS.items()}


def _hex(start: int, size: int) -> str:
    return f"[{start:#x}, {start + size:#x})"


def fault(status: int, found: Sequence[int], ddr: tuple[int, int], row) -> Exception:
    """Return the error of a row that ended with `status`; `found` as the core gives it, ddr: first byte and end of DDR."""
    a, b, c, d, e = found
    match _NAMES[status]:
        case "bad_number":
            return RowNumberError(a, b, c)
        case "no_memory":
            return MemoryError()
        case "bad_call":
            text = call_fault(a, b, (c, d, e))
        case "bad_opcode":
            text = f"opcode {a:#x} is not defined"
        case "bad_format":
            text = f"found format code {a}, required one that its engine computes with"
        case "bad_rounding":
            text = f"found rounding mode {a}, required 0..4"
        case "bad_spm":
            text = f"accessing SPM: found bytes {_hex(a, b)}, required within the scratchpad"
        case "bad_ddr":
            text = f"accessing DDR: found bytes {_hex(a, b)}, required within [{ddr[0]:#x}, {ddr[1]:#x})"
        case "bad_unit":
            text = f"unit vector: found unit {a}, n {b}; required 1..{MAX_UNIT} dividing n"
        case "bad_unit_loop":
            text = (
                f"vector loop: found elem {a}, unit {b}, full {c}, full_unit {d}; "
                f"required unit {MAX_UNIT}, elem a multiple of it and full * unit == elem * full_unit"
            )
        case "bad_overlap":
            text = (
                f"converting {c} elements of {d} to {e} bytes: source {a:#x} and destination {b:#x} overlap; "
                "widening in place needs the source right-aligned in the destination range"
            )
        case "bad_runs":
            sides = row["p"][1:13].tolist()
            text = (
                f"gather_scatter: found source counts {sides[1:6:2]} and destination counts {sides[7:12:2]}, "
                "required equally many runs"
            )
        case "bad_gather":
            p = row["p"].tolist()
            text = (
                f"gather: found tiles {mask_tiles(p[1])} and {p[5]} x {p[7]} x {p[9]} runs of {p[3]} bytes for {p[0]} bytes; "
                "required one tile and equally many bytes"
            )
        case "bad_message":
            where = f" of chip {c - 1}" if c else ""
            text = (
                f"sending to tiles {mask_tiles(a)}{where}, monitor {b}: required are tiles and a chip that exist, at least one, "
                f"and a monitor below {N_MONITORS}"
            )
        case "bad_number_format":
            text = f"reading a row number: found format code {a}, required one of {INDEX_FORMATS}"
        case "bad_slot":
            text = f"reading a row number: found slot {a}, required 0 to {b - 1}"
        case "bad_batch":
            text = f"gemm: found batches {a} and {b}, required equal ones or one of them 1"
        case "bad_dim":
            text = f"reduce: found dim code {a}, required 0 (C), 1 (W), 2 (H) or 4 (HW)"
        case "bad_offset":
            text = f"looking up: found offset {a}, required one entry within the table's {b} bytes"
        case _:
            text = f"found counts {a}, {b}, {c}, required ones that name elements, and fewer than memory holds"
    return SimulationError(text)


def call_fault(code: int, why: int, found: tuple[int, int, int]) -> str:
    """Return why a routine of the kernel core refuses a call."""
    from tx8fast.isa.routines import BY_CODE, WHY

    name = BY_CODE[code].name if 0 <= code < len(BY_CODE) else "routine"
    return f"{name}: {list(WHY.values())[why].format(*found)}"
