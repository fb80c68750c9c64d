"""How long a plan takes, tried on one tile before any code exists.

May import: lower, isa, machine, _kernels, search.plan, search.order, search.exchange. Must not: emit programs,
choose plans.

All tiles of a plan do equal work on different data, so one tile that gets its share of the DDR bandwidth
stands for them. Its actions go through the event kernel in the order in which the code will have them; what takes
several tiles (`search.exchange`) is charged to the kernel core. A long loop nest is tried with fewer trips of its
loops; what the others take follows from the trips that were tried. Where slices without work are left out, the first
steps of the nest are tried and the rest continues their rate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from tx8fast import isa
from tx8fast._kernels import EventInput, simulate_events
from tx8fast._kernels._facade_events import KIND_WAIT, KIND_WAIT_WORKER
from tx8fast.lower.base import Emitter, Lowering, Slice
from tx8fast.lower.transfer import Descriptor
from tx8fast.machine import Machine
from tx8fast.search.exchange import QUEUE_DEPTH, Groups, exchange, sharing_groups
from tx8fast.search.order import Fill, Order, tile_order
from tx8fast.search.plan import LoopStep, Plan, busiest, copies, count_steps, part_of, reloads, rows_cycles, slice_bytes

SPACE = 1 << 22  # bytes; more than any buffer
MAX_COPIES = 4  # of one operand
MAX_KEPT = 64  # slices of a reduction that have buffers of their own
MAX_RAGGED = 64  # steps tried of a loop nest in which slices without work are left out
MAX_STEPS = 24  # steps of a loop nest that are tried
MIN_TRIPS = 3  # what is left of a loop at least, and
MIN_INNER = 8  # of the innermost: loads run ahead of it until its buffers are full
#: what the event kernel calls them; sends are over when the tiles that wait for them are released
SYNC_KINDS = {"wait": KIND_WAIT, "wait_worker": KIND_WAIT_WORKER, "send_wait": KIND_WAIT_WORKER}


@dataclass(frozen=True)
class Block:
    """What the event kernel needs of rows. read (n, 4, 2), write (n, 2, 2) in scratchpad; arg (n, 3): what a wait
    waits for."""

    kind: np.ndarray
    issue: np.ndarray
    fixed: np.ndarray
    ddr_bytes: np.ndarray
    read: np.ndarray
    write: np.ndarray
    arg: np.ndarray

    @classmethod
    def of(cls, machine: Machine, rows: np.ndarray) -> Block:
        address = np.maximum(rows["ddr"], 0)
        fixed, ddr_bytes = isa.durations(machine, rows, address)
        spans = isa.ranges(rows, address)
        issue = np.asarray(isa.issue_cycles(machine, rows), np.int64)
        kind = isa.units(rows).astype(np.uint8)
        arg = np.zeros((len(rows), 3), np.int64)
        for name, code in SYNC_KINDS.items():
            own = rows["opcode"] == isa.INSTRUCTIONS[name].OPCODE
            kind[own] = code
            if name == "wait_worker":
                arg[own, 0] = rows["p"][own, 0]
        return cls(kind, issue, np.asarray(fixed, np.int64), np.asarray(ddr_bytes, np.int64), spans["spm_read"],
                   spans["spm_write"], arg)  # fmt: skip

    def take(self, at: np.ndarray) -> Block:
        return Block(*[getattr(self, f.name)[at] for f in fields(self)])

    @staticmethod
    def join(parts: Sequence[Block]) -> Block:
        return Block(*[np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Block)])


class Pool:
    """Blocks of rows by key, each made once. Blocks asked for are made together by `fill`."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.rows = Block.of(machine, isa.rows([]))
        self.at: dict[tuple, tuple[int, int]] = {}  # key -> first row, rows
        self.wanted: dict[tuple, Sequence[tuple]] = {}
        self.pauses: dict[tuple, int] = {}  # key -> cycles in which the kernel core is busy, and nothing else
        self.moves: dict[tuple, tuple[tuple, np.ndarray]] = {}  # key -> key of the block to move, distance by space

    def knows(self, key: tuple) -> bool:
        return key in self.at or key in self.wanted or key in self.pauses or key in self.moves

    def fill(self) -> None:
        """Make what is wanted, then what is moved from other blocks."""
        if self.wanted:
            self._append(list(self.wanted), [len(w) for w in self.wanted.values()],
                         Block.of(self.machine, isa.rows([row for w in self.wanted.values() for row in w])))  # fmt: skip
            self.wanted = {}
        if self.pauses:
            one = Block.of(self.machine, isa.rows([isa.make("wait_worker", workers=0)])).take(
                np.zeros(len(self.pauses), np.int64)
            )
            cycles = np.array(list(self.pauses.values()), np.int64)
            self._append(list(self.pauses), [1] * len(cycles), replace(one, issue=cycles, fixed=one.fixed * 0))
            self.pauses = {}
        if self.moves:
            parts = []
            for key, distance in self.moves.values():
                begin, n = self.at[key]
                rows = self.rows.take(np.arange(begin, begin + n))
                for ranges in (rows.read, rows.write):
                    ranges += distance[ranges[..., :1] // SPACE]
                parts.append(rows)
            self._append(list(self.moves), [len(p.kind) for p in parts], Block.join(parts))
            self.moves = {}

    def _append(self, keys: Sequence[tuple], sizes: Sequence[int], rows: Block) -> None:
        at = len(self.rows.kind)
        for key, n in zip(keys, sizes, strict=True):
            self.at[key] = at, n
            at += n
        self.rows = Block.join([self.rows, rows])


class PlanTimer:
    """Times plans of one lowering; blocks of rows that several plans have in common are made once."""

    def __init__(self, low: Lowering, machine: Machine) -> None:
        self.low, self.machine = low, machine
        self.pool = Pool(machine)
        self.accesses = [*low.reads, *low.writes]
        self.own_factors = [sorted(a.factors) for a in self.accesses]
        self.known: dict[tuple, int] = {}  # plans that differ in the order of loops without trips are the same
        self.end_cycles = rows_cycles(machine, "wait", "barrier")
        # every buffer copy has a space of its own, the same in every plan; the event kernel knows no limit
        spaces = itertools.count(1)  # 0 is where rows without a range are
        at = lambda n: [next(spaces) * SPACE for _ in range(n)]  # noqa: E731
        self.base = [at(MAX_KEPT if low.staged else MAX_COPIES)[0] for _ in self.accesses]
        self.staging = [at(MAX_COPIES) for _ in low.reads]
        self.scratch = at(len(low.scratch_bytes((0,) * len(low.sizes), low.units)))
        self.consts = at(len(low.const_bytes()))
        self.acc = at(1)[0]
        self.n_spaces = next(spaces)

    def cycles(self, plan: Plan) -> int:
        """Return the cycles of a plan, from the first load to the final wait and barrier."""
        loops = tuple([f for f in plan.order if plan.trips[f] > 1])
        same = plan.parts, plan.shard, plan.slices, loops, plan.bufs, plan.shared, plan.kept
        if same not in self.known:
            self.known[same] = self._cycles(plan, loops)
        return self.known[same]

    def _cycles(self, plan: Plan, loops: tuple[int, ...]) -> int:
        low = self.low
        ragged = bool(low.skipping)
        short = [] if ragged else _shortened([plan.trips[f] for f in loops])
        lo, hi = busiest(low, plan) if ragged else self._range(plan, dict(zip(loops, short, strict=True)))
        shared = [k for k, g in enumerate(plan.shared) if g > 1]
        groups = {k: sharing_groups(low, plan, k) for k in shared}
        buffers = [copies(low, plan, k) for k in range(len(self.accesses))]
        order = tile_order(low, plan, buffers, lo, hi, shared, limit=MAX_RAGGED if ragged else None)
        keys, workers, computes = self._blocks(order, groups)
        self.pool.fill()
        spans = [self.pool.at[key] for key in keys]
        count = np.array([n for _, n in spans])
        last = np.cumsum(count)
        # row numbers of all blocks, one after the other
        at = np.arange(last[-1]) + np.repeat([begin for begin, _ in spans] - last + count, count)
        rows = self.pool.rows.take(at)
        n, none = len(at), np.zeros((len(at), 2), np.int64)
        result = simulate_events(EventInput(
            kind=rows.kind, issue=rows.issue, spm_read=rows.read, spm_write=rows.write, code_begin=np.zeros(1, np.int64),
            tile_begin=np.array([0, n], np.int64), fixed=rows.fixed, ddr_bytes=rows.ddr_bytes, ddr_read=none,
            ddr_write=none, worker=np.repeat(np.array(workers, np.uint8), count), arg=rows.arg,
        ), QUEUE_DEPTH, float(self.machine.dma.port_bytes), self.machine.ddr_bytes_per_cycle / self._busy_tiles(plan))  # fmt: skip
        ends = result.end[last[computes] - 1]
        if ragged:
            half = max(1, len(ends) // 2)
            left = count_steps(low, plan) - len(ends)
            missing = left * float(ends[-1] - ends[-1 - half]) / half if left > 0 else 0.0
        else:
            missing = _left_out(short, [plan.trips[f] for f in loops], ends)
        return result.cycles + round(missing) + self.end_cycles

    def _busy_tiles(self, plan: Plan) -> float:
        """Return the tiles that load at the same rate as the one that is tried: tiles with less to do leave their share
        of the DDR to the others."""
        low, total, own = self.low, 0.0, 0.0
        for access in self.accesses:
            tiles = [s / d if f in access.factors else -(-s // d)
                     for f, (s, d) in enumerate(zip(low.sizes, plan.shard, strict=True))]  # fmt: skip
            size = slice_bytes(low, access, plan) * reloads(low, plan, access.factors)
            own += size
            total += size * math.prod(tiles)
        return total / own

    def _range(self, plan: Plan, trips: dict[int, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the factor range of the tile that is tried, with so many trips of each loop: where code depends on the
        place, a tile inside, because the border saves the others work."""
        sizes = self.low.sizes
        inside = [self.low.positional and s > 2 * d for s, d in zip(sizes, plan.shard, strict=True)]
        lo = [d * x for d, x in zip(plan.shard, inside, strict=True)]
        hi = [min(a + d, s) for a, d, s in zip(lo, plan.shard, sizes, strict=True)]
        for f, n in trips.items():
            hi[f] -= (plan.trips[f] - n) * plan.slices[f]
        return tuple(lo), tuple(hi)

    def _blocks(self, order: Order, groups: dict[int, Groups]) -> tuple[list[tuple], list[int], list[int]]:
        """Return the keys of the actions' blocks, their register windows, and per step the block of its compute."""
        keys: list[tuple] = [self._prologue()]
        workers, computes = [0], []
        for a in order.actions:
            s = order.steps[a.step]
            if a.kind == "store":
                n_read = len(self.low.reads)
                made = [self._transfer(n_read + j, s, s.copy[n_read + j]) for j in range(len(self.low.writes))]
            elif a.kind == "load":
                made = [self._transfer(a.access, s, s.copy[a.access])]
            elif a.kind == "part":
                made = [self._part(a.access, order.fills[a.fill], order.steps, groups)]
            elif a.kind == "exchange":
                made = [self._exchange(order, a.fill, groups)]
            elif a.kind == "meet":
                continue  # it is in the exchange
            elif a.kind in SYNC_KINDS:
                made = [self._row(a.kind, **({"workers": a.worker} if a.kind == "wait_worker" else {}))]
            else:
                if a.kind != "back":
                    computes.append(len(keys))
                made = [self._compute(a.kind, s, order.parity[a.step])]
            keys += made
            workers += [0 if a.kind == "wait_worker" else a.worker] * len(made)
        return keys, workers, computes

    def _prologue(self) -> tuple:
        if not self.pool.knows(("prologue",)):
            em = Emitter()
            self.low.prologue(em, self.consts)
            self.pool.wanted[("prologue",)] = em.rows
        return ("prologue",)

    def _row(self, name: str, **fields: int) -> tuple:
        key = (name, *fields.values())
        if not self.pool.knows(key):
            self.pool.wanted[key] = [isa.make(name, **fields)]
        return key

    def _form(self, k: int, step: LoopStep) -> tuple:
        """Return what a transfer depends on: where a box lies matters little for its time, what is clipped from it does."""
        lens = tuple([step.hi[f] - step.lo[f] for f in self.own_factors[k]])
        clipped = tuple([b - a for a, b in self.accesses[k].box(step.lo, step.hi)]) if self.low.positional else ()
        return (k, lens, clipped)

    def _moves(self, k: int, step: LoopStep) -> list[Descriptor]:
        return [d for d in self.accesses[k].transfers(step.lo, step.hi) if d.run_bytes]

    def _transfer(self, k: int, step: LoopStep, copy: int) -> tuple:
        key = self._form(k, step)
        if not self.pool.knows(key):
            name = "rdma" if k < len(self.low.reads) else "wdma"
            self.pool.wanted[key] = [_dma(name, d, self.base[k]) for d in self._moves(k, step)]
        return self._moved(key, ((k, copy),)) if copy else key

    def _part(self, k: int, fill: Fill, steps: Sequence[LoopStep], groups: dict[int, Groups]) -> tuple:
        step, at = steps[fill.step], self.staging[k][fill.version[k] % 2]
        tiles = groups[k][0].bit_count()
        key = ("part", at, tiles, *self._form(k, step))
        if not self.pool.knows(key):
            moved = part_of(self._moves(k, step), 0, tiles)[0]
            self.pool.wanted[key] = [_dma("rdma", d, at) for d in moved]
        return key

    def _exchange(self, order: Order, f: int, groups: dict[int, Groups]) -> tuple:
        """Return the time of the meeting and of all parts' way through the mesh, as issue of an empty wait."""
        fill = order.fills[f]
        step = order.steps[fill.step]
        key = ("exchange", f > 0, *[(groups[k], self._form(k, step)) for k in fill.changed])
        if not self.pool.knows(key):
            sizes = [max(d.spm + d.size_bytes for d in self._moves(k, step)) for k in fill.changed]
            made = exchange(self.machine, tuple([groups[k] for k in fill.changed]), f > 0)
            self.pool.pauses[key] = made.cycles(sizes)
        return key

    def _compute(self, phase: str, step: LoopStep, turn: int) -> tuple:
        parity = turn * self.low.overlaps
        key = (phase, self.low.slice_form(step.lo, step.hi), step.first, step.last, parity)
        if not self.pool.knows(key):
            em = Emitter()
            n_read = len(self.low.reads)
            made = Slice(step.lo, step.hi, self.base[:n_read], self.base[n_read:], self.scratch, self.consts, self.acc,
                         step.first, step.last, parity)  # fmt: skip
            getattr(self.low, phase)(em, made)
            self.pool.wanted[key] = em.rows
        return self._moved(key, enumerate(step.copy)) if any(step.copy) else key

    def _moved(self, key: tuple, copy: Iterable[tuple[int, int]]) -> tuple:
        """Return the block of `key`, whose ranges lie in the first copies, moved to copies (access, number)."""
        moves = tuple(copy)
        placed = ("moved", key, moves)
        if not self.pool.knows(placed):
            distance = np.zeros(self.n_spaces, np.int64)
            for k, c in moves:
                distance[self.base[k] // SPACE] = c * SPACE
            self.pool.moves[placed] = key, distance
        return placed


def _shortened(trips: Sequence[int]) -> list[int]:
    """Return the trips to try of nested loops, outermost first: the longest are cut until few steps are left."""
    out = list(trips)
    least = [MIN_TRIPS] * (len(out) - 1) + [MIN_INNER]
    while math.prod(out) > MAX_STEPS and any(n > m for n, m in zip(out, least, strict=True)):
        j = max(range(len(out)), key=lambda i: out[i] / least[i])
        out[j] = max(least[j], out[j] // 2)
    return out


def _left_out(tried: Sequence[int], full: Sequence[int], ends: np.ndarray) -> float:
    """Return the cycles that the trips left out of nested loops add; ends: of every step that was tried.

    A trip of a loop takes the trips of the loop inside it, and what changes between two of its own: measured here
    with the shortened loop inside, then put together with the full one. The last trip is often a shorter one.
    """
    grid = ends.reshape(tuple(tried))
    usual = [n - 2 if n > 2 else n - 1 for n in tried]
    measured = longer = 0.0  # cycles of one trip of the loop at hand, with shortened and full loops inside
    inner = inner_full = 0
    for j in reversed(range(len(tried))):
        span = max(1, (tried[j] - 1) // 4 * 2)  # even: buffers take turns
        after = (-1,) * (len(tried) - j - 1)
        at = lambda i: float(grid[(*usual[:j], i, *after)])  # noqa: B023, E731
        took = (at(usual[j]) - at(usual[j] - span)) / span
        longer = took + inner_full * longer - inner * measured
        measured, inner, inner_full = took, tried[j], full[j]
    return inner_full * longer - inner * measured


def _dma(name: str, d: Descriptor, address: int) -> tuple:
    loops = [*d.loops, *((0, 1),) * (3 - len(d.loops))]
    fields = {f"{x}{i}": v for i, (s, n) in enumerate(loops) for x, v in (("s", s), ("n", n))}
    return isa.make(name, run_bytes=d.run_bytes, slot=0, ddr=d.ddr, **fields,
                    **{"dst" if name == "rdma" else "src": address + d.spm})  # fmt: skip
