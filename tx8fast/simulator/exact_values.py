"""Numbers one at a time: patterns to values, correctly rounded values to patterns, and the status bits they raise.

May import: errors, numerics.formats (codes only). Must not: use arrays, or share code with the vectorised roundings.
Source: TX8 hardware manual 6.1 to 6.3. A value is a Python float (it holds every format exactly) or int.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tx8fast.errors import SimulationError
from tx8fast.numerics.formats import FORMAT_CODES

Value = float | int
#: sticky bits of an engine, in the order of the exception byte
STATUS = (
    "bad opcode",
    "address out of range",
    "infinite result",
    "NaN operand",
    "subnormal result",
    "overflow",
    "inexact",
    "integer overflow",
)
INFINITE, NAN_OPERAND, SUBNORMAL, OVERFLOW, INEXACT, INT_OVERFLOW = (1 << k for k in range(2, 8))
NEAREST, ZERO, UP, DOWN, STOCHASTIC = range(5)


class Float(NamedTuple):
    """`precision` bits with the hidden one; exponents of the smallest and the largest normal number."""

    size: int
    precision: int
    low: int
    high: int


class Int(NamedTuple):
    size: int
    least: int
    most: int


F32 = FORMAT_CODES["f32"]
TF32, BF16, F16, I8 = (FORMAT_CODES[n] for n in ("tf32", "bf16", "f16", "i8"))
KINDS: dict[int, Float | Int] = {
    F16: Float(2, 11, -14, 15),
    BF16: Float(2, 8, -126, 127),
    F32: Float(4, 24, -126, 127),
    TF32: Float(4, 11, -126, 127),
    FORMAT_CODES["pred"]: Int(1, 0, 1),
} | {
    FORMAT_CODES[f"{'i' if s else 'u'}{8 * n}"]: Int(n, -(1 << 8 * n - 1) if s else 0, (1 << 8 * n - s) - 1)
    for n in (1, 2, 4, 8)
    for s in (0, 1)
}
#: the one NaN that engines write, by bytes and precision of a format
NAN = {(2, 11): 0x7E00, (2, 8): 0x7FC0, (4, 24): 0x7FC00000, (4, 11): 0x7FC00000}
_WORDS = {1: "B", 2: "H", 4: "I", 8: "Q"}


def kind_of(fmt: int) -> Float | Int:
    """Return what a format code stores. Raises SimulationError if no engine computes with it."""
    found = KINDS.get(fmt)
    if found is None:
        raise SimulationError(f"exact interpretation: no engine computes with format code {fmt}")
    return found


def decode(pattern: int, fmt: int) -> Value:
    """Return the value of a stored pattern."""
    kind = kind_of(fmt)
    if isinstance(kind, Int):
        return pattern - (1 << 8 * kind.size) if kind.least < 0 and pattern > kind.most else pattern
    if fmt == F16:
        return struct.unpack("<e", pattern.to_bytes(2, "little"))[0]
    if fmt == BF16:
        pattern <<= 16
    elif fmt == TF32:
        pattern &= 0xFFFFE000
    return struct.unpack("<f", pattern.to_bytes(4, "little"))[0]


def encode(value: Value, fmt: int) -> int:
    """Return the pattern of a value that the format holds exactly."""
    kind = kind_of(fmt)
    if isinstance(kind, Int):
        return int(value) & ((1 << 8 * kind.size) - 1)
    if value != value:
        return NAN[kind.size, kind.precision]
    if fmt == F16:
        return int.from_bytes(struct.pack("<e", value), "little")
    word = int.from_bytes(struct.pack("<f", value), "little")
    return word >> 16 if fmt == BF16 else word


def chance(lane: int, seed: int) -> float:
    """Return the uniform number in [0, 1) that stochastic rounding of a lane uses: a 32-bit xorshift."""
    x = ((lane + 1) * 0x9E3779B9 + (seed & 0xFFFFFFFF) * 0x85EBCA6B) & 0xFFFFFFFF or 0x6D2B79F5
    for _ in range(3):
        x ^= x << 13 & 0xFFFFFFFF
        x ^= x >> 17
        x ^= x << 5 & 0xFFFFFFFF
    return x / 4294967296.0


def round_float(x: float, fmt: int, mode: int = NEAREST, luck: float = 0.0) -> tuple[float, int]:
    """Return `x` rounded to a float format, and status bits."""
    kind = kind_of(fmt)
    assert isinstance(kind, Float)
    if x == 0 or not math.isfinite(x):
        return x, INFINITE if math.isinf(x) else 0
    size, negative = abs(x), x < 0
    top = math.ldexp(2.0 - math.ldexp(1.0, 1 - kind.precision), kind.high)
    exponent = min(max(math.frexp(size)[1] - 1, kind.low), kind.high)
    unit = exponent - kind.precision + 1
    steps = min(math.ldexp(size, -unit), math.ldexp(1.0, 100))
    whole = math.floor(min(steps, math.ldexp(top, -unit)))
    rest = steps - whole
    if mode == NEAREST:
        away = rest > 0.5 or (rest == 0.5 and whole % 2 == 1)
    elif mode == STOCHASTIC:
        away = rest + luck >= 1
    else:
        away = rest > 0 and mode == (DOWN if negative else UP)
    y = math.ldexp(whole + away, unit)
    bits = INEXACT if rest else 0
    if size > top and rest >= 0.5 or y > top:
        bits |= OVERFLOW
    if y > top:
        y, bits = math.inf, bits | INFINITE
    if 0 < y < math.ldexp(1.0, kind.low):
        bits |= SUBNORMAL
    return (-y if negative else y), bits


def round_int(x: float, fmt: int, mode: int = NEAREST, luck: float = 0.0) -> tuple[int, int]:
    """Return `x` rounded to an integer format: saturated, NaN gives 0; and status bits."""
    kind = kind_of(fmt)
    assert isinstance(kind, Int)
    if math.isnan(x):
        return 0, NAN_OPERAND | INT_OVERFLOW
    if math.isinf(x):
        return (kind.most if x > 0 else kind.least), INT_OVERFLOW
    low = math.floor(x)
    rest = x - low
    if mode == NEAREST:
        y = low + (rest > 0.5 or (rest == 0.5 and low % 2 == 1))
    elif mode == STOCHASTIC:
        y = math.floor(abs(x) + luck) * (-1 if x < 0 else 1)
    else:
        y = {ZERO: math.trunc, UP: math.ceil, DOWN: math.floor}[mode](x)
    bits = INEXACT if rest else 0
    if not kind.least <= y <= kind.most:
        return (kind.most if y > 0 else kind.least), bits | INT_OVERFLOW
    return y, bits


def f32(x: float) -> float:
    """Return the nearest f32."""
    return round_float(x, F32)[0]


def patterns(memory: Any, addr: int, n: int, size: int) -> tuple[int, ...]:
    """Return `n` unsigned words of `size` bytes."""
    return struct.unpack(f"<{n}{_WORDS[size]}", memory[addr : addr + n * size].tobytes())


def put_patterns(memory: Any, addr: int, words: Sequence[int], size: int) -> None:
    """Store unsigned words of `size` bytes."""
    data = struct.pack(f"<{len(words)}{_WORDS[size]}", *words)
    memory[addr : addr + len(data)] = list(data)


def values(memory: Any, addr: int, n: int, fmt: int) -> list[Value]:
    """Return `n` dense elements."""
    return [decode(w, fmt) for w in patterns(memory, addr, n, kind_of(fmt).size)]


def narrow(state: Any, x: Value, fmt: int, rnd: int, lane: int) -> Value:
    """Return a result as the format holds it: floats to f32, then to `fmt` under `rnd`; notes status bits."""
    kind, bits = kind_of(fmt), 0
    luck = chance(lane, state.seed()) if rnd == STOCHASTIC else 0.0
    if isinstance(kind, Int):
        if isinstance(x, int):
            return x
        y, bits = round_int(x, fmt, rnd, luck)
    else:
        y, bits = round_float(float(x), F32)
        if fmt != F32:
            y, more = round_float(y, fmt, rnd, luck)
            bits |= more
    state.note(bits)
    return y


def store(state: Any, addr: int, results: Iterable[Value], fmt: int, rnd: int = 0) -> None:
    """Round results one by one and store them as dense elements."""
    words = [encode(narrow(state, x, fmt, rnd, i), fmt) for i, x in enumerate(results)]
    put_patterns(state.spm, addr, words, kind_of(fmt).size)


def get_bits(memory: Any, addr: int, n: int) -> list[bool]:
    """Return `n` packed truth values, lowest bit first."""
    return [bool(memory[addr + i // 8] >> (i % 8) & 1) for i in range(n)]


def put_bits(memory: Any, addr: int, bits: Sequence[bool]) -> None:
    """Store packed truth values; other bits of the last byte stay."""
    for i, bit in enumerate(bits):
        at, mask = addr + i // 8, 1 << i % 8
        memory[at] = int(memory[at]) & ~mask & 0xFF | (mask if bit else 0)
