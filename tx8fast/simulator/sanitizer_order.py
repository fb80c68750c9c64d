"""Which accesses are ordered by hardware or synchronisation: vector clocks of the tiles' cores, SPM conflicts.

May import: numpy, isa, program.model, simulator.sanitizer_bytes. Must not: know values, or execute anything.
Source: TX8 hardware manual 14, 15. A row is issued by its tile's core and finished when the core waits for its worker;
the hardware itself orders rows of one engine queue, and rows of one worker whose byte ranges conflict.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.isa.comm import mask_tiles
from tx8fast.program.model import Segment
from tx8fast.simulator.sanitizer_bytes import Range, touched

SENDS, ROUTINES = 3, 4  # agents of a tile behind its three workers
N_AGENTS = 5
ENGINES = 5  # units below are engines
DTE = isa.UNITS.index("dte")
KCORE = isa.UNITS.index("kcore")
MAX_PATH = 2048  # rows between two accesses that are searched for an order through third rows
Fault = Any  # callable(kind, run, position, text)


class Facts:
    """Columns of one loop-free code array that checks look at again and again."""

    def __init__(self, rows: np.ndarray, ranges: dict[str, np.ndarray]) -> None:
        self.rows = rows
        self.reads, self.writes = ranges["spm_read"], ranges["spm_write"]
        self.units = isa.units(rows)
        self.unit_list = self.units.tolist()
        engine = self.units < ENGINES
        self.agent = np.where(engine, rows["worker"], np.where(self.units == KCORE, ROUTINES, SENDS)).tolist()
        self.by_worker = {w: np.flatnonzero(engine & (rows["worker"] == w)) for w in np.unique(rows["worker"][engine]).tolist()}
        self.names = [isa.class_of(op).NAME for op in rows["opcode"].tolist()]

    def spans(self, at: int) -> tuple[list[Range], list[Range]]:
        """Return the SPM envelopes read and written by a row."""
        return ([(a, b) for a, b in self.reads[at].tolist() if b > a],
                [(a, b) for a, b in self.writes[at].tolist() if b > a])  # fmt: skip


@dataclass(eq=False)
class Run:
    """One tile's part of one launch (`index` in program order); `at` is the row it stands at, `base` its first row's
    number on the tile."""

    tile: int
    index: int
    launch: str
    segment: Segment
    facts: Facts
    base: int
    slots: np.ndarray
    at: int = 0


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


class Order:
    """Clocks of all cores, and the SPM accesses since the last barrier of all tiles."""

    def __init__(self, n_tiles: int, fault: Fault) -> None:
        self.n, self.fault = n_tiles, fault
        self.vc = [[0] * n_tiles for _ in range(n_tiles)]
        self.next = [0] * n_tiles  # number of a tile's next row
        self.current: dict[int, Run] = {}
        self.begin_epoch()
        self.landing: list[list[Leg]] = [[] for _ in range(n_tiles)]
        self.monitors = [[Monitor() for _ in range(4)] for _ in range(n_tiles)]
        self.met: dict[tuple, list[int]] = {}
        self.times: dict[tuple, int] = {}

    def begin_epoch(self) -> None:
        """Forget everything: all tiles are idle and know it."""
        every = [max(c) for c in zip(*self.vc)]
        self.vc = [list(every) for _ in range(self.n)]
        self.floor = list(self.next)
        for run in self.current.values():
            self.floor[run.tile] = run.base + run.at
        self.joins = [[([], []) for _ in range(N_AGENTS)] for _ in range(self.n)]
        self.runs: list[list[Run]] = [[] for _ in range(self.n)]
        for run in self.current.values():
            self.runs[run.tile].append(run)
        self.arrived: list[tuple[list[int], list[Leg]]] = [([], []) for _ in range(self.n)]
        self.sends: list[list[Message]] = [[] for _ in range(self.n)]

    # -- launches and clocks ------------------------------------------------------------------------------------

    def begin(self, runs: Sequence[Run]) -> None:
        """Start a launch."""
        self.current = {r.tile: r for r in runs}
        for r in runs:
            r.base = self.next[r.tile]
            self.next[r.tile] += len(r.facts.rows)
            self.runs[r.tile].append(r)
        self.met, self.times = {}, {}

    def tick(self, tile: int) -> int:
        self.vc[tile][tile] += 1
        return self.vc[tile][tile]

    def join(self, run: Run, at: int, agents: Sequence[int]) -> None:
        """The core has waited for all rows of `agents` before position `at`."""
        now = self.tick(run.tile)
        for a in agents:
            times, numbers = self.joins[run.tile][a]
            times.append(now)
            numbers.append(run.base + at)

    def finished(self, tile: int, agent: int, viewer: int) -> int:
        """Return the number below which all rows of the tile's agent are finished, as far as `viewer` knows."""
        times, numbers = self.joins[tile][agent]
        k = bisect_right(times, self.vc[viewer][tile])
        return max(self.floor[tile], numbers[k - 1] if k else 0)

    def learn(self, tile: int, clock: Sequence[int]) -> None:
        self.vc[tile] = [max(a, b) for a, b in zip(self.vc[tile], clock)]
        self.tick(tile)

    def arrive(self, run: Run, at: int, name: str, p: Sequence[int]) -> None:
        """The tile stands at a meeting point."""
        key = (name, p[0] if name == "barrier_sub" else 0, run.tile, p[0] if name == "handshake" else 0)
        self.times[key] = self.times.get(key, 0) + 1
        self.met[*key, self.times[key]] = list(self.vc[run.tile])

    def meet(self, run: Run, name: str, p: Sequence[int]) -> None:
        """The tile passes a partial barrier or handshake: it knows what its peers knew."""
        others = mask_tiles(p[0]) if name == "barrier_sub" else [p[0]]
        mine = (name, p[0] if name == "barrier_sub" else 0, run.tile, p[0] if name == "handshake" else 0)
        for other in others:
            key = (name, mine[1], other, run.tile if name == "handshake" else 0, self.times[mine])
            self.learn(run.tile, self.met.get(key, ()) or self.vc[run.tile])

    # -- order of two rows --------------------------------------------------------------------------------------

    def ordered(self, a_run: Run, a: int, run: Run, at: int) -> bool:
        """Return whether row `a` is finished, for certain, when row `at` (issued later) starts."""
        fa, fb = a_run.facts, run.facts
        if a_run.tile == run.tile and fa.unit_list[a] < ENGINES and fb.unit_list[at] < ENGINES:
            if fa.agent[a] == fb.agent[at] or fa.unit_list[a] == fb.unit_list[at]:
                return True
        if a_run.base + a < self.finished(a_run.tile, fa.agent[a], run.tile):
            return True
        return a_run is run and fb.unit_list[at] < ENGINES and self._path(run.facts, a, at)

    def _path(self, f: Facts, a: int, b: int) -> bool:
        """Return whether rows between a and b order them: queue order, or conflicts inside one worker."""
        if b - a > MAX_PATH:
            return False
        last = {f.unit_list[b]: b}  # engine -> a row of it that runs before b starts, or b
        members = [b]
        for j in range(b - 1, a - 1, -1):
            unit = f.unit_list[j]
            if unit >= ENGINES:
                continue
            inside = unit in last
            if not inside:
                same = [k for k in members if f.agent[k] == f.agent[j]]
                inside = bool(same) and self._conflict(f, j, same)
            if inside:
                if j == a:
                    return True
                last.setdefault(unit, j)
                members.append(j)
        return False

    @staticmethod
    def _conflict(f: Facts, j: int, others: Sequence[int]) -> bool:
        reads, writes = f.spans(j)
        at = np.asarray(others)
        return any(_meets(f.writes[at], r).any() for r in [*reads, *writes]) or any(_meets(f.reads[at], w).any() for w in writes)

    # -- SPM ----------------------------------------------------------------------------------------------------

    def engine_row(self, run: Run, at: int) -> None:
        """Check a row that an engine executes against everything that may still run on this tile."""
        t = run.tile
        if len(self.runs[t]) == 1 and len(run.facts.by_worker) < 2 and not self.landing[t] and not self.sends[t]:
            return
        reads, writes = run.facts.spans(at)
        for other, j, span in self.pending(t, t, reads, writes):
            if not self.ordered(other, j, run, at) and self._really(other, j, run, at, span, writes):
                self.fault("unsynchronised workers", run, at,
                           f"touches SPM bytes {_text(span)} while {self.say(other, j, run)} may still use them; no wait_worker or "
                           "wait between them and the hardware orders rows of one worker only", span)  # fmt: skip
        for leg in self.landing[t]:
            for span, what in [(s, "reads") for s in reads] + [(s, "writes") for s in writes]:
                both = _common(span, leg.dst)
                if both and self._alone(run, at, what == "writes", both):
                    kind = "read before recv" if what == "reads" else "write under a message"
                    self.fault(kind, run, at, f"{what} SPM bytes {_text(both)}, where a message of "
                               f"{self.say(leg.message.run, leg.message.at, run)} may still be landing; no recv before it", both)  # fmt: skip
        for m in self.open_sends(t, t):
            for span in writes:
                both = _common(span, m.src)
                if both and self._alone(run, at, True, both):
                    self.fault("source reused", run, at, f"writes SPM bytes {_text(both)}, which {self.say(m.run, m.at, run)} may still "
                               "be sending; no send_wait before it", both)  # fmt: skip

    def pending(self, tile: int, viewer: int, reads: Sequence[Range], writes: Sequence[Range]) -> Iterator[tuple[Run, int, Range]]:
        """Yield engine rows of `tile`, not known to be finished by `viewer`, whose SPM bytes conflict with these."""
        for run in self.runs[tile]:
            for w, where in run.facts.by_worker.items():
                lo, hi = np.searchsorted(where, (self.finished(tile, w, viewer) - run.base, run.at))
                if lo >= hi:
                    continue
                f, some = run.facts, where[lo:hi]
                for span, wrote in [(s, False) for s in reads] + [(s, True) for s in writes]:
                    for table in (f.writes, f.reads)[: 1 + wrote]:
                        hit = _meets(table[some], span)
                        for k in np.flatnonzero(hit.any(axis=1)).tolist():
                            a, b = table[some[k]][hit[k]][0].tolist()
                            yield run, int(some[k]), (max(a, span[0]), min(b, span[1]))

    def _really(self, other: Run, j: int, run: Run, at: int, span: Range, writes: Sequence[Range]) -> bool:
        """Return whether two rows share a byte, holes of strided rows left out, that one of them writes."""
        a, b = other.facts.rows[j], run.facts.rows[at]
        return bool((touched(a, True, span) & (touched(b, False, span) | touched(b, True, span))
                     | touched(a, False, span) & touched(b, True, span)).any())  # fmt: skip

    @staticmethod
    def _alone(run: Run, at: int, write: bool, span: Range) -> bool:
        return bool(touched(run.facts.rows[at], write, span).any())

    # -- messages -----------------------------------------------------------------------------------------------

    def send(self, run: Run, at: int, src: Range, dst: Range, mask: int, monitor: int) -> Message:
        """Check a send on both sides and remember it."""
        s = run.tile
        m = Message(run, at, src, list(self.vc[s]))
        for other, j, span in self.pending(s, s, [src], []):
            if touched(other.facts.rows[j], True, span).any():
                self.fault("source not ready", run, at, f"sends SPM bytes {_text(span)}, which {self.say(other, j, run)} may still be "
                           "writing; no wait for its worker", span)  # fmt: skip
        for leg in self.landing[s]:
            if both := _common(src, leg.dst):
                self.fault("read before recv", run, at, f"sends SPM bytes {_text(both)}, where a message of "
                           f"{self.say(leg.message.run, leg.message.at, run)} may still be landing", both)  # fmt: skip
        for d in mask_tiles(mask):
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
                self.fault("message into a buffer in use", run, at, f"sends to SPM bytes {_text(span)} of tile {d}, which "
                           f"{self.say(other, j, run)} may still use there; no barrier_sub after a wait for it", span)  # fmt: skip
        for m in self.open_sends(d, s):
            both = _common(m.src, dst)
            if both and m.run is not run:
                self.fault("message into a buffer in use", run, at, f"sends to SPM bytes {_text(both)} of tile {d}, which "
                           f"{self.say(m.run, m.at, run)} may still be sending", both)  # fmt: skip
        times, legs = self.arrived[d]
        for leg in [*self.landing[d], *legs[bisect_right(times, self.vc[s][d]) :]]:
            if both := _common(leg.dst, dst):
                self.fault("message into a buffer in use", run, at, f"sends to SPM bytes {_text(both)} of tile {d}, where a message of "
                           f"{self.say(leg.message.run, leg.message.at, run)} may still be landing", both)  # fmt: skip

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
                self.fault("ambiguous recv", m.run, m.at, f"adds to monitor {number} of tile {leg.tile}, where {self.say(run, at, m.run)} may "
                           "take its bytes for those of another message; no barrier_sub after that recv", leg.dst)  # fmt: skip
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

    def say(self, run: Run, at: int, beside: Run) -> str:
        """Name a row; what it shares with `beside` is left out."""
        op = int(run.facts.rows["op"][at])
        of = f" of op '{run.segment.ops[op]}'" if 0 <= op < len(run.segment.ops) else ""
        where = f"tile {run.tile} " if run.tile != beside.tile else ""
        launch = f" of launch '{run.launch}'" if run.index != beside.index else ""
        agent = f", worker {run.facts.rows['worker'][at]}" if run.facts.unit_list[at] < ENGINES else ""
        return f"{where}instruction {at} ({run.facts.names[at]}{agent}){of}{launch}"


def _meets(table: np.ndarray, span: Range) -> np.ndarray:
    """Return which envelopes (..., 2) overlap a range."""
    return (table[..., 0] < span[1]) & (table[..., 1] > span[0]) & (table[..., 1] > table[..., 0])


def _common(a: Range, b: Range) -> Range | None:
    lo, hi = max(a[0], b[0]), min(a[1], b[1])
    return (lo, hi) if lo < hi else None


def _size(leg: Leg) -> int:
    return leg.dst[1] - leg.dst[0]


def _text(span: Range) -> str:
    return f"[{span[0]:#x}, {span[1]:#x})"
