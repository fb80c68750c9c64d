"""The order in which the rows of a code run, where it matters to other tiles: barriers, waits and messages.

May import: numpy, isa. Must not: execute instructions, share code with what produces programs.
"""

from __future__ import annotations

import numpy as np

from tx8fast import isa

LOOP, END, WAIT, WAIT_WORKER, SEND_WAIT, BARRIER = (
    isa.INSTRUCTIONS[n].OPCODE for n in ("loop", "end", "wait", "wait_worker", "send_wait", "barrier")
)
MESSAGES = ("send", "scatter", "gather")
EXCHANGES = (*MESSAGES, "recv", "send_wait", "barrier_sub", "handshake", "wait_worker")
EXCHANGING = np.array([isa.INSTRUCTIONS[n].OPCODE for n in EXCHANGES])
ENGINE_UNITS = 5  # units below this one are engines
KCORE_UNIT = 5
SPARSE = 16  # places for each row that runs, from which on they are sorted instead of counted


class Flow:
    """The order in which rows run. Columns of them: opcode, unit, worker, and the number that a loop or a wait for workers has.

    Of the rows that concern other tiles, by row and interval (barriers behind it): row, opcode, interval, times it runs, last:
    when it runs for the last time there. waits: when the last send_wait of each interval runs, -1 for none; open: rows at whose
    barrier some engine may be at work."""

    def __init__(self, opcode: np.ndarray, unit: np.ndarray, worker: np.ndarray, number: np.ndarray) -> None:
        run, n = _order(opcode, number), max(1, len(opcode))
        barrier = (opcode == BARRIER)[run]
        behind = np.cumsum(barrier) - barrier
        self.barriers = int(barrier.sum())
        self.ends_in_barrier = bool(len(barrier)) and bool(barrier[-1])
        key, room = behind * n + run, (self.barriers + 1) * n
        if room > SPARSE * max(1, len(run)):  # too many places to have a counter for each
            some, key = np.unique(key, return_inverse=True)
            room = len(some)
        else:
            some = np.arange(room)
        times, last = np.bincount(key, minlength=room), np.zeros(room, np.int64)
        last[key] = np.arange(len(run))  # of equal places the last one stays
        interval, row = np.divmod(some, n)
        exchanging = np.append(np.isin(opcode, EXCHANGING), False)  # a code without rows has a place all the same
        there = np.flatnonzero((times > 0) & exchanging[row])
        self.times, self.last, self.interval, self.row = times[there], last[there], interval[there], row[there]
        self.opcode = opcode[self.row]
        self.waits = np.full(self.barriers + 1, -1)
        sends = self.opcode == SEND_WAIT
        np.maximum.at(self.waits, self.interval[sends], self.last[sends])
        barriers = np.flatnonzero(barrier)
        pending = np.zeros(len(barriers), bool)
        joins = (opcode == WAIT) | (unit == KCORE_UNIT)
        for w in np.flatnonzero(np.bincount(worker[unit < ENGINE_UNITS])).tolist():
            engine = (unit < ENGINE_UNITS) & (worker == w)
            join = joins | ((opcode == WAIT_WORKER) & (number >> w & 1 == 1))
            last_engine, last_join = (_last(np.flatnonzero(mark[run]), barriers) for mark in (engine, join))
            pending |= last_engine > last_join
        self.open = run[barriers[pending]]


def _order(opcode: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Return which rows run, in order; count: how often loops run. Loops are balanced and stand for no more rows than allowed."""
    parts: list[list[np.ndarray]] = [[]]
    loops: list[int] = []
    begin = 0
    for at in np.flatnonzero((opcode == LOOP) | (opcode == END)).tolist():
        parts[-1].append(np.arange(begin, at))
        begin = at + 1
        if opcode[at] == LOOP:
            loops.append(at)
            parts.append([])
        else:
            inner = np.concatenate(parts.pop())
            parts[-1].append(np.tile(inner, count[loops.pop()]))
    parts[-1].append(np.arange(begin, len(opcode)))
    return np.concatenate(parts[-1])


def _last(places: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the last of ascending places up to each of `at`, -1 if there is none."""
    return np.append(-1, places)[np.searchsorted(places, at, "right")]
