"""CT vector instructions: arithmetic, relation, logic, transcendental, activation, mask move.

May import: numpy, isa.base, isa.functions. Must not: know layouts; operands are dense runs.
Source: TX8 hardware manual 9 (forms, opcodes) and 16.2 (cost).
"""

from __future__ import annotations

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.isa import functions as fn
from tx8fast.isa.base import COMPUTED, FORMAT_BYTES, N_OPCODES, NAMED, NUMBERS, Instruction, Spans, ceil_div, declare

V, VV, VS, VUV, LOOP = range(5)
FACTOR_KINDS = ("arithmetic", "division", "transcendental", "two_step", "lut", "random")
MAX_UNIT = 64

_FORM = np.zeros(N_OPCODES, np.int64)
_FACTOR = np.zeros(N_OPCODES, np.int64)
_BITS_IN = np.zeros(N_OPCODES, bool)
_BITS_OUT = np.zeros(N_OPCODES, bool)


def factors(machine) -> np.ndarray:
    """Return the work multipliers in the order of FACTOR_KINDS."""
    return np.array([getattr(machine.ct.factor, k) for k in FACTOR_KINDS], np.int64)


def ct_time(machine, work_bytes, misaligned):
    """Return CT cycles for `work_bytes` (multiplier included); `misaligned`: some base is not 128 B aligned."""
    ct = machine.ct
    return ct.startup + ceil_div(work_bytes, ct.bytes_per_cycle) + misaligned * ct.misalign_penalty


class Vector(Instruction):
    """A dense vector instruction; `n` counts elements, a loop form works on `full` elements."""

    FORM = V
    FIELDS_SPM = ("src0", "dst")
    FIELDS_P = ("n",)

    @staticmethod
    def _counts(r: np.ndarray):
        op = r["opcode"]
        form = _FORM[op]
        p = r["p"]
        return op, form, np.where(form == LOOP, p[:, 2], p[:, 0])

    @staticmethod
    def alignment(r: np.ndarray):
        op, form, e = r["opcode"], _FORM[r["opcode"]], FORMAT_BYTES[r["fmt"]]
        source, result = np.where(_BITS_IN[op], 1, e), np.where(_BITS_OUT[op], 1, e)
        out = np.repeat(source[:, None], r["spm"].shape[1], axis=1)
        out[np.arange(len(r)), np.where((form == V) | (form == VS), 1, 2)] = result
        return out

    @staticmethod
    def rules(r: np.ndarray):
        form, p = _FORM[r["opcode"]], r["p"]
        n, unit, full, full_unit = p[:, :4].T
        unfit = (unit < 1) | (unit > MAX_UNIT) | (n % np.maximum(unit, 1) != 0)
        yield (form == VUV) & unfit, f"a unit of which the elements are no multiple, or beyond {MAX_UNIT}"
        ratio = full.astype(np.float64) * unit != n.astype(np.float64) * full_unit
        yield (
            (form == LOOP) & ((unit != MAX_UNIT) | (n % MAX_UNIT != 0) | ratio),
            "counts of a unit loop that break its ratio rule",
        )

    @staticmethod
    def cycles(machine, r: np.ndarray):
        op, form, n = Vector._counts(r)
        size = np.where(_BITS_IN[op], ceil_div(n, 8), n * FORMAT_BYTES[r["fmt"]])
        spm = r["spm"]
        bases = spm[:, 0] | spm[:, 1] | np.where((form == V) | (form == VS), 0, spm[:, 2])
        return ct_time(machine, size * factors(machine)[_FACTOR[op]], bases % 128 != 0)

    @staticmethod
    def spans(r: np.ndarray) -> Spans:
        op, form, n = Vector._counts(r)
        e = FORMAT_BYTES[r["fmt"]]
        spm, p = r["spm"], r["p"]
        two = (form != V) & (form != VS)
        unit = np.where(form == VUV, p[:, 1], np.where(form == LOOP, p[:, 3], n))
        bits_in, bits_out = _BITS_IN[op], _BITS_OUT[op]
        first = np.where(bits_in, ceil_div(n, 8), n * e)
        second = np.where(two, np.where(bits_in, ceil_div(unit, 8), unit * e), 0)
        out = np.where(bits_out, ceil_div(n, 8), n * e)
        dst = np.where(two, spm[:, 2], spm[:, 1])
        reads = [(spm[:, 0], first), (spm[:, 1], second)]
        # a bit count that ends inside a byte keeps that byte's other bits
        return reads, [(dst, out)]


class UnaryV(Vector):
    FORM = V


class BinaryVV(Vector):
    FORM = VV
    FIELDS_SPM = ("src0", "src1", "dst")


class ScalarVS(Vector):
    """`scalar` is the raw pattern of the value in the instruction's format (low bits)."""

    FORM = VS
    FIELDS_P = ("n", "scalar")


