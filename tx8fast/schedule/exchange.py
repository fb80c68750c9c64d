"""Tile code whose tiles load common operands together: each loads a part and sends it to all.

May import: schedule.segment, tile, search.order, lower, isa, machine. Must not: choose what is shared; `Plan.shared` says so.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tx8fast import isa
from tx8fast.lower.base import round_up
from tx8fast.lower.transfer import LINE_BYTES, PIECES, Descriptor, clip
from tx8fast.schedule.segment import Share, TileCode
from tx8fast.search.order import Action, Fill, Order, tile_order
from tx8fast.tile import multicast
from tx8fast.tile.nest import LoopStep
from tx8fast.tile.transfers import part_of

LATE_FILL = 2  # before it all tiles wait for each other with empty queues: nobody can fall behind


class SharedTileCode(TileCode):
    """Builds the code of one tile of a segment with shared operands."""

    def __init__(self, *args, shares: Sequence[Share], late: int = 0) -> None:
        """`late`: how many transfers more the tile takes for an early part, so that its loads run behind those of others."""
        super().__init__(*args)
        self.shares = {s.access: s for s in shares}
        self.late = late
        self.part_memo: dict[tuple, tuple[list[Descriptor], int, int, int]] = {}
        self.forms: dict[tuple, tuple] = {}  # one step of every form of part load
        self.sync_memo: dict[tuple, np.ndarray] = {}

    def _order(self) -> Order:
        order = tile_order(self.tiling, self.range.lo, self.range.hi, self.shares, self.meet)
        self.fills = order.fills
        return order

    def _act(self, action: Action) -> None:
        kind = action.kind
        if kind == "part":
            self._load_part(action)
        elif kind == "exchange":
            self._exchange(action.fill)
        elif kind == "meet":
            self._append(multicast.meet(self.shares[k].mask for k in self.fills[action.fill].changed))
        elif kind == "wait_worker":
            self._add(kind, workers=action.worker)
        elif kind in ("wait", "send_wait"):
            self._add(kind)
        else:
            super()._act(action)

    def _add(self, name: str, **fields) -> None:
        key = (name, *fields.values())
        rows = self.sync_memo.get(key)
        if rows is None:
            rows = self.sync_memo[key] = isa.rows([isa.make(name, **fields)])
        self.out.append(rows)

    def _part(self, k: int, step: LoopStep, rank: int) -> tuple[tuple, list[Descriptor], list[int], int, int, int]:
        """Return the part of a shared slice that the tile of this rank loads: form, transfers, their DDR shift,
        local start, bytes, and the bytes of the whole slice."""
        key, found, shift = self._moves(k, self.low.reads[k], step.lo, step.hi)
        known = self.part_memo.get((key, rank))
        if known is None:
            known = self.part_memo[key, rank] = part_of(found, rank, self.shares[k].tiles)
            self.forms.setdefault(key, (k, step))
        return key, known[0], shift, *known[1:]

    def _staging(self, k: int, fill: Fill) -> int:
        return self.buffers.staging[k][fill.version[k] % len(self.buffers.staging[k])]

    def _load_part(self, action: Action) -> None:
        """Start loading this tile's part of a shared read into staging."""
        k, fill = action.access, self.fills[action.fill]
        if self.shares[k].rank < 0:
            return
        slots = PIECES * (len(self.low.reads) + len(self.low.writes))
        key, moved, shift, _, size, _ = self._part(k, self.steps[fill.step], self.shares[k].rank)
        at = self._staging(k, fill)
        pieces = 1 + self.late * (action.fill == LATE_FILL)
        if pieces > 1 and size:  # a small operand has no part for every tile
            step = round_up(-(-size // pieces), LINE_BYTES)
            moved = [c for lo in range(0, size, step) for d in moved for c in clip(d, lo, min(lo + step, size))]
        self._rows((*key, at, "part", pieces), k, moved, shift, at, "rdma", action.worker, slots + PIECES * k)

    def _exchange(self, f: int) -> None:
        """Send this tile's parts of fill f to all tiles that share them and wait for all parts."""
        fill, expected = self.fills[f], 0
        for k in fill.changed:
            share = self.shares[k]
            _, _, _, start, size, total = self._part(k, self.steps[fill.step], share.rank)
            target = self.buffers.access[k][fill.version[k] % self.tiling.copies[k]]
            self._append(multicast.send(self._staging(k, fill), target + start, size, share.mask, f))
            expected += total
        self._append([multicast.receive(f, expected)])

    def for_tile(self, code: np.ndarray, shares: tuple[Share, ...]) -> tuple[np.ndarray | None, np.ndarray | int]:
        other = {s.access: s for s in shares}
        shift = np.zeros(PIECES * len(self.low.reads), np.int64)
        seen: dict[int, int] = {}
        moved: dict[tuple[int, int], int] = {}
        for k, step in self.forms.values():
            _, mine, _, start, size, _ = self._part(k, step, self.shares[k].rank)
            _, theirs, _, their_start, their_size, _ = self._part(k, step, other[k].rank)
            if size != their_size or [_shape(d) for d in mine] != [_shape(d) for d in theirs]:
                return None, 0
            for a, b in zip(mine, theirs, strict=True):
                if seen.setdefault(PIECES * k + a.piece, b.ddr - a.ddr) != b.ddr - a.ddr:
                    return None, 0
            if moved.setdefault((k, size), their_start - start) != their_start - start:
                return None, 0
        for slot, value in seen.items():
            shift[slot] = value
        code = code.copy()
        source = {at: k for k, copies in self.buffers.staging.items() if self.shares[k].rank >= 0 for at in copies}
        sends = np.flatnonzero(code["opcode"] == isa.INSTRUCTIONS["send"].OPCODE)
        for n in sends:
            k = source[int(code["spm"][n, 0])]
            code["spm"][n, 1] += moved[k, int(code["p"][n, 0])]
            code["p"][n, 1] = other[k].mask
        masks = {self.shares[k].mask: other[k].mask for k in self.shares}
        for n in np.flatnonzero(code["opcode"] == isa.INSTRUCTIONS["barrier_sub"].OPCODE):
            code["p"][n, 0] = masks[int(code["p"][n, 0])]
        return code, shift


def _shape(d: Descriptor) -> tuple:
    return d.piece, d.spm, d.run_bytes, d.loops
