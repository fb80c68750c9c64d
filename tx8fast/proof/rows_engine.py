"""Meanings of the matrix engine's rows: products and convolutions, partial sums, bias, activation.

May import: numpy, proof. Must not: import meanings of isa.
Source: TX8 hardware manual 12. Outside of the proof: 8-bit operands, scale vectors, quantised results.
"""

from __future__ import annotations

import numpy as np

from tx8fast._kernels._facade_shadow import finish, store
from tx8fast.errors import SimulationError
from tx8fast.proof import forms, products
from tx8fast.proof.cells import ABSENT, Elements
from tx8fast.proof.forms import FLOATS, name_of
from tx8fast.proof.meaning import Row, meaning
from tx8fast.proof.memory import cell_of
from tx8fast.proof.recipes import function
from tx8fast.proof.tile import Tile

NONE, RELU, LEAKY = range(3)


def _finish(
    tile: Tile, acc: Elements, row: Row, out_fmt: int, psum: tuple[int, int], bias: tuple[int, int], act: int
) -> None:
    """Add partial sums (enabled, format) and bias (enabled, format), activate, store (n, pos, c)."""
    n, pos, c = acc.shape
    if psum[0]:
        acc = tile.field.add(acc, tile.load_blocked(row.spm[3], n, pos, c, name_of(psum[1])))
    if bias[0]:
        acc = tile.field.add(acc, tile.load_blocked(row.spm[4], 1, 1, c, name_of(bias[1])))
    if act not in (NONE, RELU, LEAKY):
        raise SimulationError(f"matrix engine: activation {act} has no meaning in the proof")
    if act:
        acc = function("relu" if act == RELU else "leakyrelu")(tile.field, acc)
    tile.store_blocked(row.spm[2], acc, name_of(out_fmt))


def _store_sums(tile: Tile, a: products.Operand, b: products.Operand, row: Row, out_fmt: str, psum_fmt: str) -> None:
    """Store a product of operands without special elements, and partial sums of format `psum_fmt` added ("" none)."""
    spm = tile.spm
    p = products.sums(a.p, b.p, tile.field.p)
    operand = forms.blocked(*p.shape, out_fmt)
    at = cell_of(row.spm[2] - spm.base)
    partial = (cell_of(row.spm[3] - spm.base), forms.blocked(*p.shape, psum_fmt)) if psum_fmt else None
    finish(p, spm.p, at, operand, partial, tile.field.p)
    if spm.q is not None:
        if a.q is None or b.q is None:
            store(spm.q, at, operand, np.full(p.size, ABSENT, np.uint32), q=True)
        else:
            finish(products.sums(a.q, b.q, tile.field.q), spm.q, at, operand, partial, tile.field.q, q=True)
    tile.wrote(row.spm[2], forms.CELL_BYTES * operand.cells)


@meaning("gemm", scale_p=0, scale_n=0, quant=0)
def gemm(tile: Tile, row: Row) -> None:
    m, k, n, batch_l, batch_r, l_trs, r_trs, out_fmt, psum_fmt, psum_en, bias_en, act, bias_fmt = row.p[:13]
    if batch_l != batch_r and 1 not in (batch_l, batch_r):
        raise SimulationError(f"gemm: found batches {batch_l} and {batch_r}, required equal ones or one of them 1")
    left = forms.blocked(batch_l, *((k, m) if l_trs else (m, k)), row.fmt)
    right = forms.blocked(batch_r, *((k, n) if r_trs else (n, k)), row.fmt)
    a, b = tile.operand(row.spm[0], left), tile.operand(row.spm[1], right)
    if l_trs:
        a = a.turned()
    if not r_trs:
        b = b.turned()
    if act == NONE and not bias_en and not a.special and not b.special:
        _store_sums(tile, a, b, row, name_of(out_fmt), name_of(psum_fmt) if psum_en else "")
        return
    acc = products.multiply(tile.field, a, b)
    _finish(tile, acc, row, out_fmt, (psum_en, psum_fmt), (bias_en, bias_fmt), act)


