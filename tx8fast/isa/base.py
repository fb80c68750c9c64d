"""What an instruction is: its declaration, the registry, making rows and reading them back.

May import: numpy, errors, isa.record, numerics.formats. Must not: know any particular instruction.

A class declares one opcode: name, engine, field names, cost and byte ranges; host/csrc executes it. Costs and
ranges work on whole RECORD arrays; classes that share them share one FAMILY so that a code array is
evaluated with one numpy expression per family, not per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.isa.record import MAX_LOOPS, N_P, N_SPM, RECORD
from tx8fast.numerics.formats import CODE_TO_DTYPE, FORMAT_CODES, INTS, ITEM_BYTES, np_dtype

UNITS = ("ct", "ne", "rdma", "wdma", "tdma", "kcore", "sync", "ctrl", "dte", "scalar")
N_OPCODES = 0x602

N_FORMATS = 32
#: bytes per element by format code; bit vectors have their own fields, pred counts as one byte
FORMAT_BYTES = np.ones(N_FORMATS, np.int64)
#: channels of one block by format code
BLOCK = np.full(N_FORMATS, 64, np.int64)
#: numpy dtype by format code
FORMAT_DTYPE: list[np.dtype | None] = [None] * N_FORMATS
for _code, _name in CODE_TO_DTYPE.items():
    FORMAT_BYTES[_code] = ITEM_BYTES[_name]
    FORMAT_DTYPE[_code] = np_dtype(_name)
    if ITEM_BYTES[_name] == 1:
        BLOCK[_code] = 128

#: formats that the chip names (manual 6.1); an instruction that moves bytes takes any of them, and so does one that reads no format
NAMED = tuple(name for name, code in FORMAT_CODES.items() if code <= 12)
#: formats that the vector engine computes with; integers where an instruction says so
COMPUTED = ("f16", "bf16", "f32", "tf32")
NUMBERS = COMPUTED + tuple(name for name in NAMED if name in INTS)

_NO_STEPS = (0,) * MAX_LOOPS
Spans = tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]


#: operands of the matrix engine, reductions and pools begin at multiples of so many bytes [manual 3.1, 10]
OPERAND_BYTES = 256


def ceil_div(a, b):
    """Return a / b rounded up, for integers or integer arrays."""
    return -(-a // b)


def dtype_of(fmt: int) -> np.dtype:
    """Return the numpy dtype of format code `fmt`. Raises SimulationError if there is none."""
    found = FORMAT_DTYPE[fmt] if 0 <= fmt < N_FORMATS else None
    if found is None:
        raise SimulationError(f"running an instruction: format code {fmt} does not exist")
    return found


class Instruction:
    """One opcode. Subclasses that define `cycles` or `spans` open a family.

    FORMATS: names of the formats that `fmt` may be. FIELDS_SPM, FIELDS_P: names of the SPM addresses (bytes) and of the integer parameters, in
    record order. DEFAULTS: fields that may be left out of `make`. REGS: registers written per issue.
    """

    OPCODE: ClassVar[int] = -1
    NAME: ClassVar[str] = ""
    UNIT: ClassVar[str] = "ct"
    REGS: ClassVar[int] = 6
    FORMATS: ClassVar[tuple[str, ...]] = NAMED
    FIELDS_SPM: ClassVar[tuple[str, ...]] = ()
    FIELDS_P: ClassVar[tuple[str, ...]] = ()
    DEFAULTS: ClassVar[dict[str, int]] = {}
    FAMILY: ClassVar[type[Instruction]]
    #: what `make` needs: values of the fields that may be left out and of the fields that are not used (""), the
    #: number of names, and how the record's columns are picked from values by name
    GIVEN: ClassVar[dict[str, int]] = {}
    N_NAMES: ClassVar[int] = 0
    PICK_SPM: ClassVar[Callable[[dict[str, int]], tuple]]
    PICK_P: ClassVar[Callable[[dict[str, int]], tuple]]

    def __init_subclass__(cls) -> None:
        if "cycles" in cls.__dict__ or "spans" in cls.__dict__:
            cls.FAMILY = cls

    @staticmethod
    def cycles(machine, r: np.ndarray):
        """Return the service time in cycles of rows `r` (for DMA: without the bandwidth part)."""
        return np.zeros(len(r), np.int64)

    @staticmethod
    def spans(r: np.ndarray) -> Spans:
        """Return SPM (start, bytes) column pairs: at most 4 read, at most 2 written; 0 bytes = none."""
        return [], []

    @staticmethod
    def alignment(r: np.ndarray):
        """Return what each SPM address of rows `r` must be a multiple of, in bytes, broadcast to (n, N_SPM): an element.

        Reductions, unpooling and weights of convolutions: 256 bytes. Images and matrices: a whole position, since slices, bands and
        parts that stay in scratchpad begin at any of theirs, and the hardware prefers 256 bytes there but does not require
        them (TX8 hardware manual 3.1). ADR 0003.
        """
        return FORMAT_BYTES[r["fmt"]][:, None]

    @staticmethod
    def rules(r: np.ndarray) -> Iterable[tuple[np.ndarray, str]]:
        """Return (rows of `r` that break it, what is wrong) for every rule between the fields of a row."""
        return ()

    @staticmethod
    def rereads(machine, r: np.ndarray):
        """Return how often each operand of `spans` (at most 4 read) goes through a port, (n, 4), or None: once."""
        return None

    @staticmethod
    def registers(r: np.ndarray):
        """Return registers written per row, or None for the class constant."""
        return None

    @staticmethod
    def prepare(machine, r: np.ndarray):
        """Return the cycles per row that the kernel core works before it writes registers, or None: none."""
        return None


INSTRUCTIONS: dict[str, type[Instruction]] = {}
BY_OPCODE: list[type[Instruction] | None] = [None] * N_OPCODES


def declare(parent: type[Instruction], opcode: int, name: str, **attrs) -> type[Instruction]:
    """Create and register the class of one opcode; `attrs` become class attributes."""
    cls = type(name, (parent,), {"OPCODE": opcode, "NAME": name, "__doc__": parent.__doc__, **attrs})
    INSTRUCTIONS[name] = cls
    BY_OPCODE[opcode] = cls
    return cls


def instruction(name: str | type[Instruction]) -> type[Instruction]:
    """Return the class of an instruction name. Raises ValueError if there is none."""
    if not isinstance(name, str):
        return name
    try:
        return INSTRUCTIONS[name]
    except KeyError:
        raise ValueError(f"no instruction is called '{name}'") from None


def _check_fields(cls: type[Instruction], given) -> None:
    known = set(cls.FIELDS_SPM) | set(cls.FIELDS_P)
    extra = sorted(set(given) - known)
    missing = sorted(known - set(given) - set(cls.DEFAULTS))
    if extra or missing:
        raise ValueError(
            f"making a '{cls.NAME}' row: unknown fields {extra}, missing fields {missing}; "
            f"it has {', '.join(cls.FIELDS_SPM + cls.FIELDS_P)}"
        )


def make(
    name: str | type[Instruction],
    /,
    *,
    fmt=0,
    rnd=0,
    slot=-1,
    ddr=0,
    op=-1,
    worker=0,
    **fields,
) -> tuple:
    """Return one row (tuple for `record.rows`). `fmt` is a format code or name, `worker` the register
    window; the hardware orders conflicting rows of one worker only.

    Raises ValueError for unknown or missing fields.
    """
    cls = INSTRUCTIONS.get(name) or instruction(name)  # type: ignore[arg-type]
    values = {**cls.GIVEN, **fields}
    try:
        spm, p = cls.PICK_SPM(values), cls.PICK_P(values)
        bad = len(values) != cls.N_NAMES
    except KeyError:
        bad = True
    if bad:
        _check_fields(cls, fields)
    if isinstance(fmt, str):
        fmt = FORMAT_CODES[fmt]
    return cls.OPCODE, fmt, rnd, op, slot, 0, worker, ddr, _NO_STEPS, spm, p


def make_rows(
    name: str | type[Instruction],
    count: int,
    /,
    *,
    fmt=0,
    rnd=0,
    slot=-1,
    ddr=0,
    op=-1,
    worker=0,
    **fields,
) -> np.ndarray:
    """Return a RECORD array of `count` rows; every field is an integer or a (count,) array."""
    cls = instruction(name)
    _check_fields(cls, fields)
    r = np.zeros(count, RECORD)
    r["opcode"] = cls.OPCODE
    r["fmt"] = FORMAT_CODES[fmt] if isinstance(fmt, str) else fmt
    r["rnd"], r["slot"], r["ddr"], r["op"], r["worker"] = rnd, slot, ddr, op, worker
    for k, field in enumerate(cls.FIELDS_SPM):
        r["spm"][:, k] = fields.get(field, cls.DEFAULTS.get(field, 0))
    for k, field in enumerate(cls.FIELDS_P):
        r["p"][:, k] = fields.get(field, cls.DEFAULTS.get(field, 0))
    return r


def decode(record) -> dict[str, Any]:
    """Return the named fields of one RECORD element: name, engine, fmt, rnd, op, slot, ddr and the own fields."""
    cls = class_of(int(record["opcode"]))
    out: dict[str, Any] = {"name": cls.NAME, "engine": cls.UNIT}
    out.update({k: int(record[k]) for k in ("fmt", "rnd", "op", "slot", "depth", "worker", "ddr")})
    out["ddr_step"] = [int(x) for x in record["ddr_step"]]
    out.update(zip(cls.FIELDS_SPM, record["spm"].tolist()))
    out.update(zip(cls.FIELDS_P, record["p"].tolist()))
    return out


def class_of(opcode: int) -> type[Instruction]:
    """Return the class of an opcode. Raises SimulationError if it is undefined."""
    found = BY_OPCODE[opcode] if 0 <= opcode < N_OPCODES else None
    if found is None:
        raise SimulationError(f"reading code: opcode {opcode:#x} is not defined")
    return found


class Tables:
    """Per-opcode columns, filled once all instructions are declared (`finish`)."""

    unit = np.full(N_OPCODES, 255, np.uint8)
    regs = np.zeros(N_OPCODES, np.int64)
    family = np.full(N_OPCODES, -1, np.int64)
    factor = np.ones(N_OPCODES, np.int64)  # index into FACTOR_KINDS
    families: list[type[Instruction]] = []


def finish() -> None:
    """Fill `Tables` and check the declarations against the record's room."""
    for cls in INSTRUCTIONS.values():
        if len(cls.FIELDS_SPM) > N_SPM or len(cls.FIELDS_P) > N_P:
            raise ValueError(f"instruction '{cls.NAME}' has more fields than a record holds")
        cls.GIVEN = {**cls.DEFAULTS, "": 0}
        cls.N_NAMES = len({*cls.FIELDS_SPM, *cls.FIELDS_P, *cls.GIVEN})
        cls.PICK_SPM = itemgetter(*cls.FIELDS_SPM, *[""] * (N_SPM - len(cls.FIELDS_SPM)))
        cls.PICK_P = itemgetter(*cls.FIELDS_P, *[""] * (N_P - len(cls.FIELDS_P)))
        if cls.FAMILY not in Tables.families:
            Tables.families.append(cls.FAMILY)
        Tables.unit[cls.OPCODE] = UNITS.index(cls.UNIT)
        Tables.regs[cls.OPCODE] = cls.REGS
        Tables.family[cls.OPCODE] = Tables.families.index(cls.FAMILY)


def distinct(values: np.ndarray) -> list[int]:
    """Return the different numbers of an array, ascending."""
    # asked for counts, numpy does not load its masked arrays, which takes 10 ms
    return np.unique(values, return_counts=True)[0].tolist()


def by_family(r: np.ndarray):
    """Yield (family class, row indices, these rows) for the families present in RECORD array `r`."""
    if not len(r):
        return
    fam = Tables.family[np.minimum(r["opcode"], N_OPCODES - 1)]
    low = int(fam.min())
    if low < 0:
        bad = int(np.argmin(fam))
        raise SimulationError(f"reading code: row {bad} has undefined opcode {int(r['opcode'][bad]):#x}")
    if low == int(fam.max()):
        yield Tables.families[low], slice(None), r
        return
    present = np.flatnonzero(np.bincount(fam))
    for f in present.tolist():
        at = np.flatnonzero(fam == f)
        yield Tables.families[f], at, r[at]
