"""The order in which the rows of a code run, where it matters to other tiles: barriers, waits and messages.

May import: numpy, isa. Must not: execute instructions, share code with what produces programs.
"""

from __future__ import annotations

import numpy as np

from tx8fast import isa

WAIT, WAIT_WORKER, SEND_WAIT, BARRIER = (
    isa.INSTRUCTIONS[n].OPCODE for n in ("wait", "wait_worker", "send_wait", "barrier")
)
ENGINE_UNITS = 5  # units below this one are engines
KCORE_UNIT = 5
SPARSE = 16  # places for each row that runs, from which on they are sorted instead of counted


class Flow:
    """The order in which rows of one form run, their loops and waits being equal.

    By row and interval (barriers behind it): row, interval, times it runs, last: when it runs for the last time there; at: by
    opcode, where these columns speak of it. waits: when the last send_wait of each interval runs, -1 for none; open: rows
    at whose barrier some engine may be at work."""

    def __init__(self, rows: np.ndarray) -> None:
        run, _ = isa.execution(rows)
        opcode = rows["opcode"][run]
        barrier = opcode == BARRIER
        behind = np.cumsum(barrier) - barrier
        self.barriers = int(barrier.sum())
        self.ends_in_barrier = bool(len(barrier)) and bool(barrier[-1])
        key, room = behind * max(1, len(rows)) + run, (self.barriers + 1) * max(1, len(rows))
        if room > SPARSE * max(1, len(run)):  # too many places to have a counter for each
            some, key = np.unique(key, return_inverse=True)
            room = len(some)
        else:
            some = np.arange(room)
        times, last = np.bincount(key, minlength=room), np.zeros(room, np.int64)
        last[key] = np.arange(len(run))  # of equal places the last one stays
        there = np.flatnonzero(times)
        self.times, self.last = times[there], last[there]
        self.interval, self.row = np.divmod(some[there], max(1, len(rows)))
        own = rows["opcode"][self.row]
        self.at = {op: np.flatnonzero(own == op) for op in isa.distinct(own)}
        self.waits = np.zeros(self.barriers + 1, np.int64) - 1
        sends = self.at.get(SEND_WAIT, np.zeros(0, np.int64))
        np.maximum.at(self.waits, self.interval[sends], self.last[sends])
        self.open = run[self._pending(rows, run, opcode)]

    @staticmethod
    def _pending(rows: np.ndarray, run: np.ndarray, opcode: np.ndarray) -> np.ndarray:
        """Return the places of the barriers at which an engine may be at work that nothing has waited for."""
        units, worker, masks = (v[run] for v in (isa.units(rows), rows["worker"], rows["p"][:, 0]))
        engine = units < ENGINE_UNITS
        all_joins = (opcode == WAIT) | (units == KCORE_UNIT)
        some_join = opcode == WAIT_WORKER
        barriers = np.flatnonzero(opcode == BARRIER)
        pending = np.zeros(len(barriers), bool)
        for w in isa.distinct(worker[engine]):
            marks = engine & (worker == w), all_joins | (some_join & (masks >> w & 1 == 1))
            last_engine, last_join = (_last(np.flatnonzero(mark), barriers) for mark in marks)
            pending |= last_engine > last_join
        return barriers[pending]


def _last(places: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the last of ascending places up to each of `at`, -1 if there is none."""
    return np.append(-1, places)[np.searchsorted(places, at, "right")]
