"""Meanings of rows that move: DMA, strided moves, fills, changes of layout, messages. Cells move whole, with their kinds.

May import: numpy, proof. Must not: import meanings of isa.
Source: TX8 hardware manual 10.4, 11, 13, 14.
"""

from __future__ import annotations

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.proof import forms
from tx8fast.proof.constants import as_float
from tx8fast.proof.forms import FLOATS
from tx8fast.proof.meaning import Row, meaning
from tx8fast.proof.memory import ONE, copy, run_addresses
from tx8fast.proof.tile import Tile


def _dense(size: int, levels: list[int]) -> tuple[int, ...]:
    """Return levels of as many runs that follow one another."""
    _, n0, _, n1, _, n2 = levels
    return size, n0, size * n0, n1, size * n0 * n1, n2


@meaning("rdma")
def rdma(tile: Tile, row: Row) -> None:
    tile.ddr.load(row.ddr, row.p[1:7], row.p[0], tile.spm, row.spm[0])
    tile.wrote(row.spm[0], row.p[0] * row.p[2] * row.p[4] * row.p[6])


@meaning("wdma")
def wdma(tile: Tile, row: Row) -> None:
    size, levels = row.p[0], row.p[1:7]
    copy(tile.ddr.memory(row.ddr), row.ddr, levels, tile.spm, row.spm[0], _dense(size, levels), size)


@meaning("gather_scatter")
def gather_scatter(tile: Tile, row: Row) -> None:
    size, src, dst = row.p[0], row.p[1:7], row.p[7:13]
    copy(tile.spm, row.spm[1], dst, tile.spm, row.spm[0], src, size)
    tile.wrote(row.spm[1], size + sum((n - 1) * s for s, n in zip(dst[::2], dst[1::2])))


def number(tile: Tile, row: Row) -> int:
    """Return the row number that a look-up reads from DDR, counted from the start of the table."""
    entries, slot, offset = row.p[2:5]
    if row.fmt not in ("i32", "u32", "i64", "u64") or not 0 <= slot < len(tile.slots):
        raise SimulationError(f"looking a row up: found numbers of format {row.fmt} in slot {slot}")
    at = tile.slots[slot] + offset
    values, good = tile.ddr.memory(at).numbers(np.array([at]), row.fmt)
    found = int(values[0])
    if not good[0]:
        raise SimulationError(f"looking a row up: the number at DDR {at:#x} is not known")
    if not -entries <= found < entries:
        raise SimulationError(f"looking a row up: found number {found}, required [-{entries}, {entries})")
    return found % entries


@meaning("rdma_row")
def rdma_row(tile: Tile, row: Row) -> None:
    tile.ddr.load(row.ddr + number(tile, row) * row.p[1], ONE, row.p[0], tile.spm, row.spm[0])
    tile.wrote(row.spm[0], row.p[0])


@meaning("tdma_row")
def tdma_row(tile: Tile, row: Row) -> None:
    size, s0, n0, d0, m0 = row.p[0], *row.p[5:9]
    src = row.spm[0] + number(tile, row) * row.p[1]
    copy(tile.spm, row.spm[1], (d0, m0, 0, 1, 0, 1), tile.spm, src, (s0, n0, 0, 1, 0, 1), size)
    tile.wrote(row.spm[1], size + (m0 - 1) * d0)


@meaning("memset")
def memset(tile: Tile, row: Row) -> None:
    """Fill with a raw pattern: a constant of a float format, or bytes; zero is zero in every format."""
    pattern, n, levels = row.p[0], row.p[1], row.p[2:8]
    size = forms.bytes_of(row.fmt)
    where = run_addresses(row.spm[0], levels, n * size)
    tile.wrote(row.spm[0], n * size + sum((c - 1) * s for s, c in zip(levels[::2], levels[1::2])))
    if row.fmt in FLOATS and pattern & (1 << 8 * size) - 1:
        value = tile.field.constant(as_float(pattern, row.fmt), row.fmt, (n,))
        form = forms.dense(n, row.fmt)
        for start in where[:, 0].tolist():
            tile.spm.put(start, form, value)
        return
    data = np.frombuffer((pattern & (1 << 8 * size) - 1).to_bytes(size, "little"), np.uint8)
    tile.spm.put_bytes(where, np.broadcast_to(np.tile(data, n), where.shape))


@meaning("tensor_norm")
def tensor_norm(tile: Tile, row: Row) -> None:
    n, h, w, c, inverse = row.p[:5]
    if row.fmt not in FLOATS:
        size = forms.bytes_of(row.fmt)
        dense, blocked = np.arange(n * h * w * c).reshape(n, h * w, c) * size, forms.offsets(n, h * w, c, row.fmt)
        src, dst = (blocked, dense) if inverse else (dense, blocked)
        values, good = tile.spm.numbers(row.spm[0] + src, row.fmt)
        if not inverse:
            _, _, _, used, stride = forms.blocked_sizes(h * w, c, row.fmt)
            room = row.spm[1] + (np.arange(n) * stride)[:, None] + np.arange(used)
            tile.spm.put_bytes(room, np.zeros(room.shape, np.uint8))
        tile.spm.put_numbers(row.spm[1] + dst, values, row.fmt, good)
    elif inverse:
        tile.store(row.spm[1], tile.load_blocked(row.spm[0], n, h * w, c, row.fmt), row.fmt)
    else:
        tile.store_blocked(row.spm[1], tile.load(row.spm[0], n * h * w * c, row.fmt).reshape(n, h * w, c), row.fmt)
    tile.forget()


