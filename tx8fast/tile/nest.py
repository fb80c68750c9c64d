"""The slices of a tile's loop nest in order, and what has to be loaded for each.

May import: lower, tile.tiling, errors. Must not: choose plans, emit instructions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from operator import itemgetter, ne
from typing import Any, NamedTuple, TypeVar

from tx8fast.tile.tiling import Tiling

#: places, as parts of all, of the slices with unequal work that stand behind the one with most
SHORT = (0.75, 0.5, 0.25, 0.125)

T = TypeVar("T")
Range = tuple[int, int]
Point = tuple[Range, ...]
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
    n_outer = sum(not low.reduce[f] for f in plan.order)  # reductions come last
    place = [plan.order.index(f) for f in range(len(lists))]
    by_factor = itemgetter(*place) if len(place) > 1 else tuple
    inner = [list(itertools.product(*[[r[end] for r in own] for own in lists[n_outer:]])) for end in (0, 1)]
    outside, unequal = itertools.product(*lists[:n_outer]), low.unequal
    for done, outer in enumerate(_graded(tiling, unequal, lists, outside) if unequal else outside):
        begins, ends = zip(*outer, strict=True) if outer else ((), ())
        ranges = [(by_factor((*begins, *a)), by_factor((*ends, *b))) for a, b in zip(*inner, strict=True)]
        if low.skipping:
            ranges = [r for r in ranges if not low.skips(*r)]
        for i, (a, b) in enumerate(ranges):
            yield a, b, i == 0, i + 1 == len(ranges), done


def _graded(
    tiling: Tiling, unequal: Sequence[int], lists: Sequence[Sequence[Range]], points: Iterator[Point]
) -> list[Point]:
    """Return points of the outer loops by the work of their slices, which the factors `unequal` decide, per point of the loops around
    these. lists: ranges of every loop."""
    order, low = tiling.plan.order, tiling.low
    places = [order.index(f) for f in unequal]
    lo, hi = [0] * len(order), list(low.sizes)
    for f, i in zip(unequal, places, strict=True):
        lo[f], hi[f] = lists[i][0][0], lists[i][-1][1]
    work = low.amounts(lo, hi, tiling.plan.slices)
    every = list(itertools.product(*[lists[i] for i in places]))
    found = [every[i] for i in sorted(range(len(every)), key=work.__getitem__)]
    # where a reduction takes several slices, the longest first: the short ones find their operands loaded
    rank = {ranges: i for i, ranges in enumerate(found[::-1] if tiling.sums else shorter_behind(found))}
    return sorted(points, key=lambda p: (p[: min(places)], rank[tuple([p[i] for i in places])]))


def shorter_behind(slices: Sequence[T]) -> list[T]:
    """Return slices, each of which has more work than the one before, in an order that ends with short ones. What the last one leaves to
    the matrix engine is done beside nothing; so some of those before stand behind the longest one, each about as much shorter than the
    last as its exponentials take no longer than the products of the one before."""
    behind = sorted({int(len(slices) * part) for part in SHORT} - {0}, reverse=True)
    return [s for i, s in enumerate(slices) if i not in behind] + [slices[i] for i in behind]


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
    one_each, made = [0] * len(copies), partial(tuple.__new__, LoopStep)
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
        new = list(itertools.compress(range(n_read), map(ne, before, keys)))
        before = keys
        for k in rare.intersection(new) if rare else ():
            used[k] = there[k].get(keys[k], filled[k] % copies[k])
            if keys[k] in there[k]:
                new.remove(k)
            else:
                there[k] = {key: c for key, c in there[k].items() if c != used[k]} | {keys[k]: used[k]}
        for k in new:
            filled[k] += 1
        copy = one_each.copy()
        for k, n in several:
            copy[k] = used[k] if k in used else (filled[k] - (k < n_read)) % n if filled[k] else 0
        for k in kept:
            copy[k] = turn
        changed = tuple(new)
        load = tuple([k for k in new if k not in plan.held]) if plan.held else changed
        steps.append(made((a, b, load, tuple(copy), first, last, done, changed)))
        if last:
            filled[n_read:] = [n + 1 for n in filled[n_read:]]
    return steps
