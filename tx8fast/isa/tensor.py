"""CT tensor instructions on channel-blocked operands: reduce, pool, unpool.

May import: numpy, isa.base, isa.blocked, isa.vector (cost). Must not: know DDR.
Source: TX8 hardware manual 10.1, 10.2, 16.2. Shapes are logical; padding lanes never take part.
"""

from __future__ import annotations

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.isa.base import FORMAT_BYTES, OPERAND_BYTES, Instruction, declare
from tx8fast.isa.blocked import load, position_bytes, span_bytes, store, used_bytes
from tx8fast.isa.vector import ct_time

DIM_C, DIM_W, DIM_H, DIM_HW = 0, 1, 2, 4


class Reduce(Instruction):
    """Reduce one axis (dim 0 C, 1 W, 2 H, 4 HW) of a blocked (n, h, w, c); reduced axes keep extent 1."""

    REGS = 9
    FIELDS_SPM = ("src0", "dst")
    FIELDS_P = ("dim", "n", "h", "w", "c")

    @staticmethod
    def alignment(r):
        return OPERAND_BYTES

    @staticmethod
    def rules(r):
        yield ~np.isin(r["p"][:, 0], tuple(_AXES)), f"a reduction over none of dimensions {tuple(_AXES)}"

    @staticmethod
    def cycles(machine, r):
        dim, n, h, w, c = r["p"][:, :5].T
        size = used_bytes(n, h * w, c, r["fmt"]) + np.where(dim == DIM_C, 128 * n * h * w, 0)
        return ct_time(machine, size, (r["spm"][:, 0] | r["spm"][:, 1]) % 128 != 0)

    @staticmethod
    def spans(r):
        dim, n, h, w, c = r["p"][:, :5].T
        fmt = r["fmt"]
        oh = np.where((dim == DIM_H) | (dim == DIM_HW), 1, h)
        ow = np.where((dim == DIM_W) | (dim == DIM_HW), 1, w)
        out = span_bytes(n, oh * ow, np.where(dim == DIM_C, 1, c), fmt)
        return [(r["spm"][:, 0], span_bytes(n, h * w, c, fmt))], [(r["spm"][:, 1], out)]


_AXES = {DIM_C: (3,), DIM_W: (2,), DIM_H: (1,), DIM_HW: (1, 2)}


def _sum(x, axis, keepdims):
    """Return sums over `axis` (adjacent axes), one addition after the other in ascending order."""
    moved = np.moveaxis(x, axis, range(len(axis)))
    rows = np.ascontiguousarray(moved).reshape(-1, *moved.shape[len(axis) :])
    # adding whole rows in turn, numpy keeps their order
    out = np.add.reduce(rows, axis=0) if rows[0].size > 1 else np.cumsum(rows, axis=0)[-1]
    return np.expand_dims(out, axis)


def _mean(x, axis, keepdims):
    return _sum(x, axis, keepdims) / np.float32(np.prod([x.shape[a] for a in axis]))


def _reduce_runner(f):
    def run(state, fmt, rnd, spm, p, ddr):
        dim, n, h, w, c = p[:5]
        if dim not in _AXES:
            raise SimulationError(f"reduce: found dim code {dim}, required 0 (C), 1 (W), 2 (H) or 4 (HW)")
        x = load(state.spm, spm[0], n, h * w, c, fmt).reshape(n, h, w, c)
        y = f(x, axis=_AXES[dim], keepdims=True)
        store(state.spm, spm[1], y.reshape(n, -1, y.shape[3]), fmt, rnd, state.seed())

    return run


class Pool(Instruction):
    """Pool windows of a blocked (n, h, w, c); the indexed forms also write ky * kx_size + kx."""

    REGS = 9
    FIELDS_SPM = ("src0", "dst")
    FIELDS_P = ("n", "h", "w", "c", "top", "bottom", "left", "right", "kx", "ky", "sx", "sy")

    @staticmethod
    def alignment(r):
        return position_bytes(r["p"][:, 3], r["fmt"])[:, None]  # bands of an image begin at any of its positions

    @staticmethod
    def rules(r):
        oh, ow = Pool.out_size(r["p"][:, :12].T)
        yield (oh < 1) | (ow < 1), "a pool whose window is larger than its operand with pads"

    @staticmethod
    def out_size(p):
        """Return (OH, OW) for columns or integers of FIELDS_P."""
        _, h, w, _, top, bottom, left, right, kx, ky, sx, sy = p[:12]
        return (h + top + bottom - ky) // sy + 1, (w + left + right - kx) // sx + 1

    @staticmethod
    def cycles(machine, r):
        p = r["p"][:, :12].T
        oh, ow = Pool.out_size(p)
        size = used_bytes(p[0], oh * ow, p[3], r["fmt"]) * p[8] * p[9]
        return ct_time(machine, size, (r["spm"][:, 0] | r["spm"][:, 1] | r["spm"][:, 2]) % 128 != 0)

    @staticmethod
    def spans(r):
        p = r["p"][:, :12].T
        oh, ow = Pool.out_size(p)
        fmt, spm = r["fmt"], r["spm"]
        out = span_bytes(p[0], oh * ow, p[3], fmt)
        indexed = (r["opcode"] == 118) | (r["opcode"] == 120)
        writes = [(spm[:, 1], out), (spm[:, 2], np.where(indexed, out, 0))]
        return [(spm[:, 0], span_bytes(p[0], p[1] * p[2], p[3], fmt))], writes


class IndexedPool(Pool):
    FIELDS_SPM = ("src0", "dst", "index")


