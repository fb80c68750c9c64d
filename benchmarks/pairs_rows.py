"""What orders rows, and its twins, for bench_kernels.py."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from simulator.event_rows import CT, DEPTH, NE, RDMA, WDMA

from tx8fast import _kernels
from tx8fast._kernels.reference import dependences as rows_twin
from tx8fast._kernels.reference import distinct as distinct_twin
from tx8fast._kernels.reference import folds as folds_twin
from tx8fast._kernels.reference import list_schedule as list_twin

Pair = tuple[Callable[[], object], Callable[[], object]]


def attention_rows() -> tuple[list, list, list[int], list[int], list[int]]:
    """Return what rows read and write, their engines, cycles of the core and of the engine. Slices of attention: loads, a product, vector
    steps, a product, every fourth slice a store; two buffers of each."""
    unit = [RDMA, NE, CT, CT, CT, NE, CT, WDMA]
    cycles = [2200, 640, 810, 60, 2350, 640, 430, 2000]
    read, write = [], []
    for i in range(60):
        at = 10 * (i % 2)
        read += [[], [at], [at + 1], [at + 2], [at + 1, at + 2], [at + 1], [at + 3], [at + 4]]
        write += [[at], [at + 1], [at + 2], [at + 2], [at + 1], [at + 3], [at + 4], []]
    sources, targets = (
        [[(k << 12, k + 1 << 12) for k in row] + [(0, 0)] * (2 - len(row)) for row in x] for x in (read, write)
    )
    return sources, targets, unit * 60, [76] * len(read), cycles * 60


def dependences() -> Pair:
    spans = attention_rows()[:2]
    read, write = (np.array(x, np.int64) for x in spans)
    small = [[[(a >> 12, b >> 12) for a, b in row] for row in x] for x in spans]
    return lambda: _kernels.byte_dependences(read, write), lambda: rows_twin.byte_dependences(*small)


def list_schedule() -> Pair:
    read, write, engine, issue, took = attention_rows()
    before = _kernels.byte_dependences(np.array(read), np.array(write))
    rows = _lists(before)
    return (lambda: _kernels.list_order(engine, issue, took, before, DEPTH),
            lambda: list_twin.list_order(engine, issue, took, rows, DEPTH))  # fmt: skip


def improved() -> Pair:
    read, write, engine, issue, took = (x[:120] for x in attention_rows())
    before = _kernels.byte_dependences(np.array(read), np.array(write))
    first, rows = _kernels.list_order(engine, issue, took, before, DEPTH)[0], _lists(before)
    return (lambda: _kernels.improved(engine, issue, took, before, first, DEPTH),
            lambda: list_twin.improved(engine, issue, took, rows, first.tolist(), DEPTH))  # fmt: skip


def _lists(before: _kernels.Csr) -> list[list[int]]:
    ptr, rows = before
    return [rows[a:b].tolist() for a, b in zip(ptr[:-1], ptr[1:], strict=True)]


def folds() -> Pair:
    """A nest's code: eight rows whose loads and stores move on, in every fourth step other ones."""
    ids = [8 * (turn % 4 == 3) + k for turn in range(60) for k in range(8)]
    ddr = [4096 * turn if k in (0, 7) else 0 for turn in range(60) for k in range(8)]
    n, periods = len(ids), [1, 2, 4, 8, 16, 24, 32, 64]
    columns = np.array(ids, np.int32), np.array(ddr), np.zeros(n, np.int64), np.ones(n, bool)
    return lambda: _kernels.find_folds(*columns, periods, 3, 3), lambda: folds_twin.folds(
        ids, ddr, [0] * n, [True] * n, periods, 3, 3
    )


def distinct() -> Pair:
    """Rows of 32 words, every thirty-fourth of which is new."""
    words = np.arange(2000 * 32, dtype=np.uint64).reshape(2000, 32)
    words[:, 5:] = (np.arange(2000, dtype=np.uint64) // np.uint64(34))[:, None]
    kept, plain = list(range(5, 32)), words.tolist()
    return lambda: _kernels.distinct_rows(words, kept), lambda: distinct_twin.distinct(plain, kept, [0] * 2000)


PAIRS: dict[str, Callable[[], Pair]] = {
    "dependences: 480 rows": dependences,
    "distinct: 2,000 rows": distinct,
    "folds: 480 rows": folds,
    "list_schedule: 480 rows": list_schedule,
    "list_schedule: 120 rows improved": improved,
}
