"""Where the buffers of a group lie in scratchpad.

May import: lower, tile.tiling, alloc, machine, program.model. Must not: choose plans, emit instructions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tx8fast.alloc import Buffer, Problem, solve
from tx8fast.errors import AllocationError
from tx8fast.lower.base import ALIGN_BYTES, Lowering, round_up
from tx8fast.program.model import SCRATCH
from tx8fast.tile.emit import Addresses
from tx8fast.tile.phases import beside, forms, phases, slice_rows, turn_bytes
from tx8fast.tile.tiling import Tiling


def access_arguments(low: Lowering) -> list[int]:
    """Return the segment's argument of every access, reads and then writes."""
    return [*low.arguments(), *(len(low.record.operands) + j for j in range(len(low.writes)))]


def buffer_table(buffers: Iterable[tuple[int, int, int]]) -> np.ndarray:
    """Return a segment's buffer table from (address, bytes, argument) of every buffer."""
    return np.array(sorted(set(buffers)), np.int32).reshape(-1, 3)


class Buffers:
    """Scratchpad addresses of every buffer copy of a group; equal for all tiles. Pinned buffers lie at either end of
    the scratchpad, the others between them."""

    def __init__(self, tiling: Tiling, pinned: Mapping[int, int] | None = None) -> None:
        pinned = pinned or {}
        low, plan, machine, size_bytes = tiling.low, tiling.plan, tiling.low.machine, tiling.slice_bytes
        zero = (0,) * len(plan.shard)
        items: list[Buffer] = []
        first: list[int] = []  # of every kind of buffer, its first copy: copies are alike
        once = all(t == 1 for t in tiling.trips)
        # load at step 0, compute at 1, store at 2; in a loop every buffer is alive throughout
        life = {"load": (0, 2), "scratch": (1, 2), "store": (1, 3), "const": (0, 2)}

        owners: list[tuple[int, ...]] = []  # of every item, the arguments whose slices it holds

        def want(kind: str, size: int, copies: int = 1, of: tuple[int, ...] = (SCRATCH,)) -> None:
            lives = life[kind] if once else (0, 1)
            first.append(len(items))
            for _ in range(copies):
                items.append(Buffer(f"{kind}{len(items)}", (lives,), max(size, 1), ALIGN_BYTES))
                owners.append(of)

        argument = access_arguments(low)
        for k, n in enumerate(tiling.copies):
            if k not in pinned:
                want("load" if k < len(low.reads) else "store", size_bytes[k], n, (argument[k],))
        for reads, size, n in tiling.staging:
            want("load", size, n, tuple([argument[k] for k in reads]))
        scratch, consts = low.scratch_bytes(zero, plan.slices), low.const_bytes()
        for size in scratch:
            want("scratch", size)
        for size in consts:
            want("const", size)
        if tiling.sums:
            want("scratch", low.acc_bytes(zero, plan.slices))
        room = self._room(tiling, pinned)

        def named(addresses: Sequence[int]) -> Addresses:
            it = iter(addresses)
            access = [[pinned[k]] if k in pinned else [next(it) for _ in range(n)] for k, n in enumerate(tiling.copies)]
            staging: dict[int, list[int]] = {}
            for reads, _, n in tiling.staging:
                staging |= dict.fromkeys(reads, [next(it) for _ in range(n)])
            inner, fixed = [next(it) for _ in scratch], [next(it) for _ in consts]
            return Addresses(access, staging, inner, fixed, next(it) if tiling.sums else 0)

        addresses = _placed(items, room)
        addresses = _phased(tiling, items, first, addresses, named(addresses), room)
        self.at = named(addresses)
        table = [(a, i.size_bytes, o) for a, i, own in zip(addresses, items, owners, strict=True) for o in own]
        table += [(a, size_bytes[k], argument[k]) for k, a in pinned.items()]
        self.table = buffer_table(table)
        self.peak = max([a + size for a, size, _ in table], default=machine.spm_base) - machine.spm_base

    def _room(self, tiling: Tiling, pinned: Mapping[int, int]) -> tuple[int, int]:
        """Return the addresses between which nothing is pinned."""
        machine = tiling.low.machine
        low_end, high_end = machine.spm_base, machine.spm_limit
        for k, address in pinned.items():
            end = address + round_up(tiling.slice_bytes[k], ALIGN_BYTES)
            if address == machine.spm_base:
                low_end = max(low_end, end)
            else:
                high_end = min(high_end, address)
        return low_end, high_end


def _placed(items: Sequence[Buffer], room: tuple[int, int]) -> list[int]:
    """Return the address of every buffer."""
    return [o + room[0] for o in solve(Problem(tuple(items), room[1] - room[0])).offsets]


def _phased(tiling: Tiling, items: Sequence[Buffer], first: Sequence[int], plain: list[int], at: Addresses,
            room: tuple[int, int]) -> list[int]:  # fmt: skip
    """Return addresses at which the streams of one instruction meet least in the banks; those of `plain` (named `at`) where
    the bytes that this takes are not there: the buffers with the least traffic go without a phase first."""
    if not items:
        return plain
    machine = tiling.low.machine
    kinds = [(plain[k], items[k].size_bytes) for k in first]
    rows = slice_rows(tiling, at)
    chosen = phases(machine, forms(machine, rows, kinds), beside(machine, rows, kinds))
    kind_of = np.searchsorted(first, np.arange(len(items)), "right") - 1
    whole = math.lcm(turn_bytes(machine), ALIGN_BYTES)
    for wanted in range(len(chosen), 0, -1):
        phase = {k: p for k, p in chosen[:wanted]}
        own = [phase.get(int(kind), -1) for kind in kind_of]
        wide = [
            i if p < 0 else replace(i, size_bytes=p + i.size_bytes, align_bytes=whole)
            for i, p in zip(items, own, strict=True)
        ]
        try:
            return [a + max(p, 0) for a, p in zip(_placed(wide, room), own, strict=True)]
        except AllocationError:
            continue
    return plain
