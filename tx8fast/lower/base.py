"""What a lowering is: the loop space of one op, its DDR accesses, and the instructions of one slice.

May import: graph_table, machine, numerics, lower.{access, emitter, loops}. Must not: choose a plan or place buffers.

A `Lowering` describes one op record over factors. The scheduler cuts the factors in space (tiles) and time
(slices), loads every read access's box into scratchpad, calls `emit` for each slice and stores the writes.
The same `emit` prices a candidate: cost and code cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tx8fast.graph_table import Dim, GroupRecord, OpRecord, Rule, TensorSpec
from tx8fast.lower.access import Access
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.loops import Loops, Runs
from tx8fast.machine import Machine
from tx8fast.records import cached_property, dataclass

ALIGN_BYTES = 256  # scratchpad operand alignment (hardware manual 3.1)
FLOATS = ("bf16", "f16", "f32")
UNLIMITED = 1 << 62  # points of a slice


class NotLowerable(Exception):
    """This family cannot do this record; the next family (finally the kernel core) is tried."""


def round_up(x: int, a: int) -> int:
    return -(-x // a) * a


@dataclass
class Slice:
    """One slice to compute. lo/hi: factor ranges; addresses in scratchpad bytes; first/last of a reduction."""

    lo: tuple[int, ...]
    hi: tuple[int, ...]
    reads: Sequence[int]
    writes: Sequence[int]
    scratch: Sequence[int]
    consts: Sequence[int]
    acc: int = 0
    first: bool = True
    last: bool = True
    parity: int = 0  # alternates from one finished result slice to the next, or counts slices (`Lowering.turns`)
    fresh: bool = True  # False: what the lowering prepares is there already, from a slice before
    addend: int = 0  # what a product adds its sums to, of its result's form; 0: nothing
    addend_dtype: str = ""  # its format, if not the result's
    stays: bool = False  # complete sums stay where partial ones are, and in their format

    @property
    def lens(self) -> tuple[int, ...]:
        return tuple(b - a for a, b in zip(self.lo, self.hi, strict=True))


#: bytes of an operand that are loaded, or worked on, while all tiles meet: the DDR brings that many to each of four sets of tiles in 1,750 cycles
MEETING_BYTES = 1 << 16


class Lowering:
    """One prepared op record. Subclasses set the fields and implement `emit`."""

    kind = "base"
    leads = ""  # kind of the groups that it leads
    takes: frozenset[str] = frozenset()  # kinds of the ops it lowers; empty: it finds out by other means
    variant = 0  # which of the record's lowerings this is; 0: the one `lower` returns
    shared_copies = 2  # scratchpad buffers of an operand that tiles load together
    exchanges = False  # True: tiles send each other more than the operands that its plan says are shared
    sharing = True  # option of the compile: False makes every tile load for itself
    keeps = False  # True: reads may stay for all slices of a reduction, slices may have no work: priced by the slice
    turns = 0  # `Slice.parity` counts slices up to this; 0: finished results, up to 2
    overlaps = False  # True: engines work on different slices at once, intermediates have two copies
    unequal: tuple[int, ...] = ()  # factors whose place decides how much work a slice is (`amounts`)
    twin = False  # True: plans with an uncut reduction are those of the record's other lowering
    rare: frozenset[int] = frozenset()  # read accesses that few slices need
    late: frozenset[int] = frozenset()  # read accesses that are needed when sums are complete, and not before
    trailing: frozenset[int] = frozenset()  # read accesses that a slice needs when the next one may have begun
    steady: frozenset[int] = frozenset()  # factors that what slices work with has nothing to do with
    row_factors: tuple[int, ...] = ()  # a slice takes more instructions the longer it is in these
    skipping: frozenset[int] = frozenset()  # factors whose place decides whether a slice has work at all
    balanced = False  # True: along these factors no tile has more work than the first one
    positional = False  # True: emitted code depends on absolute factor ranges, not only on their lengths
    in_lines = False  # True: its instructions take operands from whole lines of scratchpad on only
    online = False  # True: the factor that a result needs whole may come in slices, with running maxima and sums
    in_place: tuple[int, ...] = ()  # read accesses whose bytes the result may take
    over: tuple[int, ...] = ()  # further ones, of results that are only read again, so that nothing waits for a store
    prepared = -1  # read access that is worked on in place, in the first slice after it was loaded
    opening = 0  # scratch buffers, the first ones, that only the preparation of that access uses
    serial = False  # True: one engine does it all, so that slices take turns in the same scratch
    #: (access of a result, prepared access) if the result may take its buffer where that is loaded once and partial sums are kept
    rows_at: tuple[int, int] = (-1, -1)
    replaced: Mapping[int, int] = {}  # access of a result -> the read access whose buffer it takes, at the same steps

    def __init__(self, record: OpRecord | GroupRecord, machine: Machine) -> None:
        """Raises NotLowerable if the record is not one of those it takes; subclasses, whenever they cannot do it."""
        if self.takes and record.kind not in self.takes:
            raise NotLowerable(f"{record.kind} is no op of the family '{self.kind}'")
        self.record: Any = record
        self.machine = machine
        self.sizes: tuple[int, ...] = ()
        self.units: tuple[int, ...] = ()  # slices and shards are multiples of these
        self.max_len: tuple[int, ...] = ()  # instruction field limits
        self.shard: tuple[bool, ...] = ()
        self.split: tuple[bool, ...] = ()
        self.reduce: tuple[bool, ...] = ()
        self.reads: list[Access] = []
        self.writes: list[Access] = []
        # by factor lengths: bytes of what `emit` works with, and of every access's slice
        self.known_bytes: dict[tuple[int, ...], int] = {}
        self.known_slices: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.known_scratch: dict[tuple[int, ...], list[int]] = {}

    @property
    def rule(self) -> Rule:
        """The op's factor rule. Raises NotLowerable if it has none."""
        if self.record.rule is None:
            raise NotLowerable(f"{self.record.kind} has no factor rule")
        return self.record.rule

    def loop_over(
        self,
        runs: Runs,
        units: Sequence[int] | None = None,
        most: Sequence[int] | None = None,
        whole: Sequence[int] = (),
        uncut: Sequence[int] = (),
    ) -> None:
        """Set the loops: per loop the factors of the op's rule that it runs over. whole: loops that instructions take in one
        piece, besides those whose factors a result needs whole; uncut: loops that are divided among tiles only. Raises
        NotLowerable like `set_factors`."""
        self.loops = loops = Loops(self.rule, runs)
        stays = {*whole, *(k for k, kind in enumerate(loops.kinds) if kind == "W")}
        every = range(len(loops.sizes))
        sums = [loops.kinds[k] == "R" and k not in stays for k in every]
        self.set_factors(
            loops.sizes,
            units,
            [not sums[k] and k not in stays for k in every],
            [k not in stays and k not in uncut for k in every],
            sums,
            most,
        )

    def operand_access(self, j: int, blocked: bool = True, merged: bool = False) -> Access:
        """Return the access to operand j, which is there, over the loops. merged: dimensions of one loop are one."""
        return self._seen(self.record.operands[j], self.rule.ins[j] or (), blocked, merged)

    def result_access(self, blocked: bool = True, merged: bool = False) -> Access:
        """Return the access to the result over the loops."""
        return self._seen(self.record.results[0], self.rule.outs[0], blocked, merged)

    def _seen(self, spec: TensorSpec, dims: Sequence[Dim], blocked: bool, merged: bool) -> Access:
        spec, dims = self.loops.merged(spec, dims) if merged else (spec, self.loops.dims(dims))
        return Access(spec, dims, blocked)

    def set_factors(self, sizes, units=None, shard=None, split=None, reduce=None, max_len=None) -> None:
        """Set the loop space of a group. Raises NotLowerable if a factor that stays whole is longer than a slice can be."""
        n = len(sizes)
        self.sizes = tuple(sizes)
        self.units = tuple(units or (1,) * n)
        self.shard = tuple(shard or (True,) * n)
        self.split = tuple(split or (True,) * n)
        self.reduce = tuple(reduce or (False,) * n)
        self.max_len = tuple(max_len or (UNLIMITED,) * n)
        for size, whole, most in zip(self.sizes, self.split, self.max_len, strict=True):
            if not whole and size > most:
                raise NotLowerable(f"{size} points stay together, and instructions take {most} at most")

    def arguments(self) -> list[int]:
        """Return the record's operand index of each read access, in order."""
        return [i for i, s in enumerate(self.record.operands) if s is not None][: len(self.reads)]

    def skips(self, lo: Sequence[int], hi: Sequence[int]) -> bool:
        """True if the slice contributes nothing; some slice of every result must contribute."""
        return False

    def working(self, lo: Sequence[int], hi: Sequence[int], slices: Sequence[int]) -> int:
        """Return how many slices of the `skipping` factors in [lo, hi) have work."""
        return 1

    def amounts(self, lo: Sequence[int], hi: Sequence[int], slices: Sequence[int]) -> Sequence[float]:
        """Return how many whole slices of the others of these factors have as much work as every slice of `unequal` ones in [lo, hi)."""
        return [self.working(lo, hi, slices)]

    def fullest(self, lo: Sequence[int], hi: Sequence[int], slices: Sequence[int]) -> Sequence[int]:
        """Return from where on in [lo, hi) the first slice is one with most work."""
        return lo

    def hindmost(self, lens: Sequence[int]) -> tuple[int, ...]:
        """Return where a slice of such lengths begins that has as much work as any; of a reduction, at its beginning."""
        place = enumerate(zip(self.sizes, lens, strict=True))
        return tuple([n - size if f in self.skipping and not self.reduce[f] else 0 for f, (n, size) in place])

    def in_step(self, slices: Sequence[int]) -> bool:
        """Return whether tiles that divide `skipping` factors go through equally many slices of such lengths all the same."""
        return False

    def contents(self, lo: Sequence[int], hi: Sequence[int]) -> list[Any]:
        """Return per read access what its bytes depend on: slices with equal contents share a load."""
        return [access.place(lo) for access in self.reads]

    def prepares(self, changed: Sequence[int]) -> bool:
        """True if a slice for which these reads change prepares one of them first."""
        return self.prepared in changed

    def density(self, lo: Sequence[int], hi: Sequence[int]) -> float:
        """Return the part of the points in [lo, hi) that slices with work must cover."""
        return 1.0

    def needs(self, k: int, lo: Sequence[int], hi: Sequence[int]) -> bool:
        """True if the slice's instructions read access k."""
        return True

    def place(self, lo: Sequence[int], hi: Sequence[int]) -> tuple:
        """Return what the code of a tile's range depends on besides lengths and DDR bases."""
        return ()

    def slice_form(self, lo: Sequence[int], hi: Sequence[int]) -> tuple:
        """Return what the instructions of a slice depend on besides buffer addresses."""
        return (tuple(lo), tuple(hi)) if self.positional else tuple([b - a for a, b in zip(lo, hi, strict=True)])

    def cost_form(self, lo: Sequence[int], hi: Sequence[int]) -> tuple:
        """Return what the cycles of a slice depend on."""
        return self.slice_form(lo, hi)

    def scratch_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> list[int]:
        """Bytes of each scratch buffer that `emit` needs for this slice."""
        return []

    def access_bytes(self, access: Access, lens: tuple[int, ...]) -> int:
        """Largest scratchpad footprint of an access over all slices of such factor lengths (windows differ at borders)."""
        own = tuple([lens[f] for f in access.sorted_factors])
        found = access.known_bytes.get(own)
        if found is None:
            if self.positional:
                found = access.local(tuple((0, d.extent(lens)) for d in access.dims)).size_bytes
            else:
                found = access.most_bytes(lens)
            access.known_bytes[own] = found
        return found

    def slice_bytes(self, lens: tuple[int, ...]) -> tuple[int, ...]:
        """`access_bytes` of every access, reads then writes."""
        found = self.known_slices.get(lens)
        if found is None:
            found = tuple([self.access_bytes(a, lens) for a in (*self.reads, *self.writes)])
            self.known_slices[lens] = found
        return found

    def inner_bytes(self, lens: tuple[int, ...], sums: bool) -> int:
        """Bytes of what a slice's instructions work with besides operands and results. sums: partial ones are kept."""
        key = (*lens, sums)
        found = self.known_bytes.get(key)
        if found is None:
            sizes = [*self.const_bytes(), *([self.acc_bytes((0,) * len(lens), lens)] * sums)]
            found = sum(self.taken_scratch(lens)) + sum([round_up(b, ALIGN_BYTES) for b in sizes])
            self.known_bytes[key] = found
        return found

    def taken_scratch(self, lens: tuple[int, ...]) -> list[int]:
        """Bytes that each scratch buffer of a slice takes."""
        found = self.known_scratch.get(lens)
        if found is None:
            found = [round_up(n, ALIGN_BYTES) for n in self.scratch_bytes((0,) * len(lens), lens)]
            self.known_scratch[lens] = found
        return found

    def least_bytes(self, lens: tuple[int, ...]) -> int:
        """Bytes that no plan with slices of such factor lengths goes below."""
        own = [n for k, n in enumerate(self.slice_bytes(lens)) if k not in self.replaced and k != self.rows_at[0]]
        return sum(own) + self.inner_bytes(lens, False) - self.turned_bytes(lens)

    @property
    def opens_with(self) -> frozenset[int]:
        """Factors with which the prepared access changes."""
        return self.reads[self.prepared].factors

    def turned_bytes(self, lens: tuple[int, ...], later: int = 0) -> int:
        """Return how many bytes less it takes where the prepared access is loaded once: what prepares it is not needed any more when
        slices are worked on. later: bytes of buffers, besides scratch, that are not needed before."""
        if not self.opening:
            return 0
        sizes = self.taken_scratch(lens)
        return min(sum(sizes[: self.opening]), sum(sizes[self.opening :]) + later)

    def const_bytes(self) -> list[int]:
        """Bytes of buffers that `prologue` fills once per tile."""
        return []

    def buffers(self, k: int, shared: bool, sharing: bool, bufs: int) -> int:
        """Return the scratchpad buffers of access k (reads, then writes), which is moved more than once. shared: tiles load
        it together; sharing: they do so with any operand; bufs: the plan's choice."""
        if shared:
            return self.shared_copies
        return max(bufs, 1 + self.keeps)  # what slices of one sum wait for each other for is no time to load

    @property
    def chains(self) -> bool:
        """False if it is no loop nest over slices that load all they need, and runs alone in its launch."""
        return bool(self.writes) and all([a.loaded for a in self.reads])

    @cached_property
    def shares(self) -> bool:
        """True if matrix products are among the ops: tiles may load a common operand together and pass it on."""
        ops = self.record.ops if isinstance(self.record, GroupRecord) else (self.record,)
        return any([op.rule is not None and op.rule.macs() > 0 for op in ops])

    def may_share(self, k: int) -> bool:
        """True if tiles may load read access k together."""
        return self.sharing and self.shares

    def arriving(
        self, reads: list[int], lo: Sequence[int], hi: Sequence[int], most: Sequence[int]
    ) -> list[tuple[list[int], int]]:
        """Return shared reads that change together with a slice as they arrive, and in how many chunks. What is prepared comes first if it
        comes in chunks: as many for tiles with fewer rows, so that is asked of the longest slices (most)."""
        k = self.prepared
        if k not in reads or (count := self.arrivals([k], (0,) * len(most), most)) == 1:
            return [(reads, self.arrivals(reads, lo, hi))]
        rest = [r for r in reads if r != k]
        return [([k], count), *([(rest, self.arrivals(rest, lo, hi))] if rest else [])]

    def comes_first(self, k: int, size_bytes: int) -> bool:
        """True if shared read k, with slices of so many bytes, comes before what else the first slice needs: it is worked on first, for
        longer than tiles take to meet once more. Of 16 prefills and encoders those with more are 0.1 to 1.4 % faster so, but for two (0.1 and
        0.5 % slower); one with 36 KiB is 1.4 % slower."""
        return k == self.prepared and size_bytes >= MEETING_BYTES

    def arrivals(self, reads: Sequence[int], lo: Sequence[int], hi: Sequence[int]) -> int:
        """Return in how many chunks shared reads that change together with a slice arrive; 1: each as a whole."""
        counts = {self.reads[k].chunks(lo, hi) for k in reads}
        return counts.pop() if len(counts) == 1 else 1

    def may_gather(self, k: int) -> bool:
        """True if tiles may put read access k together from what each of them has in scratchpad: all go through the same slices."""
        return self.may_share(k) and not self.keeps and not self.skipping and not self.positional

    def fits(self, lens: Sequence[int]) -> bool:
        """True if the instructions' field ranges can hold a slice of these factor lengths."""
        return True

    def acc_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> int:
        """Bytes of the partial-sum buffer when the reduction is split."""
        return 0

    def prologue(self, em: Emitter, consts: Sequence[int]) -> None:
        """Emit what runs once per tile before the first slice."""

    def emit(self, em: Emitter, s: Slice) -> None:
        """Emit the instructions of one slice."""

    def ops_per_point(self) -> float:
        """Vector-engine cycles per point of the factor box, for ranking candidates; 0 for matrix ops."""
        return 0.0
