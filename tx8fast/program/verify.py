"""An independent check of a program: nothing here is shared with what produces programs.

May import: numpy, isa, machine, numerics, errors, program.model, program.verify_{code,comm,flow}. Must not: execute instructions, or
call the compiler.

Problems are named by segment, tile and instruction, or by launch, and raised together.
"""

from __future__ import annotations

import math

import numpy as np

from tx8fast import isa
from tx8fast.errors import ConfigError, ProgramError
from tx8fast.isa.record import RECORD
from tx8fast.machine import DDR_BASE, Machine
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import image_bytes
from tx8fast.program.model import ROLES, SEVERAL, Program, Segment
from tx8fast.program.problems import Problems
from tx8fast.program.verify_code import KCORE, Batch, Code, batches
from tx8fast.program.verify_comm import TileRows, check_exchange
from tx8fast.program.verify_flow import Flow

PROBE = 1 << 44
MAX_NUMBER = 1 << 48  # beyond every address and size
LAYOUTS = ("dense", "blocked")


def verify(program: Program) -> None:
    """Raise one ProgramError that lists everything wrong with `program` (at most 20 problems in full)."""
    found = Problems()
    try:
        machine = Machine.from_dict(program.machine)
    except ConfigError as e:
        raise ProgramError(f"verifying a program: {e}") from e
    if not 0 <= program.ddr_bytes <= machine.chip.ddr_bytes:
        found.add(f"uses {program.ddr_bytes} bytes of DDR, the machine has {machine.chip.ddr_bytes}")
    _tensors(program, found)
    _launches(program, _segments(machine, program, found), found)
    found.raise_if_any("verifying a program")


def _tensors(program: Program, found: Problems) -> None:
    end = DDR_BASE + program.ddr_bytes
    for kind, tensors in (
        ("input", program.inputs),
        ("output", program.outputs),
        ("parameter", program.params),
    ):
        names: set[str] = set()
        for t in tensors:
            what = f"{kind} '{t.name}'"
            if t.name in names:
                found.add(f"{what}: the name occurs twice")
            names.add(t.name)
            if not DDR_BASE <= t.address <= t.address + t.size_bytes <= end:
                found.add(
                    f"{what}: DDR bytes [{t.address:#x}, {t.address + t.size_bytes:#x}) outside "
                    f"[{DDR_BASE:#x}, {end:#x})"
                )
            if t.layout not in LAYOUTS or t.ddr_dtype not in ITEM_BYTES:
                found.add(f"{what}: unknown layout '{t.layout}' or format '{t.ddr_dtype}'")
                continue
            if t.dtype not in ITEM_BYTES:
                found.add(f"{what}: unknown element type '{t.dtype}'")
            need = image_bytes(t.shape, t.ddr_dtype, t.layout)
            if t.size_bytes < need:
                found.add(f"{what}: {t.size_bytes} bytes reserved, {t.layout} {t.ddr_dtype} {t.shape} needs {need}")


