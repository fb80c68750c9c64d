"""Reductions and pools element by element, and matrix products in the specified order of additions.

May import: numpy (products only), errors, isa, numerics, simulator.exact_values, simulator.exact_moves. Must not: use a matrix library.
Source: TX8 hardware manual 6.4, 10.1, 10.2. Sums run over ascending indices in f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.isa.blocked import padded
from tx8fast.numerics.formats import FORMAT_CODES
from tx8fast.simulator.exact_moves import blocked_offset
from tx8fast.simulator.exact_values import (
    F32,
    NAN_OPERAND,
    Value,
    decode,
    encode,
    f32,
    kind_of,
    narrow,
    patterns,
    put_patterns,
)

U16, U32 = FORMAT_CODES["u16"], FORMAT_CODES["u32"]
CHUNK = 8  # products that one step of the matrix engine adds as a balanced tree
BF16_DIGITS = 3  # parts of an f32 operand
#: which parts of left and right meet in the six passes, heaviest first
PASSES = ((0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (2, 0))


def _get(state: Any, addr: int, shape: Sequence[int], fmt: int) -> Callable[[int, int, int, int], Value]:
    """Return a reader of logical elements (n, y, x, c) of a blocked operand."""
    _, h, w, c = shape
    size = kind_of(fmt).size

    def at(n: int, y: int, x: int, k: int) -> Value:
        offset = blocked_offset(n, y * w + x, k, h * w, c, fmt)
        return decode(patterns(state.spm, addr + offset, 1, size)[0], fmt)

    return at


def _put(state: Any, addr: int, shape: Sequence[int], fmt: int, rnd: int, results: Sequence[Value]) -> None:
    """Store logical elements in order; lanes behind the last channel become zero."""
    n, h, w, c = shape
    size, lane = kind_of(fmt).size, 0
    for i, pos in product(range(n), range(h * w)):
        for k in range(int(padded(c, fmt))):
            # the padding of a row of a result is addressed like channels that it does not have
            word = 0
            if k < c:
                word = encode(narrow(state, results[lane], fmt, rnd, lane), fmt)
                lane += 1
            put_patterns(state.spm, addr + blocked_offset(i, pos, k, h * w, c, fmt), [word], size)


def _sum(xs: Sequence[float]) -> float:
    total = xs[0]
    for x in xs[1:]:
        total = f32(total + x)
    return total


def _extreme(pick: Callable[[Any], Any]) -> Callable[[Sequence[float]], float]:
    return lambda xs: math.nan if any(x != x for x in xs) else pick(xs)


COMBINE: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": _sum,
    "avg": lambda xs: f32(_sum(xs) / len(xs)),
    "max": _extreme(max),
    "min": _extreme(min),
}


def _reduce(f: Callable[[Sequence[float]], float]):
    def run(state, fmt, rnd, spm, p, ddr):
        dim, n, h, w, c = p[:5]
        if dim not in (0, 1, 2, 4):
            raise SimulationError(f"reduce: found dim code {dim}, required 0 (C), 1 (W), 2 (H) or 4 (HW)")
        at = _get(state, spm[0], p[1:5], fmt)
        gone = {0: (3,), 1: (2,), 2: (1,), 4: (1, 2)}[dim]
        shape = tuple(1 if k in gone else s for k, s in enumerate((n, h, w, c)))
        inner = [range(s) if k in gone else range(1) for k, s in enumerate((n, h, w, c))]
        out = []
        for i in product(*map(range, shape)):
            xs = [float(at(*(a + b for a, b in zip(i, j)))) for j in product(*inner)]
            state.note(NAN_OPERAND if any(x != x for x in xs) else 0)
            out.append(f(xs))
        _put(state, spm[1], shape, fmt, rnd, out)

    return run


def _pool(kind: str, indexed: bool):
    fill = {"max": -math.inf, "min": math.inf}.get(kind, 0.0)

    def run(state, fmt, rnd, spm, p, ddr):
        n, h, w, c, top, bottom, left, right, kx, ky, sx, sy = p[:12]
        oh, ow = (h + top + bottom - ky) // sy + 1, (w + left + right - kx) // sx + 1
        at = _get(state, spm[0], p[:4], fmt)
        out, where = [], []
        for i, y, x, k in product(range(n), range(oh), range(ow), range(c)):
            taps = [(y * sy + a - top, x * sx + b - left) for a in range(ky) for b in range(kx)]
            xs = [float(at(i, r, s, k)) if 0 <= r < h and 0 <= s < w else fill for r, s in taps]
            state.note(NAN_OPERAND if any(v != v for v in xs) else 0)
            out.append(COMBINE[kind](xs))
            where.append(
                next(
                    (j for j, v in enumerate(xs) if v != v),
                    xs.index(out[-1]) if out[-1] == out[-1] and kind in ("max", "min") else 0,
                )
            )
        shape = (n, oh, ow, c)
        _put(state, spm[1], shape, fmt, rnd, out)
        if indexed:
            _put(state, spm[2], shape, U16 if kind_of(fmt).size == 2 else U32, 0, where)

    return run


def _unpool(kind: str):
    def run(state, fmt, rnd, spm, p, ddr):
        n, h, w, c, oh, ow, kx, ky, sx, sy, index = p[:11]
        at = _get(state, spm[0], p[:4], fmt)
        position = _get(state, spm[2], p[:4], U16 if kind_of(fmt).size == 2 else U32) if kind == "mask" else None
        out: dict[tuple[int, ...], float] = {}
        for a, b in product(range(ky), range(kx)):
            for i, y, x, k in product(range(n), range(h), range(w), range(c)):
                v = float(at(i, y, x, k))
                if kind == "avg":
                    v = f32(v / (kx * ky))
                elif (position(i, y, x, k) if position else index) != a * kx + b:
                    continue
                key = (i, y * sy + a, x * sx + b, k)
                out[key] = f32(out.get(key, 0.0) + v)
        _put(state, spm[1], (n, oh, ow, c), fmt, rnd, [out.get(i, 0.0) for i in product(*map(range, (n, oh, ow, c)))])

    return run


def meanings() -> dict[str, Callable[..., None]]:
    """Return the meaning of every reduction, pool and unpool by name."""
    out = {f"reduce_{name}": _reduce(f) for name, f in COMBINE.items()}
    out |= {f"pool_{name}": _pool(name, False) for name in COMBINE}
    out |= {f"pool_{name}_indexed": _pool(name, True) for name in ("max", "min")}
    return out | {"unpool": _unpool("index"), "unpool_avg": _unpool("avg"), "mask_unpool": _unpool("mask")}


def ordered_product(a: np.ndarray, b: np.ndarray, fmt: int, acc: np.ndarray | None = None) -> np.ndarray:
    """Return acc + a @ b, (m, k) by (k, n), added as the matrix engine adds.

    The terms of one chunk of eight k form a balanced tree; chunks follow each other. f32 operands are split into three
    bf16 parts each, and the six heaviest of the nine products run one after the other over all of k [assumed order].
    Other formats multiply exactly. 8-bit integers add exactly in any order.
    """
    if a.dtype != np.float32 or fmt in (FORMAT_CODES["i8"], FORMAT_CODES["u8"]):
        exact = a @ b
        return exact if acc is None else acc + exact
    out = np.zeros((a.shape[0], b.shape[1]), np.float32) if acc is None else acc.copy()
    left, right = ([a], [b]) if fmt != F32 else (_digits(a), _digits(b))
    for i, j in PASSES if fmt == F32 else ((0, 0),):
        for k in range(0, a.shape[1], CHUNK):
            terms = [np.multiply.outer(x, y) for x, y in zip(left[i][:, k : k + CHUNK].T, right[j][k : k + CHUNK])]
            terms += [np.zeros_like(out)] * (CHUNK - len(terms))
            while len(terms) > 1:
                terms = [x + y for x, y in zip(terms[::2], terms[1::2])]
            out += terms[0]
    return out


def _digits(x: np.ndarray) -> list[np.ndarray]:
    """Return bf16 parts that add up to f32 `x`, heaviest first: rounded to nearest, or toward zero where the first would be infinite."""
    import ml_dtypes

    out: list[np.ndarray] = []
    with np.errstate(over="ignore"):
        far = np.isfinite(x) & np.isinf(x.astype(ml_dtypes.bfloat16))
    for _ in range(BF16_DIGITS):
        short = (np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
        with np.errstate(over="ignore"):
            out.append(np.where(far, short, x.astype(ml_dtypes.bfloat16).astype(np.float32)))
        x = np.where(np.isfinite(out[-1]), x - out[-1], np.float32(0))
    return out
