"""Pieces of quantised networks: numbers that are rounded and read back, products of bytes, and bytes that wrap before they are multiplied."""

from __future__ import annotations

from functools import partial

import numpy as np
from hunt.draft import Draft, Unfit, Value
from hunt.formats import F32, I8, I32, U8
from hunt.idioms import CHANNELS, UNARY, idiom, rows_of

BYTES = (np.uint8, np.int8)
#: below this, sums in f32 are exact; no fp16 holds them
SUMS = 2.0**23


def a_byte(d: Draft, dtype: type) -> Value:
    """A zero point: in the middle, at either end, or anywhere."""
    info = np.iinfo(dtype)
    return d.weight(
        np.asarray(d.pick([0, 0, int(info.min), int(info.max), d.int(int(info.min), int(info.max))]), dtype)
    )


def bytes_of(d: Draft, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Numbers over the whole format, or near nothing."""
    info = np.iinfo(dtype)
    lo, hi = (int(info.min), int(info.max)) if d.chance(0.6) else (max(-4, int(info.min)), 4)
    return d.rng.integers(lo, hi + 1, shape).astype(dtype)


def a_scale(d: Draft, shape: tuple[int, ...] = ()) -> Value:
    """Powers of two and what is none."""
    if d.chance(0.4):
        return d.weight(np.full(shape, d.pick([2.0**-5, 2.0**-4, 2.0**-7]), np.float32), F32)
    return d.weight((d.draw(shape, "positive") / np.float32(40)).astype(np.float32), F32)


def read_back(d: Draft, x: Value, axis: int | None = None) -> Value:
    """x rounded to bytes and made floats again; with a scale of its own per place along `axis`."""
    dtype = d.pick(BYTES)
    shape, more = ((), {}) if axis is None else ((x.shape[axis],), {"axis": axis})
    scale = a_scale(d, shape)
    zero = None if dtype is np.uint8 and d.chance(0.3) else d.weight(bytes_of(d, shape, dtype))
    y = d.op("QuantizeLinear", x, scale, zero, **more)
    if d.chance(0.3):
        y = moved(d, y) if axis is None else y
    other = (a_scale(d), a_byte(d, dtype)) if axis is None and d.chance(0.3) else (scale, zero)
    return d.op("DequantizeLinear", y, *other, **more)


def moved(d: Draft, x: Value) -> Value:
    """x in another order, another shape, a part of it, or as it is."""
    way = d.int(0, 4)
    if way == 0 and x.rank > 1:
        return d.op("Transpose", x, perm=[*range(x.rank - 2), x.rank - 1, x.rank - 2])
    if way == 1 and x.rank > 1:
        return d.op("Reshape", x, d.ints(-1, x.shape[-1]))
    if way == 2 and x.rank and x.shape[0] > 1:
        return d.op("Slice", x, d.ints(1), d.ints(x.shape[0]), d.ints(0))
    return x


def changed(d: Draft, x: Value) -> Value:
    """Bytes as an operator of integers makes them, mostly one under which some wrap."""
    dtype = x.array.dtype.type
    way = d.int(0, 7)
    if way == 0:
        other = d.pick([I8, U8])
        return d.op("Cast", x, to=other)
    if way == 1:
        return d.op(
            "Cast",
            d.op(d.pick(["Add", "Sub"]), d.op("Cast", x, to=I32), d.weight(np.asarray(d.int(-200, 200), np.int32))),
            to=d.pick([I8, U8]),
        )
    if way == 2:
        return d.op(
            d.pick(["Add", "Sub", "Mul"]), x, d.like(x) if d.chance(0.5) else d.weight(bytes_of(d, x.shape[-1:], dtype))
        )
    if way == 3:
        return d.op(d.pick(["Max", "Min"]), x, a_byte(d, dtype))
    if way == 4:
        return d.op("Where", d.op("Less", x, a_byte(d, dtype)), x, a_byte(d, dtype))
    if way == 5 and dtype is np.int8:
        return d.op(d.pick(["Neg", "Abs", "Sign"]), x)
    if way == 6:
        return d.op("Concat", x, d.like(x), axis=0)
    return moved(d, x)


def product(d: Draft, x: Value) -> Value:
    """Sums of products of bytes, in 32 bits."""
    dtype = x.array.dtype.type
    zero = a_byte(d, dtype) if d.chance(0.6) else None
    if x.rank == 4 and d.chance(0.7):
        k = d.pick([1, 1, 2, 3])
        if min(x.shape[2:]) < k:
            raise Unfit("no place for the kernel")
        w = d.weight(bytes_of(d, (d.pick([3, 16, 65]), x.shape[1], k, k), d.pick(BYTES)))
        return d.op("ConvInteger", x, w, zero, a_byte(d, w.array.dtype.type) if d.chance(0.5) else None)
    if x.rank < 2:
        raise Unfit("no rows")
    n = d.pick([1, 16, 64, 65, 129])
    w = d.weight(bytes_of(d, (x.shape[-1], n), d.pick(BYTES)))
    kind = w.array.dtype.type
    own = d.weight(bytes_of(d, (n,), kind)) if d.chance(0.3) else a_byte(d, kind) if d.chance(0.5) else None
    return d.op("MatMulInteger", x, w, zero, own)


@idiom
def rounded(d: Draft) -> None:
    """A few layers, some of whose numbers are rounded to bytes and read back."""
    d.code, d.largest = F32, SUMS
    x = rows_of(d) if d.chance(0.6) else d.input(d.draw((d.pick([1, 2]), d.pick([3, 16, 64, 65]), 7, d.pick([8, 13]))))
    if d.chance(0.8):
        x = read_back(d, x)
    for _ in range(d.int(1, 3)):
        if x.rank == 4:
            w = d.floats(x, (d.pick([3, 16, 64]), x.shape[1], 1, 1), scale=x.shape[1] ** -0.5)
        else:
            w = d.floats(x, (x.shape[-1], d.pick(CHANNELS)), scale=x.shape[-1] ** -0.5)
        if d.chance(0.5):
            w = read_back(d, w, d.pick([None, 0 if x.rank == 4 else 1]))
        x = d.op("Conv" if x.rank == 4 else "MatMul", x, w)
        if d.chance(0.6):
            x = read_back(d, x, d.pick([None, None, 1]))
        if d.chance(0.5):
            x = d.op(d.pick(UNARY), x)
        if d.chance(0.3):
            x = d.op("Add", x, d.like(x))
        if d.chance(0.3):
            x = read_back(d, x)


@idiom
def quantised_as_it_runs(d: Draft) -> None:
    """Dynamically quantised layers: bytes by the range that is found, sums made floats by both scales."""
    d.code, d.largest = F32, SUMS
    x = rows_of(d) if d.chance(0.7) else d.input(d.draw((d.pick([1, 2]), d.pick([3, 16, 64]), 6, d.pick([7, 9]))))
    for _ in range(d.int(1, 2)):
        if np.ptp(x.array) < 1e-3:
            raise Unfit("no range")
        q, s, z = d.node("DynamicQuantizeLinear", [x], 3)
        if x.rank == 4:
            w = d.weight(bytes_of(d, (d.pick([3, 16, 65]), x.shape[1], 1, 1), d.pick(BYTES)))
            sums = d.op("ConvInteger", q, w, z, a_byte(d, w.array.dtype.type) if d.chance(0.4) else None)
        else:
            n = d.pick(CHANNELS)
            w = d.weight(bytes_of(d, (x.shape[-1], n), d.pick(BYTES)))
            sums = d.op("MatMulInteger", q, w, z, a_byte(d, w.array.dtype.type) if d.chance(0.4) else None)
        if d.chance(0.2):
            sums = d.op("Add", sums, sums)
        y = d.op("Cast", sums, to=F32)
        own = a_scale(d, (y.shape[-1],) if x.rank < 4 and d.chance(0.4) else ())
        y = d.op("Mul", y, d.op("Mul", s, own))
        if d.chance(0.5):
            y = d.op("Add", y, d.floats(y, y.shape[-1:]))
        x = d.op(d.pick(UNARY), y) if d.chance(0.6) else y


@idiom
def wrapped(d: Draft) -> None:
    """Bytes that an operator of integers changes before they are multiplied, read as integers and as floats."""
    d.code, d.largest = F32, SUMS
    dtype = d.pick(BYTES)
    lead = (d.pick([1, 2]), d.pick([3, 16]), 5, 7) if d.chance(0.3) else (d.pick([1, 7, 33, 64]), d.pick(CHANNELS))
    if d.chance(0.4):
        start = d.input(d.draw(lead))
        x = d.op("QuantizeLinear", start, a_scale(d), a_byte(d, dtype))
    else:
        x = d.input(bytes_of(d, lead, dtype))
    for _ in range(d.int(0, 3)):
        x = d.attempt(partial(changed, d, x)) or x
    sums = product(d, x)
    if d.chance(0.3):
        sums = d.op(d.pick(["Add", "Sub"]), sums, d.op("Cast", x, to=I32) if x.shape == sums.shape else sums)
    if d.chance(0.4):
        sums = moved(d, sums)
    y = d.op("Cast", sums, to=F32)
    y = d.op("Mul", y, d.weight(np.asarray(2.0**-9, np.float32), F32))
    if d.chance(0.4):
        y = d.op(d.pick(["Relu", "Sigmoid", "Tanh"]), y)
    if d.chance(0.3):
        d.op(
            "Cast", d.op("Clip", sums, d.weight(np.asarray(-100, np.int32)), d.weight(np.asarray(100, np.int32))), to=I8
        )
    if d.chance(0.3):
        d.op("QuantizeLinear", y, a_scale(d), a_byte(d, d.pick(BYTES)))
