"""Transformer layers with whole sequences in scratchpad: every tile keeps its own sequence from op to op, and the weights
stream by, loaded once for all tiles.

May import: the family files, lower.rounds, alloc, _kernels, graph_table, machine. Must not: emit loads or messages
(`stream_code`).

Factors: the sequence, its positions. Positions are cut into bands, and what works on positions alone is done band by band,
so that a norm of one band hides behind products of the next. Parts of ops come in the order in which the last results
need them; their instructions are then interleaved (list scheduling), so that no engine waits while there is other work. Values,
weights and scratch lie in one arena for as long as instructions touch them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tx8fast import isa
from tx8fast._kernels import byte_dependences, list_order, within_reach
from tx8fast.alloc import Buffer, Problem, lower_bound_bytes, merge_intervals, solve
from tx8fast.errors import AllocationError, InfeasibleError
from tx8fast.graph_table import GroupRecord
from tx8fast.lower.access import Access
from tx8fast.lower.attention import Attention
from tx8fast.lower.base import ALIGN_BYTES, Slice, round_up
from tx8fast.lower.chain import Source, whole
from tx8fast.lower.contraction import Contraction
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.rounds import FEWEST_ROUNDS, Fill, Move, Round, Wish, Work
from tx8fast.lower.sequence_parts import Parts
from tx8fast.lower.transfer import Descriptor, Local
from tx8fast.machine import QUEUE_DEPTH, Machine
from tx8fast.numerics.layout import block_size
from tx8fast.records import dataclass

ROUND_BYTES = (448 << 10, 320 << 10)  # of weights that arrive together
MAX_BANDS = 8
#: places by which an instruction may come before an older one, the boldest order first: what comes early needs its bytes early
REACHES = (192, 160, 128, 96, 80, 64, 48, 40, 32, 24, 16, 8)
BAND_COUNTS = 2  # of those that fit
CHUNK = 8  # instructions that are checked together against the other register window
STORE_BYTES = 16384  # of the result in one transfer, if a block of a band is no more
At = Callable[[tuple], int]  # name -> address
#: instruction that stands for a transfer -> the part whose mask it loads; or band, first and last column that it stores;
#: None for what comes in
Moves = dict[int, int | tuple[int, int, int] | None]
EFFORT = 5_000  # nodes of the search for a placement
SMALL_BYTES = 32768  # of scratch
KEEP = 6  # instructions for which small scratch is not used again, so that nobody waits for it


@dataclass(frozen=True)
class Draft:
    """Instructions at made-up addresses. names: what they touch; touched: per instruction, numbers of names (CSR); engine, issue, cycles
    (n,): who runs it, cycles of the core and of that engine; before: per instruction, those it must follow (CSR)."""

    rows: np.ndarray
    names: list[tuple]
    touched: tuple[np.ndarray, np.ndarray]
    engine: np.ndarray
    issue: np.ndarray
    cycles: np.ndarray
    before: tuple[np.ndarray, np.ndarray]


class SequenceStream(Parts):
    kind = "sequence stream"

    def lay_out(self, name: str, cycles: Callable[[], int]) -> None:
        """Try few bands and some sizes of rounds, with as much room for instructions before their turn as there is, and
        keep what takes the fewest `cycles`. Raises InfeasibleError."""
        tried: list[tuple[int, int, int, int]] = []
        for bands in range(1, MAX_BANDS + 1):
            self.band_rows = round_up(-(-self.positions // bands), 8)
            if -(-self.positions // self.band_rows) != bands:
                continue
            for round_bytes in self._round_sizes():
                if self._cut(round_bytes) and (reach := self._boldest(round_bytes)):
                    tried.append((cycles(), bands, round_bytes, reach))
            if len({t[1] for t in tried}) == BAND_COUNTS:
                break
        if not tried:
            raise InfeasibleError(
                f"{name}: a sequence and its weights do not fit {self.capacity:,} bytes of scratchpad"
            )
        _, bands, round_bytes, reach = min(tried)
        self.band_rows = round_up(-(-self.positions // bands), 8)
        self._cut(round_bytes)
        self._drafted()
        self._placed(round_bytes, reach)

    def _round_sizes(self) -> list[int]:
        """Return how many bytes of weights may arrive together, the most first; of a small model no more than gives enough
        rounds for several sequences in a row."""
        specs = [m.low.reads[1] for m in self.members if isinstance(m.low, Contraction)]
        total = sum(whole(a).size_bytes((0,), (1,)) for a in specs)
        most = total // (2 * FEWEST_ROUNDS) if self.images_per_tile > 1 else total
        return sorted({min(n, max(most, 1)) for n in ROUND_BYTES}, reverse=True)

    def _boldest(self, round_bytes: int) -> int:
        """Return the widest reach with which everything has a place, 0 if there is none."""
        self._drafted()
        self.order = np.arange(len(self.draft.rows))
        wishes = self._timed(round_bytes)
        if not wishes or lower_bound_bytes(self._problem(wishes)) > self.capacity:
            return 0
        return next((reach for reach in REACHES if self._placed(round_bytes, reach)), 0)

    # -- code -----------------------------------------------------------------------------------------------------

    def _emit(self, n: int, at: At) -> list[tuple]:
        """Return the instructions of part n; at(name): the address of bytes."""
        part = self.parts[n]
        m = self.members[part.member]
        low = m.low
        lo, hi = self._range(part)
        reads = [0] * len(low.reads)
        for (j, source), (_, _, first, _) in zip(m.images.items(), self._needs(part), strict=True):
            key = lo[-1] if j and isinstance(low, Attention) else -1
            reads[j] = self._place(source, part.band, first, at, key)
        for j, k in m.others.items():
            if isinstance(low, Attention):
                reads[j] = at(self._mask(n))
            elif self._streams(m, j):
                reads[j] = at(("fill", self.filled[n, j]))
            else:
                vector = low.reads[j].box(lo, hi)[-1][0]
                local = Local(1, self._last(low.reads[j]), low.reads[j].spec.dtype, low.reads[j].blocked)
                reads[j] = at(("fill", (-1, k))) + local.offset(0, vector)
        out = self._place(("op", m.result), part.band, part.first, at, self._rows(part.band)[0])
        scratch = [at(("scratch", n, j)) for j in range(len(low.scratch_bytes(lo, hi)))]
        consts = [at(("const", part.member, j)) for j in range(len(low.const_bytes()))]
        em = Emitter()
        low.emit(em, Slice(lo, hi, reads, [out], scratch, consts))
        return em.rows

    @staticmethod
    def _last(access: Access) -> int:
        return access.spec.shape[-1] if access.spec.shape else 1

    def _place(self, source: Source, band: int, first: int, at: At, row: int = -1) -> int:
        """Where the columns from `first` on of a band of a value lie, from position `row` on (-1: the band's first)."""
        name = self._value(source, band, first)
        begin = 0 if name[2] < 0 else self._rows(band)[0]
        row = begin if row < 0 else row
        return at(name) + self._value_local(name).offset(row - begin, first - max(name[3], 0))

    def _drafted(self) -> None:
        """Emit everything once, at addresses at which no two names share bytes."""
        names: list[tuple] = []
        bases: list[int] = []
        known: dict[tuple, int] = {}
        end = ALIGN_BYTES

        def at(name: tuple) -> int:
            nonlocal end
            if name not in known:
                known[name] = end
                names.append(name)
                bases.append(end)
                end += round_up(max(self._size(name), 1), ALIGN_BYTES)
            return known[name]

        rows, self.moves = self._all_rows(at)
        ddr = np.zeros(len(rows), np.int64)
        spans = isa.ranges(rows, ddr)
        cycles, moved = isa.durations(self.machine, rows, ddr)
        cycles = cycles + (moved * self.tiles / self.machine.ddr_bytes_per_cycle).astype(np.int64)
        both = np.concatenate([spans["spm_read"], spans["spm_write"]], axis=1)
        issue = isa.issue_cycles(self.machine, rows)
        before = byte_dependences(spans["spm_read"], spans["spm_write"])
        self.draft = Draft(rows, names, _touched(both, bases), isa.units(rows), issue, cycles, before)

    def _placed(self, round_bytes: int, reach: int) -> bool:
        """Order the instructions and place everything they touch; False if that does not fit. reach: places by which an instruction may
        come before an older one."""
        d = self.draft
        self.order, _ = list_order(d.engine, d.issue, d.cycles, within_reach(d.before, reach), QUEUE_DEPTH)
        return self._place_all(self._timed(round_bytes))

    def _timed(self, round_bytes: int) -> list[Wish]:
        """Cut the ordered instructions into rounds; return what needs bytes, and when; nothing if there are too few
        rounds."""
        ptr, touched = self.draft.touched
        place = np.argsort(self.order)  # of every instruction
        owner = place[np.repeat(np.arange(len(place)), np.diff(ptr))]
        first, last = np.full(len(self.draft.names), len(place)), np.zeros(len(self.draft.names), np.int64)
        np.minimum.at(first, touched, owner)
        np.maximum.at(last, touched, owner + 1)
        spans = zip(first.tolist(), last.tolist(), strict=True)
        lives = {name: span for name, span in zip(self.draft.names, spans, strict=True) if span[0] < span[1]}
        self._find_rounds(lives, round_bytes)
        return [] if self.too_short else self._wishes(lives)

    def _place_all(self, wishes: Sequence[Wish]) -> bool:
        if not wishes:
            return False
        try:
            placed = solve(self._problem(wishes), effort=EFFORT)
        except AllocationError:
            return False
        self.code: dict[int, np.ndarray] = {}  # by the arena's address
        self.at = {name: at for (name, _, _), at in zip(wishes, placed.offsets, strict=True)}
        self.held_bytes = {name: size for name, size, _ in wishes}
        self.spm_bytes = placed.peak_bytes
        return True

    def _problem(self, wishes: Sequence[Wish]) -> Problem:
        items = [
            Buffer(str(name), merge_intervals(lives), round_up(max(size, 1), ALIGN_BYTES), ALIGN_BYTES)
            for name, size, lives in wishes
        ]
        return Problem(tuple(items), self.capacity)

    @staticmethod
    def _always(name: tuple) -> bool:
        """True for bytes that are there from the beginning to the end."""
        return name[0] == "const" or name[0] == "fill" and name[1][0] < 0

    def _all_rows(self, at: At) -> tuple[np.ndarray, Moves]:
        """Return the instructions of all parts, with others that stand for transfers."""
        rows: list[tuple] = []
        moves: Moves = {}
        for band in range(self.n_bands):
            for source in self.inputs:  # these are loaded before the first round
                moves[len(rows)] = None
                name = self._value(source, band, 0)
                rows.append(self._stand_in("rdma", self._size(name), dst=at(name)))
        last_op = ("op", len(self.record.ops) - 1)
        left = [sum(p.member + 1 == len(self.members) and p.band == b for p in self.parts) for b in range(self.n_bands)]
        loaded: tuple = ()
        for n, part in enumerate(self.parts):
            low = self.members[part.member].low
            if (
                isinstance(low, Attention)
                and low.masked
                and low.needs(3, *self._range(part))
                and self._mask(n) != loaded
            ):
                loaded = self._mask(n)
                moves[len(rows)] = n
                rows.append(self._stand_in("rdma", self._size(loaded), dst=at(loaded)))
            rows += self._emit(n, at)
            if part.member + 1 == len(self.members):
                left[part.band] -= 1
                if not left[part.band]:
                    for first, last in self._store_pieces():
                        a, b = self._rows(part.band)
                        moves[len(rows)] = part.band, first, last
                        size = Local(b - a, last - first, self.record.results[0].dtype, True).size_bytes
                        rows.append(self._stand_in("wdma", size, src=self._place(last_op, part.band, first, at)))
        return isa.rows(rows), moves

    @staticmethod
    def _stand_in(name: str, size_bytes: int, **side: int) -> tuple:
        """Stand for a transfer, whose place in DDR depends on the sequence."""
        one = {f"{x}{i}": int(x == "n") for i in range(3) for x in "sn"}
        return isa.make(name, run_bytes=size_bytes, slot=0, ddr=0, **side, **one)

    def _store_pieces(self) -> list[tuple[int, int]]:
        """Columns of the result that are stored together: a wait for what else goes through the same register window should
        not take long."""
        result = self.record.results[0]
        width, block = result.shape[-1], block_size(result.dtype)
        step = max(1, STORE_BYTES // Local(self.band_rows, block, result.dtype, True).size_bytes) * block
        return [(c, min(c + step, width)) for c in range(0, width, step)]

    def _find_rounds(self, lives: dict[tuple, tuple[int, int]], round_bytes: int) -> None:
        """Cut the instructions where the next weights are first needed."""
        needed = sorted((span[0], name[1]) for name, span in lives.items() if name[0] == "fill" and name[1][0] >= 0)
        n = len(self.order)
        self.rounds = [Round(0, n)]
        for at, key in needed:
            here, fill = self.rounds[-1], self.fills[key]
            waiting = sum(f.size_bytes for f in (*here.shared, *here.private))
            if waiting and waiting + fill.size_bytes > round_bytes:
                here.end = at
                self.rounds.append(here := Round(at, n))
            (here.shared if self.sharable(fill.size_bytes) else here.private).append(fill)

    def _wishes(self, lives: dict[tuple, tuple[int, int]]) -> list[Wish]:
        """Return what needs bytes, and when. Weights arrive while the round before theirs runs, their parts two rounds
        before."""
        n = len(self.order)
        out: list[Wish] = []
        for r, here in enumerate(self.rounds):
            for fill in (*here.shared, *here.private):
                a, b = lives["fill", fill.key]
                out.append((("fill", fill.key), fill.size_bytes, [*self.span(r - 1, r), (a, b)]))
                if fill in here.shared:
                    out.append((("part", fill.key), self.part_of(fill), self.span(r - 2, r)))
        for name, (a, b) in lives.items():
            if name[0] == "fill" and name[1][0] >= 0:
                continue
            always = self._always(name)
            first = 0 if always or name[0] == "value" and name[1][0] == "in" else a
            size = self._size(name)
            out.append((name, size, [(first, n if always else min(n, b + KEEP * (size <= SMALL_BYTES)))]))
        return out

    # -- what the code builder asks for -----------------------------------------------------------------------------

    def transfers(self, fill: Fill, image: int = -1) -> list[Descriptor]:
        n, k = fill.key
        if n < 0:
            return [d for d in self.reads[k].transfers((0,), (1,)) if d.run_bytes]
        low = self.members[self.parts[n].member].low
        return [d for d in low.reads[1].transfers(*self._range(self.parts[n])) if d.run_bytes]

    def first_work(self, base: int) -> np.ndarray:
        em = Emitter()
        for i, m in enumerate(self.members):
            n = len(m.low.const_bytes())
            m.low.prologue(em, [base + self.at.get(("const", i, j), 0) for j in range(n)])
        return isa.rows(em.rows)

    def image_loads(self) -> list[Move]:
        out = []
        for band in range(self.n_bands):
            a, b = self._rows(band)
            for source, k in self.inputs.items():
                at = self.at[self._value(source, band, 0)]
                out.append(Move(k, (a, 0), (b, self._spec(source).shape[-1]), at))
        return out

    def work(self, r: int, base: int) -> Iterator[Work | Move | Fill]:
        if base not in self.code:
            self.code = {base: self._all_rows(lambda name: base + self.at.get(name, 0))[0][self.order]}
        rows = self.code[base]
        here = self.rounds[r]
        begin = here.begin
        for n in range(here.begin, here.end + 1):
            row = int(self.order[n]) if n < here.end else -1
            if n > begin and (n == here.end or n - begin == CHUNK or row in self.moves):
                yield Work((r, begin), rows[begin:n])
                begin = n
            if row in self.moves:
                begin = n + 1
                if (move := self.moves[row]) is not None:
                    yield self._move(move)

    def _move(self, what: int | tuple[int, int, int]) -> Move:
        if isinstance(what, int):
            name = self._mask(what)
            lo, hi = self._range(self.parts[what])
            m = self.members[name[1]]
            none = (0,) * (2 + m.mask_base)
            return Move(m.others[3], (*none, *lo), (*none, *hi), self.at[name])
        band, first, last = what
        a, b = self._rows(band)
        at = self._place(("op", len(self.record.ops) - 1), band, first, self.at.__getitem__)
        return Move(len(self.reads), (a, first), (b, last), at)


def may_stream(record: GroupRecord, machine: Machine) -> bool:
    """True if there are sequences for most tiles and scratchpad holds one value of a sequence."""
    result = record.results[0]
    if len(result.shape) != 3 or 0 in result.shape:
        return False
    n, positions, channels = result.shape
    tiles = -(-n // -(-n // machine.n_tiles))
    size_bytes = Local(positions, channels, result.dtype, True).size_bytes
    return 2 * tiles >= machine.n_tiles and size_bytes <= machine.spm_limit - machine.spm_base


def _touched(spans: np.ndarray, bases: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return per instruction the numbers of the buffers it touches (CSR). spans (n, ranges, 2); bases: their addresses, ascending."""
    row, column = np.nonzero(spans[..., 1] > spans[..., 0])
    which = np.searchsorted(np.array(bases), spans[row, column, 0], "right") - 1
    pairs = np.unique(np.stack([row, which], 1), axis=0)
    ptr = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 0], minlength=len(spans)))])
    return ptr.astype(np.int64), pairs[:, 1].astype(np.int64)
