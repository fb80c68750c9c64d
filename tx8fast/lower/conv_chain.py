"""Several convolutions and pools in a row, with the element-wise ops between them, for one band of rows of one image.

May import: the family files, graph_table, machine. Must not: decide which ops belong together.

Factors: image and row of the last result. From a band of its rows follow the rows of every result before it, up to
the operands: windows widen the band, which is computed anew where bands overlap. All channels of every weight
stay in scratchpad; tiles load them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from tx8fast.graph_table import Dim, GroupRecord, OpRecord, TensorSpec
from tx8fast.lower.base import ALIGN_BYTES, Access, Emitter, Lowering, NotLowerable, Slice, round_up
from tx8fast.lower.convolution import Convolution, Depthwise, Windowed
from tx8fast.lower.elementwise import Elementwise
from tx8fast.lower.pooling import Pool
from tx8fast.lower.transfer import Local, moves
from tx8fast.lower.windows import ROW
from tx8fast.machine import Machine
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import block_size, blocked_params

WINDOWS = ("conv", "max_pool", "avg_pool")
Rows = tuple[int, int]
Source = tuple[str, int]  # ("op", member) or ("in", group operand)


@dataclass
class Stage:
    """An op of the chain. images: per read access that holds an image, where it comes from; others: group read."""

    low: Lowering
    shape: tuple[int, ...]  # of its result
    images: dict[int, Source] = field(default_factory=dict)
    others: dict[int, int] = field(default_factory=dict)

    @property
    def windowed(self) -> bool:
        return isinstance(self.low, Windowed | Pool)

    def needs(self, rows: Rows) -> Rows:
        """Rows of its images for rows of its result."""
        return self.low.window.band().box((0, rows[0]), (0, rows[1])) if self.windowed else rows  # type: ignore[attr-defined]

    def ranges(self, rows: Rows) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Factor ranges of the member for rows of one image's result."""
        if self.windowed:
            rest = self.low.sizes[2:]
            return (0, rows[0], *(0,) * len(rest)), (1, rows[1], *rest)
        w, c = self.shape[2:]
        return (0, rows[0] * w, 0), (1, rows[1] * w, c)


class ChainRows:
    """The rows of an operand that a band of the last result needs. Has the interface of `graph_table.Dim`."""

    full = False

    def __init__(self, chain: ConvChain, source: Source, size: int, steps: tuple[int, int]) -> None:
        self.chain, self.source, self.size = chain, source, size
        self.terms = ((ROW, steps[0]),)
        self.reach = steps[1]

    def box(self, lo: Sequence[int], hi: Sequence[int]) -> Rows:
        return self.chain.rows(lo[ROW], hi[ROW])[self.source]

    def extent(self, lens: Sequence[int]) -> int:
        return self.chain.most_rows(lens[ROW])[self.source]