def pool_windows(x: np.ndarray, p, fill: float) -> np.ndarray:
    """Return a (n, oh, ow, c, ky, kx) view of the windows of `x` (n, h, w, c) padded with `fill`."""
    top, bottom, left, right, kx, ky, sx, sy = p[4:12]
    x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(x, (ky, kx), axis=(1, 2))
    return view[:, ::sy, ::sx]


def _pool_runner(kind: str):
    fill = {"max": -np.inf, "min": np.inf}.get(kind, 0.0)

    def run(state, fmt, rnd, spm, p, ddr):
        n, h, w, c = p[:4]
        x = load(state.spm, spm[0], n, h * w, c, fmt).reshape(n, h, w, c)
        win = pool_windows(x, p, fill)
        if kind in ("max", "min"):
            y = getattr(win, kind)(axis=(4, 5))
        else:
            y = _sum(win.astype(np.float32, copy=False), (4, 5), True)[..., 0, 0]
            if kind == "avg":
                y = y / np.float32(p[8] * p[9])
        store(state.spm, spm[1], y.reshape(n, -1, c), fmt, rnd, state.seed())

    return run


def _index_runner(kind: str):
    pick = np.argmax if kind == "max" else np.argmin
    fill = -np.inf if kind == "max" else np.inf

    def run(state, fmt, rnd, spm, p, ddr):
        n, h, w, c = p[:4]
        x = load(state.spm, spm[0], n, h * w, c, fmt).reshape(n, h, w, c)
        win = pool_windows(x, p, fill)
        flat = win.reshape(*win.shape[:4], -1)
        where = pick(flat, axis=4)
        y = np.take_along_axis(flat, where[..., None], 4)[..., 0]
        store(state.spm, spm[1], y.reshape(n, -1, c), fmt, rnd, state.seed())
        index_fmt = 9 if FORMAT_BYTES[fmt] == 2 else 10
        store(state.spm, spm[2], where.reshape(n, -1, c), index_fmt)

    return run


class Unpool(Instruction):
    """Spread a blocked (n, h, w, c) over windows of a zero (n, oh, ow, c); overlaps add."""

    REGS = 9
    FIELDS_SPM = ("src0", "dst")
    FIELDS_P = ("n", "h", "w", "c", "oh", "ow", "kx", "ky", "sx", "sy", "index")
    DEFAULTS = {"index": 0}

    @staticmethod
    def alignment(r):
        return OPERAND_BYTES

    @staticmethod
    def rules(r):
        _, h, w, _, oh, ow, kx, ky, sx, sy = r["p"][:, :10].T
        yield (oh > (h - 1) * sy + ky) | (ow > (w - 1) * sx + kx), "an unpool with a result beyond its last window"

    @staticmethod
    def cycles(machine, r):
        p = r["p"].T
        size = used_bytes(p[0], p[1] * p[2], p[3], r["fmt"]) * p[6] * p[7]
        return ct_time(machine, size, (r["spm"][:, 0] | r["spm"][:, 1] | r["spm"][:, 2]) % 128 != 0)

    @staticmethod
    def spans(r):
        p, fmt, spm = r["p"].T, r["fmt"], r["spm"]
        src = span_bytes(p[0], p[1] * p[2], p[3], fmt)
        # opcode 123 has its index tensor in the third address
        index = np.where(r["opcode"] == 123, src, 0)
        return [(spm[:, 0], src), (spm[:, 2], index)], [(spm[:, 1], span_bytes(p[0], p[4] * p[5], p[3], fmt))]


class MaskUnpool(Unpool):
    FIELDS_SPM = ("src0", "dst", "index_src")


def _unpool_runner(kind: str):
    def run(state, fmt, rnd, spm, p, ddr):
        n, h, w, c, oh, ow, kx, ky, sx, sy, index = p[:11]
        x = load(state.spm, spm[0], n, h * w, c, fmt).reshape(n, h, w, c)
        where = None
        if kind == "mask":
            index_fmt = 9 if FORMAT_BYTES[fmt] == 2 else 10
            where = load(state.spm, spm[2], n, h * w, c, index_fmt, np.int64).reshape(n, h, w, c)
        out = np.zeros((n, max(oh, (h - 1) * sy + ky), max(ow, (w - 1) * sx + kx), c), np.float32)
        for y in range(ky):
            for z in range(kx):
                part = out[:, y : y + (h - 1) * sy + 1 : sy, z : z + (w - 1) * sx + 1 : sx]
                if kind == "avg":
                    part += x / np.float32(kx * ky)
                elif kind == "mask":
                    part += np.where(where == y * kx + z, x, np.float32(0))
                elif y * kx + z == index:
                    part += x
        store(state.spm, spm[1], out[:, :oh, :ow].reshape(n, oh * ow, c), fmt, rnd, state.seed())

    return run


for _k, (_name, _f) in enumerate((("sum", _sum), ("avg", _mean), ("max", np.max), ("min", np.min))):
    declare(Reduce, 111 + _k, f"reduce_{_name}", run=_reduce_runner(_f))
for _opcode, _name in ((115, "avg"), (116, "sum"), (117, "max"), (119, "min")):
    declare(Pool, _opcode, f"pool_{_name}", run=_pool_runner(_name))
for _opcode, _name in ((118, "max"), (120, "min")):
    declare(IndexedPool, _opcode, f"pool_{_name}_indexed", run=_index_runner(_name))
declare(Unpool, 121, "unpool", run=_unpool_runner("index"))
declare(Unpool, 122, "unpool_avg", run=_unpool_runner("avg"))
declare(MaskUnpool, 123, "mask_unpool", run=_unpool_runner("mask"))
