"""From a lowering and its plan to a segment: tile code with double buffers, loops folded, SPM addresses.

May import: lower, tile, alloc, isa, machine, program.model. Must not: choose plans.

Per tile the loop nest runs in `plan.order`. An operand is loaded again only when a factor it depends on has
moved; streamed buffers have `plan.bufs` copies, used in turn. What comes after what says `tile.order`; the
hardware's own range check orders what must be ordered (hardware manual 15).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.graph_table import GroupRecord, OpRecord, Record
from tx8fast.lower.kernel_core import KernelCore
from tx8fast.lower.lookup import bytes_read
from tx8fast.lower.rounds import Stream
from tx8fast.lower.transfer import PIECES, spec_bytes
from tx8fast.machine import Machine
from tx8fast.program.model import Segment
from tx8fast.schedule.buffers import Buffers, access_arguments
from tx8fast.schedule.stream import stream_codes, stream_table
from tx8fast.tile import sharing
from tx8fast.tile.emit import NestCode, Share, code_key
from tx8fast.tile.order import tile_order
from tx8fast.tile.phases import stream_phases
from tx8fast.tile.refit import fitted
from tx8fast.tile.schedule import TileOrder
from tx8fast.tile.tiling import Plan, Tiling, segment_cycles


def build_segment(tiling: Tiling, machine: Machine, name: str, ops: Sequence[str], barrier: bool, meet: bool = False,
                  pinned: Mapping[int, int] | None = None, left: Mapping[int, tuple[int, int]] | None = None,
                  order: str = "best") -> Segment:  # fmt: skip
    """Return the position-independent code of one group for all tiles.

    `meet`: other tiles may still be at work on the launch before, so nothing may be sent to them at once.
    `pinned`: accesses (reads, then writes) whose buffers are not free to choose, with their addresses. `left`: read
    accesses that are gathered, with address and bytes of what the nest before has left. `order`: one of `tile.schedule.ORDERS`.
    """
    low, plan, ranges = tiling.low, tiling.plan, tiling.ranges
    if isinstance(low, KernelCore):
        return _kernel_core_segment(low, tiling, machine, name, ops, barrier)
    n_args = len(low.record.operands) + len(low.record.results)
    info = {"op": low.record.kind, "engine": low.kind, "parts": list(plan.parts), "slices": list(plan.slices),
            "order": list(plan.order), "bound": plan.bound, "candidates": plan.candidates,
            "runner_up_cycles": plan.runner_up_cycles, "shared": list(plan.shared), "steps": tiling.steps,
            "runner_up": _choices(plan.runner_up), **terms(low.record)}  # fmt: skip
    if isinstance(low, Stream):
        stream_phases(low)
        codes, tile_code, slot_arg, offsets = stream_codes(low, tiling, barrier, meet)
        table = stream_table(low, machine)
        if barrier:
            codes, tile_code = idle_tiles_wait(codes, tile_code)
        return Segment(name, codes, tile_code, slot_arg, offsets, n_args, list(ops), [], barrier, low.spm_bytes,
                       segment_cycles(plan, machine, barrier), info, buffers=table)  # fmt: skip
    buffers = Buffers(tiling, pinned, left)
    accesses = tiling.accesses
    arg_of = access_arguments(low)
    tile_code = np.full(machine.n_tiles, -1, np.int16)
    n_slots = PIECES * len(accesses)
    offsets = np.zeros((machine.n_tiles, n_slots + PIECES * len(low.reads)), np.int64)
    codes = []
    known: dict[tuple, int] = {}
    nests: dict[tuple, NestCode] = {}
    first: dict[tuple, tuple[np.ndarray, tuple[Share, ...]]] = {}  # code of the first tile of a form, and its shares
    ends = isa.rows([isa.make("wait"), isa.make("barrier")] if barrier else [isa.make("wait")])
    orders = TileOrder(machine, order, machine.ddr_bytes_per_cycle / max(1, sum(not r.idle for r in ranges)))
    gathered = dict(plan.gathered)
    behind, late_tiles = sharing.stagger(tiling), sharing.late_tiles(tiling)
    for t, r in enumerate(ranges):
        if r.idle:
            continue
        for a, access in enumerate(accesses):
            box = access.box(r.lo, r.hi)
            for piece in range(PIECES):
                offsets[t, PIECES * a + piece] = access.origin(box, piece)
        offsets[t, n_slots:] = offsets[t, : PIECES * len(low.reads)]
        shares = tile_shares(tiling, t)
        late = behind if late_tiles >> t & 1 else 0
        like, aliased = code_key(low, r), _aliased(low.record, arg_of, offsets[t])
        # an order is right for tiles whose slots of one tensor lie alike
        apart = () if aliased is None else tuple((aliased[aliased >= 0] - aliased.max()).tolist())
        # what tiles have of a gathered operand lies elsewhere in each slice, so their codes differ by more than offsets
        form = (
            like,
            apart,
            late,
            tuple((s.access, s.tiles, s.rank if s.access in gathered else s.rank < 0) for s in shares),
        )
        key = (form, shares)
        if key not in known:
            known[key] = len(codes)
            if like not in nests:
                nest = tile_order(tiling, r.lo, r.hi, [s.access for s in shares], meet)
                nests[like] = NestCode(tiling, buffers.on(r), nest, offsets[t], ends)
            fit = fitted(nests[like], *first[form], shares) if form in first else None
            if fit is None:
                orders.aliased = aliased
                code = isa.roll(*nests[like].rows(orders, shares, late))
                first.setdefault(form, (code, shares))
            else:
                code, shift = fit
                offsets[t, n_slots:] += shift
            codes.append(code)
        tile_code[t] = known[key]
    if barrier:
        codes, tile_code = idle_tiles_wait(codes, tile_code)
    slot_arg = np.repeat(np.array([*arg_of, *arg_of[: len(low.reads)]], np.int32), PIECES)
    info |= (
        orders.facts()
        | ({"delivered": list(plan.delivered)} if plan.delivered else {})
        | ({"gathered": [list(g) for g in plan.gathered]} if gathered else {})
    )
    return Segment(name, codes, tile_code, slot_arg, offsets, n_args, list(ops), [], barrier, buffers.peak,
                   segment_cycles(plan, machine, barrier), info, buffers=buffers.table)  # fmt: skip


def _aliased(record: OpRecord | GroupRecord, arg_of: Sequence[int], offset: np.ndarray) -> np.ndarray | None:
    """Return where the bytes of the DDR slots begin whose tensors lie in one place, -1 for all others."""
    replaces = record.in_place if isinstance(record, OpRecord) else -1
    if replaces < 0:
        return None
    same = np.isin(np.repeat(arg_of, PIECES), (replaces, len(record.operands)))
    return np.append(np.where(same, offset[: len(same)], -1), [-1] * (len(offset) - len(same)))


def _choices(plan: Plan | None) -> dict[str, Any]:
    """Return what distinguishes a plan from others of the same op; empty if there is none."""
    if plan is None:
        return {}
    return {"parts": list(plan.parts), "slices": list(plan.slices), "order": list(plan.order), "shared": list(plan.shared),
            "cycles": plan.estimate_cycles}  # fmt: skip


def terms(record: Record) -> dict[str, int]:
    """Return the terms of the roofline bound: multiplications, and bytes of operands and results, each once."""
    moved = [*(bytes_read(record, k) for k in range(len(record.operands))), *map(spec_bytes, record.results)]
    return {"useful_macs": record.useful_macs, "operand_bytes": sum(moved)}


def tile_shares(tiling: Tiling, tile: int) -> tuple[Share, ...]:
    """Return how tile `tile` takes part in each shared read: with the tiles that need the same slices."""
    out = []
    for k, (begin, count) in tiling.loaders.items():
        mask = next(mask for mask in sharing.groups(tiling, k) if mask >> tile & 1)
        rank = (mask & ((1 << tile) - 1)).bit_count() - begin
        out.append(Share(k, mask, rank if 0 <= rank < count else -1, count))
    return tuple(out)


def idle_tiles_wait(codes: list[np.ndarray], tile_code: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Give idle tiles a code that only meets the others."""
    if (tile_code >= 0).all():
        return codes, tile_code
    codes = [*codes, isa.rows([isa.make("barrier")])]
    return codes, np.where(tile_code < 0, len(codes) - 1, tile_code).astype(np.int16)


def _kernel_core_segment(low: KernelCore, tiling: Tiling, machine: Machine, name: str, ops: Sequence[str],
                         barrier: bool) -> Segment:  # fmt: skip
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
    return Segment(name, codes, tile_code, np.arange(n_args, dtype=np.int32), np.zeros((machine.n_tiles, n_args), np.int64),
                   n_args, list(ops), routines, barrier, 0, segment_cycles(plan, machine, barrier), info)  # fmt: skip
