"""Meanings of the matrix engine's rows: products and convolutions, partial sums, bias, activation.

May import: numpy, proof. Must not: import meanings of isa.
Source: TX8 hardware manual 12. Outside of the proof: 8-bit operands, scale vectors, quantised results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tx8fast._kernels._facade_shadow import Form, finish, store
from tx8fast.errors import SimulationError
from tx8fast.proof import forms, products
from tx8fast.proof.cells import ABSENT, Elements, rounded
from tx8fast.proof.forms import FLOATS, name_of
from tx8fast.proof.meaning import Row, Rows, meaning, together
from tx8fast.proof.memory import cell_of
from tx8fast.proof.recipes import function
from tx8fast.proof.stacks import Stack, Stacks
from tx8fast.proof.tile import Tile

NONE, RELU, LEAKY = range(3)
#: multiplications of a product from which on looking for tiles with the same operands pays
WORTH = 1 << 16


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
    tile.store_blocked(row.spm[2], rounded(acc, name_of(out_fmt)), name_of(out_fmt))


def _store_sums(tile: Tile, p: products.Floats, q: products.Floats | None, row: Row) -> None:
    """Store a matrix product (n, pos, c) of operands without special elements, with partial sums added."""
    out_fmt, psum_fmt, psum_en = row.p[7:10]
    spm, operand = tile.spm, forms.blocked(*p.shape, name_of(out_fmt))
    at = cell_of(row.spm[2] - spm.base)
    partial = None
    if psum_en:
        partial = cell_of(row.spm[3] - spm.base), forms.blocked(*p.shape, name_of(psum_fmt))
        spm.planes(partial[0], partial[0] + partial[1].cells)
    words_p, words_q = spm.planes(at, at + operand.cells)
    finish(p, words_p, at, operand, partial, tile.field.p)
    if words_q is not None and q is None:
        store(words_q, at, operand, np.full(p.size, ABSENT, np.uint32), q=True)
    elif words_q is not None and q is not None:
        finish(q, words_q, at, operand, partial, tile.field.q, q=True)
    tile.wrote(row.spm[2], forms.CELL_BYTES * operand.cells)


def _gemm_forms(row: Row) -> tuple[Form, Form]:
    """Return how the operands of a matrix product lie."""
    m, k, n, batch_l, batch_r, l_trs, r_trs = row.p[:7]
    if batch_l != batch_r and 1 not in (batch_l, batch_r):
        raise SimulationError(f"gemm: found batches {batch_l} and {batch_r}, required equal ones or one of them 1")
    left = forms.blocked(batch_l, *((k, m) if l_trs else (m, k)), row.fmt)
    return left, forms.blocked(batch_r, *((k, n) if r_trs else (n, k)), row.fmt)


@meaning("gemm", scale_p=0, scale_n=0, quant=0)
def gemm(tile: Tile, row: Row) -> None:
    l_trs, r_trs, out_fmt, psum_fmt, psum_en, bias_en, act, bias_fmt = row.p[5:13]
    left, right = _gemm_forms(row)
    a, b = tile.operand(row.spm[0], left), tile.operand(row.spm[1], right)
    if l_trs:
        a = a.turned()
    if not r_trs:
        b = b.turned()
    alone = row.p[1] == 1  # no sums: ones repeat a maximum, also one of nothing but what hides
    if _is_plain(row) and not alone and not a.special and not b.special:
        p = products.sums(a.p, b.p, tile.field.p)
        q = None if a.q is None or b.q is None or not tile.spm.with_q else products.sums(a.q, b.q, tile.field.q)
        _store_sums(tile, p, q, row)
        return
    if alone:
        x, y = tile.spm.elements(row.spm[0], left), tile.spm.elements(row.spm[1], right)
        acc = tile.field.mul(x.reshape(x.shape[0], -1, 1), y.reshape(y.shape[0], 1, -1))
    else:
        acc = products.multiply(tile.field, a, b)
    _finish(tile, acc, row, out_fmt, (psum_en, psum_fmt), (bias_en, bias_fmt), act)


def _is_plain(row: Row) -> bool:
    """Say whether a matrix product has neither bias nor activation."""
    return not row.p[10] and row.p[11] == NONE


@together("gemm")
def gemms(stacks: Stacks, rows: Rows) -> list[Callable[[], None]]:
    """Multiply what several tiles hold in one product, where they share operands: each is then made ready once, and large
    products take less time for an element than small ones. A tile whose operands change before its turn multiplies alone."""
    alike: dict[tuple, list[int]] = {}
    for i, (tile, row) in enumerate(rows):
        size = tuple(row.p[:7])
        alone = not _is_plain(row) or size[1] == 1 or size[3:5] != (1, 1) or size[0] * size[1] * size[2] < WORTH
        alike.setdefault((tile.number,) if alone else (row.fmt, *size), []).append(i)
    done: list[Callable[[], None]] = [partial(gemm, tile, row) for tile, row in rows]
    for some in alike.values():
        stacked = _Stacked.of(stacks, [rows[i] for i in some]) if len(some) > 1 else None
        if stacked is not None:
            for at, i in enumerate(some):
                done[i] = partial(stacked.finish, at)
    return done


class _Stacked:
    """Products of several tiles, one for right operands that meet the same left ones, made when the first tile wants its own."""

    def __init__(self, rows: Rows, left: Stack, right: Stack) -> None:
        self.rows, self.left, self.right = rows, left, right
        m, self.inner, n = rows[0][1].p[:3]
        self.turned = rows[0][1].p[5:7]
        self.blocks = _blocks(left.place, right.place, max(1, products.PIECE // (m * n)))
        self.sums: dict[int, tuple[products.Floats, products.Floats | None]] = {}

    @classmethod
    def of(cls, stacks: Stacks, rows: Rows) -> _Stacked | None:
        """Return None if some element has no residue."""
        tiles = [tile for tile, _ in rows]
        made = (stacks.of(tiles, [r.spm[k] for _, r in rows], form) for k, form in enumerate(_gemm_forms(rows[0][1])))
        left, right = made
        return None if left.special or right.special else cls(rows, left, right)

    def finish(self, which: int) -> None:
        """Store the result of one tile."""
        (tile, row), i, j = self.rows[which], self.left.place[which], self.right.place[which]
        if not (tile.holds(self.left.marks[which]) and tile.holds(self.right.marks[which])):
            gemm(tile, row)
            return
        number = next(n for n, (a, b) in enumerate(self.blocks) if a.start <= i < a.stop and b.start <= j < b.stop)
        lefts, rights = self.blocks[number]
        if number not in self.sums:
            both = self.left.q is not None and self.right.q is not None
            p, q = tile.field.p, tile.field.q
            self.sums[number] = (
                self._product(self.left.p, lefts, self.right.p[rights], p),
                self._product(self.left.q, lefts, self.right.q[rights], q) if both else None,  # type: ignore[index, arg-type]
            )
        p, q = self.sums[number]
        at = slice(i - lefts.start, i - lefts.start + 1), slice(None), j - rights.start
        _store_sums(tile, p[at], None if q is None else q[at], row)

    def _product(self, x: products.Floats, at: slice, y: products.Floats, modulus: int) -> products.Floats:
        """Return the products (left, m, right, n) of some of the left operands."""
        l_trs, r_trs = self.turned
        x = x[at].swapaxes(1, 2) if l_trs else x[at]
        y = y.swapaxes(1, 2) if r_trs else y
        known = self.left.inner[at.start, at.stop, modulus]
        made = products.sums(x.reshape(-1, self.inner), y.reshape(-1, self.inner).T, modulus, known)
        return made.reshape(*x.shape[:2], *y.shape[:2])


def _blocks(left: Sequence[int], right: Sequence[int], most: int) -> list[tuple[slice, slice]]:
    """Return the pairs (left, right) as rectangles of them, each pair in one, of `most` pairs as far as several left ones go."""
    met: dict[int, set[int]] = {}
    for i, j in zip(left, right, strict=True):
        met.setdefault(j, set()).add(i)
    # right ones side by side that meet the same left ones
    found: list[tuple[list[int], slice]] = []
    for j in sorted(met):
        same = sorted(met[j])
        if found and found[-1] == (same, slice(found[-1][1].start, j)):
            found[-1] = same, slice(found[-1][1].start, j + 1)
        else:
            found.append((same, slice(j, j + 1)))
    return [
        (run, rights) for places, rights in found for run in _runs(places, max(1, most // (rights.stop - rights.start)))
    ]


def _runs(places: list[int], most: int) -> list[slice]:
    """Return places in ascending order as slices without gaps, of at most `most` each."""
    found: list[slice] = []
    for i in places:
        if found and found[-1].stop == i and i - found[-1].start < most:
            found[-1] = slice(found[-1].start, i + 1)
        else:
            found.append(slice(i, i + 1))
    return found


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
