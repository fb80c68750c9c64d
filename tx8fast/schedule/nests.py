"""The code of all tiles for one loop nest, or for several that one launch runs.

May import: graph_table, lower, isa, machine, tile, schedule.buffers. Must not: choose plans.

Per tile the loop nests run one after the other in meaning; in which order their rows are issued says `tile.schedule`. Tiles whose
ranges have the same form have equal code but for DDR offsets, and for the parts of shared operands that they load and send.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.lower.transfer import PIECES
from tx8fast.machine import Machine
from tx8fast.schedule.buffers import Buffers, access_arguments
from tx8fast.tile import sharing
from tx8fast.tile.blocks import Columns, OrderedCode
from tx8fast.tile.emit import NestCode, Share, code_key
from tx8fast.tile.joined import TileCode, joined, named, nest_of
from tx8fast.tile.nodes import waits
from tx8fast.tile.order import tile_order
from tx8fast.tile.pins import Span
from tx8fast.tile.refit import fitted
from tx8fast.tile.schedule import TileOrder
from tx8fast.tile.seams import LaunchOrder
from tx8fast.tile.tiling import Tiling

TENSOR = 1 << 36  # bytes; more than any tensor has
ALONE = -1  # a slot whose bytes no other slot has


class NestTiles:
    """One nest on all tiles. meet: tiles must meet before its first exchange; slots: the segment's argument of every DDR slot."""

    def __init__(self, tiling: Tiling, machine: Machine, meet: bool, buffers: Buffers) -> None:
        self.tiling, self.low, self.meet, self.buffers = tiling, tiling.low, meet, buffers
        arg_of, n_read = access_arguments(self.low), len(self.low.reads)
        self.slots = np.repeat(np.array([*arg_of, *arg_of[:n_read]], np.int32), PIECES)
        self.parts = PIECES * len(arg_of)  # the first slot of parts
        self.offsets = np.zeros((machine.n_tiles, len(self.slots)), np.int64)
        for t, r in enumerate(tiling.ranges):
            for a, access in enumerate(tiling.accesses if not r.idle else ()):
                box = access.box(r.lo, r.hi)
                self.offsets[t, PIECES * a : PIECES * (a + 1)] = access.origins(box)
        self.offsets[:, self.parts :] = self.offsets[:, : PIECES * n_read]
        self.gathered = dict(tiling.plan.gathered)
        self.behind, self.late_tiles = sharing.stagger(tiling), sharing.late_tiles(tiling)
        self.known: dict[tuple, NestCode] = {}

    @property
    def moved(self) -> np.ndarray:
        """Which slots some row moves bytes of."""
        stays = {*self.tiling.plan.held, *self.gathered, *self.tiling.plan.delivered}
        n_read, n = len(self.low.reads), len(self.tiling.accesses)
        return np.repeat([k not in stays for k in (*range(n), *range(n_read))], PIECES)

    @property
    def stored(self) -> np.ndarray:
        """Which slots are of results."""
        access = np.arange(len(self.slots)) // PIECES
        return (access >= len(self.low.reads)) & (access < len(self.tiling.accesses))

    def form(self, t: int) -> tuple[tuple, tuple[Share, ...], int] | None:
        """Return what tiles of equal code have in common, how tile t takes part in shared reads, and how late it loads; None if it
        idles."""
        r = self.tiling.ranges[t]
        if r.idle:
            return None
        shares = tile_shares(self.tiling, t)
        late = self.behind if self.late_tiles >> t & 1 else 0
        # what tiles have of a gathered operand lies elsewhere in each slice, so their codes differ by more than offsets
        own = [(s.access, s.tiles, s.rank if s.access in self.gathered else s.rank < 0) for s in shares]
        return (code_key(self.low, r), late, tuple(own)), shares, late

    def tails(self) -> Iterator[list[Span]]:
        """Yield the bytes of the scratchpad that are still in use when the nest's last fill but one has come, and when the last one has."""
        for t in range(len(self.tiling.ranges)):
            if (found := self.form(t)) is not None:
                like, shares, late = found
                code = self.of(t, like, shares).code(shares, late)
                yield from map(code.tail, (2, 1))
                return

    def of(self, t: int, like: tuple, shares: Sequence[Share]) -> NestCode:
        """Return the code of tiles like t."""
        if like not in self.known:
            r = self.tiling.ranges[t]
            order = tile_order(self.tiling, r.lo, r.hi, [s.access for s in shares], self.meet)
            self.known[like] = NestCode(self.tiling, self.buffers.on(r), order, self.offsets[t])
        return self.known[like]


