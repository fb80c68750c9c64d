"""Finding repetition in a list of ops: tokens, the longest period, the best cut, equal wiring.

May import: numpy, ir.core, passes.effects. Must not: change the graph (see `passes/outline.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tx8fast.ir.core import Op, Value
from tx8fast.ir.types import TensorType
from tx8fast.passes.effects import AttrKeys
from tx8fast.records import dataclass

NORMS = ("layernorm", "rmsnorm")


@dataclass(frozen=True)
class Run:
    """`repeats` windows of `period` ops each, the first at index `start` of the op list."""

    start: int
    period: int
    repeats: int

    @property
    def saved(self) -> int:
        return (self.repeats - 1) * self.period


def tokens_of(ops: Sequence[Op]) -> np.ndarray:
    """Return one integer per op: equal for equal kind, listed attributes, operand types and result types.

    Ops with regions and calls get a token of their own, so that nothing repeats across them.
    """
    known: dict[Any, int] = {}
    attr_key = AttrKeys()
    out = np.empty(len(ops), np.int64)
    for n, op in enumerate(ops):
        if op.regions or "callee" in op.attrs:
            key: Any = op
        else:
            ins = tuple([id(v.type) for v in op.operands])
            key = (op.info, attr_key(op), ins, tuple([id(v.type) for v in op.results]))
        out[n] = known.setdefault(key, len(known))
    return out


def find_repeat(tokens: np.ndarray, min_ops: int = 2) -> tuple[int, int, int] | None:
    """Return (period, start, length) of the stretch of period >= `min_ops` whose outlining saves most ops, or None.

    Every token of the stretch but those of its last period equals the one a period later; ties go to the
    smaller period. One vector comparison per period tried.
    """
    best: tuple[int, int, int, int] | None = None
    n = len(tokens)
    for p in range(max(min_ops, 1), n // 2 + 1):
        if best is not None and n - p <= best[0]:
            break  # even a stretch over everything would not save more
        stops = np.flatnonzero(tokens[:-p] != tokens[p:])
        edges = np.concatenate(([-1], stops, [n - p]))
        gaps = np.diff(edges) - 1
        j = int(gaps.argmax())
        repeats = int(gaps[j]) // p + 1
        saved = (repeats - 1) * p
        if repeats > 1 and (best is None or saved > best[0]):
            best = (saved, p, int(edges[j]) + 1, int(gaps[j]) + p)
    return None if best is None else best[1:]


def best_cut(ops: Sequence[Op], period: int, start: int, length: int) -> Run:
    """Choose where windows begin inside a periodic stretch so that the fewest bytes cross their borders.

    Losing one repeat is accepted for fewer bytes, as long as two remain; ties keep more repeats, then a border behind
    a normalisation, which can share a loop nest with what it normalises, then the earlier start.
    """
    whole = length // period
    middle = start + (whole // 2) * period  # borders around here have a full window on either side
    position = {op: k for k, op in enumerate(ops)}
    crossing = np.zeros(2 * period + 1, np.int64)  # difference array over the borders middle .. middle + period - 1
    for d in range(max(start, middle - period), min(middle + period, len(ops))):
        for v in ops[d].results:
            last = max((position.get(user, len(ops)) for user, _ in v.uses), default=d)
            # a border at c is crossed if d < c <= last, and only borders within one window after d count
            low, high = max(d + 1, middle), min(last, d + period, middle + period - 1)
            if low <= high:
                crossing[low - middle] += _bytes(v)
                crossing[high - middle + 1] -= _bytes(v)
    costs = np.cumsum(crossing)[:period]
    choices = []
    for offset in range(period):
        repeats = (length - offset) // period
        if repeats >= 2:
            at = start + offset
            choices.append((int(costs[offset]), -repeats, at == 0 or ops[at - 1].kind not in NORMS, offset))
    _, repeats, _, offset = min(choices)
    return Run(start + offset, period, -repeats)


def _bytes(v: Value) -> int:
    t = v.type
    return max(t.size_bytes, 1) if isinstance(t, TensorType) and t.is_static else 1


Wire = tuple[int, int] | None


def wiring(ops: Sequence[Op], first: int, period: int) -> list[tuple[Wire, ...]]:
    """Return, for each op of one window and each operand, (op within the window, result), or None if it comes from outside."""
    position = {op: k for k, op in enumerate(ops[first : first + period])}
    out: list[tuple[Wire, ...]] = []
    for op in ops[first : first + period]:
        out.append(
            tuple([None if v.op is None or v.op not in position else (position[v.op], v.index) for v in op.operands])
        )
    return out


def equally_wired(ops: Sequence[Op], run: Run) -> Run | None:
    """Return the longest part of `run` whose windows are wired alike, or None if no two neighbours are."""
    best = (0, 0)
    begin = 0
    previous = None
    for r in range(run.repeats):
        current = wiring(ops, run.start + r * run.period, run.period)
        if current != previous:
            begin = r
        previous = current
        best = max(best, (r - begin + 1, -begin))
    if best[0] < 2:
        return None
    return Run(run.start - best[1] * run.period, run.period, best[0])
