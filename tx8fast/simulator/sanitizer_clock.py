"""When a row is finished for certain: vector clocks of the tiles' cores, queue order, conflicts inside a worker.

May import: numpy, isa, program.model. Must not: know which accesses conflict, values, or execute anything.
Source: TX8 hardware manual 14, 15. A row is issued by its tile's core and finished when the core waits for its worker;
the hardware itself orders rows of one engine queue, and rows of one worker whose byte ranges conflict.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np

from tx8fast import isa
from tx8fast.isa.comm import mask_tiles
from tx8fast.program.model import Segment
from tx8fast.records import dataclass
from tx8fast.simulator.sanitizer_bytes import Range

SENDS, ROUTINES = 3, 4  # agents of a tile behind its three workers
N_AGENTS = 5
ENGINES = 5  # units below are engines
DTE = isa.UNITS.index("dte")
KCORE = isa.UNITS.index("kcore")
MAX_PATH = 2048  # rows between two accesses that are searched for an order through third rows


class Facts:
    """Columns of one loop-free code array that checks look at again and again."""

    def __init__(self, rows: np.ndarray, ranges: dict[str, np.ndarray]) -> None:
        self.rows = rows
        self.reads, self.writes = ranges["spm_read"], ranges["spm_write"]
        self.units = isa.units(rows)
        self.unit_list = self.units.tolist()
        engine = self.units < ENGINES
        self.agent = np.where(engine, rows["worker"], np.where(self.units == KCORE, ROUTINES, SENDS)).tolist()
        self.by_worker = {
            w: np.flatnonzero(engine & (rows["worker"] == w)) for w in np.unique(rows["worker"][engine]).tolist()
        }
        #: of every worker and engine the rows of this worker that stand in this engine's queue
        self.by_queue = {
            (w, unit): where[self.units[where] == unit].tolist()
            for w, where in self.by_worker.items() for unit in np.unique(self.units[where]).tolist()
        }  # fmt: skip
        self.names = [isa.class_of(op).NAME for op in rows["opcode"].tolist()]

    def spans(self, at: int) -> tuple[list[Range], list[Range]]:
        """Return the SPM envelopes read and written by a row."""
        return (
            [(a, b) for a, b in self.reads[at].tolist() if b > a],
            [(a, b) for a, b in self.writes[at].tolist() if b > a],
        )


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


class Clocks:
    """What each core knows about the others, and the launches since the last barrier of all tiles."""

    def __init__(self, n_tiles: int, n_chips: int = 1) -> None:
        self.per_chip, self.n = n_tiles, n_tiles * n_chips
        self.vc = [[0] * self.n for _ in range(self.n)]
        self.next = [0] * self.n  # number of a tile's next row
        self.current: dict[int, Run] = {}
        self.joins = [[([0], [0]) for _ in range(N_AGENTS)] for _ in range(self.n)]
        self.runs: list[list[Run]] = [
            [] for _ in range(self.n)
        ]  # launches of which somebody may not know that they are over
        for chip in range(n_chips):
            self.begin_epoch(self.tiles_of(chip))
        self.met: dict[tuple, list[int]] = {}
        self.times: dict[tuple, int] = {}

    def tiles_of(self, chip: int) -> range:
        return range(chip * self.per_chip, (chip + 1) * self.per_chip)

    def begin_epoch(self, tiles: Sequence[int]) -> None:
        """The tiles of a chip are all idle, and know it of each other; other chips learn of it by handshakes and messages."""
        for t in tiles:
            run = self.current.get(t)
            number = self.next[t] if run is None else run.base + run.at
            now = self.tick(t)
            for times, numbers in self.joins[t]:
                times.append(now)
                numbers.append(number)
        every = [max(clocks) for clocks in zip(*(self.vc[t] for t in tiles))]
        for t in tiles:
            self.vc[t] = list(every)
        for t in range(self.n):
            over = [
                min(self.finished(t, agent, v) for v in range(0, self.n, self.per_chip)) for agent in range(N_AGENTS)
            ]
            self.runs[t] = [
                r for r in self.runs[t] if r is self.current.get(t) or r.base + len(r.facts.rows) > min(over)
            ]

    # -- launches and clocks ------------------------------------------------------------------------------------

    def begin(self, runs: Sequence[Run]) -> None:
        """Start a launch."""
        self.current |= {r.tile: r for r in runs}
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
        return numbers[bisect_right(times, self.vc[viewer][tile]) - 1]

    def over(self, run: Run, at: int, viewer: int) -> bool:
        """Return whether `viewer` knows that a row is finished: its worker was waited for, or that of a later row of its engine, whose
        queue is worked off in order."""
        unit, number = run.facts.unit_list[at], run.base + at
        if number < self.finished(run.tile, run.facts.agent[at], viewer):
            return True
        if unit >= ENGINES:
            return False
        for other in self.runs[run.tile]:
            for (w, queue), rows in other.facts.by_queue.items() if other.index >= run.index else ():
                known = bisect_left(rows, self.finished(run.tile, w, viewer) - other.base) if queue == unit else 0
                if known and other.base + rows[known - 1] > number:
                    return True
        return False

    def learn(self, tile: int, clock: Sequence[int]) -> None:
        self.vc[tile] = [max(a, b) for a, b in zip(self.vc[tile], clock)]
        self.tick(tile)

    def arrive(self, run: Run, at: int, name: str, p: Sequence[int]) -> None:
        """The tile stands at a meeting point."""
        key = self._meeting(run, name, p)[0]
        self.times[key] = self.times.get(key, 0) + 1
        self.met[*key, self.times[key]] = list(self.vc[run.tile])

    def meet(self, run: Run, name: str, p: Sequence[int]) -> None:
        """The tile passes a partial barrier or handshake: it knows what its peers knew."""
        mine, others = self._meeting(run, name, p)
        for other in others:
            key = (name, mine[1], other, run.tile if name == "handshake" else 0, self.times[mine])
            self.learn(run.tile, self.met.get(key, ()) or self.vc[run.tile])

    def _meeting(self, run: Run, name: str, p: Sequence[int]) -> tuple[tuple, list[int]]:
        """Return how a meeting is known, and whom the tile meets. Chips are named as in rows."""
        home = run.tile - run.tile % self.per_chip
        if name == "barrier_sub":
            return (name, p[0], run.tile, 0), [home + t for t in mask_tiles(p[0])]
        peer = (home if p[1] <= 0 else (p[1] - 1) * self.per_chip) + p[0]
        return (name, 0, run.tile, peer), [peer]

    # -- order of two rows --------------------------------------------------------------------------------------

    def ordered(self, a_run: Run, a: int, run: Run, at: int, core: bool = False) -> bool:
        """Return whether row `a` is finished, for certain, when row `at` (issued later) starts; `core`: when it is issued."""
        fa, fb = a_run.facts, run.facts
        if not core and a_run.tile == run.tile and fa.unit_list[a] < ENGINES and fb.unit_list[at] < ENGINES:
            if fa.agent[a] == fb.agent[at] or fa.unit_list[a] == fb.unit_list[at]:
                return True
        if self.over(a_run, a, run.tile):
            return True
        return not core and a_run is run and fb.unit_list[at] < ENGINES and self._path(run, a, at)

    def _path(self, run: Run, a: int, b: int) -> bool:
        """Return whether rows between a and b order them: queue order, conflicts inside one worker, or the core's waits for rows that
        come behind a by these."""
        if b - a > MAX_PATH:
            return False
        f = run.facts
        last = {f.unit_list[b]: b}  # engine -> a row of it that runs before b starts, or b
        members = [b]
        for j in range(b - 1, a - 1, -1):
            unit = f.unit_list[j]
            if unit >= ENGINES:
                continue
            inside = unit in last
            if not inside:
                same = [k for k in members if f.agent[k] == f.agent[j]]
                inside = bool(same) and self._conflict(f, j, same) or self.over(run, j, run.tile)
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
        return any(meets(f.writes[at], r).any() for r in [*reads, *writes]) or any(
            meets(f.reads[at], w).any() for w in writes
        )

    def say(self, run: Run, at: int, beside: Run) -> str:
        """Name a row; what it shares with `beside` is left out."""
        op = int(run.facts.rows["op"][at])
        of = f" of op '{run.segment.ops[op]}'" if 0 <= op < len(run.segment.ops) else ""
        where = f"tile {run.tile} " if run.tile != beside.tile else ""
        launch = f" of launch '{run.launch}'" if run.index != beside.index else ""
        agent = f", worker {run.facts.rows['worker'][at]}" if run.facts.unit_list[at] < ENGINES else ""
        return f"{where}instruction {at} ({run.facts.names[at]}{agent}){of}{launch}"


def meets(table: np.ndarray, span: Range) -> np.ndarray:
    """Return which envelopes (..., 2) overlap a range."""
    return (table[..., 0] < span[1]) & (table[..., 1] > span[0]) & (table[..., 1] > table[..., 0])
