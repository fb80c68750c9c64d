"""What a tile does in its loop nest, one thing after the other: loads, computes, stores, multicasts.

May import: lower, tile.nest, tile.tiling. Must not: emit instructions, know addresses or cycles.

This order is the meaning: whatever runs in it finds what it reads, and `tile.schedule` makes orders of it that fill the engines'
queues. Where tiles share operands, a *fill* of the shared operands is used by the steps until the next one changes; its parts are
loaded a fill ahead (`tile.multicast`).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from tx8fast.records import cached_property, dataclass
from tx8fast.tile.nest import LoopStep, loop_steps
from tx8fast.tile.tiling import Tiling

#: one thing a tile does: its kind, and the step, the access and the fill that it is about, of those that count:
#: load (step, access); emit, store (step); part (access, fill): its own part of a shared read into staging;
#: meet, exchange (fill)
Action = tuple[str, int, int, int]


class Fill(NamedTuple):
    """Shared reads that change before step `step`, or a chunk of each (-1: the whole of it). version: how often each shared read had
    been filled before, chunks counted. behind: of the reads, those that change for the step before it; early: the fill stands
    before that step; ahead: it brings what is prepared, before what else the first step needs."""

    step: int
    changed: tuple[int, ...]
    version: dict[int, int]
    chunk: int = -1
    behind: frozenset[int] = frozenset()
    early: bool = False
    ahead: bool = False

    def step_of(self, k: int) -> int:
        """Return the step for which read k changes."""
        return self.step - (k in self.behind)

    def spans(self, tiling: Tiling, k: int, step: LoopStep) -> list[tuple[int, int]]:
        """Return the byte ranges of the slice of read k that the fill brings."""
        access = tiling.low.reads[k]
        return access.chunk(step.lo, step.hi, self.chunk) if self.chunk >= 0 else []


#: Before the first fills all tiles wait for each other with empty queues: nobody can fall behind. Where rows that come in chunks, or before
#: all else, are prepared, tiles wait with full ones until the first product is done, and go in step again: there they fall behind once more after
#: eight and 32 fills. The feed-forward of a layer of Llama 3 8B (512 tokens) takes 2,482 instead of 2,588 thousand cycles so, a prefill of
#: glm-4-9b 141.6 instead of 146.9 million.
LATE_FILLS = (2, 10, 34)


@dataclass(frozen=True)
class Order:
    """A tile's actions; `steps` and `fills` are what they count. parity: of every step, `Slice.parity`."""

    steps: list[LoopStep]
    parity: list[int]
    fills: list[Fill]
    actions: list[Action]

    @cached_property
    def late_fills(self) -> frozenset[int]:
        """The fills before which tiles that are to load behind the others (`sharing.late_tiles`) begin to."""
        whole = next((f for f, fill in enumerate(self.fills) if fill.chunk < 0), 0)
        again = whole or any(fill.ahead for fill in self.fills[:1])
        return frozenset([whole + f for f in LATE_FILLS] if again else LATE_FILLS[:1])

    @cached_property
    def last_fills(self) -> np.ndarray:
        """(steps,): the number of the last fill that each step uses."""
        last = np.zeros(len(self.steps), np.int64)
        # the first step for which one of a fill's reads changes; of equal ones the last fill stays
        at = [fill.step - bool(fill.behind) for fill in self.fills]
        last[at] = np.arange(len(at))
        return np.maximum.accumulate(last)


def tile_order(
    tiling: Tiling,
    lo: Sequence[int],
    hi: Sequence[int],
    shared: Collection[int] = (),
    meet: bool = False,
    limit: int | None = None,
) -> Order:
    """Return the order of a tile with range [lo, hi). shared: reads whose parts are exchanged; meet: tiles must meet
    before the first exchange; limit: steps to look at."""
    low = tiling.low
    steps = loop_steps(tiling, lo, hi, limit)
    parity = [i % low.turns if low.turns else s.done % 2 for i, s in enumerate(steps)]
    fills = _fills(tiling, steps, shared)
    return Order(steps, parity, fills, _actions(tiling, steps, fills, shared, meet))


