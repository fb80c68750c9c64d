"""Mutants of a program: one field of one instruction is another, or an instruction is missing.

Segments, kinds of instruction and fields are drawn evenly, so that rare ones count as much as frequent ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tx8fast import isa
from tx8fast.isa.base import FORMAT_BYTES, class_of
from tx8fast.isa.limits import COUNT, FLAG, FORMAT_FIELDS, LIMITS, STRIDE
from tx8fast.numerics.formats import FORMAT_CODES
from tx8fast.program.model import Program, Segment

DELETED = 0.15  # share of mutants that lack an instruction
MOVES = (1, 2, 4, 64, 128, 256, 512, 4096)  # bytes by which addresses and offsets are moved
FORMATS = tuple(FORMAT_CODES[name] for name in ("i8", "f16", "bf16", "f32"))
WDMA = isa.INSTRUCTIONS["wdma"].OPCODE


@dataclass(frozen=True)
class Mutant:
    """A changed program and what was changed. overrun: the row writes on behind the end of the buffers it was written for."""

    program: Program
    text: str
    deleted_store: bool = False
    overrun: bool = False


def mutants(program: Program, count: int, seed: int) -> Iterator[Mutant]:
    """Yield `count` different mutants of `program`, the same ones for the same seed."""
    rng = np.random.default_rng(seed)
    known: set[str] = set()
    while len(known) < count:
        made = _mutant(program, rng)
        if made is not None and made.text not in known:
            known.add(made.text)
            yield made


def _mutant(program: Program, rng: np.random.Generator) -> Mutant | None:
    at = int(rng.integers(len(program.segments)))
    segment = program.segments[at]
    which = int(rng.integers(len(segment.codes)))
    code = segment.codes[which]
    kinds = np.unique(code["opcode"])
    opcode = int(kinds[rng.integers(len(kinds))])
    rows = np.flatnonzero(code["opcode"] == opcode)
    row = int(rows[rng.integers(len(rows))])
    name = class_of(opcode).NAME
    where = f"segment {at} code {which} row {row} ({name})"
    if rng.random() < DELETED:
        if name in ("loop", "end"):
            return None
        changed = np.delete(code, row)
        return Mutant(_with(program, at, which, changed), f"{where} deleted", deleted_store=opcode == WDMA)
    field = _field(segment, code[row], rng)
    if field is None:
        return None
    column, k, value = field
    changed = code.copy()
    cell = changed[column][row : row + 1] if k is None else changed[column][row : row + 1, k]
    before = int(cell[0])
    info = np.iinfo(cell.dtype)
    if value == before or not info.min <= value <= info.max:
        return None
    cell[0] = value
    label = column if k is None else _names(opcode, column)[k]
    overrun = _overruns(segment, code[row : row + 1], changed[row : row + 1])
    return Mutant(_with(program, at, which, changed), f"{where} {label} {before} -> {value}", overrun=overrun)


def _names(opcode: int, column: str) -> tuple[str, ...]:
    cls = class_of(opcode)
    return {"spm": cls.FIELDS_SPM, "p": cls.FIELDS_P, "ddr_step": ("outer step", "inner step")}[column]


def _with(program: Program, at: int, which: int, code: np.ndarray) -> Program:
    """Return the program with another code array."""
    codes = list(program.segments[at].codes)
    codes[which] = code
    segments = list(program.segments)
    segments[at] = replace(segments[at], codes=codes)
    return replace(program, segments=segments)


def _field(segment: Segment, row: np.void, rng: np.random.Generator) -> tuple[str, int | None, int] | None:
    """Return a field of the row by column and place, and another value for it."""
    cls = class_of(int(row["opcode"]))
    fields: list[tuple[str, int | None]] = [("spm", k) for k, v in enumerate(row["spm"][: len(cls.FIELDS_SPM)]) if v]
    fields += [("p", k) for k in range(len(cls.FIELDS_P))]
    if cls.UNIT in ("ct", "ne", "tdma"):
        fields += [("fmt", None)]
    if cls.UNIT in ("ct", "ne", "tdma", "rdma", "wdma"):
        fields += [("worker", None)]
    if row["slot"] >= 0:
        fields += [("slot", None), ("ddr", None), *(("ddr_step", k) for k in range(int(row["depth"])))]
    if not fields:
        return None
    column, k = fields[rng.integers(len(fields))]
    value = int(row[column] if k is None else row[column][k])
    move = int(rng.choice(MOVES)) * int(rng.choice((-1, 1)))
    if column in ("spm", "ddr", "ddr_step"):
        return column, k, value + move
    if column == "fmt":
        return column, k, int(rng.choice(FORMATS))
    if column == "worker":
        return column, k, int(rng.integers(3))
    if column == "slot":
        return column, k, int(rng.integers(len(segment.slot_arg)))
    assert k is not None
    return column, k, _parameter(cls.FIELDS_P[k], value, int(FORMAT_BYTES[row["fmt"]]), rng)


def _parameter(name: str, value: int, item: int, rng: np.random.Generator) -> int:
    limits = LIMITS.get(name)
    if name in FORMAT_FIELDS:
        return int(rng.choice(FORMATS))
    if limits == FLAG:
        return 1 - value
    if limits == STRIDE:
        return max(0, value + int(rng.choice((item, -item, 64, -64, value, 256))))
    if limits == COUNT:
        return max(1, int(rng.choice((value + 1, value - 1, 2 * value, value // 2))))
    return value + int(rng.choice((1, -1, max(1, value))))


def _overruns(segment: Segment, before: np.ndarray, after: np.ndarray) -> bool:
    """Return whether the changed row writes from inside the buffers that held its writes to bytes behind all of them."""
    (_, was), (_, now) = isa.spm_ranges(before), isa.spm_ranges(after)
    for (a, b), (c, d) in zip(was[0].tolist(), now[0].tolist(), strict=True):
        held = [(lo, lo + size) for lo, size, _ in segment.buffers.tolist() if lo <= a and b <= lo + size]
        if b > a and d > c and held and any(lo <= c < hi for lo, hi in held) and all(d > hi for _, hi in held):
            return True
    return False
