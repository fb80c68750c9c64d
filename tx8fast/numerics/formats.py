"""Number formats: codes, storage sizes, rounding and conversion rules.

May import: numpy, ml_dtypes, _kernels, errors. Must not: know layouts, instructions or the IR.
Sources: TX8 hardware manual 6.1 (codes), 6.2 (rounding modes), 10.3 (conversions).
"""

from __future__ import annotations

from functools import lru_cache

import ml_dtypes
import numpy as np

from tx8fast.errors import ConfigError

#: codes 0..12 are the chip's; 14 and up are ours, for tensors that only the kernel core touches
FORMAT_CODES: dict[str, int] = {
    "i8": 0, "i16": 1, "f16": 2, "bf16": 3, "i32": 4, "f32": 5, "tf32": 6, "pred": 7, "u8": 8,
    "u16": 9, "u32": 10, "i64": 11, "u64": 12, "f64": 14, "f8e4m3fn": 15, "f8e5m2": 16,
    "i4": 17, "u4": 18,
}  # fmt: skip
CODE_TO_DTYPE: dict[int, str] = {code: name for name, code in FORMAT_CODES.items()}

_NP_DTYPES: dict[str, np.dtype] = {
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "tf32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "pred": np.dtype(np.bool_),
    "f8e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "i4": np.dtype(np.int8),
    "u4": np.dtype(np.uint8),
}

#: numpy's own 4-bit types; their values are kept one per byte
_NP_NIBBLES: dict[np.dtype, str] = {np.dtype(ml_dtypes.int4): "i4", np.dtype(ml_dtypes.uint4): "u4"}

#: bytes per element in DDR and SPM; truth values and 4-bit integers take one byte each
ITEM_BYTES: dict[str, int] = {name: dt.itemsize for name, dt in _NP_DTYPES.items()}

FLOATS = frozenset({"f16", "bf16", "f32", "tf32", "f64", "f8e4m3fn", "f8e5m2"})
SIGNED = frozenset({"i4", "i8", "i16", "i32", "i64"})
UNSIGNED = frozenset({"u4", "u8", "u16", "u32", "u64"})
INTS = SIGNED | UNSIGNED
SHORT_FLOATS = frozenset({"f16", "bf16"})
SHORT_PATTERNS = 1 << 16

NEAREST, TOWARD_ZERO, UP, DOWN, STOCHASTIC = range(5)

INT_LIMITS: dict[str, tuple[int, int]] = {
    name: (int(np.iinfo(_NP_DTYPES[name]).min), int(np.iinfo(_NP_DTYPES[name]).max)) for name in INTS - {"i4", "u4"}
} | {"i4": (-8, 7), "u4": (0, 15)}


def np_dtype(name: str) -> np.dtype:
    """Return the numpy dtype that stores format `name`. Raises ConfigError if there is none."""
    try:
        return _NP_DTYPES[name]
    except KeyError:
        known = ", ".join(_NP_DTYPES)
        raise ConfigError(f"unknown data format '{name}', expected one of {known}") from None


def dtype_name(dtype: np.dtype) -> str:
    """Return the format that stores numpy `dtype` (the plain one: f32, not tf32)."""
    dtype = np.dtype(dtype)
    for name, found in _NP_DTYPES.items():
        if found == dtype and name not in ("tf32", "i4", "u4"):
            return name
    if dtype in _NP_NIBBLES:
        return _NP_NIBBLES[dtype]
    raise ConfigError(f"numpy dtype {dtype} has no data format")


def int_limits(name: str) -> tuple[int, int]:
    """Return the smallest and the largest value of integer format `name`."""
    return INT_LIMITS[name]


def mask_tf32(x: np.ndarray) -> np.ndarray:
    """Return `x` (f32) as a TF32 operand is read: the low 13 mantissa bits cleared."""
    return (np.asarray(x, np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def uniform_bits(n: int, seed: int) -> np.ndarray:
    """Return `n` repeatable u32 values: a 32-bit xorshift started per element from `seed`."""
    s = np.arange(1, n + 1, dtype=np.uint64) * 0x9E3779B9 + np.uint64(seed & 0xFFFFFFFF) * 0x85EBCA6B
    x = (s & 0xFFFFFFFF).astype(np.uint32)
    x[x == 0] = 0x6D2B79F5  # zero is the fixed point of a xorshift
    for _ in range(3):
        x ^= x << np.uint32(13)
        x ^= x >> np.uint32(17)
        x ^= x << np.uint32(5)
    return x


def _nearest_tf32(x: np.ndarray) -> np.ndarray:
    bits = x.view(np.uint32)
    up = bits + (np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1)))
    kept = np.where(np.isnan(x), bits | np.uint32(0x400000), up) & np.uint32(0xFFFFE000)
    return kept.view(np.float32)