def _fills(tiling: Tiling, steps: Sequence[LoopStep], shared: Collection[int]) -> list[Fill]:
    """What slices need behind the beginning of the next one comes with what that one begins with: in a fill before the present step,
    if other copies are filled than this step reads."""
    fills: list[Fill] = []
    version, behind, none = dict.fromkeys(shared, -1), tiling.behind, frozenset()
    gathered = {k for k, _ in tiling.plan.gathered}

    def put(step: int, changed: Sequence[int], early: bool = False, chunk: int = -1, ahead: bool = False) -> None:
        for k in changed:
            version[k] += 1
        late = behind.intersection(changed) if early else none
        fills.append(Fill(step, tuple(changed), version.copy(), chunk, late, early, ahead))

    there = False  # what a step begins with stands before the one before
    for i, s in enumerate(steps if shared else ()):
        changed = [k for k in s.load if k in version]
        second = [k for k in changed if k in behind and i > 0]
        first = [k for k in changed if k not in second and not there]
        ahead = [k for k in first if not i and k in gathered and tiling.low.comes_first(k, tiling.slice_bytes[k])]
        if ahead:
            put(i, ahead, ahead=True)
        first = [k for k in first if k not in ahead]
        if first:
            # what is gathered comes in the slices that other tiles have
            whole = not gathered.isdisjoint(first)
            for own, count in [(first, 1)] if whole else tiling.low.arriving(first, s.lo, s.hi, tiling.plan.slices):
                for chunk in range(count) if count > 1 else (-1,):
                    put(i, own, chunk=chunk)
        if behind:
            after = steps[i + 1] if i + 1 < len(steps) else s._replace(load=())
            coming = [k for k in after.load if k in version and k not in behind]
            there = all([after.copy[k] != s.copy[k] for k in coming])
            if both := sorted([*second, *(coming if there else ())]):
                put(i + 1, both, early=True)
    return fills


def _actions(
    tiling: Tiling, steps: Sequence[LoopStep], fills: Sequence[Fill], shared: Collection[int], meet: bool
) -> list[Action]:
    """Loads of the next step stand before the compute of the present one, unless it reads the buffer that they fill; behind it and
    behind the parts of the fill after next, where tiles share: these hold up all tiles."""
    low, gathered = tiling.low, dict(tiling.plan.gathered)
    begins: dict[int, list[int]] = {}
    for f, fill in enumerate(fills):
        begins.setdefault(fill.step - fill.early, []).append(f)
    loads = [[("load", i, k, -1) for k in s.load if k not in shared] for i, s in enumerate(steps)]
    parts = [[("part", 0, k, f) for k in fill.changed if k not in gathered] for f, fill in enumerate(fills)]
    parts += [[], []]  # behind the last fill
    out: list[Action] = [*parts[0], *loads[0]] if low.prepares(steps[0].new) else [*loads[0], *parts[0]]

    def bring(step: int) -> None:
        """Add the exchanges of a step's fills, and between them the parts of those after next."""
        own = begins.get(step, [])
        for f in own:
            if f > 0 or meet:
                out.append(("meet", 0, -1, f))
            out.append(("exchange", 0, -1, f))
            if f != own[-1]:
                out.extend(parts[f + 2])

    out += parts[1]
    bring(0)
    for i, (s, after) in enumerate(itertools.zip_longest(steps, steps[1:])):
        coming, copy = (loads[i + 1], after.copy) if after is not None else ([], s.copy)
        early = [] if fills else [a for a in coming if copy[a[2]] != s.copy[a[2]]]
        out += early
        out.append(("emit", i, -1, -1))
        if s.last:
            out.append(("store", i, -1, -1))
        if i in begins:
            out += parts[begins[i][-1] + 2]
        out += [a for a in coming if a not in early] if early else coming
        bring(i + 1)
    return out