class _Extent:
    """Bytes [lo, hi) relative to each argument that a segment reads (row 0) and writes (row 1), over all tiles, and how many."""

    def __init__(self, n_args: int) -> None:
        self.lo = np.full((2, n_args), PROBE, np.int64)
        self.hi = np.full((2, n_args), -PROBE, np.int64)
        self.moved = np.zeros((2, n_args))

    def add(
        self,
        s: Segment,
        tiles: np.ndarray,
        side: np.ndarray,
        slot: np.ndarray,
        lo: np.ndarray,
        hi: np.ndarray,
        moved: np.ndarray,
    ) -> None:
        """Add accesses relative to their slots, on each of `tiles`."""
        n_slots = len(s.slot_arg)
        key = side * n_slots + slot
        first, last = np.full(2 * n_slots, PROBE, np.int64), np.full(2 * n_slots, -PROBE, np.int64)
        np.minimum.at(first, key, lo)
        np.maximum.at(last, key, hi)
        some = np.flatnonzero(last > first)
        where, offset = (some // n_slots, s.slot_arg[some % n_slots]), s.tile_offset[tiles][:, some % n_slots]
        np.minimum.at(self.lo, where, (first[some] + offset).min(axis=0))
        np.maximum.at(self.hi, where, (last[some] + offset).max(axis=0))
        np.add.at(self.moved, (side, s.slot_arg[slot]), moved * len(tiles))


def _segments(machine: Machine, program: Program, found: Problems) -> list[_Extent | None]:
    """Check all segments; return None for those that are too broken for their launches to be checked."""
    codes: list[Code] = []
    extents: list[_Extent | None] = []
    for s in program.segments:
        before = found.count
        own = _codes(machine, s, program.n_chips, found)
        extents.append(_Extent(s.n_args) if found.count == before else None)
        codes += own if found.count == before else []
    home = {id(s): k for k, s in enumerate(program.segments)}
    exchanges: dict[int, list[TileRows]] = {}
    barriers: dict[int, dict[int, int]] = {}
    for some in batches(codes):
        batch = Batch(machine, some, found)
        batch.check_fields()
        batch = batch.good_part()
        batch.check_length()
        batch = batch.good_part()
        before = found.count
        batch.check_operands()
        batch.check_elements()
        for code, flow, places in batch.flows():
            k = home[id(code.segment)]
            barriers.setdefault(k, {})[int(code.tiles[0])] = _ends(code, flow, places, found)
            exchanges.setdefault(k, []).append(TileRows(code.where, code.tiles.tolist(), code.rows, places, flow))
        if found.count == before:
            of, *columns = batch.transfers()
            for c, code in enumerate(batch.codes):
                extent = extents[home[id(code.segment)]]
                if extent is not None:
                    own = np.flatnonzero(of == c)
                    extent.add(code.segment, code.tiles, *[column[own] for column in columns])
        else:
            for code in batch.codes:
                extents[home[id(code.segment)]] = None
    for code in codes:
        if not code.good:
            extents[home[id(code.segment)]] = None
    for k, s in enumerate(program.segments):
        if len(set(barriers.get(k, {}).values())) > 1:
            found.add(f"segment '{s.name}': tiles meet different numbers of barriers: {barriers[k]} (by tile)")
        if k in exchanges and len(exchanges[k]) == len(s.codes):
            check_exchange(
                machine,
                s.name,
                exchanges[k],
                found,
                program.n_chips if _spans_chips(machine, s, program.n_chips) else 0,
            )
        extent = extents[k]
        if extent is not None:
            _routines(s, extent, found)
            _arguments(s, extent, program.n_chips if _spans_chips(machine, s, program.n_chips) else 1, found)
    return extents


def _spans_chips(machine: Machine, s: Segment, n_chips: int) -> bool:
    return np.shape(s.tile_code) == (machine.n_tiles * n_chips,)


def _codes(machine: Machine, s: Segment, n_chips: int, found: Problems) -> list[Code]:
    """Check the tables of a segment; return its codes."""
    what = f"segment '{s.name}'"
    n_slots = np.asarray(s.slot_arg).size
    n_tiles = machine.n_tiles * (n_chips if _spans_chips(machine, s, n_chips) else 1)
    if np.shape(s.tile_code) != (n_tiles,):
        found.add(f"{what}: tile_code has shape {np.shape(s.tile_code)}, required ({n_tiles},)")
        return []
    if len(bad := np.flatnonzero((s.tile_code < -1) | (s.tile_code >= len(s.codes)))):
        found.add(f"{what} tile {bad[0]}: code {s.tile_code[bad[0]]} of {len(s.codes)} does not exist")
    if np.shape(s.tile_offset) != (n_tiles, n_slots):
        found.add(f"{what}: tile_offset has shape {np.shape(s.tile_offset)}, required ({n_tiles}, {n_slots})")
    for slot in np.flatnonzero((s.slot_arg < 0) | (s.slot_arg >= s.n_args)):
        found.add(f"{what} slot {slot}: argument {s.slot_arg[slot]} of {s.n_args} does not exist")
    if len(s.arguments) != s.n_args:
        found.add(f"{what}: {len(s.arguments)} arguments are declared, required {s.n_args}")
    for i, a in enumerate(s.arguments):
        if a is not None and (
            a.role not in ROLES or a.layout not in LAYOUTS or a.dtype not in ITEM_BYTES or a.replaces >= s.n_args
        ):
            found.add(f"{what} argument {i}: unknown role, layout, format, or argument to replace: {a}")
    _table(machine, s, found)
    out = []
    for c, code in enumerate(s.codes):
        tiles = np.flatnonzero(s.tile_code == c)
        if not len(tiles):
            found.add(f"{what}: no tile runs code {c}")
            continue
        where = f"{what} tile {tiles[0]}" + (f" (and {len(tiles) - 1} like it)" if len(tiles) > 1 else "")
        if not isinstance(code, np.ndarray) or code.dtype != RECORD or code.ndim != 1:
            found.add(f"{where}: code is not a flat array of instruction records")
            continue
        out.append(Code(where, s, code, tiles))
    return out


def _table(machine: Machine, s: Segment, found: Problems) -> None:
    """Check the buffer table."""
    table = np.asarray(s.buffers)
    if table.ndim != 2 or table.shape[1:] != (3,) or table.dtype.kind != "i":
        found.add(f"segment '{s.name}': the buffer table has shape {table.shape}, required (buffers, 3) integers")
        return
    start, size, argument = table.astype(np.int64).T
    low, high = machine.spm_base, machine.spm_limit
    bad = (start < low) | (size < 1) | (start + size > high) | (argument < SEVERAL) | (argument >= s.n_args)
    for at in np.flatnonzero(bad)[:1]:
        found.add(
            f"segment '{s.name}' buffer {at}: {size[at]} bytes at {start[at]:#x} for argument {argument[at]}, required within "
            f"[{low:#x}, {high:#x}) and an argument below {s.n_args}"
        )


def _ends(code: Code, flow: Flow, places: np.ndarray, found: Problems) -> int:
    """Check that engines are joined before every barrier and at the end; return the number of barriers."""
    found.rows(code.where, places[flow.open], "a barrier without a wait for the engines before it")
    if code.segment.barrier != flow.ends_in_barrier:
        does = "ends" if flow.ends_in_barrier else "does not end"
        found.add(f"{code.where}: the code {does} in a barrier, the segment says otherwise")
    return flow.barriers


def _routines(s: Segment, extent: _Extent, found: Problems) -> None:
    """Check the kernel-core routines that rows call, and add what they access to `extent`."""
    n_slots = len(s.slot_arg)
    spans = [_routine_spans(s, i, n_slots, found) for i in range(len(s.routines))]
    for c, code in enumerate(s.codes if spans else ()):
        tiles = np.flatnonzero(s.tile_code == c)
        called = code["p"][code["opcode"] == KCORE, isa.INSTRUCTIONS["kcore"].FIELDS_P.index("routine")]
        for r in isa.distinct(called):
            for side, slot, lo, hi, moved in spans[r]:
                sides, slots, first, last = (np.array([v], np.int64) for v in (side, slot, lo, hi))
                extent.add(s, tiles, sides, slots, first, last, np.array([float(moved)]))


def _arguments(s: Segment, extent: _Extent, n_chips: int, found: Problems) -> None:
    """Check what is read and written against what the arguments are declared to be."""
    for i, a in enumerate(s.arguments):
        if a is None:
            continue
        what = f"segment '{s.name}' argument {i}, {a.role} {a.layout} {a.dtype} {a.shape},"
        size = image_bytes(a.shape, a.dtype, a.layout)
        for side, verb in ((0, "read"), (1, "written")):
            lo, hi = int(extent.lo[side][i]), int(extent.hi[side][i])
            if hi > lo and (lo < 0 or hi > size):
                found.add(f"{what} is {verb} at bytes [{lo:#x}, {hi:#x}), it has {size:#x}")
        elements = math.prod(a.shape) * ITEM_BYTES[a.dtype] * n_chips
        least = {"operand": 0, "update": min(1, elements)}.get(a.role, elements)
        if a.role == "operand" and extent.moved[1][i]:
            found.add(f"{what} is written")
        elif extent.moved[1][i] < least:
            found.add(f"{what}: {extent.moved[1][i]:.0f} bytes are stored, required at least {least}")


def _routine_spans(s: Segment, index: int, n_slots: int, found: Problems) -> list[tuple]:
    """Return of a kernel-core routine's operands the side (0 read, 1 written), slot, first and last byte, and bytes."""
    out = []
    where = f"segment '{s.name}' routine {index}"
    routine = s.routines[index]
    for side, key in enumerate(("inputs", "outputs")):
        operands = routine.get(key, [])
        if not isinstance(operands, list):
            found.add(f"{where}: its {key} are {operands!r:.60}, required a list")
            continue
        for operand in operands:
            if operand is None:
                continue
            try:
                slot, lo, shape, strides = (operand[k] for k in ("slot", "offset", "shape", "strides"))
                if any(type(v) is not int or abs(v) > MAX_NUMBER for v in (slot, lo, *shape, *strides)):
                    raise ValueError(f"numbers must be whole, and at most {MAX_NUMBER}")
                reach = [(n - 1) * step for n, step in zip(shape, strides, strict=True)]
                if sum(map(abs, reach)) > MAX_NUMBER:
                    raise ValueError(f"it reaches over more than {MAX_NUMBER} bytes")
                size = ITEM_BYTES[operand["dtype"]]
            except (KeyError, TypeError, ValueError) as e:
                found.add(f"{where}: malformed operand {operand!r:.120} ({type(e).__name__} {e})")
                continue
            if not 0 <= slot < n_slots:
                found.add(f"{where}: operand in slot {slot} of {n_slots}")
            elif all(n > 0 for n in shape):
                first = lo + sum(min(r, 0) for r in reach)
                last = lo + sum(max(r, 0) for r in reach) + size
                out.append((side, slot, first, last, math.prod(shape) * size))
    return out


def _launches(program: Program, extents: list[_Extent | None], found: Problems) -> None:
    tensors = sorted([*program.inputs, *program.outputs, *program.params], key=lambda t: t.address)
    begins = np.array([t.address for t in tensors], np.int64)
    params = sorted(program.params, key=lambda t: t.address)
    param_lo = np.array([t.address for t in params], np.int64)
    end = DDR_BASE + program.ddr_bytes
    for i, launch in enumerate(program.launches):
        what = f"launch {i} '{launch.name}'"
        if not 0 <= launch.segment < len(program.segments):
            found.add(f"{what}: segment {launch.segment} of {len(program.segments)} does not exist")
            continue
        n_args, extent = program.segments[launch.segment].n_args, extents[launch.segment]
        if np.shape(launch.args) != (n_args,):
            found.add(f"{what}: {np.size(launch.args)} arguments, required {n_args}")
            continue
        if extent is None:
            continue
        for side, verb in ((0, "reads"), (1, "writes")):
            for arg in np.flatnonzero(extent.hi[side] > extent.lo[side]):
                base = int(launch.args[arg])
                lo, hi = base + int(extent.lo[side][arg]), base + int(extent.hi[side][arg])
                touch = f"{what} {verb} DDR [{lo:#x}, {hi:#x}) through argument {arg}"
                if lo < DDR_BASE or hi > end:
                    found.add(f"{touch}, outside [{DDR_BASE:#x}, {end:#x})")
                    continue
                owner = int(np.searchsorted(begins, base, "right")) - 1
                if owner >= 0 and base < tensors[owner].address + tensors[owner].size_bytes:
                    t = tensors[owner]
                    if lo < t.address or hi > t.address + t.size_bytes:
                        found.add(f"{touch}, outside '{t.name}' [{t.address:#x}, {t.address + t.size_bytes:#x})")
                if side == 1 and len(params):
                    near = int(np.searchsorted(param_lo, hi, "left")) - 1
                    if near >= 0 and params[near].address + params[near].size_bytes > lo:
                        found.add(f"{touch}, which overwrites parameter '{params[near].name}'")