class LaunchCode:
    """The codes of a launch's nests. same (slots,): a number that slots of tensors share which have bytes in common that are written,
    `ALONE` for all others; ends: the rows behind all others; names: by nest, the op that its rows name."""

    def __init__(
        self,
        nests: Sequence[NestTiles],
        machine: Machine,
        order: str,
        same: np.ndarray,
        ends: np.ndarray,
        names: Sequence[int],
    ) -> None:
        self.nests, self.same, self.ends = nests, same.astype(np.int64), ends
        self.slots = np.cumsum([0, *(len(n.slots) for n in nests)]).tolist()
        shares = [machine.ddr_bytes_per_cycle / max(1, sum(not r.idle for r in nest.tiling.ranges)) for nest in nests]
        self.orders = [TileOrder(machine, order, share) for share in shares]
        self.order = LaunchOrder(machine, self.orders, min(shares))
        self.waits = waits(machine)
        self.border: tuple[np.ndarray, Columns] = self.waits[0][:1], self.waits[1].of(np.arange(1))  # messages are sent
        self.codes: list[np.ndarray] = []
        self.tile_code = np.full(machine.n_tiles, -1, np.int16)
        self.offsets = np.concatenate([n.offsets for n in nests], axis=1)
        known: dict[tuple, int] = {}
        first: dict[tuple, tuple[np.ndarray, list]] = {}  # code of the first tile of a form, and its shares
        for t in range(machine.n_tiles):
            found = [n.form(t) for n in nests]
            if not any(found):
                continue
            aliased = self._aliased(t)
            form = self._form(found, aliased)
            shares = [f[1] if f else () for f in found]
            if (form, *shares) not in known:
                code = self._fitted(t, *first[form], shares, found) if form in first else None
                if code is None:
                    code = self._made(t, found, aliased)
                    form = self._form(found, aliased)
                    first.setdefault(form, (code, shares))
                known[form, *shares] = len(self.codes)
                self.codes.append(code)
            self.tile_code[t] = known[form, *shares]
        self.codes = [named(code, names) for code in self.codes]

    def _form(self, found: list, aliased: np.ndarray | None) -> tuple:
        """Return what tiles have in common whose codes have one order. found: as of `_made`."""
        # where nests stay one behind the other, no order looks at what they share in DDR
        return (*[f and f[0] for f in found], () if self.order.apart else _apart(self.same, aliased))

    def _aliased(self, t: int) -> np.ndarray | None:
        """Return where the bytes of the DDR slots begin whose tensors lie in one place, -1 for all others."""
        if (self.same == ALONE).all():
            return None
        return np.where(self.same == ALONE, -1, self.same * TENSOR + self.offsets[t])

    def _fitted(self, t: int, code: np.ndarray, shares: list, others: list, found: list) -> np.ndarray | None:
        code, nest = code.copy(), nest_of(code)
        shifts: list[tuple[int, np.ndarray]] = []
        for i, n in enumerate(self.nests):
            if found[i]:
                shift = fitted(n.known[found[i][0][0]], code, nest == i, shares[i], others[i])
                if shift is None:
                    return None
                shifts.append((i, shift))
        for i, shift in shifts:
            self.offsets[t, self.slots[i] + self.nests[i].parts : self.slots[i + 1]] += shift
        return code

    def _made(self, t: int, found: list, aliased: np.ndarray | None) -> np.ndarray:
        """Return a tile's code. found: of every nest, what `NestTiles.form` says."""
        at = [i for i, f in enumerate(found) if f]
        tiles: list[TileCode] = []
        for i in at:
            (like, *_), shares, late = found[i]
            tiles.append(self.nests[i].of(t, like, shares).code(shares, late))
        if len(self.nests) == 1:
            tile, order = tiles[0], self.orders[0]
            order.aliased = aliased
            wanted = order.of_tile(tile)[:2]
        else:
            early = [n.buffers.early for n in self.nests]
            self.order.aliased = aliased
            tile = joined(tiles, at, self.slots, early, self.border)
            wanted = self.order.of(tile, tiles, at)
        code = OrderedCode(tile.code.followed_by(*self.waits), *wanted, self.ends)
        # what repeats in a nest is found nest by nest
        nest = np.maximum.accumulate(nest_of(code.code.plain)[code.number])
        cuts = [0, *(np.flatnonzero(np.diff(nest)) + 1).tolist(), len(nest) + len(self.ends)]
        return np.concatenate([code.rolled(a, b) for a, b in zip(cuts, cuts[1:], strict=False)])

    def facts(self) -> list[dict[str, Any]]:
        """Return how the codes of every nest are ordered."""
        return [order.facts() for order in self.orders]


def _apart(same: np.ndarray, aliased: np.ndarray | None) -> tuple[int, ...]:
    """Return how far slots of one tensor lie apart: an order is right for tiles whose slots of one tensor lie alike."""
    if aliased is None:
        return ()
    out: list[int] = []
    for tensor in isa.distinct(same[same != ALONE]):
        at = aliased[same == tensor]
        out += (at - at.max()).tolist()
    return tuple(out)


def tile_shares(tiling: Tiling, tile: int) -> tuple[Share, ...]:
    """Return how tile `tile` takes part in each shared read: with the tiles that need the same slices."""
    out = []
    for k, (begin, count) in tiling.loaders.items():
        mask = next(mask for mask in sharing.groups(tiling, k) if mask >> tile & 1)
        rank = (mask & ((1 << tile) - 1)).bit_count() - begin
        out.append(Share(k, mask, rank if 0 <= rank < count else -1, count))
    return tuple(out)
