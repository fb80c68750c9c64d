"""How long a plan takes, tried on one tile before any code exists.

May import: lower, isa, machine, _kernels, tile. Must not: emit programs,
choose plans.

All tiles of a plan do equal work on different data, so one tile that gets its share of the DDR bandwidth
stands for them. Its actions go through the event kernel, in the order in which the code will have them; what takes several
tiles (`tile.multicast`) is charged to the kernel core. A long loop nest is tried with fewer trips of its
loops; what the others take follows from the trips that were tried. Where slices without work are left out, the first
steps of the nest are tried and the rest continues their rate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from copy import copy
from operator import sub

import numpy as np

from tx8fast import isa
from tx8fast._kernels import EventResult, byte_dependences
from tx8fast.lower.base import Lowering, Slice
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.lookup import TableRows
from tx8fast.lower.transfer import Descriptor, part_bytes
from tx8fast.machine import Machine
from tx8fast.search.blocks import Pool
from tx8fast.search.keeping import MAX_KEPT
from tx8fast.search.nests import MAX_STEPS, Trial, busy_tiles, closely_timed, left_out, shortened
from tx8fast.tile import gathers, sharing
from tx8fast.tile.fills import Multicasts, Reach
from tx8fast.tile.multicast import exchanges
from tx8fast.tile.nest import LoopStep
from tx8fast.tile.nodes import Nodes
from tx8fast.tile.order import Fill, Order, tile_order
from tx8fast.tile.schedule import TRIED, better, free_ranks, list_orders, measured
from tx8fast.tile.sharing import Groups, Loaders
from tx8fast.tile.tiling import Tiling
from tx8fast.tile.transfers import chunk_of, dma_rows, part_of

LANES = 64  # of a channel block, in most formats
SPACE = 1 << 22  # bytes; more than any buffer
MAX_COPIES = 4  # of one operand
WAITS = 9  # rows behind those of a plan that list scheduling puts between them
CLOSER_STEPS = 128  # steps tried of those few plans among which the choice is close
#: times the cycles of a plan in its first order, no other order takes less: of 344 plans of three models the best one took 0.82 times as many
HOPELESS = 0.75
MAX_RAGGED = 128  # steps tried of a loop nest in which slices without work are left out

Sent = tuple[int, int, int]  # times of a multicast, and the number of its reach


class PlanTimer:
    """Times plans of one lowering; blocks of rows that several plans have in common are made once. uncut: cycles of plans
    whose reduction is whole, which the lowering has in common with its twin."""

    def __init__(
        self, low: Lowering, machine: Machine, uncut: dict[tuple, int] | None = None, most: int = MAX_STEPS
    ) -> None:
        self.most = most
        self.low, self.machine, self.ragged = low, machine, bool(low.skipping)
        self.pool = Pool(machine)
        self.accesses = [*low.reads, *low.writes]
        self.staggered = {f: c for a in self.accesses for f, c in a.staggered.items()}
        self.known: dict[tuple, int] = {}
        self.uncut = self.known if uncut is None else uncut
        #: by plan and the trips that were tried, of those of which all orders were: cycles of the first order before and after they
        #: were rounded, and of the best one
        self.tried: dict[tuple, tuple[float, int, int]] = {}
        ends = isa.sequence_cycles(machine, isa.make("wait"), isa.make("barrier"))
        self.rim_cycles = machine.kcore.launch_cycles + ends  # before the first row and behind the last
        # every buffer copy has a space of its own, the same in every plan; the event kernel knows no limit
        spaces = itertools.count(1)  # 0 is where rows without a range are
        at = lambda n: [next(spaces) * SPACE for _ in range(n)]  # noqa: E731
        self.most_copies = MAX_KEPT if low.keeps else MAX_COPIES  # slices of a result that stays take turns here
        base = [at(self.most_copies)[0] for _ in self.accesses]
        self.base = [base[low.replaced.get(k, k)] for k in range(len(base))]
        self.staging = [at(MAX_COPIES) for _ in low.reads]
        self.scratch = at(len(low.scratch_bytes((0,) * len(low.sizes), low.units)))
        self.consts = at(len(low.const_bytes()))
        self.acc = at(1)[0]
        self.n_spaces = next(spaces)
        # how far ranges move, by space, where copies of buffers other than the first are used
        self.distances = [np.zeros(self.n_spaces, np.int64)]
        self.shifts: dict[tuple, int] = {}  # (access, copy), ... -> index into it
        self.copy_shifts: dict[tuple[int, ...], int] = {}  # buffer copy of every access -> index into it
        self.exchanges = exchanges(machine)
        self.moves: dict[tuple, list[Descriptor]] = {}
        self.transfers: list[dict[tuple, int]] = [
            {} for _ in self.accesses
        ]  # lengths of a slice, or where it lies -> block

    def closer(self) -> PlanTimer:
        """Return a timer that leaves out fewer trips; blocks of rows, and trials of as many trips, are those of both."""
        out = copy(self)
        out.most, out.known = CLOSER_STEPS, {}
        out.uncut = out.known
        return out

    def final(self, tiling: Tiling) -> int:
        """Return the cycles that a plan has where it was chosen, so that a plan from a file has the same."""
        return (self.closer() if closely_timed(tiling) else self).cycles(tiling)

    def cycles(self, tiling: Tiling) -> int:
        """Return the cycles of a plan, from the first load to the final wait and barrier."""
        return self.all_cycles([tiling])[0]

    def all_cycles(self, tilings: Sequence[Tiling], least: float = math.inf) -> list[int]:
        """Return the cycles of plans; the rows of all that are not known yet are made together. least: cycles of the best plan so far;
        of plans far above it not all orders are tried."""
        loops = [tuple([f for f in t.plan.order if t.trips[f] > 1]) for t in tilings]
        # plans that differ in the order of loops without trips are the same
        same = [
            (p.parts, p.shard, p.slices, nest, p.bufs, p.shared, p.kept, p.held, p.gathered, p.delivered)
            for p, nest in zip([t.plan for t in tilings], loops, strict=True)
        ]
        trials: dict[tuple, Trial] = {}
        known = [self.known if any(map(self.low.reduce.__getitem__, nest)) else self.uncut for nest in loops]
        full = [[] if self.ragged else [t.trips[f] for f in nest] for t, nest in zip(tilings, loops, strict=True)]
        short = [shortened(trips, self.most) for trips in full]
        forms = [(key, *trips) for key, trips in zip(same, short, strict=True)]
        for i, (where, key, form) in enumerate(zip(known, same, forms, strict=True)):
            if key not in where and form not in self.tried and form not in trials:
                trials[form] = self._prepare(tilings[i], loops[i], (short[i], full[i]))
        self.pool.fill()
        for where, key, form in zip(known, same, forms, strict=True):
            if key not in where:
                where[key] = self._found(form, least) if form in self.tried else self._run(trials[form], form, least)
            least = min(least, where[key])
        return [where[key] for where, key in zip(known, same, strict=True)]

    def _prepare(self, tiling: Tiling, loops: tuple[int, ...], trips: tuple[list[int], list[int]]) -> Trial:
        plan = tiling.plan
        lo, hi = tiling.busiest if self.ragged else self._range(tiling, dict(zip(loops, trips[0], strict=False)))
        shared = [k for k, g in enumerate(plan.shared) if g > 1]
        groups = {k: (sharing.groups(tiling, k), tiling.loaders[k]) for k in shared}
        order = tile_order(tiling, lo, hi, shared, limit=MAX_RAGGED if self.ragged else None)
        return Trial(tiling, trips, order, *self._blocks(tiling, order, groups))

    def _found(self, form: tuple, least: float) -> int:
        """Return the cycles of a trial whose orders are known; of one that is far above `least`, those of its first order."""
        rough, first, best = self.tried[form]
        return first if HOPELESS * rough > least else best

    def _run(self, trial: Trial, form: tuple, least: float) -> int:
        """Return the same of a new one."""
        tiling, pool = trial.tiling, self.pool
        block, shift, step, hidden = np.array(trial.actions).reshape(-1, 4).T
        count = pool.size[block]
        last = np.cumsum(count)
        plain, which = pool.moved(block, shift, np.array(self.distances), SPACE)
        rows = plain.of(which)
        share, port = self.machine.ddr_bytes_per_cycle / busy_tiles(tiling), float(self.machine.dma.port_bytes)
        if sharing.stagger(tiling):
            # tiles are behind by one setup: those of a part's further transfers meet
            later = np.zeros(len(which), np.int64)
            later[(last - count)[count > 0]] = hidden[count > 0]
            rows.fixed[:] -= later * sharing.hidden_setup(rows.fixed, rows.ddr_bytes, share, port)
        rate = min(share, port)
        if trial.multicasts.count:
            fill = trial.order.last_fills[np.repeat(step, count)]
            nodes = Nodes(self.machine, rows, (plain.read, plain.write, which), trial.in_rows(last - count, last), fill)
            costs, orders = nodes.costs, (nodes.seen(*nodes.ordered(rate, way)) for way in TRIED)
        else:
            took, before = rows.took(rate), byte_dependences(plain.read, plain.write, which)
            free = list_orders(rows.kind, rows.issue, took, before, free_ranks(took, before))
            costs, orders = rows, ((order, None) for order in free)
        place, found = np.zeros(len(rows.kind) + WAITS, np.int64), []
        rough, first, missing = 0.0, 0, 0.0
        for order, windows in orders:
            found.append((result := measured(costs, order, share, port, windows), order))
            if len(found) == 1:
                missing = self._left_out(trial, place, last, result, order)
                rough = result.cycles + missing + self.rim_cycles
                first = result.cycles + round(missing) + self.rim_cycles
                if HOPELESS * rough > least:
                    return first
        best = better([f.cycles for f, _ in found])
        (result, order), opening = found[best], found[0][0]
        if best:
            # an order may put off some rows of all steps to the end of those that are tried: what is left out gains no more than these
            missing = max(self._left_out(trial, place, last, result, order), missing * result.cycles / opening.cycles)
        self.tried[form] = rough, first, result.cycles + round(missing) + self.rim_cycles
        return self.tried[form][2]

    def _left_out(
        self, trial: Trial, place: np.ndarray, last: np.ndarray, result: EventResult, order: np.ndarray
    ) -> float:
        """Return the cycles of the trips that are not tried. place: room for the rows' places in the order; last (actions,): behind every
        action's rows."""
        place[order] = np.arange(len(order))
        # the last step of a result ends late, when steps of the next one are over: steps alike are compared
        ends = result.end[place[last[trial.computes] - 1]]
        if not self.ragged:
            return left_out(*trial.trips, ends)
        ends = np.maximum.accumulate(ends)
        half = max(1, len(ends) // 2)
        left = trial.tiling.steps - len(ends)
        return left * float(ends[-1] - ends[-1 - half]) / half if left > 0 else 0.0

    def _range(self, tiling: Tiling, trips: dict[int, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the factor range of the tile that is tried, with so many trips of each loop: where code depends on the
        place, or transfers on the lane where heads begin, a tile inside, because the border saves the others work."""
        plan, sizes = tiling.plan, self.low.sizes
        inside = [self.low.positional and s > 2 * d for s, d in zip(sizes, plan.shard, strict=True)]
        lo = [d * x for d, x in zip(plan.shard, inside, strict=True)]
        for f, step in self.staggered.items():  # the first tile whose heads lie in most blocks
            lanes = [(a * step % LANES, a) for a in range(0, sizes[f] - plan.shard[f] + 1, plan.shard[f])]
            lo[f] = max(lanes, key=lambda at: (-(-(at[0] + step) // LANES), at[0] > 0))[1]  # noqa: B023
        hi = [min(a + d, s) for a, d, s in zip(lo, plan.shard, sizes, strict=True)]
        for f, n in trips.items():
            hi[f] -= (tiling.trips[f] - n) * plan.slices[f]
        return tuple(lo), tuple(hi)

    def _blocks(
        self, tiling: Tiling, order: Order, groups: dict[int, tuple[Groups, Loaders]]
    ) -> tuple[list[int], list[int], Multicasts]:
        """Return block, shift, step and "is a load that other tiles' loads overlap with" of every action, one
        after the other, per step the number of the action that computes it, and the multicasts."""
        out = [self._prologue(), 0, 0, 0]
        computes: list[int] = []
        low, n_read = self.low, len(self.low.reads)
        stored = [n_read + j for j in range(len(low.writes)) if n_read + j not in tiling.plan.held]
        steps, parity, fills, transfers = order.steps, order.parity, order.fills, self.transfers
        by_place = low.positional or bool(self.staggered)
        shapes = [(s.lo, s.hi) if by_place else tuple(map(sub, s.hi, s.lo)) for s in steps]
        placed = [a.placed for a in self.accesses]
        forms = [low.slice_form(s.lo, s.hi) for s in steps]
        shifts = [self._copy_shift(s.copy) for s in steps]
        known: dict[tuple, int] = {}  # what the load of a part depends on -> block
        sent: dict[tuple, Sent] = {}  # what an exchange depends on -> it
        parts: list[tuple[int, int, int]] = []
        brought: dict[int, list[int]] = {}  # read -> the fills that bring it
        for f, fill in enumerate(fills):
            for k in fill.changed:
                brought.setdefault(k, []).append(f)
        exchanged: list[tuple[int, int, int, int]] = []  # the action of every fill's exchange, and the rest of it
        reaches: list[Reach] = []
        passing = self._exchange() if fills else 0
        for kind, i, access, f in order.actions:
            if kind == "load" or kind == "store":
                s = steps[i]
                for k in stored if kind == "store" else (access,):
                    shape = (s.lo, s.hi) if placed[k] else shapes[i]
                    block = transfers[k].get(shape)
                    if block is None:
                        block = transfers[k][shape] = self._transfer(k, s)
                    shift = self._shift(((k, s.copy[k]),)) if s.copy[k] else 0
                    out += block, shift, i, int(kind == "load" and i > 0)
            elif kind == "part":
                first, tiles = groups[access][1]
                if first:
                    continue  # the tile that is tried loads none of it
                fill = fills[f]
                key = access, fill.version[access] % 2, shapes[fill.step_of(access)], fill.chunk
                block = known.get(key)
                if block is None:
                    block = known[key] = self._part(tiling, access, fill, steps, tiles)
                turn = fill.version[access]
                parts.append((len(out) // 4, f, brought[access][turn - 2] if turn > 1 else -1))
                out += block, 0, 0, int(f > 0)
            elif kind == "exchange":
                fill, at, by_form = fills[f], len(out) // 4, by_place and fills[f].chunk < 0
                at_steps = [(k, fill.step_of(k)) for k in fill.changed]
                if tiling.plan.gathered:
                    own = [n for _, n in at_steps]
                else:
                    own = [self._form(k, steps[n]) if by_form else shapes[n] for k, n in at_steps]
                turns = [(steps[n].copy[k], fill.version[k] % 2) for k, n in at_steps]
                alike = fill.changed, fill.chunk, f > 0, *own, *turns
                if alike not in sent:
                    sending, cycles, reach = self._multicast(tiling, order, f, groups)
                    sent[alike] = sending, cycles, len(reaches)
                    reaches.append(reach)
                exchanged.append((at, *sent[alike]))
                out += passing, 0, 0, 0
            elif kind == "emit":
                computes.append(len(out) // 4)
                out += self._compute(steps[i], forms[i], parity[i]), shifts[i], i, 0
        at, sending, cycles, reach = np.array(exchanged, np.int64).reshape(-1, 4).T
        loads = np.array(parts, np.int64).reshape(-1, 3).T
        loads = loads[:, np.argsort(loads[1], kind="stable")]
        return out, computes, Multicasts(at, at, sending, cycles, reach, reaches, loads)

    def _multicast(
        self, tiling: Tiling, order: Order, f: int, groups: dict[int, tuple[Groups, Loaders]]
    ) -> tuple[int, int, Reach]:
        """Return the times of a fill's multicast, and what it reads and writes."""
        fill, read, write, sizes, bring = order.fills[f], [], [], [], []
        gathered = dict(tiling.plan.gathered)
        for k in fill.changed:
            step, (first, tiles) = order.steps[fill.step_of(k)], groups[k][1]
            own = fill.spans(tiling, k, step)
            if not own:  # nothing of an image where a band of results sees padding alone
                own = [(0, max([d.spm + d.size_bytes for d in self._moves(self._form(k, step), step)], default=0))]
            sizes.append(sum(b - a for a, b in own))
            staged, target = self.staging[k][fill.version[k] % 2], self.base[k] + step.copy[k] * SPACE
            # what is gathered has no part in staging
            read += [] if first or k in gathered else [(staged, staged + part_bytes(sizes[-1], tiles))]
            write += [(target + a, target + b) for a, b in own]
            bring.append(gathers.loaders(tiling, k, step))
        made = self.exchanges.of(tuple([groups[k][0] for k in fill.changed]), tuple(bring))
        return *made.times(sizes, f > 0), (tuple(read), tuple(write))

    def _copy_shift(self, copy: tuple[int, ...]) -> int:
        """Return the number of the distances to these copies of all buffers."""
        found = self.copy_shifts.get(copy)
        if found is None:
            found = self.copy_shifts[copy] = self._shift(tuple(enumerate(copy))) if any(copy) else 0
        return found

    def _shift(self, moves: tuple[tuple[int, int], ...]) -> int:
        """Return the number of the distances to copies (access, number), from the first ones."""
        found = self.shifts.get(moves)
        if found is None:
            found = self.shifts[moves] = len(self.distances)
            distance = np.zeros(self.n_spaces, np.int64)
            for k, c in moves:
                distance[self.base[k] // SPACE] = c % self.most_copies * SPACE
            self.distances.append(distance)
        return found

    def _prologue(self) -> int:
        found = self.pool.number.get(("prologue",))
        if found is None:
            em = Emitter()
            self.low.prologue(em, self.consts)
            found = self.pool.want(("prologue",), em.rows)
        return found

    def _exchange(self) -> int:
        """Return the block of rows that stand for sending and receiving."""
        found = self.pool.number.get(("exchange",))
        return self.pool.want(("exchange",), [isa.make("wait_worker", workers=0)] * 2) if found is None else found

    def _form(self, k: int, step: LoopStep) -> tuple:
        """Return what a transfer depends on: where a box lies matters little for its time, what is clipped from it does."""
        lens = self.accesses[k].form(step.lo, step.hi)
        box = self.accesses[k].box(step.lo, step.hi) if self.low.positional or self.accesses[k].staggered else ()
        clipped = tuple([b - a for a, b in box]) if self.low.positional else ()
        lane = box[-1][0] % LANES if box and self.accesses[k].staggered else 0
        return (k, lens, clipped, lane)

    def _moves(self, form: tuple, step: LoopStep) -> list[Descriptor]:
        """Return the transfers of a slice of such a form."""
        if form not in self.moves:
            self.moves[form] = [d for d in self.accesses[form[0]].transfers(step.lo, step.hi) if d.run_bytes]
        return self.moves[form]

    def _transfer(self, k: int, step: LoopStep) -> int:
        key = self._form(k, step)
        found = self.pool.number.get(key)
        if found is None:
            name = "rdma" if k < len(self.low.reads) else "wdma"
            if isinstance(access := self.accesses[k], TableRows):
                rows = access.load(step.lo, step.hi, self.base[k], slot=0)
            else:
                rows = dma_rows(name, self._moves(key, step), self.base[k])
            found = self.pool.want(key, rows)
        return found

    def _part(self, tiling: Tiling, k: int, fill: Fill, steps: Sequence[LoopStep], tiles: int) -> int:
        step, at = steps[fill.step_of(k)], self.staging[k][fill.version[k] % 2]
        form = self._form(k, step)
        key = ("part", at, tiles, form, fill.chunk)
        found = self.pool.number.get(key)
        if found is None:
            found, spans = self._moves(form, step), fill.spans(tiling, k, step)
            moved = part_of(chunk_of(found, spans) if spans else found, 0, tiles)[0]
            found = self.pool.want(key, dma_rows("rdma", moved, at))
        return found

    def _compute(self, step: LoopStep, form: tuple, turn: int) -> int:
        parity = turn * self.low.overlaps
        fresh = self.low.prepares(step.new)
        key = (form, step.first, step.last, parity, fresh)
        found = self.pool.number.get(key)
        if found is None:
            em = Emitter()
            n_read = len(self.low.reads)
            made = Slice(
                step.lo,
                step.hi,
                self.base[:n_read],
                self.base[n_read:],
                self.scratch,
                self.consts,
                self.acc,
                step.first,
                step.last,
                parity,
                fresh,
            )
            self.low.emit(em, made)
            found = self.pool.want(key, em.rows)
        return found