class ConvChain(Lowering):
    kind = "conv chain"
    positional = True
    shares = True
    overlaps = True

    def __init__(self, record: GroupRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        if record.outputs != (len(record.ops) - 1,) or sum(op.kind in WINDOWS for op in record.ops) < 2:
            raise NotLowerable("a chain has several windows and one result, the last")
        self.args: list[int] = []
        self.stages: list[Stage] = []
        kept: dict[tuple[int, bool], int] = {}
        for i, op in enumerate(record.ops):
            self.stages.append(self._stage(i, op, kept))
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

    # -- members ------------------------------------------------------------------------------------------------

    def _stage(self, i: int, op: OpRecord, kept: dict[tuple[int, bool], int]) -> Stage:
        shape = op.results[0].shape
        if len(shape) != 4:
            raise NotLowerable("every op of a chain works on images")
        if op.kind == "conv":
            whole = op.attr("groups") == 1
            low: Lowering = (Convolution if whole else Depthwise)(op, self.machine)
            if not whole and (low.w.shape[3] != 1 or low.w.shape[2] != low.x.shape[3] or max(low.dilation) > 1):  # type: ignore[attr-defined]
                raise NotLowerable("a grouped convolution in a chain is depthwise")
        else:
            low = (Pool if op.kind in WINDOWS else Elementwise)(op, self.machine)
        stage = Stage(low, shape)
        n, h, w, c = shape
        if not stage.windowed and (not low.writes[0].blocked or low.sizes != (n, h * w, c)):
            raise NotLowerable("an element-wise op of a chain works on blocked images")
        for j, (access, operand) in enumerate(zip(low.reads, low.arguments(), strict=True)):
            wire = self.record.wires[i][operand]
            assert wire is not None
            if j == 0 if stage.windowed else low.modes[j] == "full":  # type: ignore[attr-defined]
                stage.images[j] = wire
            elif wire[0] == "op" or (not stage.windowed and low.modes[j] not in ("vector", "scalar")):  # type: ignore[attr-defined]
                raise NotLowerable("weights and vectors come from outside the chain")
            else:
                key = (wire[1], access.blocked)
                if key not in kept:
                    kept[key] = len(self.reads)
                    self._add(
                        wire[1], Access(access.spec, [Dim(s, full=True) for s in access.spec.shape], access.blocked)
                    )
                stage.others[j] = kept[key]
        return stage

    def _add(self, operand: int, access: Access) -> None:
        self.args.append(operand)
        self.reads.append(access)

    def arguments(self) -> list[int]:
        return self.args

    # -- which rows ---------------------------------------------------------------------------------------------

    def _rows(self, lo: int, hi: int) -> dict[Source, Rows]:
        """Rows of every result and operand for rows [lo, hi) of the last result."""
        need: dict[Source, Rows] = {("op", len(self.stages) - 1): (lo, hi)}
        for i in reversed(range(len(self.stages))):
            rows = self.stages[i].needs(need["op", i])
            for source in self.stages[i].images.values():
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
            step, reach = out["op", i]
            stage = self.stages[i]
            if stage.windowed:
                band = stage.low.window.band()  # type: ignore[attr-defined]
                step, reach = step * band.stride, reach * band.stride + band.reach
            for source in stage.images.values():
                a, b = out.get(source, (0, 0))
                out[source] = max(a, step), max(b, reach)
        return out

    # -- buffers: members' scratch, results, parts of images ----------------------------------------------------

    def _owner(self, i: int) -> int:
        """The member in whose result buffer member i writes: an element-wise op may work in place on one operand."""
        users = self._users(i)
        if len(users) != 1 or i == len(self.stages) - 1 or self._in_place(users[0]) != i:
            return i
        return self._owner(users[0])

    def _users(self, i: int) -> list[int]:
        return [k for k, s in enumerate(self.stages) for source in s.images.values() if source == ("op", i)]

    def _in_place(self, i: int) -> int:
        """The member whose result an element-wise member overwrites, or -1."""
        low = self.stages[i].low
        if not isinstance(low, Elementwise):
            return -1
        for j in low.in_place:
            kind, k = self.stages[i].images.get(j, ("", -1))
            if kind == "op" and len(self._users(k)) == 1:
                same = self.stages[k].low.writes[0].spec.dtype == low.writes[0].spec.dtype
                if same:
                    return k
        return -1

    def _spec(self, source: Source) -> TensorSpec:
        spec = self.record.operands[source[1]] if source[0] == "in" else self.record.ops[source[1]].results[0]
        assert spec is not None
        return spec

    def _local(self, source: Source, rows: int) -> Local:
        spec = self._spec(source)
        return Local(rows * spec.shape[2], spec.shape[3], spec.dtype, True)

    def _copies(self) -> list[tuple[int, int]]:
        """(member, read) of images that may hold more rows than the member wants."""
        users: dict[Source, list[tuple[int, int]]] = {}
        for i, stage in enumerate(self.stages):
            for j, source in stage.images.items():
                users.setdefault(source, []).append((i, j))
        return sorted(u for us in users.values() if len({u[0] for u in us}) > 1 for u in us)

    def _wishes(self, most: dict[Source, int]) -> list[tuple[tuple[str, int, int], int, int, int]]:
        """Return (name, bytes, first stage, last stage) of everything that lives in scratchpad within a slice."""
        out = []
        last = len(self.stages) - 1
        owners = [self._owner(i) for i in range(last + 1)]
        for i, stage in enumerate(self.stages):
            for j, size in enumerate(stage.low.scratch_bytes(*stage.ranges((0, most["op", i])))):
                out.append((("scratch", i, j), size, i, i))
        for i in sorted(set(owners) - {last}):
            made = owners.index(i)
            used = max(j for j, s in enumerate(self.stages) if ("op", i) in s.images.values())
            out.append((("op", i, 0), self._local(("op", i), most["op", i]).size_bytes, made, used))
        for i, j in self._copies():
            source = self.stages[i].images[j]
            out.append((("part", i, j), self._local(source, most[source]).size_bytes, i, i))
        return out

    def _arena(self, length: int) -> tuple[int, dict[tuple[str, int, int], int]]:
        """Size of the one buffer for all of it, and offsets: what is never alive together shares bytes."""
        placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last
        at = {}
        for name, size, first, last in sorted(self._wishes(self.most_rows(length)), key=lambda w: (-w[1], w[2])):
            offset = 0
            for a, b, f, t in sorted(placed):
                if f <= last and first <= t and a < offset + size and offset < b:
                    offset = b
            end = offset + round_up(max(size, 1), ALIGN_BYTES)
            placed.append((offset, end, first, last))
            at[name] = offset
        return max((p[1] for p in placed), default=0), at

    def scratch_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> list[int]:
        return [self.arena(hi[ROW] - lo[ROW])[0]]

    def emit(self, em: Emitter, s: Slice) -> None:
        rows = self.rows(s.lo[ROW], s.hi[ROW])
        last = len(self.stages) - 1
        at = {name: s.scratch[0] + offset for name, offset in self.arena(s.hi[ROW] - s.lo[ROW])[1].items()}
        owners = [self._owner(i) for i in range(last + 1)]
        place = [s.writes[0] if o == last else at["op", o, 0] for o in owners]
        own = [[at["scratch", i, j] for j in range(len(stage.low.scratch_bytes(*stage.ranges(rows["op", i]))))]
               for i, stage in enumerate(self.stages)]  # fmt: skip
        parts = {(i, j): at["part", i, j] for i, j in self._copies()}
        for i, stage in enumerate(self.stages):
            reads = [0] * len(stage.low.reads)
            for j, k in stage.others.items():
                reads[j] = s.reads[k]
            for j, source in stage.images.items():
                at = s.reads[self.image_read[source[1]]] if source[0] == "in" else place[source[1]]
                want = stage.needs(rows["op", i])
                if want != rows[source]:
                    at = self._part(em, source, at, rows[source], want, parts[i, j])
                reads[j] = at
            stage.low.emit(em, Slice(*stage.ranges(rows["op", i]), reads, [place[i]], own[i], []))

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
            have = [(stage.needs((a, b))[0] - rows[s][0], rows[s][1] - rows[s][0]) for s in stage.images.values()]
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