def _nearest(x: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "f16" and x.size > SHORT_PATTERNS:
        from tx8fast._kernels import f16_of_f32

        return f16_of_f32(np.ascontiguousarray(x))
    return _nearest_tf32(x) if dtype == "tf32" else x.astype(_NP_DTYPES[dtype])


def _step(y: np.ndarray, dtype: str, where: np.ndarray, outward: np.ndarray | bool) -> np.ndarray:
    """Move `y`, where `where`, one last-place unit away from zero (`outward`) or toward it."""
    carrier = np.dtype(f"u{y.dtype.itemsize}")
    unit = carrier.type(1 << 13 if dtype == "tf32" else 1)
    bits = y.view(carrier)
    moved = np.where(outward, bits + unit, bits - unit)
    return np.where(where, moved, bits).astype(carrier).view(y.dtype)


def clamp_finite(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return `array` in `dtype` (NumPy float types); finite values beyond its range become its largest finite ones."""
    wide = array.astype(np.float64)
    top = float(ml_dtypes.finfo(dtype).max)
    return np.where(np.isfinite(wide), np.clip(wide, -top, top), wide).astype(np.float32).astype(dtype)


def round_f32(x: np.ndarray, dtype: str, mode: int = NEAREST, seed: int = 0) -> np.ndarray:
    """Round `x` (f32, any shape) to float format `dtype` under rounding mode 0..4.

    Modes: 0 nearest even, 1 toward zero, 2 up, 3 down, 4 stochastic (repeatable for one `seed`).
    Integer formats saturate as in `float_to_int`. Raises ConfigError on an unknown mode.
    """
    if not 0 <= mode <= 4:
        raise ConfigError(f"rounding mode {mode} does not exist, expected 0..4")
    if dtype in INTS:
        return float_to_int(x, dtype, mode, seed)
    if dtype == "pred":
        return np.asarray(x) != 0
    x = np.ascontiguousarray(x, np.float32).reshape(np.shape(x))
    if dtype in ("f32", "f64"):
        return x.astype(np_dtype(dtype))
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        y = _nearest(x, dtype)
        if mode == NEAREST:
            return y
        back = y.astype(np.float32)
        if mode == UP:
            return _step(y, dtype, back < x, ~np.signbit(x))
        if mode == DOWN:
            return _step(y, dtype, back > x, np.signbit(x))
        low = _step(y, dtype, np.abs(back) > np.abs(x), False)
        if mode == TOWARD_ZERO:
            return low
        return _stochastic(x, low, dtype, seed)


def _stochastic(x: np.ndarray, low: np.ndarray, dtype: str, seed: int) -> np.ndarray:
    """Choose between `low` (x cut toward zero) and its outward neighbour with fair probability.

    Comparing a 32-bit uniform fraction with the cut part equals adding uniform bits to the
    discarded ones and truncating, because the cut part is a multiple of the discarded bits' unit.
    """
    everywhere = np.ones(x.shape, bool)
    low64 = np.abs(low.astype(np.float64))
    high64 = np.abs(_step(low, dtype, everywhere, True).astype(np.float64))
    below64 = np.abs(_step(low, dtype, low64 > 0, False).astype(np.float64))
    # next to infinity the unit is the one below the largest finite value
    unit = np.where(np.isinf(high64), low64 - below64, high64 - low64)
    cut = (np.abs(x.astype(np.float64)) - low64) / np.where(unit > 0, unit, 1.0)
    chance = uniform_bits(x.size, seed).reshape(x.shape) / 4294967296.0
    return _step(low, dtype, np.isfinite(x) & (cut + chance >= 1.0), True)


def float_to_int(x: np.ndarray, dtype: str, mode: int = NEAREST, seed: int = 0) -> np.ndarray:
    """Round floats to integer format `dtype`: round under `mode`, saturate, NaN becomes 0."""
    lo, hi = INT_LIMITS[dtype]
    v = np.asarray(x).astype(np.float64)
    if mode == NEAREST:
        v = np.rint(v)
    elif mode == TOWARD_ZERO:
        v = np.trunc(v)
    elif mode == UP:
        v = np.ceil(v)
    elif mode == DOWN:
        v = np.floor(v)
    elif mode == STOCHASTIC:
        chance = uniform_bits(v.size, seed).reshape(v.shape) / 4294967296.0
        v = np.copysign(np.floor(np.abs(v) + chance), v)
    else:
        raise ConfigError(f"rounding mode {mode} does not exist, expected 0..4")
    # float64 cannot hold the largest 64-bit integers: compare first, convert only what fits
    above, below = v >= float(hi), v <= float(lo)
    safe = np.where(above | below | np.isnan(v), 0.0, v).astype(_NP_DTYPES[dtype])
    out = np.where(above, _NP_DTYPES[dtype].type(hi), safe)
    return np.where(below, _NP_DTYPES[dtype].type(lo), out).astype(_NP_DTYPES[dtype])


def convert(x: np.ndarray, src: str, dst: str, mode: int = NEAREST, zero_point: int = 0, seed: int = 0) -> np.ndarray:
    """Convert `x` stored as format `src` to format `dst` the way the vector engine does.

    `zero_point` is subtracted from integer sources. Integers become floats through one f32
    rounding and one rounding to `dst`, both under `mode`; integer to integer keeps the low bits.
    """
    x = np.asarray(x)
    if src in SHORT_FLOATS and dst in SHORT_FLOATS and mode == NEAREST and x.size > SHORT_PATTERNS:
        from tx8fast._kernels import looked_up

        found = np.ascontiguousarray(x).view(np.uint16)
        return looked_up(found, _short_table(src, dst).view(np.uint16)).view(_NP_DTYPES[dst])
    if src in INTS or src == "pred":
        if dst == "pred":
            return x != 0
        if dst in INTS:
            return _wrap(x.astype(_NP_DTYPES[src]), dst)
        wide = x.astype(np.float64) - zero_point
        if dst == "f64":
            return wide
        return round_f32(_f64_to_f32(wide, mode, seed), dst, mode, seed)
    if src == "tf32":
        x = mask_tf32(x)
    if dst == "f64":
        return x.astype(np.float64)
    if dst in INTS:
        return float_to_int(x, dst, mode, seed)
    if src == "f64":
        if dst == "pred":
            return x != 0
        return round_f32(_f64_to_f32(x, mode, seed), dst, mode, seed)
    return round_f32(x.astype(np.float32), dst, mode, seed)


@lru_cache
def _short_table(src: str, dst: str) -> np.ndarray:
    """What each pattern of a 16-bit float becomes in another format."""
    return convert(np.arange(SHORT_PATTERNS, dtype=np.uint16).view(_NP_DTYPES[src]), src, dst)


def _wrap(x: np.ndarray, dst: str) -> np.ndarray:
    if dst == "i4":
        low = (x & 0xF).astype(np.int8)
        return np.where(low > 7, low - 16, low).astype(np.int8)
    return (x & 0xF).astype(np.uint8) if dst == "u4" else x.astype(_NP_DTYPES[dst])


def _f64_to_f32(x: np.ndarray, mode: int, seed: int) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        y = np.ascontiguousarray(x.astype(np.float32)).reshape(x.shape)
        back = y.astype(np.float64)
        if mode == UP:
            return _step(y, "f32", back < x, ~np.signbit(x))
        if mode == DOWN:
            return _step(y, "f32", back > x, np.signbit(x))
        if mode in (TOWARD_ZERO, STOCHASTIC):
            y = _step(y, "f32", np.abs(back) > np.abs(x), False)
        return y


def pack_bits(x: np.ndarray) -> np.ndarray:
    """Pack truth values into bytes, element i in bit i mod 8 of byte i div 8 (low bit first)."""
    return np.packbits(np.asarray(x, bool).reshape(-1), bitorder="little")


def unpack_bits(buf: np.ndarray, count: int) -> np.ndarray:
    """Return the first `count` truth values of a bit-packed byte buffer."""
    return np.unpackbits(np.asarray(buf, np.uint8), count=count, bitorder="little").astype(bool)