def _rearranged(tile: Tile, row: Row, shape: tuple[int, ...], f) -> None:
    """Store what `f` makes of the cells (shape..., cells of an element) of a dense operand."""
    size = forms.bytes_of(row.fmt)
    count = int(np.prod(shape))
    addresses = (row.spm[0] + np.arange(count) * size).reshape(shape)
    picked = np.ascontiguousarray(f(addresses)).reshape(-1)
    tile.forget()
    if size % 2:
        values, good = tile.spm.bytes_at(picked)
        tile.spm.put_bytes(row.spm[1] + np.arange(count), values, good)
        return
    cells = (picked[:, None] + np.arange(0, size, 2)).reshape(-1) // 2
    to = row.spm[1] // 2
    if (
        row.spm[0] % 2
        or row.spm[1] % 2
        or cells.size
        and cells.max() >= tile.spm.size
        or to + cells.size > tile.spm.size
    ):
        raise SimulationError(
            f"moving {count} elements from {row.spm[0]:#x} to {row.spm[1]:#x}: the addresses are odd or outside of the scratchpad"
        )
    tile.spm.p[to : to + cells.size] = tile.spm.p[cells]
    if tile.spm.q is not None:
        tile.spm.q[to : to + cells.size] = tile.spm.q[cells]


for _name, _axes in {
    "mirror": lambda x: x[:, :, ::-1],
    "transpose": lambda x: x.swapaxes(1, 2),
    "rotate90": lambda x: x[:, ::-1].swapaxes(1, 2),
    "rotate180": lambda x: x[:, ::-1, ::-1],
    "rotate270": lambda x: x[:, :, ::-1].swapaxes(1, 2),
    "nhwc2nchw": lambda x: np.moveaxis(x, 3, 1),
}.items():
    meaning(_name)(lambda tile, row, f=_axes: _rearranged(tile, row, tuple(row.p[:4]), f))
meaning("nchw2nhwc")(
    lambda tile, row: _rearranged(tile, row, (row.p[0], row.p[3], row.p[1], row.p[2]), lambda x: np.moveaxis(x, 1, 3))
)


@meaning("concat")
def concat(tile: Tile, row: Row) -> None:
    dim, n, h, w, c, size1 = row.p[:6]
    axis = {0: 3, 1: 2, 2: 1}.get(dim)
    if axis is None:
        raise SimulationError(f"concat: found dim {dim}, required 0 (C), 1 (W) or 2 (H)")
    size, first = forms.bytes_of(row.fmt), (n, h, w, c)
    second = tuple(size1 if k == axis else x for k, x in enumerate(first))
    at = [np.arange(int(np.prod(s))).reshape(s) * size + base for s, base in zip((first, second), row.spm)]
    _rearranged(
        tile,
        Row(row.fmt, [0, row.spm[2]], row.p, 0),
        (int(np.prod(first)) + int(np.prod(second)),),
        lambda _: np.concatenate(at, axis=axis),
    )


@meaning("pad")
def pad(tile: Tile, row: Row) -> None:
    n, h, w, c, top, bottom, left, right = row.p[:8]
    _window_moves(tile, row, (n, h, w, c), (top, bottom, left, right), lambda x: x)


@meaning("img2col")
def img2col(tile: Tile, row: Row) -> None:
    n, h, w, c, top, bottom, left, right, kx, ky, sx, sy = row.p[:12]

    def windows(x):
        view = np.lib.stride_tricks.sliding_window_view(x, (ky, kx), axis=(1, 2))[:, ::sy, ::sx]
        return view.transpose(0, 4, 5, 1, 2, 3)

    _window_moves(tile, row, (n, h, w, c), (top, bottom, left, right), windows)


def _window_moves(tile: Tile, row: Row, shape: tuple[int, ...], border: tuple[int, ...], f) -> None:
    """Store what `f` makes of a dense operand with a border of zeros; only float formats."""
    top, bottom, left, right = border
    value = tile.load(row.spm[0], int(np.prod(shape)), row.fmt).reshape(*shape)
    value = value.map(lambda x: f(np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))))
    tile.store(row.spm[1], value.map(np.ascontiguousarray).reshape(-1), row.fmt)
    tile.forget()


@meaning("send")
def send(tile: Tile, row: Row) -> None:
    size, mask, monitor, chip = row.p[:4]
    tile.send(tile, [(t, row.spm[0], ONE, size, size) for t in _tiles(mask)], row.spm[1], monitor, chip)


@meaning("scatter")
def scatter(tile: Tile, row: Row) -> None:
    size, mask, monitor = row.p[:3]
    parts = [(t, row.spm[0] + k * size, ONE, size, size) for k, t in enumerate(_tiles(mask))]
    tile.send(tile, parts, row.spm[1], monitor, 0)


@meaning("gather")
def gather(tile: Tile, row: Row) -> None:
    total, mask, monitor, size = row.p[:4]
    levels = row.p[4:10]
    tiles = _tiles(mask)
    if len(tiles) != 1 or size * levels[1] * levels[3] * levels[5] != total:
        raise SimulationError(
            f"gather: found tiles {tiles} and runs of {size} bytes, counts {levels[1::2]}, for {total} bytes"
        )
    tile.send(tile, [(tiles[0], row.spm[0], levels, size, total)], row.spm[1], monitor, 0)


def _tiles(mask: int) -> list[int]:
    return [t for t in range(mask.bit_length()) if mask >> t & 1] if mask > 0 else []


@meaning("kcore")
def kcore(tile: Tile, row: Row) -> None:
    """Call a routine; the other fields are its work, which the proof does not know."""
    tile.routine(row.p[0])
