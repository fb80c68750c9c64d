"""Where the cycles above the roofline bound go: every cycle of every tile has one name.

May import: numpy, machine, _kernels, timing and roofline beside it. Must not: run anything.

The bound names the resource that should be busy all the time: the matrix engine, or the DMA engines where the DDR
is the limit. What that resource does beyond the bound, and every cycle in which it rests, is a loss. A
resting cycle is named by what the tile does instead. Losses are averages over the tiles, so that bound and
losses add up to the cycles of the group.
"""

from __future__ import annotations

import numpy as np

from tx8fast._kernels import EventInput, EventResult
from tx8fast.simulator.roofline import Roofline
from tx8fast.simulator.timing import BARRIER, KCORE

CT, NE, RDMA, WDMA, TDMA, SEND = 0, 1, 2, 3, 4, 8
DDR = 255  # stands for the transfers of all tiles
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


def account(rows: EventInput, times: EventResult, bound: Roofline, ddr_cycles: float) -> dict[str, float]:
    """Return the cycles of every loss, of a group whose bound is `bound`; ddr_cycles: time of all bytes at full rate."""
    cycles, n_tiles = times.cycles, len(rows.code_begin)
    out = dict.fromkeys(LOSSES, 0.0)
    if not cycles:
        return out
    work = _MATRIX if bound.bound == "compute" else _DMA
    tile, kind, start, end = _activity(rows, times)
    if work == _DMA:
        # the DDR is one for all: it works while any tile moves bytes
        moving = np.isin(kind, _CLASSES[_DMA])
        begin, stop = _union(start[moving], end[moving])
        own = np.repeat(np.arange(n_tiles), len(begin))
        tile, kind = np.concatenate([tile, own]), np.concatenate([kind, np.full(len(own), DDR)])
        start, end = np.concatenate([start, np.tile(begin, n_tiles)]), np.concatenate([end, np.tile(stop, n_tiles)])
    busy = np.zeros((len(kind), len(_CLASSES) + 1), np.int8)
    for column, kinds in enumerate((*_CLASSES, _CLASSES[_MATRIX] if work == _MATRIX else (DDR,))):
        busy[np.isin(kind, kinds), column] = 1
    # tiles one after the other on one axis; marks cut it where the meaning of a resting cycle changes
    own = (kind != BARRIER) & (kind != DDR)
    done, first = np.zeros(n_tiles, np.int64), np.full(n_tiles, cycles)
    np.maximum.at(done, tile[own], end[own])
    working = busy[:, -1] > 0
    np.minimum.at(first, tile[working], start[working])
    first[first == cycles] = 0  # a tile without such work has no start of it
    last = int(done.max(initial=0))
    base = np.arange(n_tiles) * (cycles + 1)
    marks = np.concatenate([base, base + first, base + done, base + last, base + cycles])
    at = np.concatenate([start + base[tile], end + base[tile], marks])
    change = np.concatenate([busy, -busy, np.zeros((len(marks), len(_CLASSES) + 1), np.int8)])
    order = np.argsort(at, kind="stable")
    at = at[order]
    state = np.cumsum(change[order], axis=0, dtype=np.int64)[:-1] > 0
    length = np.diff(at)
    owner, when = np.divmod(at[:-1], cycles + 1)
    length = np.where(when < cycles, length, 0)  # the step from one tile to the next
    names = [
        ("work", state[:, -1]),
        ("startup", when < first[owner]),
        ("barrier", when >= last),
        ("imbalance", when >= done[owner]),
        ("exposed_matrix", state[:, _MATRIX]),
        ("exposed_vector", state[:, _VECTOR]),
        ("exposed_dma", state[:, _DMA]),
        ("exposed_exchange", state[:, _SEND]),
    ]
    label = np.select([mask for _, mask in names], range(len(names)), len(names))
    sums = np.bincount(label, length, len(names) + 1) / n_tiles
    for (name, _), value in zip(names[1:], sums[1:-1], strict=True):
        out[name] = float(value)
    out["bubble"] = float(sums[-1])
    beyond = float(sums[0]) - bound.bound_cycles
    if work == _DMA:
        out["extra_traffic"] = min(max(0.0, ddr_cycles - bound.bound_cycles), max(0.0, beyond))
    out["overhead"] = beyond - out["extra_traffic"]
    return out


def _union(start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the disjoint intervals that cover the same time."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order]) if len(end) else end
    fresh = np.concatenate([[True], start[1:] > end[:-1]]) if len(start) else np.zeros(0, bool)
    return start[fresh], end[np.concatenate([fresh[1:], [True]])] if len(start) else end


def _activity(rows: EventInput, times: EventResult) -> tuple[np.ndarray, ...]:
    """Return tile, kind, start and end (n,) of all rows that take time."""
    size = np.diff(rows.tile_begin)
    tile = np.repeat(np.arange(len(size)), size)
    code = np.arange(len(tile)) - rows.tile_begin[tile] + rows.code_begin[tile]
    kind = rows.kind[code]
    some = times.end > times.start
    return tile[some], kind[some], times.start[some], times.end[some]
