"""Convolutional networks with whole images in scratchpad: every tile keeps its own image from op to op, and the weights
stream by, loaded once for all tiles.

May import: lower.chain and the family files, graph_table, machine. Must not: emit loads or messages (`stream_code`).

Factor: the image. The members run one after the other in parts, a range of output channels each. A round is what
becomes possible with one set of weights; while the engines work on a round, the next one's weights arrive. Images,
weights and scratch lie in one arena, and what is never alive together shares bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tx8fast import isa
from tx8fast.errors import InfeasibleError
from tx8fast.graph_table import Dim, GroupRecord, OpRecord, TensorSpec
from tx8fast.lower.access import Access
from tx8fast.lower.base import Lowering, NotLowerable, Slice
from tx8fast.lower.chain import PSUM, Chain, Source, place, smallest_first
from tx8fast.lower.convolution import Convolution, GroupedConvolution, Windowed
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.planes import MAX_POSITIONS, Intake, Planes
from tx8fast.lower.pooling import Pool
from tx8fast.lower.rounds import Fill, Move, Round, Stream, Wish, Work, divide
from tx8fast.lower.rows_read import cut, in_rows, rows_read
from tx8fast.lower.stream_ops import lost_channels, on_whole_images
from tx8fast.lower.thin import thinned
from tx8fast.lower.transfer import Descriptor, Local
from tx8fast.machine import Machine
from tx8fast.numerics.layout import block_size

ROUND_BYTES = 65536  # of such weights in one round, at most
SMALL_BYTES = 16384  # scratch that is not used again at once, so that nobody waits for it
WEIGHT_SHARE = 0.46  # of the room beside the images, for one round's weights
LESS = 0.7  # of a share where that does not fit
LAYOUTS = 10  # tried before a network is given up
BANDS = 8  # pieces of an image that comes from DDR as planes
AHEAD = 3  # of them on their way before they are needed

Ranges = tuple[tuple[int, ...], tuple[int, ...]]
Part = tuple[int, tuple[int, ...], tuple[int, ...]]  # member, and factor ranges of its lowering


class ConvStream(Stream, Chain):
    kind = "conv stream"
    image_modes = ("full", "items")  # also an image of one position, which gates channels

    def __init__(self, record: GroupRecord, machine: Machine, leading: int = 0) -> None:
        """leading: how many of the first images it is about, 0: all."""
        super().__init__(self._prepared(smallest_first(record)), machine)
        self.n_images = record.results[0].shape[0]
        lost_channels(self.stages)
        images = sorted({s[1] for stage in self.stages for s in stage.images.values() if s[0] == "in"})
        self.inputs: dict[Source, int] = {}
        for k in images:
            spec = record.operands[k]
            assert spec is not None
            if spec.shape[0] != self.n_images:
                raise NotLowerable("all images of a chain have one batch size")
            self.inputs["in", k] = len(self.reads)
            self._add(k, self._image_access(spec))
        for stage in self.stages:
            if stage.windowed:
                stage.low.window = replace(stage.low.window, resident=True)  # type: ignore[attr-defined]
            if stage.planes >= 0:
                spec = record.operands[stage.planes]
                assert spec is not None
                stage.others[0] = len(self.reads)
                self._add(stage.planes, self._image_access(spec))
        self.writes = [self._image_access(record.results[0])]
        self.set_factors((self.n_images,))
        self.spread_over_tiles(leading or self.n_images)

    def _prepared(self, record: GroupRecord) -> GroupRecord:
        return thinned(record)

    def _image_access(self, spec: TensorSpec) -> Access:
        dims = [Dim(self.n_images, ((0, 1),)), *(Dim(s, full=True) for s in spec.shape[1:])]
        return Access(spec, dims, spec.layout == "blocked")

    def _lowered(self, op: OpRecord, before: Sequence[OpRecord]) -> Lowering:
        return on_whole_images(op, before, self.machine) or super()._lowered(op, before)

    read: list[np.ndarray]  # by member, which rows of its result somebody needs
    wishes: list[Wish]
    filled: dict[int, int]  # part -> the part whose fills it uses
    pieces: dict[int, list[Fill]]  # part -> planes of later parts whose loads begin before it

    # -- parts and rounds ---------------------------------------------------------------------------------------

    def lay_out(self, name: str, cycles: Callable[[], int]) -> None:
        """Cut the members so that everything fits: large parts where there is room. All tiles load weights, or half of them if these
        have the images: many load fast, few agree fast. Raises InfeasibleError."""
        most = self.machine.n_tiles
        counts = [n for n in (most // 2, most) if n >= self.tiles] if self.sharing else [most]
        found = []
        for self.loaders in counts:
            self._lay_out(name)
            found.append((cycles() if len(counts) > 1 else 0, -self.loaders))
        if (best := -min(found)[1]) != self.loaders:
            self.loaders = best
            self._lay_out(name)

    def _lay_out(self, name: str) -> None:
        self.image_of = self._images()
        self.read = rows_read(self.stages, self._piece)
        alive = self._alive()
        need = max(alive)
        if need > self.capacity:
            raise InfeasibleError(f"{name}: images need {need:,} bytes of scratchpad, {self.capacity:,} are there")
        shares = [WEIGHT_SHARE] * len(self.stages)
        for _ in range(LAYOUTS):
            parts = [(i, *r) for i in range(len(self.stages)) for r in self._cut(i, shares[i], alive)]
            self.parts = self._in_order(parts)
            self.rounds = self._rounds()
            if self.too_short:
                raise InfeasibleError(f"{name}: too short to stream weights for one image after the other")
            wishes = self._wishes()
            need, self.at = place(wishes)
            if need <= self.capacity:
                self.spm_bytes, self.wishes = need, wishes
                self.held_bytes = {name: size for name, size, _ in wishes}
                return
            for i in self._crowded(wishes):
                shares[i] *= LESS
        raise InfeasibleError(
            f"{name}: images and weights need {need:,} bytes of scratchpad, {self.capacity:,} are there"
        )

    def beside(self) -> Iterator[tuple[np.ndarray, list[tuple]]]:
        for p in range(len(self.parts)):
            em = Emitter()
            self.emit_part(em, p, 0)
            yield isa.rows(em.rows), [name for name, _, lives in self.wishes if any(a <= p < b for a, b in lives)]

    def move(self, phase: Mapping[tuple, int], turn_bytes: int) -> bool:
        need, at = place(self.wishes, phase, turn_bytes)
        if need > self.capacity:
            return False
        self.spm_bytes, self.at = need, at
        return True

    def _crowded(self, wishes: Sequence[Wish]) -> set[int]:
        """Return the members that run while something lies beyond the end of scratchpad."""
        out: set[int] = set()
        for name, size, lives in wishes:
            if self.at[name] + size > self.capacity:
                out |= {self.parts[p][0] for a, b in lives for p in range(a, b)}
        return out

    def _size(self, source: Source) -> int:
        return self._local(source).size_bytes

    def _local(self, source: Source) -> Local:
        spec = self._spec(source)
        if spec.layout == "dense":  # planes
            return Local(spec.shape[1], math.prod(spec.shape[2:]), spec.dtype, False)
        return Local(math.prod(spec.shape[1:-1]), spec.shape[-1], spec.dtype, True)

    def image(self, source: Source) -> Source:
        """The image whose bytes `source` has."""
        return self.image_of[source[1]] if source[0] == "op" else source

    def _images(self) -> list[Source]:
        """The image whose bytes each member's result takes: that of an operand that nobody reads later, or a new one."""
        out: list[Source] = []
        for i in range(len(self.stages)):
            free = [s for s in self._overwritable(i) if max(self._users(s)) == i and self._users(s).count(i) == 1]
            place = free[0] if free else ("op", i)
            out.append(out[place[1]] if free and place[0] == "op" else place)
        return out

    def _alive(self) -> list[int]:
        """Bytes of images while each member runs."""
        out = [0] * len(self.stages)
        for source, (first, last) in self._image_lives(range(len(self.stages))).items():
            for i in range(first, last + 1):
                out[i] += self._size(source)
        return out

    def _image_lives(self, stage_of: Sequence[int]) -> dict[Source, tuple[int, int]]:
        """First and last place of every image in a sequence of members."""
        lives: dict[Source, tuple[int, int]] = {}
        for p, i in enumerate(stage_of):
            for source in (*self.stages[i].images.values(), ("op", i)):
                image = self.image(source)
                lives[image] = lives.get(image, (p, p))[0], p
        return {s: (0 if s[0] == "in" else a, b) for s, (a, b) in lives.items()}

    def _cut(self, i: int, share: float, alive: Sequence[int]) -> Iterator[Ranges]:
        """Yield the parts of a member."""
        stage, low = self.stages[i], self.stages[i].low
        lo, hi = stage.ranges((0, stage.shape[1]))
        if len(bands := cut(low.sizes[1], self._piece(i))) > 1:
            for a, b in bands:
                if self.is_read(i, a, b):
                    yield (lo[0], a, *lo[2:]), (hi[0], b, *hi[2:])
            return
        budget = share * (self.capacity - max(alive[max(0, i - 1) : i + 1]))
        size, unit = low.sizes[2], low.units[2]
        if not isinstance(low, Convolution | GroupedConvolution):
            # what an op works with is as large as its part, or several times
            by_blocks = isinstance(low, Planes) or sum(low.scratch_bytes(lo, hi)) > budget
            for a, b in cut(size, unit if by_blocks else size):
                yield (*lo[:2], a), (*hi[:2], b)
            return
        units = -(-size // unit)
        whole_bytes = low.reads[1].size_bytes(lo, hi)
        n = units if isinstance(low, GroupedConvolution) else min(units, max(1, -(-whole_bytes // max(1, int(budget)))))
        step = -(-units // n) * unit
        for a in range(0, size, step):
            yield (*lo[:2], a, *lo[3:]), (*hi[:2], min(a + step, size), *hi[3:])

    def _piece(self, i: int) -> int:
        """Return how much of its second factor is made, or left out, as a whole."""
        low = self.stages[i].low
        return -(-low.sizes[1] // (self._bands(i) * low.units[1])) * low.units[1]

    def is_read(self, i: int, begin: int, end: int) -> bool:
        """True if somebody needs a row of such a range of a member's result."""
        return bool(self.read[i][slice(*in_rows(self.stages[i], begin, end))].any())

    def _bands(self, i: int) -> int:
        """Pieces of an image that is taken in, of what follows while channels are one block, and of a pool behind that, so
        that the engines need not wait for each other."""
        stage = self.stages[i]
        low = stage.low
        if isinstance(low, Intake) and low.sizes[2] == low.units[2]:
            return max(BANDS, -(-low.sizes[1] // (MAX_POSITIONS - low.units[1])))
        kind, k = stage.images.get(0, ("in", 0))
        if kind == "in" or len(stage.images) > 1 or self._bands(k) == 1:
            return 1
        before = Intake if isinstance(low, Convolution) else Convolution if isinstance(low, Pool) else ()
        one_block = max(stage.shape[3], self.stages[k].shape[3]) <= block_size(low.reads[0].spec.dtype)
        return min(BANDS, low.sizes[1]) if one_block and isinstance(self.stages[k].low, before) else 1

    def _in_order(self, parts: Sequence[Part]) -> list[Part]:
        """Return the parts in order, pieces of an image each right before the first that needs it."""
        waiting: dict[int, list[Part]] = {}
        for p in parts:
            waiting.setdefault(p[0], []).append(p)
        out: list[Part] = []

        def run(p: Part) -> None:
            i, lo, hi = p
            stage = self.stages[i]
            for kind, k in stage.images.values():
                if kind == "op" and waiting[k]:
                    rows = stage.needs(0, (lo[1], hi[1]))[1] if stage.windowed else self.stages[k].shape[1]
                    width = 1 if self.stages[k].windowed else self.stages[k].shape[2]
                    if hi[1] == stage.low.sizes[1]:
                        rows = self.stages[k].shape[1]
                    while waiting[k] and waiting[k][0][1][1] < rows * width:
                        run(waiting[k].pop(0))
                    if waiting[k] and isinstance(stage.low, Pool):
                        run(waiting[k].pop(0))  # the matrix engine has work meanwhile
            out.append(p)

        for i in range(len(self.stages)):
            if not any(self._bands(k) > 1 for k in self._users(("op", i))):
                while waiting[i]:
                    run(waiting[i].pop(0))
        return out

    def _rounds(self) -> list[Round]:
        rounds = [Round(0, 0)]
        pieces: list[Fill] = []
        first: dict[int, int] = {}
        self.filled = {}
        for p, (i, lo, hi) in enumerate(self.parts):
            stage = self.stages[i]
            fills = [Fill((p, j), k, stage.low.reads[j].size_bytes(lo, hi)) for j, k in stage.others.items()]
            self.filled[p] = p
            if self._bands(i) > 1 and stage.planes < 0:
                self.filled[p] = first.setdefault(i, p)  # all bands have the same weights
                fills = fills if first[i] == p else []
            elif stage.planes >= 0:
                pieces += fills
                fills = []
            shared = [f for f in fills if self.sharable(f.size_bytes)]
            private = [f for f in fills if f not in shared]
            here = rounds[-1]
            waiting = sum(f.size_bytes for f in (*here.private, *private))
            if fills and (here.shared or here.private) and (shared or waiting > ROUND_BYTES):
                rounds.append(here := Round(p, p))
            here.end = p + 1
            here.shared += shared
            here.private += private
        if self.images_per_tile > 1:
            divide(rounds)
        self.pieces = {}
        for n, f in enumerate(pieces):
            ahead = AHEAD if self._bands(self.parts[f.key[0]][0]) > 1 else 1
            self.pieces.setdefault(pieces[max(0, n - ahead)].key[0], []).append(f)
        return rounds

    def _wishes(self) -> list[Wish]:
        """Return (name, bytes, lifetimes in parts) of everything in scratchpad.

        Fills arrive while the round before theirs runs, their parts two rounds before. What other engines than the
        matrix engine have read stays for one round more, whose rows go through another register window."""
        out: list[Wish] = []
        for source, (a, b) in self._image_lives([i for i, _, _ in self.parts]).items():
            out.append((("image", source), self._size(source), [(a, b + 1)]))
        for p, pieces in self.pieces.items():
            out += [(("fill", f.key), f.size_bytes, [(p, f.key[0] + 1)]) for f in pieces]
        users: dict[int, int] = {}
        for p, of in self.filled.items():
            users[of] = max(p, users.get(of, p))
        for r, here in enumerate(self.rounds):
            for f in here.shared:
                lives = [*self.span(r - 1, r), (f.key[0], users[f.key[0]] + 1)]
                out.append((("fill", f.key), f.size_bytes, lives))
                out.append((("part", f.key), self.part_of(f), self.span(r - 2, r)))
            for f in here.private:
                last = users[f.key[0]]
                lives = [*self.span(r - 1, r + (f.size_bytes <= SMALL_BYTES)), (f.key[0], last + 1)]
                out.append((("fill", f.key), f.size_bytes, lives))
            for p in range(here.begin, here.end):
                i, lo, hi = self.parts[p]
                for j, size in enumerate(self._scratch(i, lo, hi)):
                    lives = [(p, p + 1)] if size > SMALL_BYTES else self.span(r, r + 1)
                    out.append((("scratch", p, j), size, lives))
        return out

    def _scratch(self, i: int, lo: tuple[int, ...], hi: tuple[int, ...]) -> list[int]:
        low = self.stages[i].low
        # neighbouring parts have scratch of their own here
        return low.own_scratch(lo, hi) if isinstance(low, Windowed) else low.scratch_bytes(lo, hi)

    # -- code -----------------------------------------------------------------------------------------------------

    def transfers(self, fill: Fill, image: int = -1) -> list[Descriptor]:
        p, j = fill.key
        i, lo, hi = self.parts[p]
        if image >= 0:
            lo, hi = (image, *lo[1:]), (image + 1, *hi[1:])
        return [d for d in self.stages[i].low.reads[j].transfers(lo, hi) if d.run_bytes]

    def first_work(self, base: int) -> np.ndarray:
        return isa.rows([])

    def image_loads(self) -> list[Move]:
        return [Move(k, (), (), self.at["image", source]) for source, k in self.inputs.items()]

    def work(self, r: int, base: int) -> Iterator[Work | Move | Fill]:
        here = self.rounds[r]
        for p in range(here.begin, here.end):
            yield from self.pieces.get(p, ())
            em = Emitter()
            self.emit_part(em, p, base)
            yield Work(("part", p), isa.rows(em.rows))
        if r + 1 == len(self.rounds):
            at = self.at["image", self.image(("op", len(self.stages) - 1))]
            yield Move(len(self.reads), (), (), at)

    def emit_part(self, em: Emitter, p: int, base: int) -> None:
        """Emit a part of a member; `base` is the arena's address."""
        i, lo, hi = self.parts[p]
        self.stages[i].low.emit(em, self.slice_of(p, base, (lo, hi), {}))

    def slice_of(self, p: int, base: int, ranges: Ranges, within: Mapping[int, int]) -> Slice:
        """Return `ranges` of a part as a slice. within: where in fills begins what these are about."""
        i, (lo, hi) = self.parts[p][0], ranges
        stage = self.stages[i]
        low = stage.low
        reads = [0] * len(low.reads)
        for j in stage.others:
            reads[j] = base + self.at["fill", (self.filled[p], j)] + within.get(j, 0)
        out = self._address(("op", i), low.writes[0], lo, hi)
        acc = 0
        for j, source in stage.images.items():
            if j == PSUM:
                acc = base + self._address(source, low.writes[0], lo, hi)
            else:
                reads[j] = base + self._address(source, low.reads[j], lo, hi)
        n = len(self._scratch(i, lo, hi))
        scratch = [base + self.at["scratch", p, j] for j in range(n)]
        if isinstance(low, Windowed):
            scratch *= 2  # of either parity
        return Slice(lo, hi, reads, [base + out], scratch, [], acc, not acc)

    def _address(self, source: Source, access: Access, lo: Sequence[int], hi: Sequence[int]) -> int:
        """Where what a part uses of an image begins: whole blocks of all positions, or some positions of one block."""
        _, *middle, (channel, _) = access.box(lo, hi)
        row, step = 0, 1
        for (a, _), dim in zip(reversed(middle), reversed(access.dims[1:-1]), strict=True):
            row, step = row + a * step, step * dim.size
        return self.at["image", self.image(source)] + self._local(source).offset(row, channel)
