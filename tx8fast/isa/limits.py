"""What the fields of a row may hold, so that everything computed from them stays within 64 bits.

May import: numpy, errors, isa.base, isa.lookup, isa.work. Must not: know memory sizes or what a program does.
Source: TX8 hardware manual 8.1 (counts are at least 1, strides not negative, a run is not empty). Upper bounds are
wide: a count beyond the bits of a scratchpad cannot be right on any machine; the exact ranges of operands follow from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.isa.base import BY_OPCODE, N_FORMATS, Instruction, distinct
from tx8fast.isa.lookup import NUMBER, numbers
from tx8fast.isa.work import WORK
from tx8fast.numerics.formats import CODE_TO_DTYPE, FORMAT_CODES

COUNT = (1, 1 << 25)
STRIDE = (0, 1 << 40)
SIZE = 1 << 45  # elements or bytes that products of counts may name
FLAG = (0, 2)
_COUNTS = (
    "n",
    "m",
    "k",
    "c",
    "oh",
    "ow",
    "oc",
    "kx",
    "ky",
    "sx",
    "sy",
    "dx",
    "dy",
    "unit",
    "full",
    "full_unit",
    "batch_l",
    "batch_r",
    "size",
    "size1",
    "run_bytes",
    "entries",
    *(f"{side}n{level}" for side in ("", "s", "d") for level in range(3)),
)
LIMITS: dict[str, tuple[int, int]] = (
    dict.fromkeys(_COUNTS, COUNT)
    | {f"{side}s{level}": STRIDE for side in ("", "s", "d") for level in range(3)}
    | {"stride": STRIDE, NUMBER[0]: (0, 1 << 31), NUMBER[1]: (0, 1 << 44)}
    | dict.fromkeys(("top", "bottom", "left", "right"), (0, 1 << 25))
    | dict.fromkeys(("h", "w"), (0, 1 << 25))  # a band of results may lie in the padding altogether
    | dict.fromkeys(("l_trs", "r_trs", "psum_en", "bias_en", "inverse"), FLAG)
    | dict.fromkeys(WORK, (0, 1 << 44))
    | {"act": (0, 3), "scale_n": (0, 1 << 31), "count": (1, 1 << 40), "bytes": (0, 1 << 40)}
)
FORMAT_FIELDS = ("out_fmt", "psum_fmt", "bias_fmt")
#: fields whose product is a size
PRODUCTS = (
    ("n", "h", "w", "c"),
    ("n", "oh", "ow", "oc"),
    ("n", "oh", "ow", "c"),
    ("kx", "ky", "c", "oc"),
    ("batch_l", "m", "k"),
    ("batch_r", "k", "n"),
    ("batch_l", "batch_r", "m", "n"),
    ("run_bytes", "n0", "n1", "n2"),
    ("n", "n0", "n1", "n2"),
    ("size", "sn0", "sn1", "sn2"),
    ("size", "dn0", "dn1", "dn2"),
    ("kx", "ky", "oh", "ow", "n"),
    ("entries", "stride"),
)
DDR_OFFSET = 1 << 44
_FORMATS = np.array(sorted(CODE_TO_DTYPE))


@cache
def _takes(cls: type[Instruction]) -> np.ndarray:
    """Return by format code whether `fmt` of an instruction may be that."""
    return np.isin(np.arange(N_FORMATS), [FORMAT_CODES[name] for name in cls.FORMATS])


def offset_problems(rows: np.ndarray) -> Iterator[tuple[np.ndarray, str]]:
    """Yield (positions of rows, what is wrong with the DDR offset or a step of the first of them)."""
    far = (np.abs(rows["ddr"]) >= DDR_OFFSET) | (np.abs(rows["ddr_step"]) >= DDR_OFFSET).any(axis=1)
    if far.any():
        yield np.flatnonzero(far), f"a DDR offset or step of {DDR_OFFSET} bytes or more"


def value_problems(rows: np.ndarray) -> Iterator[tuple[np.ndarray, str]]:
    """Yield (positions of rows, what is wrong with another field of the first of them); all opcodes and format codes are
    defined."""
    for opcode in distinct(rows["opcode"]):
        cls = BY_OPCODE[opcode]
        assert cls is not None
        at = np.flatnonzero(rows["opcode"] == opcode)
        if len(bad := at[~_takes(cls)[rows["fmt"][at]]]):
            found = CODE_TO_DTYPE[int(rows["fmt"][bad[0]])]
            yield bad, f"format {found} of a {cls.NAME}, required {' or '.join(cls.FORMATS)}"
        yield from _class_problems(cls, rows["p"][at], at)


def _class_problems(cls: type[Instruction], p: np.ndarray, at: np.ndarray) -> Iterator[tuple[np.ndarray, str]]:
    columns = {name: p[:, k] for k, name in enumerate(cls.FIELDS_P)}
    good = np.ones(len(p), bool)
    for name, value in columns.items():
        low, high = LIMITS.get(name, (None, None))
        if name in FORMAT_FIELDS:
            bad, required = ~np.isin(value, _FORMATS), "a format code"
        elif low is not None and high is not None:
            bad, required = (value < low) | (value >= high), f"{low} to {high - 1}"
        else:
            continue
        if bad.any():
            good &= ~bad
            yield at[bad], f"{name} {int(value[bad][0])} of a {cls.NAME}, required {required}"
    for names in PRODUCTS:
        if all(name in columns for name in names):
            bad = good & (np.prod([columns[n].astype(np.float64) for n in names], axis=0) >= SIZE)
            if bad.any():
                yield at[bad], f"{' x '.join(names)} of a {cls.NAME} names {SIZE} elements or more"
    for side in ("", "s", "d"):
        steps = [(columns.get(f"{side}s{k}"), columns.get(f"{side}n{k}")) for k in range(3)]
        if steps[0][0] is not None and steps[0][1] is not None:
            reach = sum(s.astype(np.float64) * n for s, n in steps if s is not None and n is not None)
            bad = good & (np.asarray(reach) >= DDR_OFFSET)
            if bad.any():
                yield at[bad], f"strides of a {cls.NAME} that reach over {DDR_OFFSET} bytes or more"


def check_fields(rows: np.ndarray, n_slots: int, where: str) -> None:
    """Raise SimulationError for the first row whose fields or slot cannot be right."""
    known = np.array([cls is not None for cls in BY_OPCODE])
    opcode = np.minimum(rows["opcode"], len(known) - 1)
    strange = np.flatnonzero(~known[opcode] | (rows["opcode"] >= len(known)))
    if len(strange):
        at = int(strange[0])
        raise SimulationError(f"{where}, instruction {at}: opcode {int(rows['opcode'][at]):#x} does not exist")
    nameless = np.flatnonzero(~np.isin(rows["fmt"], _FORMATS))
    if len(nameless):
        at = int(nameless[0])
        raise SimulationError(f"{where}, instruction {at}: format code {int(rows['fmt'][at])} does not exist")
    lost = np.flatnonzero((rows["slot"] < -1) | (rows["slot"] >= n_slots))
    if len(lost):
        at = int(lost[0])
        raise SimulationError(
            f"{where}, instruction {at}: found slot {int(rows['slot'][at])}, required -1 to {n_slots - 1}"
        )
    where_index, slot, _, _ = numbers(rows)
    if len(far := np.flatnonzero((slot < 0) | (slot >= n_slots))):
        raise SimulationError(
            f"{where}, instruction {int(where_index[far[0]])}: found row numbers in slot {int(slot[far[0]])}, required 0 to "
            f"{n_slots - 1}"
        )
    for bad, text in (*offset_problems(rows), *value_problems(rows)):
        raise SimulationError(f"{where}, instruction {int(bad[0])}: found {text}")
