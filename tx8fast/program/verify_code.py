"""Checks of instructions, many code arrays at once: fields, structure, scratchpad, alignment, DDR extents.

May import: numpy, _kernels, isa, machine, numerics, program.model, program.problems, program.verify_flow. Must not: execute instructions, share code with
what produces programs.

Rows are looked at as they are stored: a loop repeats its rows with other DDR offsets only, so that the ends of a row's DDR
range follow from the counts of the loops around it, and everything else is the same in every iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from tx8fast import isa
from tx8fast._kernels import distinct_rows
from tx8fast.isa.base import by_family
from tx8fast.isa.expand import MAX_ROWS
from tx8fast.isa.record import MAX_LOOPS, RECORD
from tx8fast.machine import Machine
from tx8fast.numerics.formats import CODE_TO_DTYPE, ITEM_BYTES
from tx8fast.program.model import Segment
from tx8fast.program.problems import Problems
from tx8fast.program.verify_flow import ENGINE_UNITS, WAIT_WORKER, Flow
from tx8fast.program.verify_places import Places
from tx8fast.records import dataclass

LOOP, END, KCORE = (isa.INSTRUCTIONS[name].OPCODE for name in ("loop", "end", "kcore"))
DMA_UNITS = (2, 3)
WDMA = 3
WORDS_BUT_OFFSETS = isa.words_but("ddr", "ddr_step")
BATCH_ROWS = 1 << 16  # rows that are looked at together
FORMATS = np.array(sorted(CODE_TO_DTYPE), np.uint8)
OPCODES = np.array(sorted(cls.OPCODE for cls in isa.INSTRUCTIONS.values()))


@dataclass(eq=False)
class Code:
    """One code array and the tiles that run it."""

    where: str
    segment: Segment
    rows: np.ndarray
    tiles: np.ndarray
    good: bool = True


def batches(codes: Sequence[Code]) -> Iterator[list[Code]]:
    """Yield the codes in order, as many together as are worth it."""
    out: list[Code] = []
    size = 0
    for code in codes:
        out.append(code)
        size += len(code.rows)
        if size >= BATCH_ROWS:
            yield out
            out, size = [], 0
    if out:
        yield out


class Batch:
    """The rows of several codes as one array."""

    def __init__(self, machine: Machine, codes: Sequence[Code], found: Problems) -> None:
        self.machine, self.codes, self.found = machine, codes, found
        lengths = [len(c.rows) for c in codes]
        self.begin = np.cumsum([0, *lengths])
        self.rows = (
            np.concatenate([c.rows.view(np.uint8) for c in codes]).view(RECORD) if sum(lengths) else np.zeros(0, RECORD)
        )
        self.of = np.repeat(np.arange(len(codes)), lengths)  # every row's code
        self.segments = list({id(c.segment): c.segment for c in codes}.values())
        number = {id(s): n for n, s in enumerate(self.segments)}
        self.home = self.each([number[id(c.segment)] for c in codes])  # every row's segment

    @cached_property
    def marks(self) -> tuple[np.ndarray, np.ndarray]:
        """Which rows open a loop, and which end one."""
        opcode = self.of_kind(self.firsts["opcode"])
        return opcode == LOOP, opcode == END

    def each(self, values: Sequence[int]) -> np.ndarray:
        """Return a value per code as a column over rows."""
        return np.asarray(values, np.int64)[self.of]

    def report(self, bad: np.ndarray, what: str, *, fatal: bool = False) -> None:
        """Report rows of one kind, a mask or positions, once per code; `fatal`: nothing else of the code can be checked."""
        at = np.flatnonzero(bad) if bad.dtype == bool else bad
        for c in isa.distinct(self.of[at]) if len(at) else ():
            self.found.rows(self.codes[c].where, at[self.of[at] == c] - self.begin[c], what)
            self.codes[c].good &= not fatal

    @cached_property
    def kinds(self) -> tuple[np.ndarray, np.ndarray]:
        """A number per row, equal for rows of one segment that differ in their DDR offsets alone, and the first row of each. What
        does not speak of offsets is checked once for all of a kind: of a language model's rows two or three in a hundred."""
        return distinct_rows(isa.words_of(self.rows), WORDS_BUT_OFFSETS, self.home)

    @cached_property
    def firsts(self) -> np.ndarray:
        """The first row of each kind."""
        return self.rows[self.kinds[1]]

    @cached_property
    def units(self) -> np.ndarray:
        """The unit of each kind."""
        return isa.units(self.firsts)

    def of_kind(self, values: np.ndarray) -> np.ndarray:
        """Return a value per kind as a column over rows."""
        return values[self.kinds[0]]

    def of_kinds(self, some: np.ndarray) -> np.ndarray:
        """Return which rows are of these kinds, a mask or numbers."""
        mask = np.zeros(len(self.firsts), bool)
        mask[some] = True
        return self.of_kind(mask)

    # -- what must hold before anything is computed from fields -------------------------------------------------------

    def check_fields(self) -> None:
        """Check opcodes, formats, fields, loops and indices; codes with a fault are no longer `good`."""
        first, rows = self.kinds[1], self.firsts
        strange = ~np.isin(rows["opcode"], OPCODES)
        if strange.any():
            text = f"opcode {rows['opcode'][np.argmax(strange)]:#x} does not exist"
            self.report(self.of_kinds(strange), text, fatal=True)
            return
        nameless = ~np.isin(rows["fmt"], FORMATS)
        if nameless.any():
            text = f"format code {rows['fmt'][np.argmax(nameless)]} does not exist"
            self.report(self.of_kinds(nameless), text, fatal=True)
            return
        for bad, text in isa.offset_problems(self.rows):
            self.report(bad, text, fatal=True)
        for bad, text in isa.value_problems(rows):
            self.report(self.of_kinds(bad), text, fatal=True)
        self._check_loops()
        segments = [c.segment for c in self.codes]
        slots, ops, routines = (
            self.each(counts)[first]
            for counts in zip(*[(len(s.slot_arg), len(s.ops), len(s.routines)) for s in segments], strict=True)
        )
        at, number, _, _ = isa.lookup.numbers(rows)
        kcore = np.flatnonzero(rows["opcode"] == KCORE)
        routine = rows["p"][kcore, isa.INSTRUCTIONS["kcore"].FIELDS_P.index("routine")]
        homeless = np.isin(self.units, DMA_UNITS) & (rows["slot"] == -1)
        for bad, text in (
            ((rows["slot"] < -1) | (rows["slot"] >= slots), lambda b: f"slot outside [-1, {slots[b]})"),
            ((rows["op"] < -1) | (rows["op"] >= ops), lambda b: f"op outside [-1, {ops[b]})"),
            (
                (rows["worker"] < 0) | (rows["worker"] >= self.machine.tile.workers),
                lambda _: f"worker outside [0, {self.machine.tile.workers})",
            ),
            (homeless, lambda _: "a DDR transfer without a slot"),
            (at[(number < 0) | (number >= slots[at])], lambda b: f"row numbers in a slot outside [0, {slots[b]})"),
            (kcore[(routine < 0) | (routine >= routines[kcore])], lambda b: f"routine outside [0, {routines[b]})"),
        ):
            at_all = np.flatnonzero(self.of_kinds(bad))
            for c in isa.distinct(self.of[at_all]):
                own = at_all[self.of[at_all] == c]
                self.report(own, text(self.kinds[0][own[0]]), fatal=True)

    def _check_loops(self) -> None:
        opens, closes = self.marks
        running = np.cumsum(opens.astype(np.int64) - closes)
        for k, code in enumerate(self.codes):
            lo, hi = self.begin[k : k + 2]
            inside = running[lo:hi] - (running[lo - 1] if lo else 0)
            if not len(inside):
                continue
            if inside.min() < 0:
                self.report(lo + np.flatnonzero(inside < 0)[:1], "end of a loop that was not opened", fatal=True)
            if inside[-1] > 0:
                self.found.add(f"{code.where}: {inside[-1]} loops are not closed")
                code.good = False
            if inside.max() > MAX_LOOPS:
                self.report(lo + np.flatnonzero(inside > MAX_LOOPS), f"more than {MAX_LOOPS} nested loops", fatal=True)

    # -- loops -------------------------------------------------------------------------------------------------------

    def good_part(self) -> Batch:
        """Return the codes that are still good."""
        good = [c for c in self.codes if c.good]
        return self if len(good) == len(self.codes) else Batch(self.machine, good, self.found)

    @cached_property
    def inside(self) -> np.ndarray:
        """How many loops each row is in; a LOOP and its END stand outside their loop."""
        opens, closes = self.marks
        return np.cumsum(opens.astype(np.int64)) - np.cumsum(closes.astype(np.int64)) - opens

    @cached_property
    def counts(self) -> np.ndarray:
        """How often the loops around each row run, outermost first, 1 where there is none: (rows, MAX_LOOPS) int64."""
        opens, place = self.marks[0], np.arange(len(self.rows))
        counts = np.ones((len(self.rows), MAX_LOOPS), np.int64)
        for level in range(MAX_LOOPS if opens.any() else 0):
            last = np.maximum.accumulate(np.where(opens & (self.inside == level), place, -1))
            deep = self.inside > level
            counts[deep, level] = self.rows["p"][last[deep], 0]
        return counts

    @cached_property
    def times(self) -> np.ndarray:
        """How often each row runs (float64: a count that is too large is told, not wrapped)."""
        return np.prod(self.counts, axis=1, dtype=np.float64)

    def check_length(self) -> None:
        """Check how many rows run; codes with too many are no longer `good`."""
        work = np.where(np.logical_or(*self.marks), 0.0, self.times)
        for k, code in enumerate(self.codes):
            length = work[self.begin[k] : self.begin[k + 1]].sum()
            if length > MAX_ROWS:
                self.found.add(
                    f"{code.where}: {length:.0f} instructions with loops written out, at most {MAX_ROWS} allowed"
                )
                code.good = False

    # -- operands ----------------------------------------------------------------------------------------------------

    def check_operands(self) -> None:
        """Check where scratchpad operands lie, their alignment, and what must hold between fields."""
        rows, home = self.firsts, self.home[self.kinds[1]]
        families = list(by_family(rows))
        everywhere = np.arange(len(rows))
        for family, index, own in families:
            at = everywhere[index]
            for bad, text in family.rules(own):
                if bad.any():
                    self.report(self.of_kinds(at[bad]), text)
            need = np.broadcast_to(family.alignment(own), own["spm"].shape)
            off: np.ndarray = own["spm"] % need != 0
            if off.any():
                r, k = np.argwhere(off)[0].tolist()
                text = f"{isa.class_of(int(own['opcode'][r])).NAME} operand at SPM {own['spm'][r, k]:#x}, required a multiple of {need[r, k]}"
                self.report(self.of_kinds(at[off.any(axis=1)]), text)
        table = Places(self.segments)
        for span, verb in zip(isa.spm_ranges(rows, families), ("reads", "writes"), strict=True):
            self._check_ranges(span, verb, table, home, self.arguments)

    @cached_property
    def arguments(self) -> np.ndarray:
        """The argument of each kind of DMA rows, -1 of all others."""
        slots = [np.asarray(s.slot_arg, np.int64) for s in self.segments]
        begin = np.cumsum([0, *map(len, slots)])
        table = np.concatenate([np.full(1, -1), *slots])
        at = begin[self.home[self.kinds[1]]] + self.firsts["slot"] + 1
        return table[np.where(np.isin(self.units, DMA_UNITS), at, 0)]

    def _check_ranges(self, span: np.ndarray, verb: str, table: Places, home: np.ndarray, argument: np.ndarray) -> None:
        low, high = self.machine.spm_base, self.machine.spm_limit
        some = span[..., 1] > span[..., 0]
        beyond = some & ((span[..., 0] < low) | (span[..., 1] > high))
        lost = some & ~beyond
        at, k = np.nonzero(lost)
        lost[at, k] = ~table.hold(home[at], argument[at], span[at, k, 0], span[at, k, 1])
        for bad, why in ((beyond, f"outside [{low:#x}, {high:#x})"), (lost, "which do not lie in one of its buffers")):
            if not bad.any():
                continue
            everywhere = self.of_kinds(np.any(bad, axis=1))
            for c in isa.distinct(self.of[everywhere]):
                own = np.flatnonzero(everywhere & (self.of == c))
                kind = self.kinds[0][own[0]]
                text = ", ".join(f"[{a:#x}, {b:#x})" for a, b in span[kind][bad[kind]].tolist())
                op, segment = int(self.rows["op"][own[0]]), self.codes[c].segment
                self.report(own, f"{verb} SPM {text}{f' of op {segment.ops[op]!r}' if op >= 0 else ''}, {why}")

    def check_elements(self) -> None:
        """Check that transfers move whole elements of their argument: the rows of a kind differ in DDR offsets and loop steps alone."""
        sizes = [[1 if a is None else ITEM_BYTES.get(a.dtype, 1) for a in s.arguments] for s in self.segments]
        table = np.array([n for own in sizes for n in (*own, 1)])
        begin, home = np.cumsum([0, *(len(own) + 1 for own in sizes)]), self.home[self.kinds[1]]
        size = table[np.minimum(begin[home] + np.maximum(self.arguments, 0), begin[home + 1] - 1)]
        kinds = np.flatnonzero(self.arguments >= 0)
        at, rows = np.flatnonzero(self.of_kinds(kinds)), self.firsts[kinds]
        lookup = rows["opcode"] == isa.INSTRUCTIONS["rdma_row"].OPCODE
        steps = np.where(lookup[:, None], rows["p"][:, [0, 1, 1, 1]], rows["p"][:, [0, 1, 3, 5]])
        fixed = np.concatenate([steps, rows["spm"][:, :1]], axis=1)
        moved = np.concatenate([self.rows["ddr"][at][:, None], self.rows["ddr_step"][at]], axis=1)
        for values, own, names in (
            (fixed, size[kinds], ("run", "stride", "stride", "stride", "SPM address")),
            (moved, self.of_kind(size)[at], ("DDR offset", "loop step", "loop step")),
        ):
            off = values % own[:, None] != 0
            if off.any():
                r, k = np.argwhere(off)[0].tolist()
                bad = self.of_kinds(kinds[off.any(axis=1)]) if values is fixed else at[off.any(axis=1)]
                self.report(bad, f"a {names[k]} of {values[r, k]} bytes, but an element has {own[r]}")

    # -- DDR ---------------------------------------------------------------------------------------------------------

    def transfers(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return of all DDR accesses: the code, side (0 read, 1 written), slot, first and last byte relative to the
        slot, and the bytes that all iterations move."""
        rows = self.firsts
        span, runs = np.zeros(len(rows), np.int64), np.ones(len(rows), np.int64)
        for family, index, own in by_family(rows):
            if issubclass(family, isa.dma.Dma):
                span[index] = family.ddr_span(own)
                runs[index] = family.runs(own) if family is isa.dma.Dma else 1
        moved = rows["p"][:, 0] * runs
        at = np.flatnonzero(self.of_kind(span > 0))
        kind = self.kinds[0][at]
        first, steps = self.rows["ddr"][at], self.rows["ddr_step"][at] * (self.counts[at] - 1)
        lo = first + np.minimum(steps, 0).sum(axis=1)
        hi = first + np.maximum(steps, 0).sum(axis=1) + span[kind]
        numbers, *number = isa.lookup.numbers(rows)
        n_at = np.flatnonzero(self.of_kinds(numbers))
        n_kind = np.searchsorted(numbers, self.kinds[0][n_at])
        n_slot, n_offset, n_bytes = (column[n_kind] for column in number)
        return (
            np.concatenate([self.of[at], self.of[n_at]]),
            np.concatenate([(self.units == WDMA).astype(np.int64)[kind], np.zeros(len(n_at), np.int64)]),
            np.concatenate([rows["slot"][kind], n_slot]),
            np.concatenate([lo, n_offset]),
            np.concatenate([hi, n_offset + n_bytes]),
            np.concatenate([moved[kind] * self.times[at], np.zeros(len(n_at))]),
        )

    # -- what concerns other tiles, in order of execution ------------------------------------------------------------

    def flows(self) -> Iterator[tuple[Code, Flow, np.ndarray]]:
        """Yield every code's order of execution, and the places in the code of the rows that it is of. Of engine rows that nothing
        interrupts only the last of each worker is left; loops of such rows run once."""
        firsts, (opens, closes) = self.firsts, self.marks
        numbered = (firsts["opcode"] == LOOP) | (firsts["opcode"] == WAIT_WORKER)
        columns = firsts["opcode"], self.units, firsts["worker"], np.where(numbered, firsts["p"][:, 0], 0)
        worker, engine = self.of_kind(firsts["worker"]), self.of_kind(self.units < ENGINE_UNITS)
        keep = ~engine & ~opens & ~closes
        seen = np.cumsum(keep)
        for level in range(MAX_LOOPS):
            first, last = (np.flatnonzero(marks & (self.inside == level)) for marks in (opens, closes))
            busy = seen[first] != seen[last]
            keep[first[busy]] = keep[last[busy]] = True
        at = np.flatnonzero(keep | engine)
        ends = np.ones(len(at), bool)
        same = (worker[at[1:]] == worker[at[:-1]]) & (self.of[at[1:]] == self.of[at[:-1]])
        ends[:-1] = keep[at[1:]] | ~same
        at = at[keep[at] | ends]
        edges = np.searchsorted(at, self.begin)
        ordered = [column[self.kinds[0][at]] for column in columns]
        flows: dict[bytes, Flow] = {}
        for k, code in enumerate(self.codes):
            own = [column[edges[k] : edges[k + 1]] for column in ordered]
            form = b"".join(column.tobytes() for column in own)
            if form not in flows:
                flows[form] = Flow(*own)
            yield code, flows[form], at[edges[k] : edges[k + 1]] - self.begin[k]
