"""Several convolutions and pools in a row, with the element-wise ops between them, for one band of rows of one image.

May import: the family files, graph_table, machine. Must not: decide which ops belong together.

Factors: image and row of the last result. From a band of its rows follow the rows of every result before it, up to
the operands: windows widen the band, which is computed anew where bands overlap. All channels of every weight
stay in scratchpad; tiles load them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tx8fast.graph_table import Dim, GroupRecord
from tx8fast.lower.access import Access
from tx8fast.lower.base import Slice
from tx8fast.lower.chain import PSUM, Chain, Rows, Source, place
from tx8fast.lower.convolution import Windowed
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.pooling import Pool
from tx8fast.lower.transfer import Local, moves
from tx8fast.lower.windows import ROW
from tx8fast.machine import Machine
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import block_size, blocked_params


class ChainRows:
    """The rows of an operand that a band of the last result needs. Has the interface of `graph_table.Dim`."""

    full = False

    def __init__(self, chain: ConvChain, source: Source, size: int, steps: tuple[int, int]) -> None:
        self.chain, self.source, self.size = chain, source, size
        self.terms = ((ROW, steps[0]),)
        self.reach = steps[1]

    def box(self, lo: Sequence[int], hi: Sequence[int]) -> Rows:
        return self.chain.rows(lo[ROW], hi[ROW])[self.source]

    def is_solid(self, lo: Sequence[int], hi: Sequence[int]) -> bool:
        return True

    def extent(self, lens: Sequence[int]) -> int:
        return self.chain.most_rows(lens[ROW])[self.source]


class ConvChain(Chain):
    kind = "conv chain"

    def __init__(self, record: GroupRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        self.rows = lru_cache(maxsize=4096)(self._rows)
        self.form = lru_cache(maxsize=4096)(self._form)
        self.arena = lru_cache(maxsize=256)(self._arena)
        self.most_rows = lru_cache(maxsize=256)(self._most_rows)
        n, oh = record.results[0].shape[:2]
        self.set_factors((n, oh), max_len=(1, 4096))
        images = {s for stage in self.stages for s in stage.images.values() if s[0] == "in"}
        steps = self._steps()
        for k in sorted(x for _, x in images):
            spec = record.operands[k]
            assert spec is not None
            rows = ChainRows(self, ("in", k), spec.shape[1], steps["in", k])
            self._add(k, Access(spec, [Dim(n, ((0, 1),)), rows, *(Dim(s, full=True) for s in spec.shape[2:])], True))  # type: ignore[list-item]
        self.image_read = {k: self.args.index(k) for k in sorted(x for _, x in images)}
        out = record.results[0]
        self.writes = [
            Access(out, [Dim(n, ((0, 1),)), Dim(oh, ((1, 1),)), *(Dim(s, full=True) for s in out.shape[2:])], True)
        ]

    # -- which rows ---------------------------------------------------------------------------------------------

    def _rows(self, lo: int, hi: int) -> dict[Source, Rows]:
        """Rows of every result and operand for rows [lo, hi) of the last result."""
        need: dict[Source, Rows] = {("op", len(self.stages) - 1): (lo, hi)}
        for i in reversed(range(len(self.stages))):
            for j, source in self.stages[i].images.items():
                rows = self.stages[i].needs(j, need["op", i])
                a, b = need.get(source, rows)
                need[source] = min(a, rows[0]), max(b, rows[1])
        return need

    def _most_rows(self, length: int) -> dict[Source, int]:
        """Most rows of every result and operand for any band of `length` rows."""
        last = self.sizes[ROW]
        length = min(length, last)
        every = [self.rows(a, min(a + length, last)) for a in range(last - length + 1)]
        return {s: max(r[s][1] - r[s][0] for r in every) for s in every[0]}

    def _steps(self) -> dict[Source, tuple[int, int]]:
        """Rows of every operand per row of the last result, and how many more a single row needs."""
        out: dict[Source, tuple[int, int]] = {("op", len(self.stages) - 1): (1, 0)}
        for i in reversed(range(len(self.stages))):
            stage = self.stages[i]
            for j, source in stage.images.items():
                step, reach = out["op", i]
                if stage.windowed and j != PSUM:
                    rows = stage.low.window.rows  # type: ignore[attr-defined]
                    ((_, stride),) = rows.terms
                    step, reach = step * stride, reach * stride + rows.reach
                a, b = out.get(source, (0, 0))
                out[source] = max(a, step), max(b, reach)
        return out

    # -- buffers: members' scratch, results, parts of images ----------------------------------------------------

    def _owner(self, i: int) -> int:
        """The member in whose result buffer member i writes: its only reader may work in place."""
        users = self._users(("op", i))
        if len(users) != 1 or i == len(self.stages) - 1:
            return i
        places = [s for s in self._overwritable(users[0]) if s[0] == "op" and len(self._users(s)) == 1]
        return self._owner(users[0]) if places[:1] == [("op", i)] else i

    def _local(self, source: Source, rows: int) -> Local:
        spec = self._spec(source)
        return Local(rows * spec.shape[2], spec.shape[3], spec.dtype, True)

    def _copies(self) -> list[tuple[int, int]]:
        """(member, read) of images that may hold more rows than the member wants."""
        users: dict[Source, list[tuple[int, int]]] = {}
        for i, stage in enumerate(self.stages):
            for j, source in stage.images.items():
                users.setdefault(source, []).append((i, j))
        several = [us for us in users.values() if len({(i, j == PSUM) for i, j in us}) > 1]
        return sorted(u for us in several for u in us)

    def _wishes(self, most: dict[Source, int]) -> list[tuple[tuple[str, int, int], int, list[tuple[int, int]]]]:
        """Return (name, bytes, stages) of everything that lives in scratchpad within a slice."""
        out = []
        last = len(self.stages) - 1
        owners = [self._owner(i) for i in range(last + 1)]
        for i, stage in enumerate(self.stages):
            for j, size in enumerate(stage.low.scratch_bytes(*stage.ranges((0, most["op", i])))):
                out.append((("scratch", i, j), size, [(i, i + 1)]))
        for i in sorted(set(owners) - {last}):
            made = owners.index(i)
            used = max(j for j, s in enumerate(self.stages) if ("op", i) in s.images.values())
            out.append((("op", i, 0), self._local(("op", i), most["op", i]).size_bytes, [(made, used + 1)]))
        for i, j in self._copies():
            source = self.stages[i].images[j]
            out.append((("part", i, j), self._local(source, most[source]).size_bytes, [(i, i + 1)]))
        return out

    def _arena(self, length: int) -> tuple[int, dict[tuple[str, int, int], int]]:
        """Size of the one buffer for all of it, and offsets."""
        return place(self._wishes(self.most_rows(length)))

    def scratch_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> list[int]:
        return [self.arena(hi[ROW] - lo[ROW])[0]]

    def emit(self, em: Emitter, s: Slice) -> None:
        rows = self.rows(s.lo[ROW], s.hi[ROW])
        last = len(self.stages) - 1
        at = {name: s.scratch[0] + offset for name, offset in self.arena(s.hi[ROW] - s.lo[ROW])[1].items()}
        owners = [self._owner(i) for i in range(last + 1)]
        results = [s.writes[0] if o == last else at["op", o, 0] for o in owners]
        own = [
            [at["scratch", i, j] for j in range(len(stage.low.scratch_bytes(*stage.ranges(rows["op", i]))))]
            for i, stage in enumerate(self.stages)
        ]
        parts = {(i, j): at["part", i, j] for i, j in self._copies()}
        for i, stage in enumerate(self.stages):
            reads, psum = [0] * len(stage.low.reads), 0
            for j, k in stage.others.items():
                reads[j] = s.reads[k]
            for j, source in stage.images.items():
                at = s.reads[self.image_read[source[1]]] if source[0] == "in" else results[source[1]]
                want = stage.needs(j, rows["op", i])
                if want != rows[source]:
                    at = self._part(em, source, at, rows[source], want, parts[i, j])
                if j == PSUM:
                    psum = at
                else:
                    reads[j] = at
            stage.low.emit(em, Slice(*stage.ranges(rows["op", i]), reads, [results[i]], own[i], [], psum, not psum))

    def _part(self, em: Emitter, source: Source, src: int, have: Rows, want: Rows, dst: int) -> int:
        """Copy the wanted rows out of a buffer that has more; return where they lie."""
        spec = self._spec(source)
        old, new = self._local(source, have[1] - have[0]), self._local(source, want[1] - want[0])
        row = (want[0] - have[0]) * spec.shape[2]
        cx, c0 = blocked_params(spec.shape[3], spec.dtype)
        b, e = block_size(spec.dtype), ITEM_BYTES[spec.dtype]
        if cx:
            axes = [(cx, old.rows * b * e, new.rows * b * e)]
            em.gather(src + old.offset(row, 0), dst, moves(axes, new.rows * b * e))
        if c0:
            em.gather(src + old.offset(row, cx * b), dst + new.offset(0, cx * b), moves([], new.rows * c0 * e))
        return dst

    def slice_form(self, lo: Sequence[int], hi: Sequence[int]) -> tuple:
        """Instructions depend on how many rows every op has and on what is clipped, not on the image."""
        return hi[0] - lo[0], self.form(lo[ROW], hi[ROW])

    def _form(self, lo: int, hi: int) -> tuple:
        rows = self.rows(lo, hi)
        parts = []
        for i, stage in enumerate(self.stages):
            a, b = rows["op", i]
            fields = stage.low.window.fields((0, a), (0, b)) if stage.windowed else {}  # type: ignore[attr-defined]
            have = [(stage.needs(j, (a, b))[0] - rows[s][0], rows[s][1] - rows[s][0]) for j, s in stage.images.items()]
            parts.append((b - a, tuple(fields.values()), *have))
            if isinstance(stage.low, Pool):
                parts.append(stage.low.slice_form((0, a, 0), (1, b, 1)))
        return tuple(parts)

    def ops_per_point(self) -> float:
        cycles = 0.0
        last = self.sizes[ROW]
        for stage in self.stages:
            rows = stage.shape[1] / last
            if isinstance(stage.low, Windowed):
                kh, kw, _, ins = stage.low.w.shape
                macs = kh * kw * ins * stage.shape[2] * stage.shape[3]
                cycles += rows * macs / self.machine.peak_macs_per_cycle(stage.low.dtype) * self.machine.n_tiles
        return cycles
