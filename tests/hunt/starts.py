"""What a hunted model begins with: inputs and stored tensors of every rank, element type and range of values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hunt.draft import PROFILES, Draft, Value
from hunt.formats import I32, I64


def _floats(rank: int, profile: str) -> Callable[[Draft], Value]:
    return lambda d: d.input(d.draw(d.shape(rank), profile))


def _image(d: Draft) -> Value:
    side = d.pick([4, 6, 7, 8, 12, 16])
    shape = (d.pick([1, 1, 2, 3, 20]), d.pick([1, 3, 4, 8, 16, 63, 64, 65, 128]), side, d.pick([side, 5, 33]))
    while np.prod(shape) > 2 * d.room:
        shape = (max(1, shape[0] // 2), max(1, shape[1] // (1 + (shape[0] == 1))), shape[2], max(5, shape[3] // 2))
    return d.input(d.draw(shape, d.pick(PROFILES)))


def _rows(d: Draft) -> Value:
    """[batch, rows, channels] as transformers have it."""
    shape = d.pick([1, 1, 2, 3, 20]), d.pick([1, 3, 8, 16, 63, 65]), d.pick([16, 32, 64, 65, 96, 128, 129])
    return d.input(d.draw(shape, d.pick(PROFILES)))


def _heads(d: Draft) -> Value:
    shape = d.pick([1, 2]), d.pick([1, 2, 4]), d.pick([1, 8, 33, 64]), d.pick([8, 16, 32, 64])
    return d.input(d.draw(shape))


def _square(d: Draft) -> Value:
    n = d.pick([2, 3, 4])
    return d.input(d.draw((*d.pick([(), (2,)]), n, n)))


def _signal(d: Draft) -> Value:
    return d.input(d.draw((d.int(1, 3), d.pick([16, 64, 128]), d.pick([1, 2]))))


def _turns(d: Draft) -> Value:
    return d.input(d.draw((d.int(1, 2), 2, 3), "unit"))


def _ints(dtype: type, low: int, high: int) -> Callable[[Draft], Value]:
    return lambda d: d.input(d.rng.integers(low, high, d.shape(d.int(0, 4), 4000)).astype(dtype))


def _bytes_image(d: Draft) -> Value:
    return d.input(d.rng.integers(0, 9, (d.int(1, 2), d.pick([3, 64]), 5, 6)).astype(np.uint8))


def _bools(d: Draft) -> Value:
    return d.input(d.rng.random(d.shape(d.int(0, 4))) < 0.5)


def _ids(d: Draft) -> Value:
    code = d.pick([I32, I64])
    shape = d.pick([(1, 8), (2, 65), (3, 1)])
    return d.input(d.rng.integers(0, 40, shape).astype(np.int32 if code == I32 else np.int64), code)


def _stored(d: Draft) -> Value:
    """A weight: what reads it can be computed before the program runs."""
    shape = d.shape(d.int(0, 4), 2000)
    kind = d.int(0, 2)
    if kind == 0:
        return d.weight(d.draw(shape, d.pick(PROFILES)))
    return d.weight(d.rng.integers(0, 6, shape).astype(np.int64) if kind == 1 else d.rng.random(shape) < 0.5)


def _number(d: Draft) -> Value:
    return d.weight(np.asarray(d.pick([3, 16, 65]), np.int64), I64)


def _sizes(d: Draft) -> Value:
    return d.weight(d.rng.integers(1, 6, (d.int(1, 4),)).astype(np.int64), I64)


STARTS: dict[str, Callable[[Draft], Value]] = {
    **{f"floats{rank}-{profile}": _floats(rank, profile) for rank in range(6) for profile in PROFILES},
    "image": _image, "rows": _rows, "heads": _heads, "square": _square, "signal": _signal, "turns": _turns,
    "i64": _ints(np.int64, 0, 8), "i32": _ints(np.int32, -5, 6), "u8": _ints(np.uint8, 0, 200),
    "i8": _ints(np.int8, -9, 9), "bools": _bools, "bytes": _bytes_image, "ids": _ids, "stored": _stored, "sizes": _sizes, "number": _number,
}  # fmt: skip
