"""Where the cycles above the roofline bound go: every cycle of every tile has one name.

May import: numpy, machine, _kernels, timing and roofline beside it. Must not: run anything.

The bound names the resource that should be busy all the time: the matrix engine, or the DMA engines where the DDR
is the limit. What that resource does beyond the bound, and every cycle in which it rests, is a loss. A
resting cycle is named by what the tile does instead. Losses are averages over the tiles, so that bound and
losses add up to the cycles of the group.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tx8fast._kernels import EventInput, EventResult
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
# classes of rows that are told apart, in the order of their columns
_CLASSES = ((NE,), (CT, TDMA, KCORE), (RDMA, WDMA), (SEND,))
_MATRIX, _VECTOR, _DMA, _SEND = range(4)
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
    column = np.full(256, -1, np.int8)  # of every kind of row
    for k, kinds in enumerate(_CLASSES):
        column[list(kinds)] = k
    # one tile after the other: all at once would be several times the size of the simulation itself
    ddr, done = (np.zeros(0, np.int64),) * 2, np.zeros(n_tiles, np.int64)
    for t in range(n_tiles):
        kind, start, end = _activity(rows, times, t)
        done[t] = end[kind != BARRIER].max(initial=0)
        if work == _DMA:  # the DDR is one for all: it works while any tile moves bytes
            moves = column[kind] == _DMA
            ddr = _union(np.concatenate([ddr[0], start[moves]]), np.concatenate([ddr[1], end[moves]]))
    last = int(done.max(initial=0))
    sums = np.zeros(len(_NAMES) + 1)
    for t in range(n_tiles):
        kind, start, end = _activity(rows, times, t)
        of = column[kind]
        spans = [(k, start[of == k], end[of == k]) for k in range(len(_CLASSES))]
        working = [(len(_CLASSES), *ddr)] if work == _DMA else [(len(_CLASSES), b, e) for k, b, e in spans if k == work]
        sums += _of_tile([*spans, *working], int(done[t]), last, cycles)
    sums /= n_tiles
    for name, value in zip(_NAMES[1:], sums[1:-1], strict=True):
        out[name] = float(value)
    out["bubble"] = float(sums[-1])
    beyond = float(sums[0]) - bound.bound_cycles
    if work == _DMA:
        out["extra_traffic"] = min(max(0.0, ddr_cycles - bound.bound_cycles), max(0.0, beyond))
    out["overhead"] = beyond - out["extra_traffic"]
    return out


def _of_tile(spans: Sequence[tuple[int, np.ndarray, np.ndarray]], done: int, last: int, cycles: int) -> np.ndarray:
    """Return the cycles of every one of _NAMES, and of what has none, on a tile whose rows end at `done`, those of all at `last`.
    spans: column, starts and ends of what keeps it busy; the last column is what the bound counts."""
    n = sum(len(s) for _, s, _ in spans)
    first = min([int(s.min()) for k, s, _ in spans if k == len(_CLASSES) and len(s)], default=0)
    marks = np.array([0, first, done, last, cycles])
    at = np.concatenate([*[s for _, s, _ in spans], *[e for _, _, e in spans], marks])
    change = np.zeros((2 * n + len(marks), len(_CLASSES) + 1), np.int8)
    begin = 0
    for k, s, _ in spans:
        change[begin : begin + len(s), k] = 1
        change[n + begin : n + begin + len(s), k] = -1
        begin += len(s)
    order = np.argsort(at, kind="stable")
    at = at[order]
    state = np.cumsum(change[order], axis=0, dtype=np.int32)[:-1] > 0
    length, when = np.diff(at), at[:-1]
    masks = [
        state[:, -1],
        when < first,
        when >= last,
        when >= done,
        *[state[:, k] for k in (_MATRIX, _VECTOR, _DMA, _SEND)],
    ]
    label = np.select(masks, range(len(masks)), len(masks))
    return np.bincount(label, length, len(masks) + 1)


def _union(start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the disjoint intervals that cover the same time."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order]) if len(end) else end
    fresh = np.concatenate([[True], start[1:] > end[:-1]]) if len(start) else np.zeros(0, bool)
    return start[fresh], end[np.concatenate([fresh[1:], [True]])] if len(start) else end


def _activity(rows: EventInput, times: EventResult, tile: int) -> tuple[np.ndarray, ...]:
    """Return kind, start and end (n,) of the rows of a tile that take time."""
    own = slice(int(rows.tile_begin[tile]), int(rows.tile_begin[tile + 1]))
    begin = int(rows.code_begin[tile])
    start, end = times.start[own], times.end[own]
    some = end > start
    return rows.kind[begin : begin + len(some)][some], start[some], end[some]
