"""What random calls of kernel-core routines are made of: numbers, shapes, one call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tx8fast.numerics.formats import FLOATS, dtype_name, int_limits, np_dtype

FLOAT, WHOLE = ("f32", "bf16", "f16", "f64"), ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 1e-40, 3e38, -7.5, 2.5)


@dataclass
class Drawn:
    """One call: operands (None: missing), attributes and (shape, format) of every result."""

    name: str
    arrays: list[np.ndarray | None]
    types: list[tuple[tuple[int, ...], str]]
    attrs: dict[str, Any] = field(default_factory=dict)
    dtypes: dict[int, str] = field(default_factory=dict)  # of operands whose numpy type has several formats

    def dtype(self, index: int) -> str:
        x = self.arrays[index]
        assert x is not None
        return self.dtypes.get(index) or dtype_name(x.dtype)

    def __repr__(self) -> str:
        shown = [None if x is None else f"{self.dtype(i)}{list(x.shape)}" for i, x in enumerate(self.arrays)]
        return f"{self.name} {shown} {self.attrs} -> {self.types}"


def shape_of(rng, low: int = 1, high: int = 4, most: int = 6) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(1, most + 1, rng.integers(low, high + 1)))


def numbers(rng, shape, dtype: str, special: bool = True, low: float = -4, high: float = 4) -> np.ndarray:
    if dtype == "pred":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in FLOATS:
        x = rng.normal(0, 2, shape) if low < 0 else rng.uniform(low, high, shape)
        x = np.asarray(np.clip(x, low, high))
        if special and x.size > 2:
            at = rng.integers(0, x.size, max(1, x.size // 6))
            x.reshape(-1)[at] = rng.choice(SPECIAL, len(at))
        with np.errstate(all="ignore"):
            return x.astype(np_dtype(dtype))
    first, last = int_limits(dtype)
    if special and rng.random() < 0.3:
        return rng.integers(max(first, -(1 << 62)), min(last, 1 << 62), shape, endpoint=True).astype(np_dtype(dtype))
    return rng.integers(max(first, -9), min(last, 9), shape, endpoint=True).astype(np_dtype(dtype))


def spread(rng, shape) -> tuple[int, ...]:
    """A shape that is repeated up to `shape`."""
    cut = int(rng.integers(0, len(shape) + 1))
    return tuple(1 if rng.random() < 0.3 else n for n in shape[cut:])


def pick(rng, items):
    return items[int(rng.integers(len(items)))]
