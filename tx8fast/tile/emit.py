"""The code of a loop nest on one tile: every action of its order becomes a block of instruction rows.

May import: lower, isa, tile. Must not: choose plans, orders or addresses.

A block is made once and used wherever its rows differ in nothing but DDR offsets, which are linear in the start of a slice: code
is a list of blocks with the bytes by which each is shifted. Tiles whose ranges have the same form have the same blocks; where
they load parts of shared operands, the parts differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import sub
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.lower.access import Access
from tx8fast.lower.base import Lowering, Slice, round_up
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.lookup import TableRows
from tx8fast.lower.transfer import LINE_BYTES, PIECES, Descriptor, channel_form, clip
from tx8fast.records import dataclass
from tx8fast.tile import gathers, multicast, sharing
from tx8fast.tile.blocks import Blocks
from tx8fast.tile.fill_rows import Brought, FillRows
from tx8fast.tile.joined import TileCode
from tx8fast.tile.nest import LoopStep
from tx8fast.tile.order import Fill, Order
from tx8fast.tile.tiling import TileRange, Tiling
from tx8fast.tile.transfers import Span, chunk_of, dma_rows, in_pieces, in_spans, part_of

STILL = (0, 0)  # a block that moves with no DDR tensor

#: what transfers have in common whose descriptors differ by DDR offsets alone
Form = int | tuple
#: the form of a slice's transfer, its descriptors at its first occurrence, and how far either piece's DDR offsets have moved since
Moves = tuple[Form, list[Descriptor], tuple[int, ...]]
#: the same of what a fill brings of a read, and the bytes of the slice that this is; none if it is all
Filled = tuple[Form, list[Descriptor], tuple[int, ...], list[Span]]
#: says what block an action is, for a tile's share of every read and its lateness
Maker = Callable[[dict[int, "Share"], int], int]


@dataclass(frozen=True)
class Addresses:
    """Where a nest's buffers lie in scratchpad: copies of every access (reads, then writes), staging of shared reads, and
    what instructions work with besides."""

    access: list[list[int]]
    staging: dict[int, list[int]]
    scratch: list[int]
    consts: list[int]
    acc: int
    gathered: dict[int, int]  # read access -> what the tile itself has of it


@dataclass(frozen=True)
class Share:
    """One shared read access on one tile: who takes part, and which of the parts that `tiles` tiles load is this tile's,
    -1 for none."""

    access: int
    mask: int
    rank: int
    tiles: int


def code_key(low: Lowering, r: TileRange) -> tuple:
    """Return what a tile's instructions depend on besides DDR bases: tiles with equal keys share their blocks."""
    if low.positional:
        return (r.lo, r.hi)
    lens = tuple(b - a for a, b in zip(r.lo, r.hi, strict=True))
    lanes = []
    for a in (*low.reads, *low.writes):
        lanes.append(channel_form(a.spec, a.strides, *(a.box(r.lo, r.hi)[-1] if a.dims else (0, 1))))
    return (lens, tuple(lanes), low.place(r.lo, r.hi))


