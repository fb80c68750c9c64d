"""Where the cycles above the roofline bound go: every cycle of every tile has one name.

May import: numpy, machine, _kernels, timing and roofline beside it. Must not: run anything.

The bound names the resource that should be busy all the time: the matrix engine, or the DMA engines where the DDR
is the limit. What that resource does beyond the bound, and every cycle in which it rests, is a loss. A
resting cycle is named by what the tile does instead. Losses are averages over the tiles, so that bound and
losses add up to the cycles of the group.
"""

from __future__ import annotations

import numpy as np

from tx8fast._kernels import EventInput, EventResult, overlapping
from tx8fast.simulator.roofline import Roofline
from tx8fast.simulator.timing import BARRIER, KCORE

CT, NE, RDMA, WDMA, TDMA, SEND = 0, 1, 2, 3, 4, 8
#: name -> what it means; the order is that of reports
LOSSES: dict[str, str] = {
    "exposed_dma": "transfers while the matrix engine rests",
    "exposed_exchange": "messages between tiles while nothing else works",
    "exposed_vector": "vector, data-movement or kernel-core work that nothing hides",
    "exposed_matrix": "matrix work while the DDR rests",
    "startup": "before the bounding engine's first instruction",
    "bubble": "no engine works: waits, meetings of tiles, issue",
    "imbalance": "tiles that are done wait for others",
    "barrier": "the barrier at the end",
    "extra_traffic": "bytes that cross the DDR again, or that no bound counts",
    "overhead": "padding, start-up and rates of single instructions and transfers below the peak",
}
# classes of rows that are told apart, and by number the lanes of their kinds
_CLASSES = ((NE,), (CT, TDMA, KCORE), (RDMA, WDMA), (SEND,))
_MATRIX, _VECTOR, _DMA, _SEND = range(4)
_LANE = np.full(256, -1, np.int32)  # of every kind of row; transfer engines take turns, and have the last lanes
_LANE[[NE, CT, TDMA, KCORE, RDMA, WDMA]] = range(6)
_SENDS = 8  # the first lane of a transfer engine, behind two for all tiles: the DDR, and how far the group is
_DDR, _STAGE = 6, 7
_LANES_OF = ([0], [1, 2, 3], [4, 5])  # of every class but the last
_NOT_BEGUN, _GOES_ON, _DONE, _ALL_DONE = range(4)  # stages
# what a cycle of a tile is, the first that holds
_NAMES = (
    "work",
    "startup",
    "barrier",
    "imbalance",
    "exposed_matrix",
    "exposed_vector",
    "exposed_dma",
    "exposed_exchange",
)


def account(rows: EventInput, times: EventResult, bound: Roofline, ddr_cycles: float) -> dict[str, float]:
    """Return the cycles of every loss, of a group whose bound is `bound`; ddr_cycles: time of all bytes at full rate."""
    cycles, n_tiles = times.cycles, len(rows.code_begin)
    out = dict.fromkeys(LOSSES, 0.0)
    if not cycles:
        return out
    work = _MATRIX if bound.bound == "compute" else _DMA
    # one tile after the other: all at once would be several times the size of the simulation itself
    none, done = np.zeros(0, np.int64), np.zeros(n_tiles, np.int64)
    ddr: tuple[np.ndarray, np.ndarray] = none, none
    for t in range(n_tiles):
        kind, start, end = _rows_of(rows, times, t)
        done[t] = end[kind != BARRIER].max(initial=0)
        if work == _DMA:  # the DDR is one for all: it works while any tile moves bytes
            moves = ((kind == RDMA) | (kind == WDMA)) & (end > start)
            ddr = _union(np.concatenate([ddr[0], start[moves]]), np.concatenate([ddr[1], end[moves]]))
    last = int(done.max(initial=0))
    sums = np.zeros(len(_NAMES) + 1)
    for t in range(n_tiles):
        if work == _DMA:
            first = int(ddr[0][0]) if len(ddr[0]) else 0
        else:
            kind, start, end = _rows_of(rows, times, t)
            working = (kind == NE) & (end > start)
            first = int(start[working].min()) if working.any() else 0
        sums += _of_tile(_rows_of(rows, times, t), rows.routes.engines, ddr, (first, int(done[t]), last, cycles), work)
    sums /= n_tiles
    for name, value in zip(_NAMES[1:], sums[1:-1], strict=True):
        out[name] = float(value)
    out["bubble"] = float(sums[-1])
    beyond = float(sums[0]) - bound.bound_cycles
    if work == _DMA:
        out["extra_traffic"] = min(max(0.0, ddr_cycles - bound.bound_cycles), max(0.0, beyond))
    out["overhead"] = beyond - out["extra_traffic"]
    return out


def _of_tile(
    own: tuple[np.ndarray, ...], engines: int, ddr: tuple[np.ndarray, np.ndarray], marks: tuple[int, ...], work: int
) -> np.ndarray:
    """Return the cycles of every one of _NAMES, and of what has none, on a tile. own: kind, start and end of its rows; ddr: starts
    and ends of what keeps the DDR busy; marks: when the bounding engine begins, the tile is done, all are, and the group ends."""
    kind, start, end = own
    lane = _LANE[kind]
    sends = np.flatnonzero(kind == SEND)
    lane[sends] = _SENDS + np.arange(len(sends)) % engines
    edges = np.maximum.accumulate([0, *marks])
    found = overlapping(
        np.concatenate([start, ddr[0], edges[:-1]]),
        np.concatenate([end, ddr[1], edges[1:]]),
        np.concatenate([lane, np.full(len(ddr[0]), _DDR, np.int32), np.full(len(marks), _STAGE, np.int32)]),
        np.concatenate([np.zeros(len(start) + len(ddr[0]), np.int32), np.arange(len(marks), dtype=np.int32)]),
        _SENDS + engines,
    )
    busy, stage = found.sets >= 0, found.sets[:, _STAGE]
    classes = [busy[:, lanes].any(axis=1) for lanes in _LANES_OF] + [busy[:, _SENDS:].any(axis=1)]
    masks = [
        busy[:, _DDR] if work == _DMA else classes[work],
        stage == _NOT_BEGUN,
        stage == _ALL_DONE,
        stage >= _DONE,
        *[classes[k] for k in (_MATRIX, _VECTOR, _DMA, _SEND)],
    ]
    label = np.select(masks, range(len(masks)), len(masks))
    return np.bincount(label[found.state], np.diff(found.knots), len(masks) + 1)


def _union(start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the disjoint intervals that cover the same time."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order]) if len(end) else end
    fresh = np.concatenate([[True], start[1:] > end[:-1]]) if len(start) else np.zeros(0, bool)
    return start[fresh], end[np.concatenate([fresh[1:], [True]])] if len(start) else end


def _rows_of(rows: EventInput, times: EventResult, tile: int) -> tuple[np.ndarray, ...]:
    """Return kind, start and end (n,) of the rows of a tile."""
    own = slice(int(rows.tile_begin[tile]), int(rows.tile_begin[tile + 1]))
    begin = int(rows.code_begin[tile])
    return rows.kind[begin : begin + own.stop - own.start], times.start[own], times.end[own]
