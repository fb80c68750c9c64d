"""From a lowering and its plan to a segment: tile code with double buffers, loops folded, SPM addresses.

May import: lower, tile, alloc, isa, machine, program.model. Must not: choose plans.

Per tile the loop nest runs in `plan.order`. An operand is loaded again only when a factor it depends on has
moved; streamed buffers have `plan.bufs` copies, used in turn. What comes after what says `tile.order`; the
hardware's own range check orders what must be ordered (hardware manual 15).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.graph_table import GroupRecord, OpRecord, Record
from tx8fast.lower.kernel_core import KernelCore
from tx8fast.lower.lookup import bytes_read
from tx8fast.lower.rounds import Stream
from tx8fast.lower.transfer import spec_bytes
from tx8fast.machine import Machine
from tx8fast.program.model import Segment
from tx8fast.schedule.buffers import Buffers
from tx8fast.schedule.nests import ALONE, LaunchCode, NestTiles
from tx8fast.schedule.stream import stream_codes, stream_table
from tx8fast.tile.phases import stream_phases
from tx8fast.tile.tiling import Plan, Tiling, segment_cycles


def build_segment(
    tiling: Tiling,
    machine: Machine,
    name: str,
    ops: Sequence[str],
    barrier: bool,
    meet: bool = False,
    order: str = "best",
) -> Segment:
    """Return the position-independent code of one group for all tiles.

    `meet`: other tiles may still be at work on the launch before, so nothing may be sent to them at once. `order`: one of
    `tile.schedule.ORDERS`.
    """
    low, plan = tiling.low, tiling.plan
    if isinstance(low, KernelCore):
        return _kernel_core_segment(low, tiling, machine, name, ops, barrier)
    n_args = len(low.record.operands) + len(low.record.results)
    info = nest_facts(tiling)
    if isinstance(low, Stream):
        stream_phases(low)
        codes, tile_code, slot_arg, offsets = stream_codes(low, tiling, barrier, meet)
        table = stream_table(low, machine)
        if barrier:
            codes, tile_code = idle_tiles_wait(codes, tile_code)
        return Segment(
            name,
            codes,
            tile_code,
            slot_arg,
            offsets,
            n_args,
            list(ops),
            [],
            barrier,
            low.spm_bytes,
            segment_cycles(plan, machine, barrier),
            info,
            buffers=table,
        )
    nest = NestTiles(tiling, machine, meet, Buffers(tiling))
    ends = isa.rows([isa.make("wait"), isa.make("barrier")] if barrier else [isa.make("wait")])
    made = LaunchCode([nest], machine, order, _same(low.record, nest), ends, [0])
    codes, tile_code = made.codes, made.tile_code
    if barrier:
        codes, tile_code = idle_tiles_wait(codes, tile_code)
    return Segment(
        name,
        codes,
        tile_code,
        nest.slots,
        made.offsets,
        n_args,
        list(ops),
        [],
        barrier,
        nest.buffers.peak,
        segment_cycles(plan, machine, barrier),
        info | made.facts()[0],
        buffers=nest.buffers.table,
    )


def nest_facts(tiling: Tiling) -> dict[str, Any]:
    """Return what is told of a nest and its plan."""
    low, plan = tiling.low, tiling.plan
    sent = {"gathered": [list(g) for g in plan.gathered], "delivered": list(plan.delivered)}
    return {
        "op": low.record.kind,
        "engine": low.kind,
        "parts": list(plan.parts),
        "slices": list(plan.slices),
        "order": list(plan.order),
        "bound": plan.bound,
        "candidates": plan.candidates,
        "runner_up_cycles": plan.runner_up_cycles,
        "shared": list(plan.shared),
        "steps": tiling.steps,
        "runner_up": _choices(plan.runner_up),
        **terms(low.record),
        **{k: v for k, v in sent.items() if v},
    }


def _same(record: OpRecord | GroupRecord, nest: NestTiles) -> np.ndarray:
    """Return `LaunchCode.same` of a nest alone: of what an op writes over."""
    replaces = record.in_place if isinstance(record, OpRecord) else -1
    over = np.isin(nest.slots, (replaces, len(record.operands))) & (np.arange(len(nest.slots)) < nest.parts)
    return np.where(over & (replaces >= 0), 0, ALONE)


def _choices(plan: Plan | None) -> dict[str, Any]:
    """Return what distinguishes a plan from others of the same op; empty if there is none."""
    if plan is None:
        return {}
    return {
        "parts": list(plan.parts),
        "slices": list(plan.slices),
        "order": list(plan.order),
        "shared": list(plan.shared),
        "cycles": plan.estimate_cycles,
    }


def terms(record: Record) -> dict[str, int]:
    """Return the terms of the roofline bound: multiplications, and bytes of operands and results, each once."""
    moved = [*(bytes_read(record, k) for k in range(len(record.operands))), *map(spec_bytes, record.results)]
    return {"useful_macs": record.useful_macs, "operand_bytes": sum(moved)}


def idle_tiles_wait(codes: list[np.ndarray], tile_code: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Give idle tiles a code that only meets the others."""
    if (tile_code >= 0).all():
        return codes, tile_code
    codes = [*codes, isa.rows([isa.make("barrier")])]
    return codes, np.where(tile_code < 0, len(codes) - 1, tile_code).astype(np.int16)


def _kernel_core_segment(
    low: KernelCore, tiling: Tiling, machine: Machine, name: str, ops: Sequence[str], barrier: bool
) -> Segment:
    plan = tiling.plan
    n_args = len(low.record.operands) + len(low.record.results)
    routines: list[dict[str, Any]] = []
    codes: list[np.ndarray] = []
    tile_code = np.full(machine.n_tiles, -1, np.int16)
    for t, r in enumerate(tiling.ranges):
        if r.idle or (low.rule is None and t > 0):
            continue
        desc, work = low.descriptor(r.lo, r.hi)
        rows = [isa.make("kcore", routine=len(routines), **work.to_json(), op=0), isa.make("wait")]
        routines.append(desc)
        tile_code[t] = len(codes)
        codes.append(isa.rows([*rows, isa.make("barrier")] if barrier else rows))
    if barrier:
        codes, tile_code = idle_tiles_wait(codes, tile_code)
    info = {
        "op": low.record.kind,
        "engine": "kernel core",
        "parts": list(plan.parts),
        "bound": "kernel core",
        **terms(low.record),
    }
    return Segment(
        name,
        codes,
        tile_code,
        np.arange(n_args, dtype=np.int32),
        np.zeros((machine.n_tiles, n_args), np.int64),
        n_args,
        list(ops),
        routines,
        barrier,
        0,
        segment_cycles(plan, machine, barrier),
        info,
    )
