"""A whole group in time steps: how often it is cut, its slices, steps and addresses, and what that costs.

May import: schedule.steps.*, errors. Must not: know instructions; cycles come from callbacks.

Slice counts start at what bytes demand and grow until the values find addresses: the first counts that do are taken ("quick"), or
all counts are tried and the cheapest are ("exhaustive") (layer-group notes 3.3, 5.3-5.6, 7.1).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from tx8fast.errors import AllocationError, ConfigError, InfeasibleError, InternalError
from tx8fast.schedule.steps.assign import assign
from tx8fast.schedule.steps.balance import balance
from tx8fast.schedule.steps.cost import group_cycles
from tx8fast.schedule.steps.counts import Counts, Footprint, cut_height_and_width, first_counts
from tx8fast.schedule.steps.mining import Grain, GroupOp, Mined, Shape, mine, slice_elements
from tx8fast.schedule.steps.place import Memory, Placed, place
from tx8fast.schedule.steps.table import LOAD, STORE, Life, Move, StepOp, Table, lifetimes, peak_bytes

QUICK_TRIES = 20
EXHAUSTIVE_TRIES = 20_000
METHODS = ("quick", "exhaustive")


@dataclass(frozen=True)
class Spec:
    """A group to schedule.

    ops, shapes: as for `mine`; outputs: values that leave it; cuttable: which of n, c, d, h, w may be cut. compute: cycles of an op
    for the elements of its largest result slice; move: cycles of a transfer by kind and bytes; scratch: bytes of an op's own
    memory for its result's elements; engines: of loads and of stores.
    """

    ops: tuple[GroupOp, ...]
    shapes: Mapping[str, Shape]
    outputs: frozenset[str]
    compute: Callable[[GroupOp, int], int]
    move: Callable[[str, int], int]
    item_bytes: int = 2
    scratch: Callable[[GroupOp, int], int] = lambda op, elements: 0
    cuttable: tuple[bool, bool, bool, bool, bool] = (True, False, False, True, True)
    grain: Grain = Grain()
    engines: tuple[str, str] = ("rdma", "wdma")

    def most_counts(self) -> Counts:
        """Return the greatest count per dimension that every result of an op allows."""
        units = (max(1, 32 // self.grain.bits), self.grain.lanes, 1, 1, 1)
        made = [self.shapes[v] for op in self.ops for v in op.results]
        return tuple(  # type: ignore[return-value]
            min(-(-shape[d] // units[d]) for shape in made) if self.cuttable[d] else 1 for d in range(5)
        )

    def footprints(self) -> list[Footprint]:
        """Return what every op works on uncut."""
        out = []
        for op in self.ops:
            own = {x.value: x.uncut for x in op.operands} | dict.fromkeys(op.results, False)
            size = {v: math.prod(self.shapes[v]) * self.item_bytes for v in own}
            scratch = self.scratch(op, math.prod(self.shapes[op.results[0]]))
            weights = sum(n for v, n in size.items() if own[v])
            out.append(Footprint(op.name, sum(size.values()) - weights + scratch, weights))
        return out


@dataclass(frozen=True)
class Scheduled:
    """The outcome: counts per dimension, slices, steps, lives with their addresses, cycles of all slices, and how many counts were
    tried."""

    counts: Counts
    mined: Mined
    table: Table
    lives: tuple[Life, ...]
    placed: Placed
    cycles: int
    tried: int = 1

    @property
    def slices(self) -> int:
        return math.prod(self.counts)


def schedule_group(spec: Spec, memory: Memory, method: str = "quick", start: Counts | None = None) -> Scheduled:
    """Return a schedule whose values fit `memory`.

    `start`: counts to begin with, from an earlier result. Raises InfeasibleError if no counts that were tried fit, with the reason.
    """
    if method not in METHODS:
        raise ConfigError(f"method '{method}' is unknown, expected one of {', '.join(METHODS)}")
    most = spec.most_counts()
    least = start or refined_counts(spec, memory, most)
    todo = growing(spec, least, most) if method == "quick" else every(least, most)
    limit = QUICK_TRIES if method == "quick" else EXHAUSTIVE_TRIES
    best: Scheduled | None = None
    tried, why = 0, ""
    for counts in itertools.islice(todo, limit):
        tried += 1
        try:
            found = try_counts(spec, memory, counts)
        except AllocationError as err:
            why = str(err)
            continue
        except InfeasibleError as err:  # too fine in one dimension; another may still do
            why = why or str(err)
            continue
        if best is None or found.cycles < best.cycles:
            best = found
        if method == "quick":
            break
    if best is None:
        raise InfeasibleError(f"scheduling a group of {len(spec.ops)} ops: none of {tried} ways to cut it fits: {why}")
    return Scheduled(best.counts, best.mined, best.table, best.lives, best.placed, best.cycles, tried)


def try_counts(spec: Spec, memory: Memory, counts: Counts) -> Scheduled:
    """Return the schedule for these slice counts: with transfers balanced, or where that leaves no room, with every load next to
    its reader. Raises InfeasibleError if the group cannot be sliced so, AllocationError if its values do not fit."""
    mined = mine(spec.ops, spec.shapes, spec.outputs, counts, spec.grain)
    if mined.held:
        try:
            found = _placed(spec, memory, counts, mined, mined.held)
            if found.placed.holds or found.slices == 1:
                return found
        except AllocationError:
            pass
    return _placed(spec, memory, counts, mined, frozenset())  # nothing stays: everything is loaded for every slice


def _placed(spec: Spec, memory: Memory, counts: Counts, mined: Mined, held: Collection[str]) -> Scheduled:
    nearest, sizes = _steps(spec, mined, held)
    slices = math.prod(counts)
    for table in (balance(nearest, slices > 1), nearest):
        lives = tuple(lifetimes(table, sizes))
        try:
            placed = place(table, lives, memory, held, slices > 1)
        except AllocationError:
            if table is nearest:
                raise
            continue
        return Scheduled(counts, mined, table, lives, placed, group_cycles(table, slices))
    raise InternalError("scheduling a group: neither table was tried")


def _steps(spec: Spec, mined: Mined, keep: Collection[str] = ()) -> tuple[Table, dict[str, int]]:
    elements = {v: slice_elements(cuts) for v, cuts in mined.cuts.items()}
    sizes = {v: n * spec.item_bytes for v, n in elements.items()}

    def transfer(kind: str, value: str) -> Move:
        held = kind == LOAD and value in keep
        return Move(kind, value, spec.move(kind, sizes[value]), sizes[value], spec.engines[kind == STORE], held=held)

    ops = []
    for op in spec.ops:
        n = elements[op.results[0]]
        reads = tuple(dict.fromkeys(x.value for x in op.operands))
        ops.append(StepOp(op.name, reads, op.results, spec.compute(op, n), spec.scratch(op, n)))
    return assign(ops, spec.outputs, transfer), sizes


def refined_counts(spec: Spec, memory: Memory, most: Counts) -> Counts:
    """Return the counts to begin with: what the bytes alive at once demand, preferring n; what the ops demand one by one where
    that cannot be worked out."""
    for n in range(1, most[0] + 1):
        try:
            mined = mine(spec.ops, spec.shapes, spec.outputs, (n, 1, 1, 1, 1), spec.grain, largest=True)
        except InfeasibleError:
            break
        table, sizes = _steps(spec, mined)
        peak = max(peak_bytes(lifetimes(table, sizes), len(table.rows)))
        total = -(-peak // memory.capacity_bytes)
        c = max(1, min(most[1], total))
        rest = -(-total // c)
        if rest == 1:
            return n, c, 1, 1, 1
        if n == most[0]:
            spread = spread_counts(spec, rest, most)
            if spread is not None:
                return n, c, *spread
    return first_counts(spec.footprints(), most, memory.capacity_bytes, spec.cuttable[1])


def spread_counts(spec: Spec, total: int, most: Counts) -> tuple[int, int, int] | None:
    """Return counts of d, h, w with at least `total` pieces: depth first, then the cheapest seams; None if there are none."""
    d = min(total, most[2])
    shapes = [spec.shapes[v] for v in sorted(spec.outputs)]
    height, width = sum(s[3] for s in shapes), sum(s[4] for s in shapes)
    try:
        return d, *cut_height_and_width(-(-total // d), most[3], most[4], height, width, spec.item_bytes)
    except InfeasibleError:
        return None


def growing(spec: Spec, counts: Counts, most: Counts) -> Iterator[Counts]:
    """Yield the counts and finer ones: more of n, then of c, to the next one that shortens the slices, then more pieces of d, h, w."""
    n, c, *rest = counts
    made = [spec.shapes[v] for op in spec.ops for v in op.results]
    yield counts
    while n < most[0]:
        n = _next(n, [s[0] for s in made], most[0])
        yield n, c, *rest  # type: ignore[misc]
    while c < most[1]:
        c = _next(c, [s[1] for s in made], most[1])
        yield n, c, *rest  # type: ignore[misc]
    last = tuple(rest)
    for total in range(math.prod(rest) + 1, most[2] * most[3] * most[4] + 1):
        spread = spread_counts(spec, total, most)
        if spread is not None and spread != last:
            last = spread
            yield n, c, *spread


def _next(count: int, lengths: list[int], most: int) -> int:
    """Return the next count with which the longest slice of some length is shorter."""
    now = [-(-n // count) for n in lengths]
    return next(
        (k for k in range(count + 1, most) if any(-(-n // k) < m for n, m in zip(lengths, now, strict=True))), most
    )


def every(least: Counts, most: Counts) -> Iterator[Counts]:
    """Yield all counts up to `most` with at least as many pieces as `least`."""
    pieces = math.prod(least)
    for n, c, h, d, w in itertools.product(*(range(1, most[k] + 1) for k in (0, 1, 3, 2, 4))):
        if n * c * d * h * w >= pieces:
            yield n, c, d, h, w
