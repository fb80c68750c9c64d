"""The trial of a plan whose tiles load common operands together and pass the parts on.

May import: lower, isa, machine, _kernels, search.plan, search.trial. Must not: emit programs, choose plans.

The other tiles are in step with the one that is tried, so meeting them and waiting for their parts takes the
kernel core a known time; it is charged as issue time. Everything else - the load of the own part, the
windows that are waited for, the order of actions - is as in the code (`schedule.exchange`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from tx8fast import isa
from tx8fast.lower.base import Lowering
from tx8fast.lower.transfer import part_bytes
from tx8fast.machine import Machine
from tx8fast.search.plan import LoopStep, Plan
from tx8fast.search.trial import SPACE, Block, Trial

LOADS = 1  # register window of part loads
ENGINES = (0, 2)  # windows of even and odd steps


class SharedTrial(Trial):
    """One tile of a plan with shared reads."""

    def __init__(self, low: Lowering, plan: Plan, machine: Machine, memo: dict[tuple, Block]) -> None:
        super().__init__(low, plan, machine, memo)
        self.own: dict[tuple, Block] = {}
        self.shared = [k for k, g in enumerate(plan.shared) if g > 1]
        self.masks = {k: self._mask(k) for k in self.shared}
        last = self.scratch[-1] if self.scratch else self.acc
        self.staging = {k: last + (n + 1) * SPACE for n, k in enumerate(self.shared)}

    def _mask(self, k: int) -> int:
        """Return the set of tiles that share read `k` with tile 0."""
        own = self.low.reads[k].factors
        places = [range(1) if f in own else range(p) for f, p in enumerate(self.plan.parts)]
        mask = 0
        for point in itertools.product(*places):
            tile = 0
            for x, p in zip(point, self.plan.parts, strict=True):
                tile = tile * p + x
            mask |= 1 << tile
        return mask

    def _arrange(self, steps: Sequence[LoopStep]) -> tuple[list[Block], list[int]]:
        shared = set(self.shared)
        fills = [i for i, s in enumerate(steps) if i == 0 or shared & set(s.load)]
        private = [[k for k in s.load if k not in shared] for s in steps]
        out: list[Block] = [*self._prologue(), *(self._transfer(k, steps[0]) for k in private[0])]
        out += [*self._parts(steps, fills, 0), self._row("wait"), *self._parts(steps, fills, 1)]
        out += self._exchange(steps, fills, 0)
        ends: list[int] = []
        # a shared operand with one buffer that is filled again is not filled before its readers are done
        single = any(self.copies[k] == 1 for at in fills[1:] for k in self._changed(steps, at))
        short = len(fills) == len(steps) and not single
        deferred = short and self.low.deferred
        every = [set(x) for x in private]
        # reads that are not loaded anew for every step: both windows use a copy, so the code drains the engines
        slow = {k for x in every for k in x if any(k not in other for other in every)} if short else set()
        finished = -1  # steps up to here have their second half
        f = count = counted = 0
        for i, s in enumerate(steps):
            f += i > 0 and f + 1 < len(fills) and fills[f + 1] == i
            worker = ENGINES[i % 2] if short else 0
            after = ENGINES[(i + 1) % 2] if short else 0
            coming = private[i + 1] if i + 1 < len(steps) else []
            loads = [self._window(self._transfer(k, steps[i + 1]), after) for k in coming if k not in slow]
            out += [] if deferred else loads
            out.append(self._window(self._compute(s, i, "front" if deferred else "emit"), worker))
            count += sum([len(b.kind) for b in out[counted:]])
            counted = len(out)
            ends.append(count - 1)
            if not deferred:
                out += self._stores(s, worker)
            drain = [self._transfer(k, steps[i + 1]) for k in coming if k in slow]
            seconds = [j for j in ((i - 1, i) if drain else (i - 1,)) if deferred and j > finished]
            if drain:
                out += [x for j in seconds for x in self._second(steps, j)]
                out += [self._row("wait"), *drain, self._row("wait")]
                finished, seconds = i, []
            closes = f + 1 < len(fills) and fills[f + 1] == i + 1
            if closes and single:
                out.append(self._row("wait_worker", workers=1))
            if f + 1 < len(fills) and (closes if single else fills[f] == i):
                out.append(self._row("wait_worker", workers=1 << LOADS))
                out += self._parts(steps, fills, f + 2)
                if short:
                    out.append(self._row("wait_worker", workers=1 << ENGINES[(i + 1) % 2]))
                if deferred:
                    out += [*(x for j in seconds for x in self._second(steps, j)), *loads]
                    finished = max([finished, *seconds])
                out += self._exchange(steps, fills, f + 1)
            if closes and not short and not single:
                out.append(self._row("wait_worker", workers=1))
        if deferred:
            out += [x for j in range(finished + 1, len(steps)) for x in self._second(steps, j)]
        return out, ends

    def _second(self, steps: Sequence[LoopStep], i: int) -> list[Block]:
        """Return the second half of a deferred step and its stores."""
        worker = ENGINES[i % 2]
        return [self._window(self._compute(steps[i], i, "back"), worker), *self._stores(steps[i], worker)]

    def _stores(self, s: LoopStep, worker: int) -> list[Block]:
        n_read = len(self.low.reads)
        return [self._window(self._transfer(n_read + j, s), worker) for j in range(len(self.low.writes) * s.last)]

    def _window(self, block: Block, worker: int) -> Block:
        """Return the block with its rows going through register window `worker`."""
        if not worker:
            return block
        key = ("window", id(block), worker)
        if key not in self.own:
            window = np.full(len(block.kind), worker, np.uint8)
            self.own[key] = Block(block.kind, block.issue, block.fixed, block.ddr_bytes, block.read, block.write, window,
                                  block.arg)  # fmt: skip
        return self.own[key]

    def _row(self, name: str, **fields: int) -> Block:
        key = (name, tuple(fields.items()))
        if key not in self.memo:
            self.memo[key] = Block.of(self.machine, [isa.make(name, **fields)])
        return self.memo[key]

    def _changed(self, steps: Sequence[LoopStep], at: int) -> list[int]:
        return [k for k in steps[at].load if k in self.masks]

    def _parts(self, steps: Sequence[LoopStep], fills: Sequence[int], f: int) -> list[Block]:
        """Return the loads of the own parts: the whole transfer's rows with their share of runs and bytes."""
        if f >= len(fills):
            return []
        out = []
        for k in self._changed(steps, fills[f]):
            key = ("part", k, self._shape(steps[fills[f]].lo, steps[fills[f]].hi))
            if key not in self.own:
                self.own[key] = self._part(k, steps[fills[f]])
            out.append(self.own[key])
        return out

    def _part(self, k: int, step: LoopStep) -> Block:
        whole = self._transfer(k, step)
        g = self.plan.shared[k]
        n = max(1, -(-len(whole.kind) // g))
        startup = self.machine.rdma.startup
        fixed = n * startup + max(0, int(whole.fixed.sum()) - len(whole.kind) * startup) // g
        ddr_bytes = int(whole.ddr_bytes.sum()) // g
        read, write = np.zeros((n, 4, 2), np.int64), np.zeros((n, 2, 2), np.int64)
        at = self.staging[k]
        write[:, 0] = at, at + max(1, part_bytes(ddr_bytes * g, g))
        return Block(whole.kind[:n], whole.issue[:n], np.full(n, fixed // n), np.full(n, ddr_bytes // n), read, write,
                     np.full(n, LOADS, np.uint8), np.zeros((n, 3), np.int64))  # fmt: skip

    def _exchange(self, steps: Sequence[LoopStep], fills: Sequence[int], f: int) -> list[Block]:
        """Return the time of the meeting and of all parts' way through the mesh, as issue of an empty wait."""
        changed = self._changed(steps, fills[f])
        key = ("exchange", tuple(changed), f > 0)
        if key not in self.own:
            m = self.machine
            made = [isa.make("barrier_sub", mask=x) for x in sorted({self.masks[k] for k in changed})] if f else []
            meeting = 0
            if made:
                rows = isa.rows(made)
                meeting = int(
                    (isa.durations(m, rows, np.zeros(len(rows), np.int64))[0] + isa.issue_cycles(m, rows)).sum()
                )
            wire = 0
            for k in changed:
                total = int(self._transfer(k, steps[fills[f]]).ddr_bytes.sum())
                wire += -(-total // (2 * m.noc.link_bytes)) + total // self.plan.shared[k] // m.noc.link_bytes
            hops = max(m.chip.tiles_x, m.chip.tiles_y) - 1
            core = meeting + len(changed) * m.dte.setup_sw + m.dte.setup_hw + hops * m.noc.hop_cycles + wire
            row = self._row("wait_worker", workers=0)
            self.own[key] = Block(row.kind, row.issue + core, row.fixed * 0, row.ddr_bytes, row.read, row.write,
                                   row.worker, row.arg)  # fmt: skip
        return [self.own[key]]


class PlanTimer:
    """Times plans of one lowering."""

    def __init__(self, low: Lowering, machine: Machine, barrier: bool = True) -> None:
        self.low, self.machine = low, machine
        self.memo: dict[tuple, Block] = {}
        rows = isa.rows([isa.make("wait"), isa.make("barrier")][: 1 + barrier])
        end, _ = isa.durations(machine, rows, np.zeros(len(rows), np.int64))
        self.end_cycles = int(end.sum() + isa.issue_cycles(machine, rows).sum())

    def cycles(self, plan: Plan) -> int:
        """Return the cycles of a plan with its final wait and barrier."""
        kind = SharedTrial if max(plan.shared, default=1) > 1 else Trial
        return kind(self.low, plan, self.machine, self.memo).cycles() + self.end_cycles
