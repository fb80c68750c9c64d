"""Conflicts in the scratchpads: between workers of a tile, and between messages and whatever else uses the bytes.

May import: numpy, isa, simulator.sanitizer_bytes, simulator.sanitizer_clock. Must not: know values, or execute anything.
Source: TX8 hardware manual 14, 15.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tx8fast.records import dataclass
from tx8fast.simulator.sanitizer_bytes import Range, touched
from tx8fast.simulator.sanitizer_clock import SENDS, Clocks, Run, meets

Fault = Any  # callable(kind, run, position, text, range)


@dataclass(eq=False)
class Message:
    """A send; `legs` per destination tile."""

    run: Run
    at: int
    src: Range
    clock: list[int]  # what the sender's core knew
    legs: list[Leg] = field(default_factory=list)


@dataclass(eq=False)
class Leg:
    """A send's way to one tile; `done` is that core's time of the recv that proves the arrival, -1 before."""

    message: Message
    tile: int
    dst: Range
    done: int = -1


class Monitor:
    """One arrival counter: bytes of legs known to have arrived, the others in order, bytes taken, recvs passed."""

    def __init__(self) -> None:
        self.known, self.taken = 0, 0
        self.open: list[Leg] = []
        self.recvs: list[tuple[int, Run, int]] = []  # core time, run, position


class Order(Clocks):
    """Checks SPM accesses against all that no clock orders; `fault` takes what it finds."""

    def __init__(self, n_tiles: int, fault: Fault, n_chips: int = 1) -> None:
        self.fault = fault
        n = n_tiles * n_chips
        self.landing: list[list[Leg]] = [[] for _ in range(n)]
        self.monitors = [[Monitor() for _ in range(4)] for _ in range(n)]
        self.arrived: list[tuple[list[int], list[Leg]]] = [([], []) for _ in range(n)]
        self.sends: list[list[Message]] = [[] for _ in range(n)]
        super().__init__(n_tiles, n_chips)

    def begin_epoch(self, tiles: Sequence[int]) -> None:
        super().begin_epoch(tiles)
        for t in tiles:
            self.arrived[t] = ([], [])
            self.sends[t] = []

    # -- SPM ----------------------------------------------------------------------------------------------------

    def engine_row(self, run: Run, at: int) -> None:
        """Check a row that an engine executes against everything that may still run on this tile."""
        t = run.tile
        if len(self.runs[t]) == 1 and len(run.facts.by_worker) < 2 and not self.landing[t] and not self.sends[t]:
            return
        reads, writes = run.facts.spans(at)
        for other, j, span in self.pending(t, t, reads, writes, run.facts.agent[at]):
            if not self.ordered(other, j, run, at) and self._really(other, j, run, at, span, writes):
                self.fault(
                    "unsynchronised workers",
                    run,
                    at,
                    f"touches SPM bytes {_text(span)} while {self.say(other, j, run)} may still use them; no wait_worker or "
                    "wait between them and the hardware orders rows of one worker only",
                    span,
                )
        for leg in self.landing[t]:
            for span, what in [(s, "reads") for s in reads] + [(s, "writes") for s in writes]:
                both = _common(span, leg.dst)
                if both and self._alone(run, at, what == "writes", both):
                    kind = "read before recv" if what == "reads" else "write under a message"
                    self.fault(
                        kind,
                        run,
                        at,
                        f"{what} SPM bytes {_text(both)}, where a message of "
                        f"{self.say(leg.message.run, leg.message.at, run)} may still be landing; no recv before it",
                        both,
                    )
        for m in self.open_sends(t, t):
            for span in writes:
                both = _common(span, m.src)
                if both and self._alone(run, at, True, both):
                    self.fault(
                        "source reused",
                        run,
                        at,
                        f"writes SPM bytes {_text(both)}, which {self.say(m.run, m.at, run)} may still "
                        "be sending; no send_wait before it",
                        both,
                    )

    def pending(
        self, tile: int, viewer: int, reads: Sequence[Range], writes: Sequence[Range], but: int = -1
    ) -> Iterator[tuple[Run, int, Range]]:
        """Yield engine rows of `tile`, not known to be finished by `viewer`, whose SPM bytes conflict with these; but: of other
        workers than this one, whose rows the hardware orders."""
        for run in self.runs[tile]:
            for w, where in run.facts.by_worker.items():
                if w == but:
                    continue
                lo, hi = np.searchsorted(where, (self.finished(tile, w, viewer) - run.base, run.at))
                if lo >= hi:
                    continue
                f, some = run.facts, where[lo:hi]
                for span, wrote in [(s, False) for s in reads] + [(s, True) for s in writes]:
                    for table in (f.writes, f.reads)[: 1 + wrote]:
                        hit = meets(table[some], span)
                        for k in np.flatnonzero(hit.any(axis=1)).tolist():
                            a, b = table[some[k]][hit[k]][0].tolist()
                            if self.over(run, int(some[k]), viewer):
                                continue
                            yield run, int(some[k]), (max(a, span[0]), min(b, span[1]))

    def _really(self, other: Run, j: int, run: Run, at: int, span: Range, writes: Sequence[Range]) -> bool:
        """Return whether two rows share a byte, holes of strided rows left out, that one of them writes."""
        a, b = other.facts.rows[j], run.facts.rows[at]
        return bool(
            (
                touched(a, True, span) & (touched(b, False, span) | touched(b, True, span))
                | touched(a, False, span) & touched(b, True, span)
            ).any()
        )

    @staticmethod
    def _alone(run: Run, at: int, write: bool, span: Range) -> bool:
        return bool(touched(run.facts.rows[at], write, span).any())

    # -- messages -----------------------------------------------------------------------------------------------

    def send(self, run: Run, at: int, src: Range, dst: Range, targets: Sequence[int], monitor: int) -> Message:
        """Check a send to tiles `targets` on both sides and remember it."""
        s = run.tile
        m = Message(run, at, src, list(self.vc[s]))
        for other, j, span in self.pending(s, s, [src], []):
            if (touched(other.facts.rows[j], True, span) & touched(run.facts.rows[at], False, span)).any():
                self.fault(
                    "source not ready",
                    run,
                    at,
                    f"sends SPM bytes {_text(span)}, which {self.say(other, j, run)} may still be "
                    "writing; no wait for its worker",
                    span,
                )
        for leg in self.landing[s]:
            if both := _common(src, leg.dst):
                self.fault(
                    "read before recv",
                    run,
                    at,
                    f"sends SPM bytes {_text(both)}, where a message of "
                    f"{self.say(leg.message.run, leg.message.at, run)} may still be landing",
                    both,
                )
        for d in targets:
            self._land(run, at, d, dst)
            leg = Leg(m, d, dst)
            m.legs.append(leg)
            self._count(leg, monitor)
        for leg in m.legs:
            self.landing[leg.tile].append(leg)
        self.sends[s].append(m)
        return m

    def _land(self, run: Run, at: int, d: int, dst: Range) -> None:
        """Check that nothing on tile `d` uses the bytes a message lands in."""
        s = run.tile
        for other, j, span in self.pending(d, s, [], [dst]):
            a = other.facts.rows[j]
            if (touched(a, True, span) | touched(a, False, span)).any():
                self.fault(
                    "message into a buffer in use",
                    run,
                    at,
                    f"sends to SPM bytes {_text(span)} of tile {d}, which "
                    f"{self.say(other, j, run)} may still use there; no barrier_sub after a wait for it",
                    span,
                )
        for m in self.open_sends(d, s):
            both = _common(m.src, dst)
            if both and m.run is not run:
                self.fault(
                    "message into a buffer in use",
                    run,
                    at,
                    f"sends to SPM bytes {_text(both)} of tile {d}, which "
                    f"{self.say(m.run, m.at, run)} may still be sending",
                    both,
                )
        times, legs = self.arrived[d]
        for leg in [*self.landing[d], *legs[bisect_right(times, self.vc[s][d]) :]]:
            if both := _common(leg.dst, dst):
                self.fault(
                    "message into a buffer in use",
                    run,
                    at,
                    f"sends to SPM bytes {_text(both)} of tile {d}, where a message of "
                    f"{self.say(leg.message.run, leg.message.at, run)} may still be landing",
                    both,
                )

    def open_sends(self, tile: int, viewer: int) -> list[Message]:
        """Return the tile's sends whose source, as far as `viewer` knows, may still be read."""
        done = self.finished(tile, SENDS, viewer)
        out = []
        for m in reversed(self.sends[tile]):
            if m.run.base + m.at < done:
                break
            if not all(0 <= leg.done <= self.vc[viewer][leg.tile] for leg in m.legs):
                out.append(m)
        return out

    def _count(self, leg: Leg, number: int) -> None:
        """Add a leg to its monitor; an earlier recv must not be able to take it for another message."""
        monitor, s = self.monitors[leg.tile][number], leg.message.run.tile
        for when, run, at in reversed(monitor.recvs):
            if when <= self.vc[s][leg.tile]:
                break
            if any(o.message.run.tile != s for o in self.arrived[leg.tile][1] if o.done == when):
                m = leg.message
                self.fault(
                    "ambiguous recv",
                    m.run,
                    m.at,
                    f"adds to monitor {number} of tile {leg.tile}, where {self.say(run, at, m.run)} may "
                    "take its bytes for those of another message; no barrier_sub after that recv",
                    leg.dst,
                )
                break
        monitor.open.append(leg)

    def recv(self, run: Run, at: int, number: int, nbytes: int) -> None:
        """The tile has taken `nbytes` off a monitor: messages without which the count is impossible have arrived."""
        monitor, t = self.monitors[run.tile][number], run.tile
        monitor.taken += nbytes
        now = self.tick(t)
        total = monitor.known + sum(_size(leg) for leg in monitor.open)
        behind: dict[int, int] = {}  # sender -> bytes of its later messages: they arrive in order
        sure = []
        for leg in reversed(monitor.open):
            s = leg.message.run.tile
            if total - behind.get(s, 0) <= monitor.taken:
                sure.append(leg)
            behind[s] = behind.get(s, 0) + _size(leg)
        for leg in reversed(sure):
            monitor.open.remove(leg)
            monitor.known += _size(leg)
            leg.done = now
            self.landing[t].remove(leg)
            self.arrived[t][0].append(now)
            self.arrived[t][1].append(leg)
            # what the sender's core knew when it sent is known here too
            self.vc[t] = [max(a, b) for a, b in zip(self.vc[t], leg.message.clock)]
        monitor.recvs.append((now, run, at))


def _common(a: Range, b: Range) -> Range | None:
    lo, hi = max(a[0], b[0]), min(a[1], b[1])
    return (lo, hi) if lo < hi else None


def _size(leg: Leg) -> int:
    return leg.dst[1] - leg.dst[0]


def _text(span: Range) -> str:
    return f"[{span[0]:#x}, {span[1]:#x})"
