"""From a lowering and its plan to a segment: tile code with double buffers, loops folded, SPM addresses.

May import: lower, tile, search.order, alloc, isa, machine, program.model. Must not: choose plans.

Per tile the loop nest runs in `plan.order`. An operand is loaded again only when a factor it depends on has
moved; streamed buffers have `plan.bufs` copies, used in turn. What comes after what says `search.order`; the
hardware's own range check orders what must be ordered (hardware manual 15).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.graph_table import GroupRecord, OpRecord
from tx8fast.lower.base import Access, Slice
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.kernel_core import KernelCore
from tx8fast.lower.lookup import TableRows, bytes_read
from tx8fast.lower.rounds import Stream
from tx8fast.lower.transfer import PIECES, Descriptor, channel_form, spec_bytes
from tx8fast.machine import Machine
from tx8fast.program.model import Segment
from tx8fast.schedule.buffers import Buffers, access_arguments
from tx8fast.schedule.stream import stream_codes, stream_table
from tx8fast.schedule.tiles import code_key
from tx8fast.search.order import Action, Order, tile_order
from tx8fast.tile import sharing
from tx8fast.tile.nest import LoopStep
from tx8fast.tile.tiling import Plan, TileRange, Tiling, segment_cycles
from tx8fast.tile.transfers import dma_rows


@dataclass(frozen=True)
class Share:
    """One shared read access on one tile: who takes part, and which of the parts that `tiles` tiles load is this tile's,
    -1 for none."""

    access: int
    mask: int
    rank: int
    tiles: int


def build_segment(tiling: Tiling, machine: Machine, name: str, ops: Sequence[str], barrier: bool, meet: bool = False,
                  pinned: Mapping[int, int] | None = None) -> Segment:  # fmt: skip
    """Return the position-independent code of one group for all tiles.

    `meet`: other tiles may still be at work on the launch before, so nothing may be sent to them at once.
    `pinned`: accesses (reads, then writes) whose buffers are not free to choose, with their addresses.
    """
    low, plan, ranges = tiling.low, tiling.plan, tiling.ranges
    if isinstance(low, KernelCore):
        return _kernel_core_segment(low, tiling, machine, name, ops, barrier)
    n_args = len(low.record.operands) + len(low.record.results)
    info = {"op": low.record.kind, "engine": low.kind, "parts": list(plan.parts), "slices": list(plan.slices),
            "order": list(plan.order), "bound": plan.bound, "candidates": plan.candidates,
            "runner_up_cycles": plan.runner_up_cycles, "shared": list(plan.shared), "steps": tiling.steps,
            "runner_up": _choices(plan.runner_up), **_terms(low.record)}  # fmt: skip
    if isinstance(low, Stream):
        codes, tile_code, slot_arg, offsets = stream_codes(low, tiling, barrier, meet)
        table = stream_table(low, machine)
        if barrier:
            codes, tile_code = idle_tiles_wait(codes, tile_code)
        return Segment(name, codes, tile_code, slot_arg, offsets, n_args, list(ops), [], barrier, plan.spm_bytes,
                       segment_cycles(plan, machine, barrier), info, buffers=table)  # fmt: skip
    buffers = Buffers(tiling, pinned)
    accesses = tiling.accesses
    arg_of = access_arguments(low)
    tile_code = np.full(machine.n_tiles, -1, np.int16)
    n_slots = PIECES * len(accesses)
    offsets = np.zeros((machine.n_tiles, n_slots + PIECES * len(low.reads)), np.int64)
    codes = []
    known: dict[tuple, int] = {}
    first: dict[tuple, tuple[TileCode, np.ndarray]] = {}
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
        form = (code_key(low, r), late, tuple((s.access, s.tiles, s.rank < 0) for s in shares))
        key = (form, shares)
        if key not in known:
            known[key] = len(codes)
            code = None
            if form in first and shares:
                code, shift = first[form][0].for_tile(first[form][1], shares)
                offsets[t, n_slots:] += shift
            if code is None:
                builder = tile_builder(tiling, buffers, r, offsets[t], shares, late)
                builder.meet = meet
                code = builder.build(barrier)
                first.setdefault(form, (builder, code))
            codes.append(code)
        tile_code[t] = known[key]
    if barrier:
        codes, tile_code = idle_tiles_wait(codes, tile_code)
    slot_arg = np.repeat(np.array([*arg_of, *arg_of[: len(low.reads)]], np.int32), PIECES)
    return Segment(name, codes, tile_code, slot_arg, offsets, n_args, list(ops), [], barrier, buffers.peak,
                   segment_cycles(plan, machine, barrier), info, buffers=buffers.table)  # fmt: skip


def _choices(plan: Plan | None) -> dict[str, Any]:
    """Return what distinguishes a plan from others of the same op; empty if there is none."""
    if plan is None:
        return {}
    return {"parts": list(plan.parts), "slices": list(plan.slices), "order": list(plan.order), "shared": list(plan.shared),
            "cycles": plan.estimate_cycles}  # fmt: skip


def _terms(record: OpRecord | GroupRecord) -> dict[str, int]:
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


def tile_builder(tiling: Tiling, buffers: Buffers, r: TileRange, slot_base: np.ndarray, shares: tuple[Share, ...],
                 late: int = 0) -> TileCode:  # fmt: skip
    """Return the builder of one tile's code."""
    if not shares:
        return TileCode(tiling, buffers, r, slot_base)
    from tx8fast.schedule.exchange import SharedTileCode

    return SharedTileCode(tiling, buffers, r, slot_base, shares=shares, late=late)


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
        desc, elems = low.descriptor(r.lo, r.hi)
        rows = [isa.make("kcore", routine=len(routines), elems=elems, op=0), isa.make("wait")]
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
        **_terms(low.record),
    }
    return Segment(name, codes, tile_code, np.arange(n_args, dtype=np.int32), np.zeros((machine.n_tiles, n_args), np.int64),
                   n_args, list(ops), routines, barrier, 0, segment_cycles(plan, machine, barrier), info)  # fmt: skip


