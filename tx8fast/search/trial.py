"""How long a plan takes, tried on one tile before any code exists.

May import: lower, isa, machine, _kernels, search.plan. Must not: emit programs, choose plans.

All tiles of a plan do equal work on different data, so one tile that gets its share of the DDR bandwidth
stands for them. Its loads, instructions and stores go through the event kernel in the order in which the code
will have them. Of a long loop nest two rounds of the inner loops are tried, the rest continues their rate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tx8fast import isa
from tx8fast._kernels import EventInput, simulate_events
from tx8fast._kernels._facade_events import KIND_WAIT, KIND_WAIT_WORKER
from tx8fast.lower.base import Access, Emitter, Lowering, Slice
from tx8fast.lower.transfer import Descriptor
from tx8fast.machine import Machine
from tx8fast.search.plan import LoopStep, Plan, busiest, copies, count_steps, loop_steps, staged_loads

QUEUE_DEPTH = (6, 6, 6, 6, 4)  # entries per engine queue (hardware manual 2)
SPACE = 1 << 22  # bytes; more than any buffer
MAX_COPIES = 4  # of one operand
MAX_KEPT = 64  # slices of a reduction that have buffers of their own
MAX_STEPS = 64  # steps tried before the rate is continued
SYNC_KINDS = {"wait": KIND_WAIT, "wait_worker": KIND_WAIT_WORKER}  # what the event kernel calls them


@dataclass(frozen=True)
class Block:
    """Rows of one action: what the event kernel needs of them. read (n, 4, 2), write (n, 2, 2) in scratchpad;
    worker (n,) register windows, arg (n, 3) what a wait waits for."""

    kind: np.ndarray
    issue: np.ndarray
    fixed: np.ndarray
    ddr_bytes: np.ndarray
    read: np.ndarray
    write: np.ndarray
    worker: np.ndarray
    arg: np.ndarray

    @classmethod
    def of(cls, machine: Machine, made: Sequence[tuple]) -> Block:
        return cls.of_rows(machine, isa.rows(made))

    @classmethod
    def of_rows(cls, machine: Machine, rows: np.ndarray) -> Block:
        address = np.maximum(rows["ddr"], 0)
        fixed, ddr_bytes = isa.durations(machine, rows, address)
        spans = isa.ranges(rows, address)
        issue = np.asarray(isa.issue_cycles(machine, rows), np.int64)
        kind = isa.units(rows).astype(np.uint8)
        arg = np.zeros((len(rows), 3), np.int64)
        for name, code in SYNC_KINDS.items():
            own = rows["opcode"] == isa.INSTRUCTIONS[name].OPCODE
            kind[own] = code
            arg[own, 0] = rows["p"][own, 0]
        return cls(kind, issue, np.asarray(fixed, np.int64), np.asarray(ddr_bytes, np.int64), spans["spm_read"],
                   spans["spm_write"], np.zeros(len(rows), np.uint8), arg)  # fmt: skip

    def moved(self, buffers: Sequence[tuple[int, int, int]]) -> Block:
        """Return the block with its ranges inside each (first byte, last byte + 1, distance) shifted."""
        read, write = self.read.copy(), self.write.copy()
        for ranges, old in ((read, self.read), (write, self.write)):
            for lo, hi, by in buffers:
                inside = (old[..., :1] >= lo) & (old[..., :1] < hi)
                ranges += np.where(inside, by, 0)
        return Block(self.kind, self.issue, self.fixed, self.ddr_bytes, read, write, self.worker, self.arg)


class Trial:
    """One tile of a plan. `memo` keeps blocks that further plans of the same lowering can use again."""

    def __init__(self, low: Lowering, plan: Plan, machine: Machine, memo: dict[tuple, Block]) -> None:
        self.low, self.plan, self.machine, self.memo = low, plan, machine, memo
        self.accesses: list[Access] = [*low.reads, *low.writes]
        self.own_factors = [sorted(a.factors) for a in self.accesses]
        self.copies = [copies(low, plan, k) for k in range(len(self.accesses))]
        n_scratch = len(low.scratch_bytes((0,) * len(plan.shard), plan.slices))
        n_const = len(low.const_bytes())
        # every buffer copy has a range of its own, the same in every plan; the event kernel knows no limit
        space = itertools.count(0, SPACE)
        most = MAX_KEPT if low.staged else MAX_COPIES
        self.base = [next(space) for _ in self.accesses for _ in range(most)][::most]
        self.consts = [next(space) for _ in range(n_const)]
        self.acc = next(space)
        self.scratch = [next(space) for _ in range(n_scratch)]

    def cycles(self) -> int:
        """Return the cycles of the whole nest, from the first load to the last store."""
        low, plan = self.low, self.plan
        total = count_steps(low, plan)
        period, limit = self._rounds(total)
        steps = loop_steps(low, plan, self.copies, *busiest(low, plan), limit)
        blocks, ends = self._arrange(steps)
        result = self._simulate(blocks)
        if total <= limit:
            return result.cycles
        window = max(period, limit // 2 // period * period)
        rate = (int(result.end[ends[limit - 1]]) - int(result.end[ends[limit - 1 - window]])) / window
        return result.cycles + round((total - limit) * rate)

    def _arrange(self, steps: Sequence[LoopStep]) -> tuple[list[Block], list[int]]:
        """Return all actions in issue order, and per step the last row of its compute."""
        n_read = len(self.low.reads)
        out = [*self._prologue(), *(self._transfer(k, steps[0]) for k in steps[0].load)]
        if self.low.staged:
            return self._arrange_staged(steps, out)
        ends, count = [], sum(len(b.kind) for b in out)
        for i, s in enumerate(steps):
            new = [self._transfer(k, steps[i + 1]) for k in steps[i + 1].load] if i + 1 < len(steps) else []
            new.append(self._compute(s, i))
            ends.append(count + sum(len(b.kind) for b in new) - 1)
            if s.last:
                new += [self._transfer(n_read + j, s) for j in range(len(self.low.writes))]
            count += sum(len(b.kind) for b in new)
            out += new
        return out, ends

    def _arrange_staged(self, steps: Sequence[LoopStep], out: list[Block]) -> tuple[list[Block], list[int]]:
        """As `_arrange`; a slice's second half follows the first half of the next one."""
        n_read = len(self.low.reads)
        early, late = staged_loads(self.low, steps)
        ends, count, counted = [], 0, 0
        done = 0  # steps whose second half is out
        for i in range(len(steps) + 1):
            drain = i == len(steps) or bool(late[i])
            for half in ("back", "front") if drain else ("front", "back"):
                if half == "front" and i < len(steps):
                    out += [self._transfer(k, steps[i]) for k in late[i]]
                    out.append(self._compute(steps[i], i, "front"))
                elif half == "back" and done < i:
                    before = steps[done]
                    out.append(self._compute(before, done, "back"))
                    count, counted = count + sum(len(b.kind) for b in out[counted:]), len(out)
                    ends.append(count - 1)
                    if before.last:
                        out += [self._transfer(n_read + j, before) for j in range(len(self.low.writes))]
                    done += 1
            if i < len(steps):
                out += [self._transfer(k, steps[j]) for j, k in early[i]]
        return out, ends

    def _prologue(self) -> list[Block]:
        em = Emitter()
        self.low.prologue(em, self.consts)
        return [Block.of(self.machine, em.rows)] if em.rows else []

    def _rounds(self, total: int) -> tuple[int, int]:
        """Return steps per round of the inner loops and steps to try."""
        if total <= MAX_STEPS:
            return total, total
        period = 1
        for f in reversed(self.plan.order):
            if period * self.plan.trips[f] > MAX_STEPS // 2:
                break
            period *= self.plan.trips[f]
        rounds = max(2, MAX_STEPS // 2 // period)
        return (period, rounds * period) if period > 1 else (MAX_STEPS // 2, MAX_STEPS)

    def _simulate(self, blocks: Sequence[Block]):
        blocks = [b for b in blocks if len(b.kind)]
        join = lambda name: np.concatenate([b.__dict__[name] for b in blocks])  # noqa: E731
        kind = join("kind")
        n = len(kind)
        busy = math.prod(-(-s // d) for s, d in zip(self.low.sizes, self.plan.shard, strict=True))
        none = np.zeros((n, 2), np.int64)
        rows = EventInput(
            kind=kind, issue=join("issue"), spm_read=join("read"), spm_write=join("write"),
            code_begin=np.zeros(1, np.int64), tile_begin=np.array([0, n], np.int64), fixed=join("fixed"),
            ddr_bytes=join("ddr_bytes"), ddr_read=none, ddr_write=none, worker=join("worker"), arg=join("arg"),
        )  # fmt: skip
        share = self.machine.ddr_bytes_per_cycle / busy
        return simulate_events(rows, QUEUE_DEPTH, float(self.machine.dma.port_bytes), share)

    def _shape(self, lo: Sequence[int], hi: Sequence[int]) -> tuple:
        return (tuple(lo), tuple(hi)) if self.low.positional else tuple([b - a for a, b in zip(lo, hi, strict=True)])

    def _transfer(self, k: int, step: LoopStep) -> Block:
        access = self.accesses[k]
        own = self.own_factors[k]
        # where a box lies matters little for its time: what is clipped from it does
        lens = tuple([step.hi[f] - step.lo[f] for f in own])
        clipped = tuple([b - a for a, b in access.box(step.lo, step.hi)]) if self.low.positional else ()
        key = (k, lens, clipped)
        name = "rdma" if k < len(self.low.reads) else "wdma"
        if key not in self.memo:
            found = [d for d in access.transfers(step.lo, step.hi) if d.run_bytes]
            self.memo[key] = Block.of(self.machine, [_dma(name, d, self.base[k]) for d in found])
        return self._placed(key, [k], step)

    def _compute(self, step: LoopStep, turn: int, phase: str = "emit") -> Block:
        parity = (turn if self.low.staged else step.done) % 2 * self.low.overlaps
        key = (phase, self.low.slice_form(step.lo, step.hi), step.first, step.last, parity)
        if key not in self.memo:
            em = Emitter()
            n_read = len(self.low.reads)
            getattr(self.low, phase)(em, Slice(step.lo, step.hi, self.base[:n_read], self.base[n_read:], self.scratch, self.consts,
                                    self.acc, step.first, step.last, parity))  # fmt: skip
            self.memo[key] = Block.of(self.machine, em.rows)
        return self._placed(key, range(len(self.accesses)), step)

    def _placed(self, key: tuple, accesses: Sequence[int], step: LoopStep) -> Block:
        """Return the block of `key`, whose ranges lie in the first copies, on the copies that the step uses."""
        copy = tuple([step.copy[k] for k in accesses])
        if not any(copy):
            return self.memo[key]
        placed = (key, copy)
        if placed not in self.memo:
            moves = [(self.base[k], self.base[k] + SPACE, c * SPACE) for k, c in zip(accesses, copy, strict=True) if c]
            self.memo[placed] = self.memo[key].moved(moves)
        return self.memo[placed]


def _dma(name: str, d: Descriptor, address: int) -> tuple:
    loops = [*d.loops, *((0, 1),) * (3 - len(d.loops))]
    fields = {f"{x}{i}": v for i, (s, n) in enumerate(loops) for x, v in (("s", s), ("n", n))}
    return isa.make(name, run_bytes=d.run_bytes, slot=0, ddr=d.ddr, **fields,
                    **{"dst" if name == "rdma" else "src": address + d.spm})  # fmt: skip
