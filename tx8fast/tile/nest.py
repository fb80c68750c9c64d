"""The slices of a tile's loop nest in order, and what has to be loaded for each.

May import: lower, tile.tiling, errors. Must not: choose plans, emit instructions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tx8fast.tile.tiling import Tiling

LoopSlice = tuple[tuple[int, ...], tuple[int, ...], bool, bool, int]


class LoopStep(NamedTuple):
    """One slice of a tile's loop nest. lo, hi: factor ranges; load: reads that must be loaded for it; copy: buffer
    copy of every access, reads then writes; first, last: of a reduction; done: slices completed before; new: reads that
    change with it, loaded or handed over."""

    lo: tuple[int, ...]
    hi: tuple[int, ...]
    load: tuple[int, ...]
    copy: tuple[int, ...]
    first: bool
    last: bool
    done: int
    new: tuple[int, ...] = ()


def loop_slices(tiling: Tiling, lo: Sequence[int], hi: Sequence[int]) -> Iterator[LoopSlice]:
    """Yield the slices of the loop nest over [lo, hi) that have work, outermost factor slowest: factor ranges, whether it is
    the first and the last of a reduction, slices completed before."""
    low, plan = tiling.low, tiling.plan
    lists = [[(a, min(a + plan.slices[f], hi[f])) for a in range(lo[f], hi[f], plan.slices[f])] for f in plan.order]
    for f in low.backward if tiling.sums else ():
        lists[plan.order.index(f)].reverse()
    n_outer = sum(not low.reduce[f] for f in plan.order)  # reductions come last
    place = [plan.order.index(f) for f in range(len(lists))]
    inner = list(itertools.product(*lists[n_outer:]))
    for done, outer in enumerate(itertools.product(*lists[:n_outer])):
        points = [(*outer, *x) for x in inner]
        ranges = [tuple(zip(*[x[i] for i in place], strict=True)) for x in points]
        if low.skipping:
            ranges = [r for r in ranges if not low.skips(*r)]
        for i, (a, b) in enumerate(ranges):
            yield a, b, i == 0, i + 1 == len(ranges), done


def loop_steps(tiling: Tiling, lo: Sequence[int], hi: Sequence[int], limit: int | None = None) -> list[LoopStep]:
    """Return the steps of a tile's range [lo, hi), at most `limit`."""
    low, plan, copies, rare = tiling.low, tiling.plan, tiling.copies, tiling.low.rare
    n_read = len(low.reads)
    filled = [0] * len(copies)
    held: dict[tuple[int, int], Any] = {}  # (access that is kept, copy) -> what it holds
    before: list[Any] = [None] * n_read  # what the others hold
    there: dict[int, dict[Any, int]] = {
        k: {} for k in rare
    }  # of what few slices need: contents -> the copy that has them
    used: dict[int, int] = {}  # the copy that is used
    summed = [f for f in plan.order if low.reduce[f]]
    kept = [k for k in plan.kept if k < n_read]
    several = [(k, n) for k, n in enumerate(copies) if n > 1]
    steps: list[LoopStep] = []
    for a, b, first, last, done in itertools.islice(loop_slices(tiling, lo, hi), limit):
        turn = 0  # of the reduction
        for f in summed if kept else ():
            turn = turn * tiling.trips[f] + (a[f] - lo[f]) // plan.slices[f]
        keys = low.contents(a, b)
        for k in rare:
            if not low.needs(k, a, b):
                keys[k] = before[k]
        for k in kept:
            before[k], held[k, turn] = held.get((k, turn)), keys[k]
        new = [k for k, (old, key) in enumerate(zip(before, keys, strict=True)) if key != old]
        before = keys
        for k in rare.intersection(new):
            used[k] = there[k].get(keys[k], filled[k] % copies[k])
            if keys[k] in there[k]:
                new.remove(k)
            else:
                there[k] = {key: c for key, c in there[k].items() if c != used[k]} | {keys[k]: used[k]}
        for k in new:
            filled[k] += 1
        copy = [0] * len(copies)
        for k, n in several:
            copy[k] = used[k] if k in used else max(0, filled[k] - (k < n_read)) % n
        for k in kept:
            copy[k] = turn
        load = tuple([k for k in new if k not in plan.held]) if plan.held else tuple(new)
        steps.append(LoopStep(a, b, load, tuple(copy), first, last, done, tuple(new)))
        if last:
            filled[n_read:] = [n + 1 for n in filled[n_read:]]
    return steps
