"""Vector and conversion instructions element by element: the oracle of their vectorised meanings.

May import: numpy (f64 functions of one number), errors, isa, simulator.exact_values. Must not: compute on arrays.
Source: TX8 hardware manual 6.3, 9, 10.3. Results of a row are computed before the first one is stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.errors import SimulationError
from tx8fast.isa import scalar
from tx8fast.isa.convert import PAIRS, overlap_is_legal
from tx8fast.isa.vector import BinaryVV, ScalarVS, UnaryV, UnitLoop, UnitVuV, check_loop
from tx8fast.numerics.formats import FORMAT_CODES
from tx8fast.simulator.exact_values import (
    DOWN,
    F32,
    NAN_OPERAND,
    STOCHASTIC,
    ZERO,
    Int,
    Value,
    chance,
    decode,
    encode,
    f32,
    get_bits,
    kind_of,
    narrow,
    patterns,
    put_bits,
    put_patterns,
    round_float,
    store,
    values,
)

Meaning = Callable[..., None]
_LOG2_E = decode(0x3FB8AA3B, F32)
_LEAK = f32(0.01)


def _f64(name: str) -> Callable[[float], float]:
    """Return a function of one double as the host computes it."""
    f = getattr(np, name)
    return lambda x: float(f(np.float64(x)))


_exp, _exp2 = _f64("exp"), _f64("exp2")


def _divide(x: Value, y: Value) -> float:
    if y == 0:
        return math.nan if x == 0 or math.isnan(x) else math.copysign(math.inf, x) * math.copysign(1, y)
    return x / y


def _sqrt(x: float) -> float:
    return x if x == 0 or math.isnan(x) else math.sqrt(x) if x > 0 else math.nan


def _sigmoid(x: float) -> float:
    e = _exp(-abs(x))
    return 1 / (1 + e) if x >= 0 else e / (1 + e)


def _softplus(x: float) -> float:
    return max(x, 0) + float(np.log1p(np.float64(_exp(-abs(x)))))


def _most(x: Value, y: Value) -> Value:
    return math.nan if x != x or y != y else max(x, y)


def _least(x: Value, y: Value) -> Value:
    return math.nan if x != x or y != y else min(x, y)


#: functions of f32 values; results are doubles that round to the correct f32
UNARY: dict[str, Callable[[Any], Any]] = {
    "abs": abs,
    "recip": lambda x: _divide(1.0, x),
    "square": lambda x: x * x,
    "sqrt": _sqrt,
    "rsqrt": lambda x: _divide(1.0, _sqrt(x)),
    "neg": lambda x: -x,
    "log2": _f64("log2"),
    "ln": _f64("log"),
    "pow2": _exp2,
    "exp": _exp,
    "exp_lp": lambda x: _exp2(f32(x * _LOG2_E)),
    "sin": _f64("sin"),
    "cos": _f64("cos"),
    "tanh": _f64("tanh"),
    "sigmoid": _sigmoid,
    "relu": lambda x: _most(x, 0.0),
    "satrelu": lambda x: _least(_most(x, 0.0), 6.0),
    "leakyrelu": lambda x: x * _LEAK if x < 0 else x,
    "softplus": lambda x: x + x if x != x else _softplus(x),
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "max": _most,
    "min": _least,
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": _divide,
}
RELATION: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "ge": lambda x, y: x >= y,
    "gt": lambda x, y: x > y,
    "le": lambda x, y: x <= y,
    "lt": lambda x, y: x < y,
}
LOGIC: dict[str, Callable[[int, int], int]] = {
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
}


def _pairs(cls: type[isa.Instruction], p) -> Iterator[tuple[int, int]]:
    """Yield (element of src0, element of src1) in the order of the results."""
    if issubclass(cls, UnitLoop):
        elem, u, full, full_unit = p[:4]
        check_loop(elem, u, full, full_unit)
        base = 0
        for u0 in range(0, full_unit, u):
            length = min(u, full_unit - u0)
            for _ in range(elem // u):
                for k in range(length):
                    yield base + k, u0 + k
                base += length
    elif issubclass(cls, UnitVuV):
        n, u = p[:2]
        if not 1 <= u <= 64 or n % u:
            raise SimulationError(f"unit vector: found unit {u}, n {n}; required 1..64 dividing n")
        for i in range(n):
            yield i, i % u
    else:
        for i in range(p[0]):
            yield i, i


def _counts(cls: type[isa.Instruction], p) -> tuple[int, int]:
    """Return the elements of both operands."""
    if issubclass(cls, UnitLoop):
        return p[2], p[3]
    return p[0], p[1] if issubclass(cls, UnitVuV) else p[0]


def _down(f: Callable[[Any, Any], Any], x: Value, y: Value) -> Value:
    """A sum that is zero because its operands cancel is negative under rounding toward minus infinity."""
    out = f(x, y)
    other = -y if f is BINARY["sub"] else y
    cancels = out == 0 and isinstance(out, float) and math.copysign(1, x) != math.copysign(1, other)
    return -0.0 if cancels else out


def _value_form(cls: type[isa.Instruction], f, bits_out: bool) -> Meaning:
    def run(state, fmt, rnd, spm, p, ddr):
        n, m = _counts(cls, p)
        x = values(state.spm, spm[0], n, fmt)
        y: list[Value] = []
        if issubclass(cls, UnaryV):
            out = [f(v) for v in x]
        else:
            g = (lambda a, b: _down(f, a, b)) if rnd == DOWN and f in (BINARY["add"], BINARY["sub"]) else f
            if issubclass(cls, ScalarVS):
                y = [decode(p[1] & ((1 << 8 * kind_of(fmt).size) - 1), fmt)]
                out = [g(v, y[0]) for v in x]
            else:
                y = values(state.spm, spm[1], m, fmt)
                out = [g(x[i], y[j]) for i, j in _pairs(cls, p)]
        if any(v != v for v in (*x, *y)):
            state.note(NAN_OPERAND)
        dst = spm[2] if issubclass(cls, (BinaryVV, UnitVuV, UnitLoop)) else spm[1]
        if bits_out:
            put_bits(state.spm, dst, [bool(v) for v in out])
        else:
            exact = isinstance(kind_of(fmt), Int) and f is not _divide
            store(state, dst, [int(v) if exact else float(v) for v in out], fmt, rnd)

    return run


def _raw_form(cls: type[isa.Instruction], f) -> Meaning:
    def run(state, fmt, rnd, spm, p, ddr):
        n, m = _counts(cls, p)
        size = kind_of(fmt).size
        x = patterns(state.spm, spm[0], n, size)
        if issubclass(cls, UnaryV):
            out, dst = [v ^ ((1 << 8 * size) - 1) for v in x], spm[1]
        else:
            y = patterns(state.spm, spm[1], m, size)
            out, dst = [f(x[i], y[j]) for i, j in _pairs(cls, p)], spm[2]
        put_patterns(state.spm, dst, out, size)

    return run


def _bit_form(cls: type[isa.Instruction], f) -> Meaning:
    def run(state, fmt, rnd, spm, p, ddr):
        n, m = _counts(cls, p)
        x = get_bits(state.spm, spm[0], n)
        if issubclass(cls, UnaryV):
            put_bits(state.spm, spm[1], [not v for v in x])
            return
        y = get_bits(state.spm, spm[1], m)
        if issubclass(cls, UnitVuV):  # the unit repeats with its byte period, missing bits are zero
            y += [False] * (-len(y) % 8)
            out = [bool(f(v, y[i % len(y)])) for i, v in enumerate(x)]
        else:
            out = [bool(f(x[i], y[j])) for i, j in _pairs(cls, p)]
        put_bits(state.spm, spm[2], out)

    return run


def _convert_form(src: int, dst: int) -> Meaning:
    def run(state, fmt, rnd, spm, p, ddr):
        n, a, b = p[0], kind_of(src), kind_of(dst)
        if not overlap_is_legal(spm[0], spm[1], n, a.size, b.size):
            raise SimulationError(f"converting {n} elements: source {spm[0]:#x} and destination {spm[1]:#x} overlap")
        out: list[Value] = []
        for i, x in enumerate(values(state.spm, spm[0], n, src)):
            if isinstance(a, Int):
                luck = chance(i, state.seed()) if rnd == STOCHASTIC else 0.0
                wide, bits = round_float(
                    float(x - (p[1] if a.size == 1 else 0)), F32, ZERO if rnd == STOCHASTIC else rnd
                )
                if dst != F32:
                    wide, more = round_float(wide, dst, rnd, luck)
                    bits |= more
                state.note(bits)
                out.append(wide)
            else:
                state.note(NAN_OPERAND if x != x else 0)
                out.append(narrow(state, x, dst, rnd, i))
        store(state, spm[1], out, dst)

    return run


def mask_move(state, fmt, rnd, spm, p, ddr):
    """Elements whose mask value is not zero."""
    size = kind_of(fmt).size
    src = patterns(state.spm, spm[0], p[0], size)
    old = patterns(state.spm, spm[2], p[0], size)
    mask = values(state.spm, spm[1], p[0], fmt)
    put_patterns(state.spm, spm[2], [a if m != 0 else b for a, b, m in zip(src, old, mask)], size)


def _scalar(name: str) -> Meaning:
    """The same functions of one value, into a register."""

    def run(state, fmt, rnd, spm, p, ddr):
        x = decode(p[0] & ((1 << 8 * kind_of(fmt).size) - 1), fmt)
        state.wb = (encode(narrow(state, float(UNARY[name](x)), fmt, 0, 0), fmt), 0)

    return run


def meanings() -> dict[str, Meaning]:
    """Return the meaning of every vector, conversion and scalar instruction by name."""
    out: dict[str, Meaning] = {"mask_move": mask_move}
    out |= {f"scalar_{name}": _scalar(name) for name in scalar.NAMES}
    for name, cls in isa.INSTRUCTIONS.items():
        base, _, form = name.rpartition("_")
        bits, op = base.startswith("bool_"), base.removeprefix("bool_")
        if form not in ("v", "vv", "vs", "vuv", "vuvloop") or cls.UNIT != "ct":
            continue
        if op in LOGIC or op == "not":
            out[name] = (_bit_form if bits else _raw_form)(cls, LOGIC.get(op))
        elif op in RELATION:
            f = RELATION[op]
            out[name] = _value_form(cls, f, bits)
        else:
            out[name] = _value_form(cls, UNARY.get(op) or BINARY[op], False)
    for _, src, targets in PAIRS:
        for dst in targets:
            out[f"cvt_{src}_{dst}"] = _convert_form(FORMAT_CODES[src], FORMAT_CODES[dst])
    return out
