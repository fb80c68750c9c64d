"""Moves and peripheral instructions byte by byte and element by element: the oracle of their vectorised meanings.

May import: errors, isa, simulator.exact_values. Must not: compute on arrays.
Source: TX8 hardware manual 10.4, 11, 13. All of a row's source is read before its first result is stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

from tx8fast.errors import SimulationError
from tx8fast.isa.base import BLOCK
from tx8fast.isa.blocked import padded
from tx8fast.isa.lookup import RowNumberError
from tx8fast.simulator.exact_values import (
    F32,
    NAN_OPERAND,
    decode,
    encode,
    f32,
    get_bits,
    kind_of,
    patterns,
    put_patterns,
    store,
    values,
)

Shape = tuple[int, int, int, int]


def nest(levels: Sequence[int]) -> Iterator[int]:
    """Yield the byte offsets of strided runs (s0, n0, s1, n1, s2, n2), level 0 innermost."""
    s0, n0, s1, n1, s2, n2 = levels
    for i2, i1, i0 in product(range(n2), range(n1), range(n0)):
        yield i0 * s0 + i1 * s1 + i2 * s2


def copy_runs(dst: Any, dst_at: Iterator[int], src: Any, src_at: Iterator[int], size: int) -> None:
    """Copy runs of `size` bytes in order."""
    data = [bytes(src[a : a + size]) for a in src_at]
    for b, run in zip(dst_at, data, strict=True):
        dst[b : b + size] = list(run)


def gather_scatter(state, fmt, rnd, spm, p, ddr):
    src, dst = p[1:7], p[7:13]
    if math.prod(src[1::2]) != math.prod(dst[1::2]):
        raise SimulationError(f"gather_scatter: found counts {src[1::2]} and {dst[1::2]}, required equally many runs")
    copy_runs(state.spm, (spm[1] + o for o in nest(dst)), state.spm, (spm[0] + o for o in nest(src)), p[0])


def rdma(state, fmt, rnd, spm, p, ddr):
    src = state.ddr.view(ddr, p[0] + max(nest(p[1:7])))
    places = (spm[0] + k * p[0] for k in range(math.prod(p[2:7:2])))
    copy_runs(state.spm, places, src, nest(p[1:7]), p[0])


def wdma(state, fmt, rnd, spm, p, ddr):
    dst = state.ddr.view(ddr, p[0] + max(nest(p[1:7])))
    places = (spm[0] + k * p[0] for k in range(math.prod(p[2:7:2])))
    copy_runs(dst, nest(p[1:7]), state.spm, places, p[0])


def _number(state, fmt, p):
    """Return the row number that a look-up reads from DDR."""
    entries, slot, offset = p[2:5]
    raw = bytes(state.ddr.view(state.slots[slot] + offset, 4 if fmt in (4, 10) else 8))
    found = int.from_bytes(raw, "little", signed=fmt in (4, 11))
    if not -entries <= found < entries:
        raise RowNumberError(found, entries, state.slots[slot] + offset)
    return found % entries


def rdma_row(state, fmt, rnd, spm, p, ddr):
    src = state.ddr.view(ddr + _number(state, fmt, p) * p[1], p[0])
    copy_runs(state.spm, iter([spm[0]]), src, iter([0]), p[0])


def tdma_row(state, fmt, rnd, spm, p, ddr):
    first, (ss, n, ds) = spm[0] + _number(state, fmt, p) * p[1], p[5:8]
    copy_runs(state.spm, (spm[1] + k * ds for k in range(n)), state.spm, (first + k * ss for k in range(n)), p[0])


def memset(state, fmt, rnd, spm, p, ddr):
    size = kind_of(fmt).size
    for at in nest(p[2:8]):
        put_patterns(state.spm, spm[0] + at, [p[0] & ((1 << 8 * size) - 1)] * p[1], size)


def _spread(shape: Shape, out: Shape, source: Callable[..., tuple[int, int, int, int] | None]):
    """Return the meaning of a move: `source(index in out)` is the index in the operand, None = zero."""

    def run(state, fmt, spm):
        size = kind_of(fmt).size
        words = patterns(state.spm, spm[0], math.prod(shape), size)
        _, b, c, d = shape

        def pick(at):
            i = source(*at)
            return 0 if i is None else words[((i[0] * b + i[1]) * c + i[2]) * d + i[3]]

        put_patterns(state.spm, spm[1], [pick(at) for at in product(*map(range, out))], size)

    return run


def _mover(out, source):
    """Return a meaning from `out(n, h, w, c)` and `source(h, w, *index in out)`."""

    def run(state, fmt, rnd, spm, p, ddr):
        n, h, w, c = p[:4]
        shape = (n, c, h, w) if out == "nchw" else (n, h, w, c)
        target = (n, h, w, c) if out == "nchw" else out(n, h, w, c)
        _spread(shape, target, lambda *i: source(h, w, *i))(state, fmt, spm)

    return run


MOVES = {
    "mirror": _mover(lambda n, h, w, c: (n, h, w, c), lambda h, w, n, y, x, c: (n, y, w - 1 - x, c)),
    "transpose": _mover(lambda n, h, w, c: (n, w, h, c), lambda h, w, n, y, x, c: (n, x, y, c)),
    "rotate90": _mover(lambda n, h, w, c: (n, w, h, c), lambda h, w, n, y, x, c: (n, h - 1 - x, y, c)),
    "rotate180": _mover(lambda n, h, w, c: (n, h, w, c), lambda h, w, n, y, x, c: (n, h - 1 - y, w - 1 - x, c)),
    "rotate270": _mover(lambda n, h, w, c: (n, w, h, c), lambda h, w, n, y, x, c: (n, x, w - 1 - y, c)),
    "nhwc2nchw": _mover(lambda n, h, w, c: (n, c, h, w), lambda h, w, n, c, y, x: (n, y, x, c)),
    "nchw2nhwc": _mover("nchw", lambda h, w, n, y, x, c: (n, c, y, x)),
}


def pad(state, fmt, rnd, spm, p, ddr):
    n, h, w, c, top, bottom, left, right = p[:8]

    def source(i, y, x, k):
        return (i, y - top, x - left, k) if top <= y < top + h and left <= x < left + w else None

    _spread((n, h, w, c), (n, h + top + bottom, w + left + right, c), source)(state, fmt, spm)


def img2col(state, fmt, rnd, spm, p, ddr):
    n, h, w, c, top, bottom, left, right, kx, ky, sx, sy = p[:12]
    oh, ow = (h + top + bottom - ky) // sy + 1, (w + left + right - kx) // sx + 1

    def source(i, tap, pos, k):
        y, x = pos // ow * sy + tap // kx - top, pos % ow * sx + tap % kx - left
        return (i, y, x, k) if 0 <= y < h and 0 <= x < w else None

    _spread((n, h, w, c), (n, ky * kx, oh * ow, c), source)(state, fmt, spm)


def concat(state, fmt, rnd, spm, p, ddr):
    dim, *shape, size1 = p[:6]
    axis, e = {0: 3, 1: 2, 2: 1}[dim], kind_of(fmt).size
    inner = math.prod(shape[axis + 1 :])
    a = patterns(state.spm, spm[0], math.prod(shape), e)
    rows = math.prod(shape[:axis])
    b = patterns(state.spm, spm[1], rows * size1 * inner, e)
    step, more = shape[axis] * inner, size1 * inner
    out = [x for r in range(rows) for x in (*a[r * step : (r + 1) * step], *b[r * more : (r + 1) * more])]
    put_patterns(state.spm, spm[2], out, e)


def blocked_offset(n: int, p: int, c: int, positions: int, channels: int, fmt: int) -> int:
    """Return the byte offset of a channel-blocked element (manual 7.3)."""
    size, block = kind_of(fmt).size, int(BLOCK[fmt])
    room = int(padded(channels, fmt))
    full, tail = divmod(room, block)
    stride = -(-positions * room * size // 256) * 256
    if c // block < full:
        return n * stride + ((c // block * positions + p) * block + c % block) * size
    return n * stride + (full * block * positions + p * tail + c - full * block) * size


def tensor_norm(state, fmt, rnd, spm, p, ddr):
    n, h, w, c, inverse = p[:5]
    size, pos = kind_of(fmt).size, h * w
    places = [blocked_offset(i, j, k, pos, c, fmt) for i, j, k in product(range(n), range(pos), range(c))]
    dense = [i * size for i in range(n * pos * c)]
    src, dst = (places, dense) if inverse else (dense, places)
    words = [patterns(state.spm, spm[0] + a, 1, size) for a in src]
    if not inverse:
        used = -(-pos * int(padded(c, fmt)) * size // 256) * 256 * (n - 1) + pos * int(padded(c, fmt)) * size
        state.spm[spm[1] : spm[1] + used] = 0
    for a, word in zip(dst, words):
        put_patterns(state.spm, spm[1] + a, word, size)


def count(state, fmt, rnd, spm, p, ddr):
    state.wb = (sum(x != 0 for x in values(state.spm, spm[0], p[0], fmt)), 0)


def bitcount(state, fmt, rnd, spm, p, ddr):
    state.wb = (sum(get_bits(state.spm, spm[0], p[0])), 0)


def _extremum(better: Callable[[Any, Any], bool]):
    def run(state, fmt, rnd, spm, p, ddr):
        x = values(state.spm, spm[0], p[0], fmt)
        best = 0
        for i, v in enumerate(x):
            if v == v and (x[best] != x[best] or better(v, x[best])):
                best = i
        state.note(NAN_OPERAND if any(v != v for v in x) else 0)
        state.wb = (encode(x[best], fmt), best)

    return run


def factorize(state, fmt, rnd, spm, p, ddr):
    columns: tuple[list[float], ...] = ([], [], [])
    for x in values(state.spm, spm[0], p[0], F32):
        if x == 0 or not math.isfinite(x):
            parts = (
                -1.0 if x < 0 or (x != x and math.copysign(1, x) < 0) else 1.0,
                0.0 if x == 0 else -1.0,
                0.0 if x == 0 else abs(x),
            )
        else:
            m, e = math.frexp(abs(x))
            parts = (math.copysign(1.0, x), float(e - 1), m * 2)
        for column, v in zip(columns, parts):
            column.append(v)
    for addr, column in zip(spm[1:4], columns):
        store(state, addr, column, F32)


def bit2fp(state, fmt, rnd, spm, p, ddr):
    store(state, spm[1], [float(b) for b in get_bits(state.spm, spm[0], p[0])], fmt)


def _lut(width: int):
    def run(state, fmt, rnd, spm, p, ddr):
        offsets = patterns(state.spm, spm[0], p[0], width)
        table = bytes(state.spm[spm[1] : spm[1] + p[1] * width])
        words = [int.from_bytes(table[o : o + width], "little") for o in offsets]
        put_patterns(state.spm, spm[2], words, width)

    return run


def _generator(s0: int, s1: int) -> Iterator[tuple[float, int, int]]:
    """Yield xoroshiro128+ numbers in [0, 1) and the state behind each."""
    top = (1 << 64) - 1

    def turn(x, k):
        return (x << k | x >> 64 - k) & top

    while True:
        value = ((s0 + s1 & top) >> 40) * 2.0**-24
        s1 ^= s0
        s0, s1 = turn(s0, 24) ^ s1 ^ (s1 << 16 & top), turn(s1, 37)
        yield value, s0, s1


def rand_gen(state, fmt, rnd, spm, p, ddr):
    seeds = [patterns(state.spm, a, 1, 8)[0] for a in spm[:2]]
    made = [x for _, x in zip(range(p[0]), _generator(*seeds))]
    store(state, spm[4], [v for v, _, _ in made], fmt)
    for addr, word in zip(spm[2:4], made[-1][1:] if made else seeds):
        put_patterns(state.spm, addr, [word], 8)


def elem_mask(state, fmt, rnd, spm, p, ddr):
    x, scale = values(state.spm, spm[0], p[0], fmt), values(state.spm, spm[1], 1, fmt)[0]
    prob = decode(p[1] & 0xFFFFFFFF, F32)
    luck = _generator(state.seed() | 1, 0x9E3779B97F4A7C15)
    store(state, spm[2], [0.0 if v < prob else a * scale for a, (v, _, _) in zip(x, luck)], fmt, rnd)


def _compact(bits: bool):
    def run(state, fmt, rnd, spm, p, ddr):
        size = kind_of(fmt).size
        mask = get_bits(state.spm, spm[1], p[0]) if bits else [v != 0 for v in values(state.spm, spm[1], p[0], fmt)]
        src = patterns(state.spm, spm[0], p[0], size)
        put_patterns(state.spm, spm[2], [w for w, m in zip(src, mask) if m], size)

    return run


def bilinear(state, fmt, rnd, spm, p, ddr):
    n, h, w, c, oh, ow = p[:6]
    scale_w, scale_h = (decode(v & 0xFFFFFFFF, F32) for v in p[6:8])
    x = values(state.spm, spm[0], n * h * w * c, fmt)

    def axis(i, scale, size):
        at = min(f32(float(i) * scale), float(size - 1))
        low = math.floor(at)
        return low, min(low + 1, size - 1), f32(at - low)

    def mix(a, b, f):
        return f32(f32(a * f32(1 - f)) + f32(b * f))

    out = []
    for i, y, z, k in product(range(n), range(oh), range(ow), range(c)):
        y0, y1, fy = axis(y, scale_h, h)
        x0, x1, fx = axis(z, scale_w, w)
        at = lambda r, s: x[((i * h + r) * w + s) * c + k]  # noqa: E731, B023
        out.append(mix(mix(at(y0, x0), at(y0, x1), fx), mix(at(y1, x0), at(y1, x1), fx), fy))
    store(state, spm[1], out, fmt, rnd)


def meanings() -> dict[str, Callable[..., None]]:
    """Return the meaning of every move, transfer with DDR and peripheral instruction by name."""
    own = (
        gather_scatter,
        rdma,
        rdma_row,
        tdma_row,
        wdma,
        memset,
        pad,
        img2col,
        concat,
        tensor_norm,
        count,
        bitcount,
        factorize,
        bit2fp,
        rand_gen,
        elem_mask,
        bilinear,
    )
    named = {f.__name__: f for f in own}
    return (
        named
        | MOVES
        | {
            "argmax": _extremum(lambda a, b: a > b),
            "argmin": _extremum(lambda a, b: a < b),
            "lut16": _lut(2),
            "lut32": _lut(4),
            "mask_gather": _compact(False),
            "mask_gather_b": _compact(True),
        }
    )