class UnitVuV(Vector):
    """src1 holds `unit` elements, reused for every `unit` elements of src0."""

    FORM = VUV
    FIELDS_SPM = ("src0", "src1", "dst")
    FIELDS_P = ("n", "unit")


class UnitLoop(Vector):
    """Each chunk of `unit` elements of src1 is reused n / unit times; the last chunk may be short."""

    FORM = LOOP
    REGS = 9
    FIELDS_SPM = ("src0", "src1", "dst")
    FIELDS_P = ("n", "unit", "full", "full_unit")


_CLASS = {V: UnaryV, VV: BinaryVV, VS: ScalarVS, VUV: UnitVuV, LOOP: UnitLoop}
_SUFFIX = {V: "v", VV: "vv", VS: "vs", VUV: "vuv", LOOP: "vuvloop"}


def check_loop(n: int, unit: int, full: int, full_unit: int) -> None:
    """Raise SimulationError if the loop counts break the ratio rule (manual 9.1)."""
    if unit != MAX_UNIT or n % unit or full * unit != n * full_unit:
        raise SimulationError(
            f"vector loop: found elem {n}, unit {unit}, full {full}, full_unit {full_unit}; "
            f"required unit {MAX_UNIT}, elem a multiple of it and full * unit == elem * full_unit"
        )


def apply_unit(f, x: np.ndarray, unit: np.ndarray, u: int) -> np.ndarray:
    """Return f over src0 `x` and a repeated unit vector of `u` elements."""
    if not 1 <= u <= MAX_UNIT or len(x) % u:
        raise SimulationError(f"unit vector: found unit {u}, n {len(x)}; required 1..{MAX_UNIT} dividing n")
    return f(x.reshape(-1, u), unit).reshape(-1)


def apply_loop(f, x: np.ndarray, unit: np.ndarray, n: int, u: int) -> np.ndarray:
    """Return f over src0 `x` (full elements) and unit chunks, each reused n / u times."""
    reuse = n // u
    whole = len(unit) // u
    head = whole * reuse * u
    a = f(x[:head].reshape(whole, reuse, u), unit[: whole * u].reshape(whole, 1, u)).reshape(-1)
    if head == len(x):
        return a
    b = f(x[head:].reshape(reuse, -1), unit[whole * u :]).reshape(-1)
    return np.concatenate([a, b])


def _add(
    opcode: int,
    base: str,
    form: int,
    factor: str = "arithmetic",
    bits_in=False,
    bits_out=False,
    formats: tuple[str, ...] = COMPUTED,
) -> None:
    declare(_CLASS[form], opcode, f"{base}_{_SUFFIX[form]}", FORMATS=formats)
    _FORM[opcode] = form
    _FACTOR[opcode] = FACTOR_KINDS.index(factor)
    _BITS_IN[opcode], _BITS_OUT[opcode] = bits_in, bits_out


def _declare_all() -> None:
    for opcode, name, factor in fn.UNARY:
        _add(opcode, name, V, factor)
    for opcode, name, factor in fn.BINARY:
        for k, form in enumerate((VV, VS, VUV, LOOP)):
            _add(opcode + k, name, form, factor, formats=COMPUTED if name == "div" else NUMBERS)
    order = ((VV, 0), (VV, 1), (VS, 0), (VS, 1), (VUV, 0), (LOOP, 0), (VUV, 1), (LOOP, 1))
    for opcode, name in fn.RELATION:
        for k, (form, bits) in enumerate(order):
            _add(opcode + k, f"bool_{name}" if bits else name, form, bits_out=bool(bits), formats=NUMBERS)
    for first, prefix in ((78, ""), (88, "bool_")):
        bits = bool(prefix)
        _add(first, f"{prefix}not", V, bits_in=bits, bits_out=bits, formats=NAMED)
        for j, form in enumerate((VV, VUV, LOOP)):
            for k, name in enumerate(fn.LOGIC):
                _add(first + 1 + 3 * j + k, prefix + name, form, bits_in=bits, bits_out=bits, formats=NAMED)


class MaskMove(Instruction):
    """dst[i] = src0[i] where the mask value src1[i] is not zero, else unchanged."""

    FORMATS = NUMBERS
    FIELDS_SPM = ("src0", "src1", "dst")
    FIELDS_P = ("n",)

    @staticmethod
    def cycles(machine, r):
        spm = r["spm"]
        bases = spm[:, 0] | spm[:, 1] | spm[:, 2]
        return ct_time(machine, r["p"][:, 0] * FORMAT_BYTES[r["fmt"]], bases % 128 != 0)

    @staticmethod
    def spans(r):
        spm, size = r["spm"], r["p"][:, 0] * FORMAT_BYTES[r["fmt"]]
        # the destination is also an input: lanes without mask keep their value
        return [(spm[:, 0], size), (spm[:, 1], size), (spm[:, 2], size)], [(spm[:, 2], size)]


_declare_all()
declare(MaskMove, 134, "mask_move")
