"""Rows for the event kernel as dicts, and the arrays they become."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tx8fast._kernels import EventInput, Routes, simulate_events
from tx8fast._kernels.reference.events import simulate as twin
from tx8fast.machine import ChipGrid, topology
from tx8fast.machine.noc import build_routes

CT, NE, RDMA, WDMA, TDMA, KCORE, WAIT, BARRIER = range(8)
SEND, RECV, SEND_WAIT, WAIT_WORKER, BARRIER_SUB, HANDSHAKE, CORE = range(8, 15)
DEPTH = (6, 6, 6, 6, 4)
MESH = (4, 128, 8, 3)  # tiles_x, bytes per cycle of a link, cycles per hop, transfer engines
#: the same for several chips: then also tiles_y, chips_x, bytes per cycle and cycles per hop between chips


def row(kind, fixed=0, issue=1, ddr_bytes=0, read=(), write=(), ddr_read=(), ddr_write=(), **more):
    """more: worker; bytes, tiles, monitor, scatter of messages; tiles of a partial barrier; peer; workers."""
    return {
        "kind": kind, "issue": issue, "fixed": fixed, "ddr_bytes": ddr_bytes, "spm_read": list(read),
        "spm_write": list(write), "ddr_read": list(ddr_read), "ddr_write": list(ddr_write), **more,
    }  # fmt: skip


def set_of(r):
    """Return the tile set of a row and whether its tiles get different parts."""
    return sum(1 << t for t in r["tiles"]), bool(r.get("scatter"))


def arguments(r, masks):
    """Return the three arguments of a row."""
    if r["kind"] == HANDSHAKE:
        return r["peer"], 0, 0
    if r["kind"] == WAIT_WORKER:
        return sum(1 << w for w in r["workers"]), 0, 0
    which = masks.index(set_of(r)) if "tiles" in r else 0
    return r.get("bytes", 0), which, r.get("monitor", 0)


def to_input(tiles, mesh=None, write=0) -> EventInput:
    rows = [r for tile in tiles for r in tile]
    n = len(rows)

    def ranges(key, width):
        out = np.zeros((n, width, 2), np.int64)
        for i, r in enumerate(rows):
            for j, span in enumerate(r[key]):
                out[i, j] = span
        return out

    begin = np.cumsum([0] + [len(t) for t in tiles])
    column = {k: np.array([r[k] for r in rows], np.int64) for k in ("issue", "fixed", "ddr_bytes")}
    masks = sorted({set_of(r) for r in rows if "tiles" in r})
    routes = Routes()
    if mesh is not None:
        tiles_x, rate, hop, engines = mesh[:4]
        senders = [(t, masks.index(set_of(r))) for t, tile in enumerate(tiles) for r in tile if r["kind"] == SEND]
        grid = grid_of(tiles, mesh)
        routes = build_routes(grid, [m for m, _ in masks], senders, engines, rate, hop, [s for _, s in masks], write)
        if mesh[4:]:
            routes = replace(routes, slow_links=len(grid.chip_links), slow_rate=mesh[6], slow_cycles=mesh[7])
    return EventInput(
        kind=np.array([r["kind"] for r in rows], np.uint8),
        issue=column["issue"],
        code_begin=begin[:-1],
        tile_begin=begin,
        fixed=column["fixed"],
        ddr_bytes=column["ddr_bytes"],
        routes=routes,
        chip_tiles=chip_tiles(mesh),
        **in_forms(
            np.repeat(np.arange(len(tiles)), np.diff(begin)),
            len(tiles),
            spm_read=ranges("spm_read", 4),
            spm_write=ranges("spm_write", 2),
            ddr_read=ranges("ddr_read", 1)[:, 0],
            ddr_write=ranges("ddr_write", 1)[:, 0],
            worker=np.array([r.get("worker", 0) for r in rows], np.uint8),
            arg=np.array([arguments(r, masks) for r in rows], np.int64).reshape(-1, 3),
        ),
    )


def in_forms(tile, n_tiles, **columns):
    """Return the columns of rows (n, ...) as those of forms, with what tells rows of a form apart. Every second row counts its DDR
    ranges from where the slot of its tile begins."""
    n = len(tile)
    ddr = np.stack([columns["ddr_read"], columns["ddr_write"]])
    at = np.where(ddr[..., 1] > ddr[..., 0], ddr[..., 0], 0).max(axis=0)
    for name in ("ddr_read", "ddr_write"):
        some = columns[name][:, 1:] > columns[name][:, :1]
        columns[name] = np.where(some, columns[name] - at[:, None], 0)
    base = 1000 * np.arange(n_tiles).reshape(-1, 1)
    columns["ddr_slot"] = np.where(np.arange(n) % 2, 0, -1)
    at = at - np.where(np.arange(n) % 2, base[tile, 0], 0)
    table = np.concatenate([c.reshape(n, max(1, c[:1].size)).astype(np.int64) for c in columns.values()], axis=1)
    _, first, form = np.unique(table, axis=0, return_index=True, return_inverse=True)
    forms = {name: c[first] for name, c in columns.items()}
    return {**forms, "form": form.reshape(-1).astype(np.int32), "ddr_at": at, "ddr_base": base}


def chip_tiles(mesh):
    """Return the tiles of one chip, 0 if there is one chip."""
    return mesh[0] * mesh[4] if mesh is not None and mesh[4:] else 0


def grid_of(tiles, mesh):
    """Return the grid of a `mesh` with or without chips."""
    if not mesh[4:]:
        return topology(mesh[0], len(tiles) // mesh[0])
    chip = topology(mesh[0], mesh[4])
    return ChipGrid(mesh[5], len(tiles) // chip.n_tiles // mesh[5], chip)


def run(tiles, serial=False, port=32.0, total=150.0, depth=DEPTH, mesh=None, write=0):
    """write: bytes per cycle of a tile's port for messages, 0 = none."""
    return simulate_events(to_input(tiles, mesh, write), depth, port, total, serial)


def same_as_twin(tiles, serial=False, port=32, total=150, depth=DEPTH, mesh=None, write=0):
    """Return the kernel's result after comparing everything with the twin's."""
    got = run(tiles, serial, float(port), float(total), depth, mesh, write)
    start, end, busy, blocked, link_bytes, monitors = twin(tiles, depth, port, total, serial, mesh and (*mesh[:4], mesh[4:] or None, write),
                                                           chip_tiles(mesh))  # fmt: skip
    assert got.start.tolist() == [t for rows in start for t in rows]
    assert got.end.tolist() == [t for rows in end for t in rows]
    assert np.array_equal(got.busy, busy)
    assert np.array_equal(got.blocked, blocked)
    assert got.monitors.tolist() == monitors
    if mesh is not None:
        grid = grid_of(tiles, mesh)
        links = {number: link for link, number in grid.link_numbers.items()}
        if mesh[4:]:
            first = grid.n_links - len(grid.chip_links)
            links |= {first + i: ("chip", a, b) for i, (a, b) in enumerate(grid.chip_links)}
        links |= {grid.n_links + t: ("port", t) for t in range(len(tiles) if write else 0)}
        assert got.link_bytes.tolist() == [link_bytes.get(links[i], 0) for i in range(len(links))]
    return got
