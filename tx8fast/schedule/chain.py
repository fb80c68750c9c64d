"""A chain: the nests of several groups as one segment, one after the other on every tile.

May import: schedule.{buffers, nests, segment}, lower, tile.tiling, isa, machine, program.model. Must not: choose what is chained.

Between two nests a tile waits for nobody, and the next one may begin before the one before is over (`tile.seams`):
`search.chains` makes sure that it reads nothing that another tile has written since. A buffer that the next nest finds filled is pinned to one end of the scratchpad in both
nests; buffers that follow each other in this way take turns at the two ends, so everything else fits between.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tx8fast import isa
from tx8fast.graph_table import ChainRecord, GroupRecord, Step
from tx8fast.lower.base import ALIGN_BYTES, round_up
from tx8fast.machine import Machine
from tx8fast.program.model import Segment
from tx8fast.schedule.buffers import Buffers, buffer_table
from tx8fast.schedule.nests import ALONE, LaunchCode, NestTiles
from tx8fast.schedule.segment import idle_tiles_wait, nest_facts, terms
from tx8fast.tile.tiling import Planned, segment_cycles


def build_chain(p: Planned, machine: Machine, step: Step, meet: bool, order: str = "best") -> Segment:
    """Return the code of the whole chain. `meet` and `order` as in `build_segment`, for the first nest; before a later one other
    tiles may always be at work."""
    record = step.record
    assert isinstance(record, ChainRecord)
    nests: list[NestTiles] = []
    for n, (pinned, left) in zip(p.nests, pinned_buffers(p, machine), strict=True):
        buffers = Buffers(n.tiling, pinned, left, nests[-1].tail() if nests else ())
        nests.append(NestTiles(n.tiling, machine, meet or bool(nests), buffers))
    arguments = _arguments(record)
    slot_arg = np.concatenate([np.array(a, np.int32)[n.slots] for a, n in zip(arguments, nests, strict=True)])
    ends = isa.rows([isa.make("wait"), isa.make("barrier")] if step.barrier else [isa.make("wait")])
    made = LaunchCode(nests, machine, order, _same(nests, slot_arg), ends, _first_names(record, len(step.op_names)))
    codes, tile_code = made.codes, made.tile_code
    if step.barrier:
        codes, tile_code = idle_tiles_wait(codes, tile_code)
    info = {"op": record.kind, "engine": "chain", "bound": p.plan.bound, "parts": [], "slices": [], "order": [],
            "nests": [nest_facts(n.tiling) | own for n, own in zip(p.nests, made.facts(), strict=True)],
            "runner_up_cycles": p.plan.runner_up_cycles,
            **terms(record)}  # fmt: skip
    return Segment(step.name, codes, tile_code, slot_arg, made.offsets,
                   len(record.operands) + len(record.results), list(step.op_names), [], step.barrier,
                   max(n.buffers.peak for n in nests), segment_cycles(p.plan, machine, step.barrier), info,
                   buffers=_table(nests, arguments))  # fmt: skip


def _same(nests: Sequence[NestTiles], slot_arg: np.ndarray) -> np.ndarray:
    """Return `LaunchCode.same`: of what one nest stores and another one loads, or stores again."""
    moved = np.concatenate([n.moved for n in nests])
    stored = np.concatenate([n.stored for n in nests])
    written = np.unique(slot_arg[moved & stored])
    return np.where(moved & np.isin(slot_arg, written), slot_arg, ALONE)


def _table(nests: Sequence[NestTiles], arguments: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the buffers of all nests; their arguments are the chain's."""
    return buffer_table(
        (at, size, own[argument] if argument >= 0 else argument)
        for n, own in zip(nests, arguments, strict=True)
        for at, size, argument in n.buffers.table.tolist()
    )


def pinned_buffers(p: Planned, machine: Machine) -> list[tuple[dict[int, int], dict[int, tuple[int, int]]]]:
    """Return per nest the accesses whose buffers are handed over, with their scratchpad addresses, and those that are gathered,
    with address and bytes of what the nest before has left."""
    pinned: list[dict[int, int]] = [{} for _ in p.nests]
    left: list[dict[int, tuple[int, int]]] = [{} for _ in p.nests]
    top = machine.spm_limit // ALIGN_BYTES * ALIGN_BYTES
    low_end = True
    for i, hold in enumerate(p.holds):
        if hold is None:
            continue
        source, target = (n.tiling.replaced.get(k, k) for n, k in zip(p.nests[i : i + 2], hold, strict=True))
        made = p.nests[i].tiling
        size = made.copies[source] * round_up(made.slice_bytes[source], ALIGN_BYTES)
        if source not in pinned[i]:  # else it is handed on where it lies
            pinned[i][source] = machine.spm_base if low_end else top - size
            low_end = not low_end
        if target in dict(p.nests[i + 1].plan.gathered):
            left[i + 1][target] = pinned[i][source], size
        else:
            pinned[i + 1][target] = pinned[i][source]
    return list(zip(pinned, left, strict=True))


def _first_names(record: ChainRecord, n_names: int) -> list[int]:
    """Return the place of each part's first op among the names of the chain's ops."""
    sizes = [len(part.ops) if isinstance(part, GroupRecord) else 1 for part in record.parts]
    return [min(at, max(0, n_names - 1)) for at in np.cumsum([0, *sizes[:-1]]).tolist()]


def _arguments(record: ChainRecord) -> list[list[int]]:
    """Return per part the chain's argument of each of its arguments. What no row moves has argument 0."""
    n_in = len(record.operands)
    place = {n: n_in + j for j, n in enumerate(record.outputs)}
    out = []
    made = 0
    for part, wires in zip(record.parts, record.wires, strict=True):
        own = [0 if w is None else w[1] if w[0] == "in" else place.get(w[1], 0) for w in wires]
        n = len(part.results)
        out.append([*own, *(place.get(made + j, 0) for j in range(n))])
        made += n
    return out
