"""CT vector instructions: arithmetic, relation, logic, transcendental, activation, mask move.

May import: numpy, isa.base, isa.lanes, isa.functions. Must not: know layouts; operands are dense runs.
Source: TX8 hardware manual 9 (forms, opcodes) and 16.2 (cost).
"""

from __future__ import annotations

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.isa import functions as fn
from tx8fast.isa.base import FORMAT_BYTES, N_OPCODES, Instruction, Spans, ceil_div, declare
from tx8fast.isa.lanes import load, load_bits, scalar, store, store_bits
from tx8fast.numerics.formats import DOWN

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


def _second(state, form: int, fmt: int, spm, p):
    if form == VS:
        return scalar(p[1], fmt)
    count = p[0] if form == VV else p[1] if form == VUV else p[3]
    return load(state.spm, spm[1], count, fmt)


def _combine(f, form: int, x, y, p):
    if form == VUV:
        return apply_unit(f, x, y, p[1])
    if form == LOOP:
        check_loop(p[0], p[1], p[2], p[3])
        return apply_loop(f, x, y, p[0], p[1])
    return f(x, y)


def _value_runner(f, form: int, bits_out: bool):
    """Return the meaning of a vector op on values; `bits_out`: f yields truth values, stored as bits."""
    if form == V:

        def run(state, fmt, rnd, spm, p, ddr):
            store(state, spm[1], f(load(state.spm, spm[0], p[0], fmt)), fmt, rnd)

        return run
    dst = 1 if form == VS else 2
    downward = {np.add: fn.add_down, np.subtract: fn.sub_down}.get(f, f)

    def run2(state, fmt, rnd, spm, p, ddr):
        n = p[2] if form == LOOP else p[0]
        x = load(state.spm, spm[0], n, fmt)
        out = _combine(downward if rnd == DOWN else f, form, x, _second(state, form, fmt, spm, p), p)
        if bits_out:
            store_bits(state.spm, spm[dst], out)
        else:
            store(state, spm[dst], out, fmt, rnd)

    return run2


def _raw_runner(f, form: int):
    """Return the meaning of value logic: raw patterns, or truth values if the state asks for them."""

    def run(state, fmt, rnd, spm, p, ddr):
        n = p[2] if form == LOOP else p[0]
        size = int(FORMAT_BYTES[fmt])
        truth = state.logic_value_mode == "truth"

        def operand(addr, count):
            if truth:
                return load(state.spm, addr, count, fmt) != 0
            return state.spm[addr : addr + count * size].view(f"u{size}").copy()

        x = operand(spm[0], n)
        if form == V:
            out = f(x)
        else:
            count = {VV: n, VUV: p[1], LOOP: p[3]}[form] if form != LOOP else p[3]
            out = _combine(f, form, x, operand(spm[1], count), p)
        addr = spm[1] if form == V else spm[2]
        if truth:
            store(state, addr, out.astype(np.float32), fmt, rnd)
        else:
            state.spm[addr : addr + n * size] = out.view(np.uint8)

    return run


def _bit_runner(f, form: int):
    """Return the meaning of logic on packed bits; a unit of u bits repeats with its byte period."""

    def run(state, fmt, rnd, spm, p, ddr):
        n = p[2] if form == LOOP else p[0]
        x = load_bits(state.spm, spm[0], n)
        if form == V:
            store_bits(state.spm, spm[1], f(x))
            return
        if form == VUV:
            period = ceil_div(p[1], 8) * 8
            unit = np.zeros(period, bool)
            unit[: p[1]] = load_bits(state.spm, spm[1], p[1])
            y = np.resize(unit, n)
            store_bits(state.spm, spm[2], f(x, y))
            return
        y = load_bits(state.spm, spm[1], n if form == VV else p[3])
        store_bits(state.spm, spm[2], _combine(f, form, x, y, p))

    return run


def _add(
    opcode: int,
    base: str,
    form: int,
    run,
    factor: str = "arithmetic",
    bits_in=False,
    bits_out=False,
) -> None:
    declare(_CLASS[form], opcode, f"{base}_{_SUFFIX[form]}", run=run)
    _FORM[opcode] = form
    _FACTOR[opcode] = FACTOR_KINDS.index(factor)
    _BITS_IN[opcode], _BITS_OUT[opcode] = bits_in, bits_out


def _declare_all() -> None:
    for opcode, name, f, factor in fn.UNARY:
        _add(opcode, name, V, _value_runner(f, V, False), factor)
    for opcode, name, f, factor in fn.BINARY:
        for k, form in enumerate((VV, VS, VUV, LOOP)):
            _add(opcode + k, name, form, _value_runner(f, form, False), factor)
    order = ((VV, 0), (VV, 1), (VS, 0), (VS, 1), (VUV, 0), (LOOP, 0), (VUV, 1), (LOOP, 1))
    for opcode, name, f in fn.RELATION:
        for k, (form, bits) in enumerate(order):
            base = f"bool_{name}" if bits else name
            _add(opcode + k, base, form, _value_runner(f, form, bool(bits)), bits_out=bool(bits))
    for first, prefix, runner in ((78, "", _raw_runner), (88, "bool_", _bit_runner)):
        bits = bool(prefix)
        _add(first, f"{prefix}not", V, runner(np.invert, V), bits_in=bits, bits_out=bits)
        for j, form in enumerate((VV, VUV, LOOP)):
            for k, (name, f) in enumerate(fn.LOGIC):
                opcode = first + 1 + 3 * j + k
                _add(opcode, prefix + name, form, runner(f, form), bits_in=bits, bits_out=bits)


class MaskMove(Instruction):
    """dst[i] = src0[i] where the mask value src1[i] is not zero, else unchanged."""

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

    @staticmethod
    def run(state, fmt, rnd, spm, p, ddr):
        n, size = p[0], int(FORMAT_BYTES[fmt])
        mask = load(state.spm, spm[1], n, fmt) != 0
        src = state.spm[spm[0] : spm[0] + n * size].view(f"u{size}")
        np.copyto(state.spm[spm[2] : spm[2] + n * size].view(f"u{size}"), src.copy(), where=mask)


_declare_all()
declare(MaskMove, 134, "mask_move")
