"""Tile code whose tiles load common operands together: each loads a part and sends it to all.

May import: schedule.segment, lower, isa, machine. Must not: choose what is shared; `Plan.shared` says so.

Fill f of the shared operands is used by the steps until the next one changes. While the engines work on
fill f the kernel core prepares f + 1:

    own part of f + 1 is in staging         wait_worker (loads)
    own part of f + 2 starts loading        after send_wait: its staging buffer was the source of send f
    every tile is done with fill f - 1      wait_worker (that fill's engines), then barrier_sub
    part of f + 1 goes to all, all arrive   send, recv

Where every step has a fill of its own, the engines' rows of even fills go through one register window and
those of odd fills through another, so that "done with fill f - 1" does not wait for fill f; loads of parts
have the third. A fill that serves several steps is drained before the next one starts. Ordering between windows
is never left to the hardware: whatever crosses them is waited for (hardware manual 14, 15).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tx8fast import isa
from tx8fast.lower.base import Emitter, Slice
from tx8fast.lower.transfer import PIECES, Descriptor, clip, part_bytes
from tx8fast.schedule.segment import Share, TileCode, Work, join
from tx8fast.search.plan import LoopStep, loop_steps

LOADS = 1  # register window of part loads
ENGINES = (0, 2)  # windows of even and odd fills


class SharedTileCode(TileCode):
    """Builds the code of one tile of a segment with shared operands."""

    def __init__(self, *args, shares: Sequence[Share]) -> None:
        super().__init__(*args)
        self.shares = {s.access: s for s in shares}
        self.part_memo: dict[tuple, tuple[list[Descriptor], int, int, int]] = {}
        self.forms: dict[tuple, tuple] = {}  # one step of every form of part load
        self.sync_memo: dict[tuple, np.ndarray] = {}

    def build(self, barrier: bool) -> np.ndarray:
        low, b = self.low, self.buffers
        em = Emitter()
        low.prologue(em, b.consts)
        self._append(em.rows)
        steps = loop_steps(low, self.plan, b.copies, self.range.lo, self.range.hi)
        fills, fill_of = self._fills(steps)
        loads = [[k for k in s.load if k not in self.shares] for s in steps]
        for k in loads[0]:
            self._load(k, steps[0], 0, 0)
        self._load_parts(fills, 0, steps)
        self._add("wait")
        self._load_parts(fills, 1, steps)
        if self.meet:
            self._meet(fills, 0)
        self._exchange(fills, 0, steps)
        self.single = any(b.copies[k] == 1 for changed in fills[1:] for k in changed)
        if len(fills) == len(steps) and not self.single:
            self._one_step_fills(steps, fills, loads)
        else:
            self._long_fills(steps, fills, fill_of, loads)
        self._add("send_wait")
        self._append([isa.make("wait"), isa.make("barrier")] if barrier else [isa.make("wait")])
        return isa.roll(join(self.out))

    def _one_step_fills(self, steps, fills, loads) -> None:
        """Every step has its own fill: engines of even and odd steps use different windows.

        The second half of a deferred step is issued behind the first half of the next one, when that of its own is
        done: the wait for a free shared buffer is then a wait for the matrix engine alone."""
        slow = self._slow_reads(loads)
        b, deferred = self.buffers, self.low.deferred
        copies: dict[int, int] = dict.fromkeys(range(len(self.low.reads)), 0)
        held: list[Work] = []
        for i in range(len(steps)):
            last = i + 1 == len(steps)
            coming = [] if last else loads[i + 1]
            after = {k: (i + 1) % b.copies[k] for k in coming if k not in slow}
            work = self._work(steps[i], i, copies, i, ENGINES[i % 2])
            copies |= after
            if deferred:
                self._compute(work, "front")
            else:
                self._load_all(after, steps, i + 1)
                self._run(work)
            seconds = held if deferred else []
            held = [work]
            if last or any(k in slow for k in coming):
                seconds, held = [*seconds, *held] if deferred else [], []
                for x in seconds:
                    self._finish(x)
                seconds = []
            if any(k in slow for k in coming):
                self._add("wait")
                for k in (k for k in coming if k in slow):
                    copies[k] = (copies[k] + 1) % b.copies[k]
                    self._load(k, steps[i + 1], copies[k], 0)
                self._add("wait")
            if last:
                return
            self._bring(fills, i, steps, 1 << LOADS, 1 << ENGINES[(i + 1) % 2])
            for x in seconds:
                self._finish(x)
            if deferred:
                self._load_all(after, steps, i + 1)
            self._meet(fills, i + 1)
            self._exchange(fills, i + 1, steps)

    def _load_all(self, copies: dict[int, int], steps, i: int) -> None:
        for k, copy in copies.items():
            self._load(k, steps[i], copy, ENGINES[i % 2])

    def _long_fills(self, steps, fills, fill_of, loads) -> None:
        """A fill serves several steps: one window for all engines, drained before the next fill begins."""
        b = self.buffers
        copies: dict[int, int] = dict.fromkeys(range(len(self.low.reads)), 0)
        staged = self.low.staged and all(b.copies[k] > 1 for step in loads[1:] for k in step)
        held: Work | None = None
        for i in range(len(steps)):
            f = fill_of[i]
            coming = loads[i + 1] if i + 1 < len(steps) else []
            after = {k: (copies[k] + 1) % b.copies[k] for k in coming}
            early = [k for k in coming if b.copies[k] > 1]
            for k in early:
                self._load(k, steps[i + 1], after[k], 0)
            work = self._work(steps[i], f, copies, i, 0)
            ends = i + 1 == len(steps) or fill_of[i + 1] != f
            if staged:
                self._compute(work, "front")
                if held is not None:
                    self._finish(held)
                held = None if ends else work
                if ends:
                    self._finish(work)
            else:
                self._run(work)
            copies |= after
            for k in coming:
                if k not in early:
                    self._load(k, steps[i + 1], after[k], 0)
            if (i == 0 or fill_of[i - 1] != f) and f + 1 < len(fills) and not self.single:
                self._prepare(fills, f, steps, 1 << LOADS, 0)
            if ends and i + 1 < len(steps):
                self._add("wait_worker", workers=1)
                if self.single:
                    self._prepare(fills, f, steps, 1 << LOADS, 0)

    # -- loop structure -----------------------------------------------------------------------------------------

    def _fills(self, steps) -> tuple[list[dict[int, int]], list[int]]:
        """Return per fill the first step whose ranges each changed shared access takes, and the fill of each step."""
        fills: list[dict[int, int]] = []
        fill_of = []
        for i, s in enumerate(steps):
            changed = {k: i for k in s.load if k in self.shares}
            if changed:
                fills.append(changed)
            fill_of.append(len(fills) - 1)
        self.version: list[dict[int, int]] = []  # per fill: how often each access had been filled before
        count = dict.fromkeys(self.shares, 0)
        current: dict[int, int] = {}
        for changed in fills:
            for k in changed:
                current[k] = count[k]
                count[k] += 1
            self.version.append(dict(current))
        return fills, fill_of

    def _slow_reads(self, loads: Sequence[Sequence[int]]) -> set[int]:
        """Return the unshared reads that are not loaded anew for every step, so that both windows use a copy."""
        every = [set(step) for step in loads]
        return {k for step in every for k in step if any(k not in other for other in every)}

    # -- rows ---------------------------------------------------------------------------------------------------

    def _add(self, name: str, **fields) -> None:
        key = (name, *fields.values())
        rows = self.sync_memo.get(key)
        if rows is None:
            rows = self.sync_memo[key] = isa.rows([isa.make(name, **fields)])
        self.out.append(rows)

    def _load(self, k: int, step, copy: int, worker: int) -> None:
        self._transfer(k, self.low.reads[k], step.lo, step.hi, self.buffers.access[k][copy], "rdma", worker)

    def _part(self, k: int, step, rank: int) -> tuple[tuple, list[Descriptor], list[int], int, int, int]:
        """Return the part of a shared slice that the tile of this rank loads: form, transfers, their DDR shift,
        local start, bytes, and the bytes of the whole slice."""
        key, found, shift = self._moves(k, self.low.reads[k], step.lo, step.hi)
        known = self.part_memo.get((key, rank))
        if known is None:
            total = max((_end(d) for d in found), default=0)
            size = part_bytes(total, self.shares[k].tiles)
            a, b = min(total, rank * size), min(total, (rank + 1) * size)
            moved = [Descriptor(c.piece, c.ddr, c.spm - a, c.run_bytes, c.loops) for d in found for c in clip(d, a, b)]
            known = self.part_memo[key, rank] = (moved, a, b - a, total)
            self.forms.setdefault(key, (k, step))
        return key, known[0], shift, *known[1:]

    def _load_parts(self, fills, f: int, steps) -> None:
        """Start loading this tile's parts of fill f into staging."""
        if f >= len(fills):
            return
        slots = PIECES * (len(self.low.reads) + len(self.low.writes))
        for k, i in fills[f].items():
            key, moved, shift, _, _, _ = self._part(k, steps[i], self.shares[k].rank)
            at = self.buffers.staging[k][self.version[f][k] % len(self.buffers.staging[k])]
            self._rows((*key, at, "part"), k, moved, shift, at, "rdma", LOADS, slots + PIECES * k)

    def _exchange(self, fills, f: int, steps) -> None:
        """Send this tile's parts of fill f to all tiles that share them and wait for all parts."""
        expected = 0
        for k, i in fills[f].items():
            share = self.shares[k]
            _, _, _, start, size, total = self._part(k, steps[i], share.rank)
            copy = self.version[f][k] % self.buffers.copies[k]
            staging = self.buffers.staging[k][self.version[f][k] % len(self.buffers.staging[k])]
            if size:
                self._add("send", src=staging, dst=self.buffers.access[k][copy] + start, bytes=size, mask=share.mask,
                          monitor=f % 2)  # fmt: skip
            expected += total
        self._add("recv", monitor=f % 2, bytes=expected)

    def for_tile(self, code: np.ndarray, shares: tuple[Share, ...]) -> tuple[np.ndarray | None, np.ndarray | int]:
        other = {s.access: s for s in shares}
        shift = np.zeros(PIECES * len(self.low.reads), np.int64)
        seen: dict[int, int] = {}
        moved: dict[tuple[int, int], int] = {}
        for k, step in self.forms.values():
            _, mine, _, start, size, _ = self._part(k, step, self.shares[k].rank)
            _, theirs, _, their_start, their_size, _ = self._part(k, step, other[k].rank)
            if size != their_size or [_shape(d) for d in mine] != [_shape(d) for d in theirs]:
                return None, 0
            for a, b in zip(mine, theirs, strict=True):
                if seen.setdefault(PIECES * k + a.piece, b.ddr - a.ddr) != b.ddr - a.ddr:
                    return None, 0
            if moved.setdefault((k, size), their_start - start) != their_start - start:
                return None, 0
        for slot, value in seen.items():
            shift[slot] = value
        code = code.copy()
        source = {at: k for k, copies in self.buffers.staging.items() for at in copies}
        sends = np.flatnonzero(code["opcode"] == isa.INSTRUCTIONS["send"].OPCODE)
        for n in sends:
            k = source[int(code["spm"][n, 0])]
            code["spm"][n, 1] += moved[k, int(code["p"][n, 0])]
            code["p"][n, 1] = other[k].mask
        masks = {self.shares[k].mask: other[k].mask for k in self.shares}
        for n in np.flatnonzero(code["opcode"] == isa.INSTRUCTIONS["barrier_sub"].OPCODE):
            code["p"][n, 0] = masks[int(code["p"][n, 0])]
        return code, shift

    def _prepare(self, fills, f: int, steps, loading: int, previous: int) -> None:
        """Bring fill f + 1 to all tiles while the engines work on fill f. loading, previous: windows to wait for,
        those of the part loads and of the fill whose buffer is written next."""
        self._bring(fills, f, steps, loading, previous)
        self._meet(fills, f + 1)
        self._exchange(fills, f + 1, steps)

    def _bring(self, fills, f: int, steps, loading: int, previous: int) -> None:
        """Wait until this tile can take part in the exchange of fill f + 1."""
        self._add("send_wait")
        self._add("wait_worker", workers=loading)
        self._load_parts(fills, f + 2, steps)
        if previous:
            self._add("wait_worker", workers=previous)

    def _meet(self, fills, f: int) -> None:
        """Wait until all tiles that get parts of fill f have come this far."""
        for mask in sorted({self.shares[k].mask for k in fills[f]}):
            self._add("barrier_sub", mask=mask)

    def _work(self, step: LoopStep, f: int, copies: dict[int, int], turn: int, worker: int) -> Work:
        """Return the slice of a step of fill f; turn: its number."""
        b, n_read = self.buffers, len(self.low.reads)
        copy = [self.version[f][k] % b.copies[k] if k in self.shares else copies[k] for k in range(n_read)]
        reads = [b.access[k][c] for k, c in enumerate(copy)]
        writes = [x[step.done % len(x)] for x in b.access[n_read:]]
        parity = (turn if self.low.staged else step.done) % 2
        return Work(Slice(step.lo, step.hi, reads, writes, b.scratch, b.consts, b.acc, step.first, step.last, parity),
                    worker)  # fmt: skip


def _end(d: Descriptor) -> int:
    size = d.run_bytes
    for _, n in d.loops:
        size *= n
    return d.spm + size


def _shape(d: Descriptor) -> tuple:
    return d.piece, d.spm, d.run_bytes, d.loops