def _conv_operands(tile: Tile, row: Row, lead: int, last: int) -> tuple[products.Operand, products.Operand]:
    """Return the feature (n, h, w, c) and the weight (1, lead, last) as operands."""
    n, h, w, c = row.p[:4]
    if row.fmt not in FLOATS:
        raise SimulationError(f"convolution of format {row.fmt} has no meaning in the proof")
    x = tile.operand(row.spm[0], forms.blocked(n, h * w, c, row.fmt))
    return x.shaped(n, h, w, c), tile.operand(row.spm[1], forms.blocked(1, lead, last, row.fmt))


def _conv_done(tile: Tile, row: Row, acc: Elements) -> None:
    n, oh, ow, oc = acc.shape
    out_fmt, psum_fmt, psum_en, bias_en, act = row.p[17:22]
    _finish(tile, acc.reshape(n, oh * ow, oc), row, out_fmt, (psum_en, psum_fmt), (bias_en, 5), act)


def _border(row: Row, shape: tuple[int, int], dy: int, dx: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the zeros around a feature: what the row says, and more where the last window reaches further."""
    h, w = shape
    oh, ow, top, left, kx, ky, sx, sy = row.p[4], row.p[5], row.p[7], row.p[9], *row.p[11:15]
    down = (oh - 1) * sy + (ky - 1) * dy + 1 - h - top
    along = (ow - 1) * sx + (kx - 1) * dx + 1 - w - left
    return (top, max(0, down)), (left, max(0, along))


@meaning("conv", scale_p=0, scale_n=0, quant=0)
def conv(tile: Tile, row: Row) -> None:
    n, h, w, c, oh, ow, oc = row.p[:7]
    kx, ky, sx, sy, dx, dy = row.p[11:17]
    x, weight = _conv_operands(tile, row, ky * kx * oc, c)
    rows, columns = _border(row, (h, w), dy, dx)
    taps = x.windows(rows, columns, (oh, ow), (ky, kx), (sy, sx), (dy, dx))
    acc = products.multiply(tile.field, taps, weight.shaped(ky * kx, oc, c).moved((0, 2, 1)).shaped(1, ky * kx * c, oc))
    _conv_done(tile, row, acc.reshape(n, oh, ow, oc))


@meaning("depthwise", scale_p=0, scale_n=0, quant=0)
def depthwise(tile: Tile, row: Row) -> None:
    """Each channel by itself; this form has no dilation."""
    n, h, w, c, oh, ow = row.p[:6]
    kx, ky, sx, sy = row.p[11:15]
    x, weight = _conv_operands(tile, row, ky * kx, c)
    rows, columns = _border(row, (h, w), 1, 1)
    taps = x.windows(rows, columns, (oh, ow), (ky, kx), (sy, sx), (1, 1)).shaped(n * oh * ow, ky * kx, c)
    acc = products.weigh(tile.field, taps, weight)
    _conv_done(tile, row, acc.reshape(n, oh, ow, c))


@meaning("backward_conv", scale_p=0, scale_n=0, quant=0)
def backward_conv(tile: Tile, row: Row) -> None:
    """Every position of the feature adds its window to the result: out[y * sy + ky * dy - top] += x[y] w[ky]."""
    n, h, w, c, oh, ow, oc, top, _, left = row.p[:10]
    kx, ky, sx, sy, dx, dy = row.p[11:17]
    x = tile.load_blocked(row.spm[0], n, h * w, c, row.fmt)
    weight = tile.load_blocked(row.spm[1], 1, ky * kx * c, oc, row.fmt).reshape(ky, kx, c, oc)
    field = tile.field
    full = n, max(oh + top, (h - 1) * sy + (ky - 1) * dy + 1), max(ow + left, (w - 1) * sx + (kx - 1) * dx + 1), oc
    out = Elements(np.zeros(full, np.uint32), None if x.q is None else np.zeros(full, np.uint32))
    for y in range(ky):
        for z in range(kx):
            part = field.matmul(x, weight.at((y, z))).reshape(n, h, w, oc)
            window = (
                slice(None),
                slice(y * dy, y * dy + (h - 1) * sy + 1, sy),
                slice(z * dx, z * dx + (w - 1) * sx + 1, sx),
            )
            total = field.add(out.at(window), part)
            out.p[window] = total.p
            if out.q is not None and total.q is not None:
                out.q[window] = total.q
    _conv_done(tile, row, out.at((slice(None), slice(top, top + oh), slice(left, left + ow))))
