"""Races on DDR between tiles, workers and kernel-core routines, byte by byte.

May import: numpy, isa, simulator.sanitizer_bytes, simulator.sanitizer_order. Must not: know values.

Every byte remembers its last writer and which tiles have read it since, both from the last barrier of all tiles on:
what lies before that barrier is ordered with everything behind it.
"""

from __future__ import annotations

import numpy as np

from tx8fast.machine import DDR_BASE
from tx8fast.simulator.sanitizer_bytes import Pick, Range, overlap
from tx8fast.simulator.sanitizer_clock import Run
from tx8fast.simulator.sanitizer_order import Order


class Races:
    """Shadow of `n_bytes` of one chip's DDR; pages are only taken where something is accessed. Tiles are counted within it."""

    def __init__(self, n_bytes: int, order: Order) -> None:
        self.n_bytes, self.order = n_bytes, order
        self.writer = np.zeros(max(n_bytes, 1), np.int32)  # number of an access, 0 none
        self.readers = np.zeros(max(n_bytes, 1), np.uint64 if order.per_chip > 32 else np.uint32)  # bit t: tile t
        self.accesses: list[tuple[Run, int]] = []
        self.reads: list[list[tuple[Run, int, Pick, Range]]] = []
        self.agents: list[set[int]] = []
        self.dirty: list[Range] = []
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """Forget all accesses."""
        for lo, hi in self.dirty:
            self.writer[lo:hi] = 0
            self.readers[lo:hi] = 0
        self.dirty, self.accesses = [], []
        self.reads = [[] for _ in range(self.order.per_chip)]
        self.agents = [set() for _ in range(self.order.per_chip)]

    def access(self, run: Run, at: int, pick: Pick, span: Range, write: bool, core: bool = False) -> None:
        """Check one operand of a row and remember it; `core`: the kernel core itself accesses it, when it issues the
        row. The row's reads come before its writes."""
        if span[1] <= span[0]:
            return
        t = run.tile % self.order.per_chip
        last = pick(self.writer)
        top = int(last.max(initial=0))
        if top:
            low = int(last.min())
            for number in [top] if low == top else np.unique(last).tolist():
                if number:
                    self._against(*self.accesses[number - 1], run, at, span, True, write, core)
        self.dirty.append((span[0] - DDR_BASE, span[1] - DDR_BASE))
        readers = pick(self.readers)
        agent = run.facts.agent[at]
        if not write:
            readers |= self.readers.dtype.type(1 << t)
            self.reads[t].append((run, at, pick, span))
            self.agents[t].add(agent)
            return
        seen = int(np.bitwise_or.reduce(readers, axis=None))
        for other in range(self.order.per_chip):
            if seen >> other & 1 and (other != t or self.agents[t] - {agent}):
                self._against_reads(other, run, at, pick, span)
        self.accesses.append((run, at))
        last[...] = len(self.accesses)
        readers[...] = 0

    def _against_reads(self, tile: int, run: Run, at: int, pick: Pick, span: Range) -> None:
        for a_run, a, a_pick, (lo, hi) in self.reads[tile]:
            if lo < span[1] and span[0] < hi and (a_run is not run or a != at):
                if not self.order.ordered(a_run, a, run, at) and overlap(a_pick, pick, self.n_bytes):
                    self._against(a_run, a, run, at, span, False, True)
                    return

    def _against(
        self, a_run: Run, a: int, run: Run, at: int, span: Range, wrote: bool, write: bool, core: bool = False
    ) -> None:
        if (a_run is run and a == at) or self.order.ordered(a_run, a, run, at, core):
            return
        if a_run.tile == run.tile:
            routine = core or "kcore" in (run.facts.names[at], a_run.facts.names[a])
            kind = "kernel core without wait" if routine else "unsynchronised workers"
            missing = "no wait between them"
        elif a_run.index != run.index:
            kind, missing = "DDR race between launches", "no barrier between the launches"
        else:
            kind, missing = "DDR race between tiles", "no barrier between them"
        verbs = ("reads", "writes")[write], ("reads", "writes")[wrote]
        text = (
            f"{verbs[0]} DDR bytes [{span[0]:#x}, {span[1]:#x}), of which {self.order.say(a_run, a, run)} {verbs[1]} some "
            f"at the same time; {missing}"
        )
        self.order.fault(kind, run, at, text, span)
