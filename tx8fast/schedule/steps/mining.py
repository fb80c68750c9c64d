"""Slices of every value of a group, worked out backwards from its results, with halos.

May import: schedule.steps.slices, errors. Must not: choose how often a group is cut.

A value is expanded once, when all its readers in the group have said what they need; where they need different ranges in
height or width it is made to cover both, unless it is stored: what has margins cannot be written out (layer-group notes 5.2, 8.5).
Values have the five dimensions n, c, d, h, w.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tx8fast.errors import InfeasibleError, InternalError, raise_all
from tx8fast.schedule.steps.slices import (
    DIMS,
    Cut,
    distribute,
    distribute_lanes,
    distribute_packed,
    hull,
    longest,
    whole,
)

Shape = tuple[int, int, int, int, int]
Cuts = tuple[Cut, Cut, Cut, Cut, Cut]


@dataclass(frozen=True)
class Window:
    """What one result position of a dimension reads: [position * stride - pad, ... + reach), clipped to the operand.

    full: everything, whatever the position (a matrix's right side in its reduced dimension, keys and values of attention).
    """

    stride: int = 1
    reach: int = 1
    pad: int = 0
    full: bool = False

    def back(self, offset: int, length: int, size: int) -> tuple[int, int]:
        """Return (offset, length) of the operand range, of length 0 or less if it lies in the padding."""
        first = max(offset * self.stride - self.pad, 0)
        last = min((offset + length - 1) * self.stride - self.pad + self.reach, size)
        return first, last - first


SAME = Window()
FULL = Window(full=True)
SAME_ALL = (SAME,) * 5


@dataclass(frozen=True)
class Operand:
    """An operand with the window of each dimension; uncut: it is a weight that every slice needs whole."""

    value: str
    windows: tuple[Window, ...] = SAME_ALL
    uncut: bool = False


@dataclass(frozen=True)
class GroupOp:
    """An op with its operands; all results of an op are cut alike. margins: it can work on more than it was asked for."""

    name: str
    results: tuple[str, ...]
    operands: tuple[Operand, ...]
    margins: bool = True


@dataclass
class Mined:
    """cuts: per value the slices that must be in scratchpad; needs: (value, op) -> slices that this reader uses; held: values that
    are the same for all slices."""

    cuts: dict[str, Cuts] = field(default_factory=dict)
    needs: dict[tuple[str, str], Cuts] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Grain:
    """What slices must be whole multiples of: channel lanes, and bits of an element packed along n (32: not packed)."""

    lanes: int = 1
    bits: int = 32


def result_cuts(shape: Shape, counts: Sequence[int], grain: Grain = Grain()) -> Cuts:
    """Return the slices of a group's result for `counts` slices per dimension."""
    n, c, *rest = shape
    first = distribute_packed(n, counts[0], grain.bits) if grain.bits < 32 else distribute(n, counts[0])
    return (
        first,
        distribute_lanes(c, counts[1], grain.lanes),
        *(distribute(s, k) for s, k in zip(rest, counts[2:], strict=True)),
    )  # type: ignore[return-value]


def largest_cuts(shape: Shape, counts: Sequence[int], grain: Grain = Grain()) -> Cuts:
    """Return one slice per dimension as large as any of `result_cuts`, for estimates of memory."""
    pack = max(1, 32 // grain.bits)
    units = (pack, grain.lanes, 1, 1, 1)
    return tuple(((0, -(-(-(-s // k)) // u) * u),) for s, k, u in zip(shape, counts, units, strict=True))  # type: ignore[return-value]


def mine(ops: Sequence[GroupOp], shapes: Mapping[str, Shape], outputs: Collection[str], counts: Sequence[int],
         grain: Grain = Grain(), largest: bool = False) -> Mined:  # fmt: skip
    """Return the slices of all values of a group cut `counts` times per dimension.

    `largest` asks for one slice of the greatest size per dimension instead of all of them. Raises InfeasibleError naming every value whose
    slices cannot be: fewer pieces than asked for, an empty or standing range, margins of a stored value.
    """
    make = largest_cuts if largest else result_cuts
    maker = {v: op for op in ops for v in op.results}
    waiting = {v: sum(v in {x.value for x in op.operands} for op in ops) for v in shapes}
    found = Mined()
    problems: list[str] = []
    for v in shapes:
        if v in outputs:
            found.cuts[v] = make(shapes[v], counts, grain)
            if not largest and (
                short := [d for d, c, k in zip(DIMS, found.cuts[v], counts, strict=True) if len(c) != k]
            ):
                problems.append(
                    f"{v!r} of {list(shapes[v])} has fewer than {list(counts)} pieces in {', '.join(short)}"
                )
    raise_all(InfeasibleError, "slicing a group", problems)
    ready = [v for v in shapes if v in outputs and not waiting[v]]
    done: set[str] = set()
    while ready:
        op = maker[ready.pop(0)]
        if op.name in done or any(waiting[v] for v in op.results):
            continue
        done.add(op.name)
        own, *others = dict.fromkeys(found.cuts[v] for v in op.results if v in found.cuts)
        if others:
            problems.append(
                f"the results {', '.join(map(repr, op.results))} of {op.name} are needed in different slices"
            )
        for v in op.results:
            found.cuts.setdefault(v, own)
        for x in op.operands:
            cuts, held = _operand_cuts(x, shapes[x.value], own, counts, f"{op.name} of {x.value!r}", problems)
            known = found.needs.get((x.value, op.name))
            found.needs[x.value, op.name] = cuts if known is None else known
            if held:
                found.held.add(x.value)
            _merge(found, x.value, cuts, x.value in outputs, op, problems)
        for v in dict.fromkeys(x.value for x in op.operands):
            waiting[v] -= 1
            if not waiting[v] and v in maker:
                ready.append(v)
    strict = {op.name for op in ops if not op.margins}
    for (v, reader), cuts in found.needs.items():
        if reader in strict and cuts != found.cuts[v]:
            problems.append(f"{reader} cannot work on {v!r} with the margins that another reader needs")
    raise_all(InfeasibleError, "slicing a group", problems)
    if len(done) != len(ops):
        raise InternalError(f"slicing a group: {len(ops) - len(done)} ops lead to no result of it")
    return found


def _operand_cuts(
    x: Operand, shape: Shape, own: Cuts, counts: Sequence[int], what: str, problems: list[str]
) -> tuple[Cuts, bool]:
    """Return what an op needs of an operand for each of its slices, and whether that is always the same."""
    out: list[Cut] = []
    for d, (size, window, cut, count) in enumerate(zip(shape, x.windows, own, counts, strict=True)):
        if x.uncut or count == 1:
            out.append(whole(size))
        elif size == 1 or window.full:
            out.append(((0, size),) * len(cut))
        else:
            ranges = tuple(window.back(a, n, size) for a, n in cut)
            if any(n <= 0 for _, n in ranges):
                problems.append(f"{what}: a slice in {DIMS[d]} lies in the padding")
            elif d >= 2 and any(b[0] == 0 or sum(a) == sum(b) for a, b in zip(ranges, ranges[1:])):
                problems.append(f"{what}: two slices in {DIMS[d]} begin at 0 or end alike, cutting gains nothing")
            out.append(ranges)
    held = x.uncut or all(len(set(c)) == 1 for c in out)
    return tuple(out), held and max(counts) > 1  # type: ignore[return-value]


def _merge(found: Mined, value: str, cuts: Cuts, stored: bool, op: GroupOp, problems: list[str]) -> None:
    """Add a reader's need to what is known of a value."""
    known = found.cuts.setdefault(value, cuts)
    if known == cuts:
        return
    if stored:
        problems.append(f"{value!r} is stored, so it cannot have the margins that {op.name} needs")
        return
    joined = [a if a == b else hull(a, b) if d >= 3 else None for d, (a, b) in enumerate(zip(known, cuts, strict=True))]
    if bad := [DIMS[d] for d, c in enumerate(joined) if c is None]:
        problems.append(f"{value!r} is needed in different slices in {', '.join(bad)} by {op.name} and others")
        return
    found.cuts[value] = tuple(joined)  # type: ignore[assignment]


def slice_elements(cuts: Cuts) -> int:
    """Return the elements of the largest slice."""
    total = 1
    for cut in cuts:
        total *= longest(cut)
    return total
