"""Loop folding: `roll` finds repeated stretches of code, `expand` writes them out again.

May import: numpy, _kernels, isa.record, isa.control. Must not: know any other instruction.
Loops only advance DDR offsets (`ddr_step`, outermost loop first); every other field of a repeated
row is constant. expand(roll(rows)) == rows, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tx8fast._kernels import distinct_rows, find_folds
from tx8fast.errors import SimulationError
from tx8fast.isa.control import END, LOOP
from tx8fast.isa.record import MAX_LOOPS, RECORD, words_but, words_of

#: a fold must repeat at least this often and save at least this many rows
MIN_REPEATS = 3
MIN_SAVING = 3
MAX_PERIODS = 64
#: rows of one code array with its loops written out
MAX_ROWS = 1 << 24
_NEIGHBOURS = 4
WORDS_BUT_OFFSETS = words_but("ddr")
Rows = Callable[[int, int], np.ndarray]  # makes the rows of a range [lo, hi) of a code


def expand(code: np.ndarray) -> np.ndarray:
    """Return `code` without LOOP/END rows; `ddr` includes the steps, `ddr_step` and `depth` are zero.

    Raises SimulationError if loops are not balanced or nested deeper than MAX_LOOPS.
    """
    index, advance = execution(code)
    if not len(advance):
        return code.copy()
    out = code[index]
    out["ddr"] += advance
    out["ddr_step"] = 0
    out["depth"] = 0
    return out


def execution(code: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows of `code` run, in order, and how far the DDR offset of each has moved (bytes); nothing has if the
    second is empty: there are no loops.

    Raises SimulationError as `expand` does.
    """
    opcode = code["opcode"]
    marks = np.flatnonzero((opcode == LOOP) | (opcode == END))
    if not len(marks):
        return np.arange(len(code)), np.zeros(0, np.int64)
    partner = _match_loops(opcode, marks)
    counts = code["p"][:, 0]
    steps = code["ddr_step"]

    def build(lo: int, hi: int, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (row indices, DDR advance) of rows [lo, hi) at loop depth `depth`, loops written out."""
        index, advance = [], []
        at = lo
        k = int(np.searchsorted(marks, lo))
        while at < hi:
            start = int(marks[k]) if k < len(marks) else hi
            start = min(start, hi)
            if start > at:
                index.append(np.arange(at, start))
                advance.append(np.zeros(start - at, np.int64))
            if start == hi:
                break
            end = partner[start]
            inner, offset = build(start + 1, end, depth + 1)
            n = int(counts[start])
            if n * len(inner) > MAX_ROWS:
                raise SimulationError(
                    f"reading code: the loop at row {start} stands for {n * len(inner)} instructions, at most {MAX_ROWS}"
                )
            step = steps[inner, depth]
            index.append(np.tile(inner, n))
            advance.append(np.tile(offset, n) + np.repeat(np.arange(n), len(inner)) * np.tile(step, n))
            at = end + 1
            k = int(np.searchsorted(marks, at))
        if not index:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return np.concatenate(index), np.concatenate(advance)

    return build(0, len(code), 0)


def _match_loops(opcode: np.ndarray, marks: np.ndarray) -> dict[int, int]:
    partner: dict[int, int] = {}
    stack: list[int] = []
    for at in marks.tolist():
        if opcode[at] == LOOP:
            stack.append(at)
            if len(stack) > MAX_LOOPS:
                raise SimulationError(f"reading code: row {at} opens loop level {len(stack)}, at most {MAX_LOOPS}")
        elif not stack:
            raise SimulationError(f"reading code: row {at} ends a loop that was not opened")
        else:
            partner[stack.pop()] = at
    if stack:
        raise SimulationError(f"reading code: the loop opened by row {stack[-1]} is not ended")
    return partner


def roll(rows: np.ndarray) -> np.ndarray:
    """Return `rows` (loop-free RECORD array) with repeats folded into LOOP/END, at most MAX_LOOPS deep."""
    code = np.ascontiguousarray(rows, RECORD)
    return rolled(_slices(code), code["ddr"], row_forms(code))


def rolled(rows: Rows, ddr: np.ndarray, forms: np.ndarray) -> np.ndarray:
    """As `roll`, of rows of which only those are made that stay. rows: makes those of a range [lo, hi); ddr (n,) int64: their DDR offsets;
    forms (n,) int32: `row_forms` of all of them, or other numbers as good."""
    outside = np.zeros(len(ddr), np.int64)
    folds = _find_folds(np.ascontiguousarray(ddr), forms, outside, np.ones(len(ddr), bool))
    code = _apply(rows, ddr, folds)
    for _ in range(MAX_LOOPS if folds else 0):
        level = _level(code)
        # rows that already sit in MAX_LOOPS loops cannot be wrapped once more
        ddr = np.ascontiguousarray(code["ddr"])
        folds = _find_folds(ddr, row_forms(code), level, _room(code, level))
        if not folds:
            break
        code = _apply(_slices(code), ddr, folds)
    return code


def _slices(code: np.ndarray) -> Rows:
    return lambda lo, hi: code[lo:hi]


def row_forms(code: np.ndarray) -> np.ndarray:
    """Return a number (n,) int32 per row, equal for rows that differ in their DDR offset alone."""
    return distinct_rows(words_of(code), WORDS_BUT_OFFSETS)[0]


def _periods(ids: np.ndarray) -> list[int]:
    """Return likely periods, ascending: the commonest distances between equal rows."""
    n = len(ids)
    few = n > 0 and abs(ids).max() < 1 << 15  # numpy counts numbers of 16 bits, and compares longer ones
    order = np.argsort(ids.astype(np.int16) if few else ids, kind="stable")
    score = np.zeros(n + 1, np.int64)
    ordered = ids[order]
    for k in range(1, min(_NEIGHBOURS, n - 1) + 1):
        same = ordered[k:] == ordered[:-k]
        score += np.bincount((order[k:] - order[:-k])[same], minlength=n + 1)
    score[n // MIN_REPEATS + 1 :] = 0
    often = np.flatnonzero(score >= MIN_REPEATS - 1)
    return sorted(often[np.argsort(-score[often], kind="stable")[:MAX_PERIODS]].tolist())


def _find_folds(ddr: np.ndarray, ids: np.ndarray, level: np.ndarray, free: np.ndarray) -> list[tuple[int, int, int]]:
    """Return disjoint (start, period, repeats), ascending by start. ids: `row_forms`; level: `_level`; free: `_room`."""
    if len(ids) < 2 * MIN_REPEATS:
        return []
    return sorted(find_folds(ids, ddr, level, free, _periods(ids), MIN_REPEATS, MIN_SAVING))


def _level(code: np.ndarray) -> np.ndarray:
    """Return the loop depth at which each row stands (a LOOP and its END stand outside their loop)."""
    opens, ends = code["opcode"] == LOOP, code["opcode"] == END
    return np.cumsum(opens) - np.cumsum(ends) - opens


def _room(code: np.ndarray, level: np.ndarray) -> np.ndarray:
    """Return which rows belong to a top-level item that may still be wrapped in a loop."""
    item = np.cumsum((level == 0) & (code["opcode"] != END)) - 1
    if not len(item):
        return np.zeros(0, bool)
    deepest = np.zeros(int(item[-1]) + 1, np.int64)
    np.maximum.at(deepest, item, level)
    return deepest[item] < MAX_LOOPS


def _apply(rows: Rows, ddr: np.ndarray, folds: list[tuple[int, int, int]]) -> np.ndarray:
    """Return the code with each fold replaced by LOOP, one body, END."""
    pieces: list[np.ndarray] = []
    at = 0
    for start, period, repeats in folds:
        pieces.append(rows(at, start))
        body = rows(start, start + period).copy()
        steps = ddr[start + period : start + 2 * period] - ddr[start : start + period]
        body["ddr_step"][:, 1:] = body["ddr_step"][:, :-1].copy()
        body["ddr_step"][:, 0] = steps
        body["depth"] += 1
        loop, end = np.zeros(1, RECORD), np.zeros(1, RECORD)
        loop["opcode"], end["opcode"] = LOOP, END
        loop["slot"] = end["slot"] = loop["op"] = end["op"] = -1
        loop["p"][:, 0] = repeats
        pieces += [loop, body, end]
        at = start + period * repeats
    pieces.append(rows(at, len(ddr)))
    # as bytes: numpy would work out a common record type for every piece
    return np.concatenate([np.ascontiguousarray(piece).view(np.uint8) for piece in pieces]).view(RECORD)