class NestCode:
    """The code of tiles with one form of range. slot_base: DDR offset that every slot stands for on the tile at hand."""

    def __init__(self, tiling: Tiling, at: Addresses, order: Order, slot_base: np.ndarray) -> None:
        self.tiling, self.low, self.at, self.order = tiling, tiling.low, at, order
        self.slot_base = slot_base.tolist()
        self.blocks = Blocks(self.low.machine)
        #: by form: its number, the descriptors at its first occurrence, and where these begin in DDR
        self.first_moves: dict[tuple, tuple[int, list[Descriptor], tuple[int, int]]] = {}
        self.known_rows: dict[tuple, tuple[np.ndarray, list[tuple[int, np.ndarray]]]] = {}
        self.known_moves: dict[tuple, Moves] = {}
        self.known_parts: dict[tuple, tuple[list[Descriptor], int, int, int]] = {}
        self.part_forms: dict[
            Form, tuple[int, list[Descriptor], list[Span]]
        ] = {}  # of every form the access, and the whole slice's, or chunk's
        self.forms = [self.low.slice_form(s.lo, s.hi) for s in order.steps]
        n_read = len(self.low.reads)
        self.gathered = dict(tiling.plan.gathered)
        self.piece_bytes = [sharing.piece_bytes(tiling, k) for k in range(len(tiling.accesses))]
        self.stored = [n_read + j for j in range(len(self.low.writes)) if n_read + j not in tiling.plan.held]
        self.filled = [{k: self._filled(k, fill) for k in fill.changed} for fill in order.fills]
        em = Emitter()
        self.low.prologue(em, at.consts)
        self.block = [self.blocks.of(("prologue",), lambda: isa.rows(em.rows))]
        self.shift: list[tuple[int, ...]] = [STILL]
        self.open: dict[tuple, tuple[list[int], Maker]] = {}  # `_later`: places, maker
        begin: list[int] = []  # of every action, its first block
        parts: list[tuple[int, int, int]] = []
        passes: list[tuple[int, int, bool]] = []
        self.brought: dict[int, Brought] = {}  # by block
        for kind, i, k, f in order.actions:
            begin.append(len(self.block))
            if kind == "load":
                self._load(k, order.steps[i])
            elif kind == "store":
                for k in self.stored:
                    self._transfer(k, order.steps[i], "wdma")
            elif kind == "emit":
                self._compute(i, order.steps[i])
            elif kind == "part":
                parts.append((len(self.block), f, self._staging(k, f)))
                self._part_load(k, f)
            else:
                passes.append((len(self.block), f, kind == "meet"))
                (self._meet if kind == "meet" else self._exchange)(f)
        self.step = np.repeat([0, *[i for _, i, _, _ in order.actions]], np.diff([0, *begin, len(self.block)]))
        self.fills = FillRows(tiling, order, parts, passes, self.brought)
        # every tile of the form takes these
        self.own_blocks, self.shifts = np.array(self.block), np.array(self.shift, np.int64).reshape(-1, PIECES)
        self.shared_blocks = [(np.array(places), make) for places, make in self.open.values()]

    def code(self, shares: Sequence[Share] = (), late: int = 0) -> TileCode:
        """Return the code of a tile, in the order of the nest. `late`: how many transfers more the tile takes for an early part, so
        that its loads run behind those of others."""
        own = {s.access: s for s in shares}
        block = self.own_blocks.copy()
        for places, make in self.shared_blocks:
            block[places] = make(own, late)
        code, begin = self.blocks.joined(block, self.shifts)
        made = self.fills.of(block, begin)
        step = np.repeat(self.step, np.diff(begin))
        return TileCode(code, step, made, self.order.last_fills[step])

    # -- actions -------------------------------------------------------------------------------------------------

    def _load(self, k: int, s: LoopStep) -> None:
        access = self.low.reads[k]
        if isinstance(access, TableRows):
            self._look_up(k, access, s, self.at.access[k][s.copy[k]])
        else:
            self._transfer(k, s, "rdma")

    def _add(self, block: int, shift: tuple[int, ...] = STILL) -> None:
        self.block.append(block)
        self.shift.append(shift)

    def _compute(self, i: int, s: LoopStep) -> None:
        low, at, n_read = self.low, self.at, len(self.low.reads)
        parity = self.order.parity[i] * low.overlaps
        fresh = low.prepares(s.new)
        key = ("emit", self.forms[i], s.copy, s.first, s.last, parity, fresh)
        block = self.blocks.number.get(key)
        if block is not None:
            self._add(block)
            return

        def make() -> np.ndarray:
            em = Emitter()
            place = [own[c] for own, c in zip(at.access, s.copy, strict=True)]
            low.emit(
                em,
                Slice(
                    s.lo,
                    s.hi,
                    place[:n_read],
                    place[n_read:],
                    at.scratch,
                    at.consts,
                    at.acc,
                    s.first,
                    s.last,
                    parity,
                    fresh,
                ),
            )
            return _op_rows(em.rows)

        self._numbered(key, make, s)

    def _look_up(self, k: int, access: TableRows, s: LoopStep, address: int) -> None:
        """Add the rows that load a slice of a table's rows."""
        box = access.box(s.lo, s.hi)

        def make() -> np.ndarray:
            ddr = access.origins(box)[0] - self.slot_base[PIECES * k]
            return _op_rows(access.load(s.lo, s.hi, address, slot=PIECES * k, ddr=ddr))

        self._numbered((k, tuple([b - a for a, b in box]), box[-1], address), make, s)

    def _numbered(self, key: tuple, make: Callable[[], np.ndarray], s: LoopStep) -> None:
        """Add a block whose rows may take numbers of table rows, which count from the first one of the slice; of others the key says all."""
        known = self.known_rows.get(key)
        if known is None:
            rows = make()
            known = self.known_rows[key] = rows, isa.lookup.place_numbers(rows, lambda k: PIECES * k)
        rows, numbers = known
        if not numbers:
            self._add(self.blocks.of(key, lambda: rows))
            return
        begins = tuple([self._begin(k, s) for k, _ in numbers])

        def moved() -> np.ndarray:
            out = rows.copy()
            for (_, at), begin in zip(numbers, begins, strict=True):
                isa.lookup.move_numbers(out, at, begin)
            return out

        self._add(self.blocks.of((*key, begins), moved))

    def _begin(self, k: int, s: LoopStep) -> int:
        """Return the DDR offset of the first number of a slice, behind that of its slot."""
        access = self.low.reads[k]
        return access.origins(access.box(s.lo, s.hi))[0] - self.slot_base[PIECES * k]

    # -- transfers -----------------------------------------------------------------------------------------------

    def _transfer(self, k: int, s: LoopStep, name: str) -> None:
        """Add the DMA rows of one access."""
        key, found, shift = self._moves(k, s)
        block = self.blocks.number.get((key, s.copy[k]))
        if block is None:
            to, parts = self.at.access[k][s.copy[k]], in_pieces(found, self.piece_bytes[k])
            block = self.blocks.of((key, s.copy[k]), lambda: self._dma(name, k, parts, to, PIECES * k))
        self._add(block, shift)

    def _dma(self, name: str, k: int, found: Sequence[Descriptor], address: int, slot: int) -> np.ndarray:
        return isa.rows(dma_rows(name, found, address, slot, self.slot_base[PIECES * k :]))

    def _moves(self, k: int, s: LoopStep) -> Moves:
        """Return the form of a slice's transfer, its descriptors at their first occurrence, and how far the DDR offsets
        of either piece have moved since: offsets are linear in the slice's start."""
        access = self.tiling.accesses[k]
        if self.low.positional:
            return (k, s.lo, s.hi), [d for d in access.transfers(s.lo, s.hi) if d.run_bytes], STILL
        place = (k, access.place(s.lo), access.place(s.hi))
        found = self.known_moves.get(place)
        if found is None:
            found = self.known_moves[place] = self._new_moves(k, access, s)
        return found

    def _new_moves(self, k: int, access: Access, s: LoopStep) -> Moves:
        box = access.box(s.lo, s.hi)
        form = channel_form(access.spec, access.strides, *(box[-1] if box else (0, 1)))
        key = (k, access.form(s.lo, s.hi), form)
        base = access.origins(box)
        known = self.first_moves.get(key)
        if known is None:
            moved = [d for d in access.transfers(s.lo, s.hi) if d.run_bytes]
            known = self.first_moves[key] = len(self.first_moves), moved, base
        number, moved, first = known
        return number, moved, tuple(map(sub, base, first))

    # -- multicast: what a tile does depends on its part, and is made per tile -----------------------------------

    def _later(self, key: tuple, make: Callable[..., int], *about: Any, shift: tuple[int, ...] = STILL) -> None:
        """Add an action of which `make` says, of what it is about and for a tile's shares and lateness, what block it is; once for
        equal keys."""
        found = self.open.get(key)
        if found is None:
            found = self.open[key] = [], partial(make, *about)
        found[0].append(len(self.block))
        self._add(0, shift)

    def _staging(self, k: int, f: int) -> int:
        """Return where parts of a shared read lie for a fill."""
        copies = self.at.staging[k]
        return copies[self.order.fills[f].version[k] % len(copies)]

    def cut(self, key: Form, found: Sequence[Descriptor], share: Share) -> tuple[list[Descriptor], int, int, int]:
        """Return what `part_of` says of a slice whose transfers are `found`, and of the part of a tile."""
        known = self.known_parts.get((key, share.rank))
        if known is None:
            known = self.known_parts[key, share.rank] = part_of(found, share.rank, share.tiles)
        return known

    def _part_load(self, k: int, f: int) -> None:
        """Add the load of a tile's part of a shared read into staging."""
        key, found, shift, spans = self.filled[f][k]
        self.part_forms.setdefault(key, (k, found, spans))
        at, early = self._staging(k, f), f in self.order.late_fills
        self._later(("part", key, at, early), self._part_block, k, key, found, at, early, shift=shift)

    def _part_block(
        self, k: int, key: Form, found: list[Descriptor], at: int, early: bool, own: dict[int, Share], late: int
    ) -> int:
        if own[k].rank < 0:
            return 0
        moved, _, size, _ = self.cut(key, found, own[k])
        pieces = 1 + late * early

        def rows() -> np.ndarray:
            parts = moved
            if pieces > 1 and size:  # a small operand has no part for every tile
                step = round_up(-(-size // pieces), LINE_BYTES)
                parts = [c for lo in range(0, size, step) for d in moved for c in clip(d, lo, min(lo + step, size))]
            return self._dma("rdma", k, parts, at, PIECES * (len(self.tiling.accesses) + k))

        return self.blocks.of(("part", key, own[k].rank, at, pieces), rows)

    def _meet(self, f: int) -> None:
        """Add the meeting of the tiles that share a fill."""
        changed = self.order.fills[f].changed
        self._later(("meet", *changed), self._meet_block, changed)

    def _meet_block(self, changed: tuple[int, ...], own: dict[int, Share], late: int) -> int:
        masks = tuple([own[k].mask for k in changed])
        return self.blocks.of(("meet", *masks), lambda: isa.rows(multicast.meet(masks)))

    def _exchange(self, f: int) -> None:
        """Add the exchange of a fill's parts."""
        fill, forms = self.order.fills[f], tuple(self.filled[f].values())
        sources: list[tuple] = []  # of a gathered read the slice, of another one its staging buffer
        targets: list[int] = []
        for k, form in zip(fill.changed, forms, strict=True):
            s = self.order.steps[fill.step_of(k)]
            targets.append(self.at.access[k][s.copy[k]])
            if k in self.gathered:
                sources.append((s.lo, s.hi))
            else:
                self.part_forms.setdefault(form[0], (k, form[1], form[3]))
                sources.append((self._staging(k, f),))
        turn = f % 2
        key = ("exchange", turn, *fill.changed, *targets, *sources, *[form[0] for form in forms])
        self._later(key, self._exchange_block, key, turn, fill.changed, forms, sources, targets)

    def _exchange_block(
        self,
        key: tuple,
        turn: int,
        changed: tuple[int, ...],
        forms: tuple[Filled, ...],
        sources: list[tuple],
        targets: list[int],
        own: dict[int, Share],
        late: int,
    ) -> int:
        parts = [self._sent(own[k], form[:2], source) for k, form, source in zip(changed, forms, sources, strict=True)]

        def rows() -> np.ndarray:
            out: list[tuple] = []
            for k, (at, start, size, total), to, form in zip(changed, parts, targets, forms, strict=True):
                for staged, place, n in in_spans(form[3] or [(0, total)], start, size):
                    out += multicast.send(at + staged, to + place, n, own[k].mask, turn)
            return isa.rows([*out, multicast.receive(turn, sum(total for *_, total in parts))])

        number = self.blocks.of((*key, *[(own[k].mask, own[k].rank) for k in changed]), rows)
        spans = [form[3] or [(0, part[3])] for form, part in zip(forms, parts, strict=True)]
        reach = (
            tuple([(at, at + n) for at, _, n, _ in parts if n]),
            tuple([(to + a, to + b) for to, own in zip(targets, spans, strict=True) for a, b in own]),
        )
        self.brought[number] = Brought(reach, tuple([part[3] for part in parts]))
        return number

    def _filled(self, k: int, fill: Fill) -> Filled:
        """Return what `_moves` says of what a fill brings of a read, and the bytes of the slice that this is; none if it is all."""
        step = self.order.steps[fill.step_of(k)]
        key, found, shift = self._moves(k, step)
        spans = fill.spans(self.tiling, k, step) if fill.chunk >= 0 else []
        if not spans:
            return key, found, shift, spans
        return (key, fill.chunk), chunk_of(found, spans), shift, spans

    def _sent(self, own: Share, form: tuple[Form, list[Descriptor]], source: tuple) -> tuple[int, int, int, int]:
        """Return what a tile sends of a slice: from where, its start in the slice, its bytes, and those of the whole slice."""
        _, start, size, total = self.cut(*form, own)
        if own.access not in self.gathered:
            return source[0], start, size, total
        access, columns = self.low.reads[own.access], self.gathered[own.access]
        at, start, size = gathers.piece(access, columns, own.rank, *source)
        return self.at.gathered[own.access] + at, start, size, total


def _op_rows(made: Sequence[tuple]) -> np.ndarray:
    rows = isa.rows(made)
    rows["op"] = 0
    return rows
