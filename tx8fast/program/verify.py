"""An independent check of a program: nothing here is shared with what produces programs.

May import: numpy, isa, machine, numerics, errors, program.model, program.verify_comm. Must not: execute instructions, or
call the compiler.

Problems are named by segment, tile and instruction, or by launch, and raised together.
"""

from __future__ import annotations

import numpy as np

from tx8fast import isa
from tx8fast.errors import ConfigError, ProgramError
from tx8fast.isa.expand import MAX_ROWS
from tx8fast.isa.record import MAX_LOOPS, RECORD
from tx8fast.machine import DDR_BASE, Machine
from tx8fast.numerics.formats import CODE_TO_DTYPE, ITEM_BYTES
from tx8fast.numerics.layout import blocked_bytes, dense_bytes, npc
from tx8fast.program.model import Program, Segment, Tensor
from tx8fast.program.verify_comm import TileRows, check_exchange

MAX_PROBLEMS = 20
DMA_UNITS = (2, 3)
ENGINE_UNITS = 5  # units below this one are engines
KCORE_UNIT = 5
PROBE = 1 << 44
MAX_NUMBER = 1 << 48  # beyond every address and size
FORMATS = np.array(sorted(CODE_TO_DTYPE), np.uint8)


class _Problems:
    """Collects messages; remembers the first MAX_PROBLEMS and counts the rest."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.count = 0

    def add(self, text: str) -> None:
        self.count += 1
        if len(self.texts) < MAX_PROBLEMS:
            self.texts.append(text)

    def rows(self, where: str, bad: np.ndarray, what: str) -> None:
        """Report instructions `bad` (indices) of one kind as one problem."""
        if len(bad):
            more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
            self.add(f"{where} instruction {bad[0]}{more}: {what}")

    def raise_if_any(self, doing: str) -> None:
        if not self.count:
            return
        lines = "".join(f"\n  - {t}" for t in self.texts)
        more = f"\n  and {self.count - len(self.texts)} more" if self.count > len(self.texts) else ""
        raise ProgramError(f"{doing}: {self.count} problem{'s' * (self.count > 1)}{lines}{more}")


def verify(program: Program) -> None:
    """Raise one ProgramError that lists everything wrong with `program` (at most 20 problems in full)."""
    found = _Problems()
    try:
        machine = Machine.from_dict(program.machine)
    except ConfigError as e:
        raise ProgramError(f"verifying a program: {e}") from e
    if not 0 <= program.ddr_bytes <= machine.chip.ddr_bytes:
        found.add(f"uses {program.ddr_bytes} bytes of DDR, the machine has {machine.chip.ddr_bytes}")
    _tensors(program, found)
    extents = [_segment(machine, s, found, program.n_chips) for s in program.segments]
    _launches(program, extents, found)
    found.raise_if_any("verifying a program")


def _tensors(program: Program, found: _Problems) -> None:
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
            if t.layout not in ("dense", "blocked") or t.ddr_dtype not in ITEM_BYTES:
                found.add(f"{what}: unknown layout '{t.layout}' or format '{t.ddr_dtype}'")
                continue
            if t.dtype not in ITEM_BYTES:
                found.add(f"{what}: unknown element type '{t.dtype}'")
            need = _tensor_bytes(t)
            if t.size_bytes < need:
                found.add(f"{what}: {t.size_bytes} bytes reserved, {t.layout} {t.ddr_dtype} {t.shape} needs {need}")


def _tensor_bytes(t: Tensor) -> int:
    if t.layout == "dense":
        return dense_bytes(t.shape, t.ddr_dtype)
    return blocked_bytes(*npc(t.shape), t.ddr_dtype)


class _Extent:
    """Bytes [lo, hi) relative to each argument that a segment reads and writes, over all tiles."""

    def __init__(self, n_args: int) -> None:
        self.lo = np.full((2, n_args), PROBE, np.int64)
        self.hi = np.full((2, n_args), -PROBE, np.int64)

    def add(self, side: int, arg: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> None:
        np.minimum.at(self.lo[side], arg, lo)
        np.maximum.at(self.hi[side], arg, hi)


def _segment(machine: Machine, s: Segment, found: _Problems, n_chips: int) -> _Extent | None:
    """Check one segment; None if it is too broken for its launches to be checked."""
    what = f"segment '{s.name}'"
    n_tiles, n_slots = machine.n_tiles, np.asarray(s.slot_arg).size
    spans_chips = np.shape(s.tile_code) == (n_tiles * n_chips,)
    n_tiles = n_tiles * n_chips if spans_chips else n_tiles
    before = found.count
    if np.shape(s.tile_code) != (n_tiles,):
        found.add(f"{what}: tile_code has shape {np.shape(s.tile_code)}, required ({n_tiles},)")
    elif len(bad := np.flatnonzero((s.tile_code < -1) | (s.tile_code >= len(s.codes)))):
        found.add(f"{what} tile {bad[0]}: code {s.tile_code[bad[0]]} of {len(s.codes)} does not exist")
    if np.shape(s.tile_offset) != (n_tiles, n_slots):
        found.add(f"{what}: tile_offset has shape {np.shape(s.tile_offset)}, required ({n_tiles}, {n_slots})")
    for slot in np.flatnonzero((s.slot_arg < 0) | (s.slot_arg >= s.n_args)):
        found.add(f"{what} slot {slot}: argument {s.slot_arg[slot]} of {s.n_args} does not exist")
    if found.count > before:
        return None
    extent = _Extent(s.n_args)
    routines = [_routine_spans(s, i, n_slots, found) for i in range(len(s.routines))]
    barriers = {}
    exchanges = []
    for c, code in enumerate(s.codes):
        tiles = np.flatnonzero(s.tile_code == c)
        if not len(tiles):
            found.add(f"{what}: no tile runs code {c}")
            continue
        where = f"{what} tile {tiles[0]}" + (f" (and {len(tiles) - 1} like it)" if len(tiles) > 1 else "")
        clean = found.count
        _raw_rows(where, s, code, n_slots, machine.tile.workers, found)
        if found.count > clean:
            continue
        length = _unrolled_rows(code)
        if length > MAX_ROWS:
            found.add(f"{where}: {length} instructions with loops written out, at most {MAX_ROWS} allowed")
            continue
        rows = isa.expand(code)
        barriers[int(tiles[0])] = _flow(where, s, rows, found)
        exchanges.append(TileRows(where, tiles.tolist(), rows))
        spans = _ranges(machine, where, s, rows, found)
        used = _named(rows, "kcore", "routine")
        for r in np.unique(used):
            spans += routines[r] if 0 <= r < len(routines) else []
        for side, slot, lo, hi in spans:
            for tile in tiles:
                at = s.tile_offset[tile][slot]
                extent.add(side, s.slot_arg[slot], lo + at, hi + at)
    if len(set(barriers.values())) > 1:
        found.add(f"{what}: tiles meet different numbers of barriers: {barriers} (by tile)")
    if len(exchanges) == len(s.codes):
        check_exchange(machine, s.name, exchanges, found, n_chips if spans_chips else 0)
    return extent if found.count == before else None


def _raw_rows(where: str, s: Segment, code: np.ndarray, n_slots: int, workers: int, found: _Problems) -> None:
    """Check what must hold before the code can be unrolled."""
    if not isinstance(code, np.ndarray) or code.dtype != RECORD or code.ndim != 1:
        found.add(f"{where}: code is not a flat array of instruction records")
        return
    known = np.array(sorted(cls.OPCODE for cls in isa.INSTRUCTIONS.values()))
    strange = np.flatnonzero(~np.isin(code["opcode"], known))
    if len(strange):
        found.rows(where, strange, f"opcode {code['opcode'][strange[0]]:#x} does not exist")
        return
    nameless = np.flatnonzero(~np.isin(code["fmt"], FORMATS))
    if len(nameless):
        found.rows(where, nameless, f"format code {code['fmt'][nameless[0]]} does not exist")
        return
    for bad, text in isa.field_problems(code):
        found.rows(where, bad, text)
    opens = code["opcode"] == isa.INSTRUCTIONS["loop"].OPCODE
    closes = code["opcode"] == isa.INSTRUCTIONS["end"].OPCODE
    inside = np.cumsum(opens.astype(np.int64)) - np.cumsum(closes.astype(np.int64))
    if inside.min(initial=0) < 0:
        found.rows(where, np.flatnonzero(inside < 0)[:1], "end of a loop that was not opened")
    if len(inside) and inside[-1] > 0:
        found.add(f"{where}: {inside[-1]} loops are not closed")
    found.rows(where, np.flatnonzero(inside > MAX_LOOPS), f"more than {MAX_LOOPS} nested loops")
    found.rows(
        where,
        np.flatnonzero((code["slot"] < -1) | (code["slot"] >= n_slots)),
        f"slot outside [-1, {n_slots})",
    )
    found.rows(
        where,
        np.flatnonzero((code["op"] < -1) | (code["op"] >= len(s.ops))),
        f"op outside [-1, {len(s.ops)})",
    )
    found.rows(
        where,
        np.flatnonzero((code["worker"] < 0) | (code["worker"] >= workers)),
        f"worker outside [0, {workers})",
    )
    homeless = np.isin(isa.units(code), DMA_UNITS) & (code["slot"] == -1)
    found.rows(where, np.flatnonzero(homeless), "a DDR transfer without a slot")
    at, slot, _, _ = isa.lookup.numbers(code)
    found.rows(where, at[(slot < 0) | (slot >= n_slots)], f"row numbers in a slot outside [0, {n_slots})")
    kcore = code["opcode"] == isa.INSTRUCTIONS["kcore"].OPCODE
    used = _named(code, "kcore", "routine")
    wrong = (used < 0) | (used >= len(s.routines))
    found.rows(where, np.flatnonzero(kcore)[wrong], f"routine outside [0, {len(s.routines)})")


def _unrolled_rows(code: np.ndarray) -> int:
    """Return the number of executed instructions; loops are balanced and not deeper than MAX_LOOPS."""
    opens, closes = (isa.INSTRUCTIONS[name].OPCODE for name in ("loop", "end"))
    marks = np.flatnonzero((code["opcode"] == opens) | (code["opcode"] == closes))
    total, times, at, stack = 0, 1, 0, []
    for mark in marks.tolist():
        total += times * (mark - at)
        at = mark + 1
        if code["opcode"][mark] == opens:
            stack.append(times)
            times *= int(code["p"][mark, 0])
        else:
            times = stack.pop()
    return total + times * (len(code) - at)


def _named(rows: np.ndarray, name: str, field: str) -> np.ndarray:
    """Return parameter `field` of all rows that are instruction `name`."""
    cls = isa.INSTRUCTIONS[name]
    return rows["p"][rows["opcode"] == cls.OPCODE][:, cls.FIELDS_P.index(field)]


def _flow(where: str, s: Segment, rows: np.ndarray, found: _Problems) -> int:
    """Check that engines are joined before every barrier and at the end; return the number of barriers."""
    barrier = rows["opcode"] == isa.INSTRUCTIONS["barrier"].OPCODE
    units = isa.units(rows)
    all_joins = (rows["opcode"] == isa.INSTRUCTIONS["wait"].OPCODE) | (units == KCORE_UNIT)
    some_join = rows["opcode"] == isa.INSTRUCTIONS["wait_worker"].OPCODE
    at = np.arange(1, len(rows) + 1)
    pending = np.zeros(len(rows), bool)
    for worker in np.unique(rows["worker"][units < ENGINE_UNITS]).tolist():
        own = (units < ENGINE_UNITS) & (rows["worker"] == worker)
        joins = all_joins | (some_join & (rows["p"][:, 0] >> worker & 1 == 1))
        last_engine = np.maximum.accumulate(np.where(own, at, 0))
        pending |= last_engine > np.maximum.accumulate(np.where(joins, at, 0))
    found.rows(
        where,
        np.flatnonzero(barrier & pending),
        "a barrier without a wait for the engines before it",
    )
    ends = bool(len(rows)) and bool(barrier[-1])
    if s.barrier != ends:
        found.add(f"{where}: the code {'ends' if ends else 'does not end'} in a barrier, the segment says otherwise")
    return int(barrier.sum())


def _ranges(machine: Machine, where: str, s: Segment, rows: np.ndarray, found: _Problems) -> list[tuple]:
    """Check SPM bounds; return DDR spans as (side, slot, lo, hi) columns relative to the slots."""
    ranges = isa.ranges(rows, rows["ddr"] + PROBE)
    low, high = machine.spm_base, machine.spm_limit
    for key, verb in (("spm_read", "reads"), ("spm_write", "writes")):
        span = ranges[key]
        some = span[..., 1] > span[..., 0]
        bad = np.flatnonzero((some & ((span[..., 0] < low) | (span[..., 1] > high))).any(axis=1))
        if len(bad):
            row = span[bad[0]][some[bad[0]]]
            text = ", ".join(f"[{a:#x}, {b:#x})" for a, b in row.tolist())
            op = int(rows["op"][bad[0]])
            of = f" of op '{s.ops[op]}'" if op >= 0 else ""
            found.rows(where, bad, f"{verb} SPM {text}{of}, outside [{low:#x}, {high:#x})")
    out = []
    for side, key in enumerate(("ddr_read", "ddr_write")):
        span = ranges[key]
        some = np.flatnonzero((span[:, 1] > span[:, 0]) & (rows["slot"] >= 0))
        out.append((side, rows["slot"][some], span[some, 0] - PROBE, span[some, 1] - PROBE))
    _, slot, offset, n_bytes = isa.lookup.numbers(rows)
    return [*out, (0, slot, offset, offset + n_bytes)]


def _routine_spans(s: Segment, index: int, n_slots: int, found: _Problems) -> list[tuple]:
    """Return the DDR spans of a kernel-core routine's operands, as `_ranges` does."""
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
                out.append((side, *(np.array([v], np.int64) for v in (slot, first, last))))
    return out


def _launches(program: Program, extents: list[_Extent | None], found: _Problems) -> None:
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