class TileCode:
    """Builds the instruction array of one tile class."""

    meet = False  # True: tiles must meet before the first message

    def __init__(self, tiling: Tiling, buffers: Buffers, r: TileRange, slot_base: np.ndarray) -> None:
        self.tiling, self.low, self.plan = tiling, tiling.low, tiling.plan
        self.buffers, self.range, self.slot_base = buffers, r, slot_base
        self.out: list[np.ndarray] = []
        self.compute_memo: dict[tuple, tuple[np.ndarray, list[tuple[int, np.ndarray]]]] = {}
        self.transfer_memo: dict[tuple, tuple[list[Descriptor], list[int]]] = {}
        self.moves_memo: dict[tuple, tuple[tuple, list[Descriptor], list[int]]] = {}  # by access and place of its slice
        self.row_memo: dict[tuple, tuple[np.ndarray, np.ndarray]] = {}

    def build(self, barrier: bool) -> np.ndarray:
        low, b = self.low, self.buffers
        em = Emitter()
        low.prologue(em, b.consts)
        self._append(em.rows)
        order = self._order()
        self.steps, self.parity = order.steps, order.parity
        for action in order.actions:
            self._act(action)
        self._append([isa.make("wait"), isa.make("barrier")] if barrier else [isa.make("wait")])
        return isa.roll(join(self.out))

    def _order(self) -> Order:
        return tile_order(self.tiling, self.range.lo, self.range.hi)

    def _act(self, action: Action) -> None:
        s = self.steps[action.step]
        if action.kind == "load":
            k = action.access
            at = self.buffers.access[k][s.copy[k]]
            access = self.low.reads[k]
            if isinstance(access, TableRows):
                self._look_up(k, access, s, at, action.worker)
            else:
                self._transfer(k, access, s.lo, s.hi, at, "rdma", action.worker)
        elif action.kind == "store":
            self._store(s, action.worker)
        else:
            self._compute(s, self.parity[action.step], action.kind, action.worker)

    def for_tile(self, code: np.ndarray, shares: tuple[Share, ...]) -> tuple[np.ndarray | None, np.ndarray | int]:
        """Return this tile's code made fit for another tile of the same form, with the bytes by which that tile's
        part loads are shifted; None if it needs a code of its own."""
        return None, 0

    def _append(self, rows: Sequence[tuple]) -> None:
        if rows:
            self.out.append(isa.rows(rows))

    def _at(self, s: LoopStep) -> list[int]:
        return [self.buffers.access[k][c] for k, c in enumerate(s.copy)]

    def _store(self, s: LoopStep, worker: int) -> None:
        n_read, at = len(self.low.reads), self._at(s)
        for j, access in ((j, a) for j, a in enumerate(self.low.writes) if n_read + j not in self.plan.held):
            self._transfer(n_read + j, access, s.lo, s.hi, at[n_read + j], "wdma", worker)

    def _compute(self, s: LoopStep, turn: int, phase: str, worker: int) -> None:
        n_read, b, at = len(self.low.reads), self.buffers, self._at(s)
        parity = turn * self.low.overlaps
        fresh = self.low.prepares(s.new)
        key = (phase, worker, self.low.slice_form(s.lo, s.hi), *at, s.first, s.last, parity, fresh)
        if key not in self.compute_memo:
            em = Emitter()
            made = Slice(s.lo, s.hi, at[:n_read], at[n_read:], b.scratch, b.consts, b.acc, s.first, s.last, parity,
                         fresh)  # fmt: skip
            getattr(self.low, phase)(em, made)
            self._remember(key, em.rows, worker)
        self._recall(key, s)

    def _look_up(self, k: int, access: TableRows, s: LoopStep, address: int, worker: int) -> None:
        """Append the rows that load a slice of a table's rows."""
        box = access.box(s.lo, s.hi)
        key = (k, tuple([b - a for a, b in box]), box[-1], address, worker)
        if key not in self.compute_memo:
            ddr = access.origin(box, 0) - int(self.slot_base[PIECES * k])
            self._remember(key, access.load(s.lo, s.hi, address, slot=PIECES * k, ddr=ddr), worker)
        self._recall(key, s)

    def _remember(self, key: tuple, made: Sequence[tuple], worker: int) -> None:
        """Keep the rows of a slice for others of its form."""
        rows = isa.rows(made)
        rows["op"] = 0
        rows["worker"] = worker
        self.compute_memo[key] = rows, isa.lookup.place_numbers(rows, lambda k: PIECES * k)

    def _recall(self, key: tuple, s: LoopStep) -> None:
        """Append the rows of a slice; row numbers count from the first one of the slice."""
        rows, numbers = self.compute_memo[key]
        rows = rows.copy() if numbers else rows
        for k, at in numbers:
            access = self.low.reads[k]
            begin = access.origin(access.box(s.lo, s.hi), 0) - int(self.slot_base[PIECES * k])
            isa.lookup.move_numbers(rows, at, begin)
        self.out.append(rows)

    def _moves(self, k: int, access: Access, lo, hi) -> tuple[tuple, list[Descriptor], list[int]]:
        """Return a key of the transfer's form, its descriptors at their first occurrence, and how far the DDR
        offsets of either piece have moved since: offsets are linear in the slice's start."""
        if access.positional or self.low.positional:
            return (k, lo, hi), [d for d in access.transfers(lo, hi) if d.run_bytes], [0, 0]
        place = (k, access.place(lo), access.place(hi))
        found = self.moves_memo.get(place)
        if found is None:
            found = self.moves_memo[place] = self._new_moves(k, access, lo, hi)
        return found

    def _new_moves(self, k: int, access: Access, lo, hi) -> tuple[tuple, list[Descriptor], list[int]]:
        box = access.box(lo, hi)
        form = channel_form(access.spec, *(box[-1] if box else (0, 1)))
        key = (k, tuple([hi[f] - lo[f] for f in access.sorted_factors]), form)
        base = [access.origin(box, piece) for piece in range(PIECES)]
        known = self.transfer_memo.get(key)
        if known is None:
            known = self.transfer_memo[key] = ([d for d in access.transfers(lo, hi) if d.run_bytes], base)
        return key, known[0], [x - y for x, y in zip(base, known[1], strict=True)]

    def _transfer(self, k: int, access: Access, lo, hi, address: int, name: str, worker: int = 0) -> None:
        """Append the DMA rows of one access."""
        key, found, shift = self._moves(k, access, lo, hi)
        self._rows((*key, address, name, worker), k, found, shift, address, name, worker)

    def _rows(self, key: tuple, k: int, found: Sequence[Descriptor], shift: Sequence[int], address: int, name: str,
              worker: int, first_slot: int = -1) -> None:  # fmt: skip
        """Append DMA rows; their DDR offsets are relative to the tile's slot base."""
        known = self.row_memo.get(key)
        if known is None:
            slot, base = PIECES * k if first_slot < 0 else first_slot, self.slot_base[PIECES * k :].tolist()
            rows = dma_rows(name, found, address, slot, base, worker)
            piece = np.array([d.piece for d in found], np.int64)
            known = self.row_memo[key] = (isa.rows(rows), piece)
        rows, piece = known
        if not len(rows):
            return
        if shift[0] or shift[1]:
            rows = rows.copy()
            rows["ddr"] += np.array(shift, np.int64)[piece]
        self.out.append(rows)


def join(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Concatenate record arrays as bytes: numpy would work out a common record type for every one of them."""
    return np.concatenate([p.view(np.uint8) for p in parts]).view(isa.RECORD)
