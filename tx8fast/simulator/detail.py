"""Fewer, longer intervals that show the same activity from further away.

May import: numpy. Must not: know instructions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from tx8fast.records import dataclass


def merge(key: np.ndarray, start: np.ndarray, end: np.ndarray, resolution: int) -> tuple[np.ndarray, ...]:
    """Join neighbours of one key that overlap, touch, or have a gap shorter than `resolution` cycles.

    key, start, end (n,) int64: half-open intervals in cycles. Return (key, start, end, busy, count) (m,) by key, then by start: `busy` cycles
    are covered within [start, end), by `count` of the given intervals. With resolution 0 only intervals that overlap or touch are joined.
    """
    order = np.lexsort((start, key))
    key, start, end = key[order], start[order], end[order]
    if not len(key):
        return key, start, end, end - start, np.zeros(0, np.int64)
    # the furthest end so far, by key: keys get disjoint ranges of one axis
    span = int(end.max()) - min(0, int(start.min())) + 1
    rank = np.cumsum(np.concatenate([[0], key[1:] != key[:-1]]))
    reach = np.maximum.accumulate(end + rank * span) - rank * span
    before = reach[:-1]
    apart = start[1:] - before
    fresh = np.concatenate([[True], (rank[1:] != rank[:-1]) | (apart > 0) & (apart >= resolution)])
    first = np.flatnonzero(fresh)
    last = np.concatenate([first[1:], [len(key)]]) - 1
    gaps = np.concatenate([[0], np.where(fresh[1:], 0, np.maximum(apart, 0))])
    idle = np.add.reduceat(gaps, first)
    stop = reach[last]
    return key[first], start[first], stop, stop - start[first] - idle, np.diff(np.concatenate([first, [len(key)]]))


def binned(start: np.ndarray, end: np.ndarray, amount: np.ndarray, begin: int, width: int, n: int) -> np.ndarray:
    """Return what falls into each of `n` bins of `width` cycles from `begin`, (n,) float64: an amount spreads evenly over [start, end)."""
    # amounts up to a time: a sum of ramps, exact at the edges of bins
    edges = begin + width * np.arange(n + 1)
    some = end > start
    start, end, amount = start[some], end[some], amount[some].astype(np.float64)
    rate = amount / (end - start)

    def ramps(at: np.ndarray) -> np.ndarray:
        order = np.argsort(at, kind="stable")
        at, r = at[order], rate[order]
        slope, offset = np.concatenate([[0.0], np.cumsum(r)]), np.concatenate([[0.0], np.cumsum(r * at)])
        k = np.searchsorted(at, edges, side="right")
        return slope[k] * edges - offset[k]

    return np.maximum(np.diff(ramps(start) - ramps(end)), 0.0)


@dataclass
class Run:
    """Activity from `start` to `end`, of it `busy` cycles by name; `count` intervals."""

    start: int
    end: int
    count: int
    busy: dict[Hashable, int]

    @property
    def name(self) -> Hashable:
        """The name with most cycles, of equal ones the first."""
        return max(self.busy, key=lambda n: self.busy[n])


def runs(names: Sequence[Hashable], start: Sequence[int], end: Sequence[int], resolution: int) -> list[Run]:
    """Return disjoint runs of intervals that are sorted by start: a new one begins behind a gap of `resolution` cycles, and with another name once
    the last is that long. Overlaps are always one run."""
    return join_runs((Run(a, b, 1, {n: b - a}) for n, a, b in zip(names, start, end, strict=True)), resolution)


def join_runs(given: Iterable[Run], resolution: int) -> list[Run]:
    """Return the runs that `runs` gives at a coarser resolution."""
    out: list[Run] = []
    for r in given:
        last = out[-1] if out else None
        if (
            last is None
            or r.start >= last.end
            and (
                r.start - last.end >= resolution
                or (r.end - r.start >= resolution or last.end - last.start >= resolution)
                and r.name != last.name
            )
        ):
            out.append(Run(r.start, r.end, r.count, dict(r.busy)))
            continue
        for name, cycles in r.busy.items():
            last.busy[name] = last.busy.get(name, 0) + cycles
        last.end, last.count = max(last.end, r.end), last.count + r.count
    return out
