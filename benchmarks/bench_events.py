"""Rows per second of the event kernel on a tiled matrix product, 16 tiles.

Run: python benchmarks/bench_events.py [rows per tile]
"""

from __future__ import annotations

import sys
import time

import numpy as np

from tx8fast._kernels import EventInput, simulate_events

N_TILES = 16


def matmul_like(rows_per_tile: int) -> EventInput:
    """Double-buffered steps of: two loads, a matrix product, two vector rows, a move, a store, a wait now and then."""
    kinds = np.array([2, 2, 1, 0, 0, 4, 3, 0], np.uint8)
    n = rows_per_tile // len(kinds) * len(kinds)
    step = np.arange(n) // len(kinds)
    kind = np.tile(kinds, n // len(kinds))
    kind[len(kinds) * 64 - 1 :: len(kinds) * 64] = 6
    half = (step % 2) * 0x100000 + 0x10000
    read = np.zeros((n, 4, 2), np.int64)
    write = np.zeros((n, 2, 2), np.int64)
    size = 0x10000
    # per row of a step: buffers (numbers of 64 KiB pieces) that it reads and writes
    reads = [[], [], [0, 1], [2], [3], [4], [5], [2, 3]]
    writes = [[0], [1], [2], [3], [4], [5], [], [6]]
    for k in range(len(kinds)):
        at = slice(k, None, len(kinds))
        for column, pieces in ((read, reads[k]), (write, writes[k])):
            for j, piece in enumerate(pieces):
                column[at, j, 0] = half[at] + piece * size
                column[at, j, 1] = half[at] + (piece + 1) * size
    fixed = np.tile(np.array([304, 304, 8252, 557, 300, 1064, 224, 173], np.int64), n // len(kinds))
    ddr_bytes = np.tile(np.array([65536, 32768, 0, 0, 0, 0, 16384, 0], np.int64), n // len(kinds))
    fixed[kind == 6] = 180
    ddr = np.zeros((n * N_TILES, 2), np.int64)
    return EventInput(
        kind=kind,
        issue=np.full(n, 44, np.int64),
        spm_read=read,
        spm_write=write,
        code_begin=np.zeros(N_TILES, np.int64),
        tile_begin=np.arange(N_TILES + 1) * n,
        fixed=np.tile(fixed, N_TILES),
        ddr_bytes=np.tile(ddr_bytes, N_TILES),
        ddr_read=ddr,
        ddr_write=ddr,
    )


def main() -> None:
    rows = matmul_like(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
    for serial in (False, True):
        best = float("inf")
        for _ in range(3):
            begin = time.process_time()
            result = simulate_events(rows, (6, 6, 6, 6, 4), 32.0, 150.0, serial)
            best = min(best, time.process_time() - begin)
        n = len(rows.fixed)
        mode = "serial" if serial else "parallel"
        print(f"{mode}: {n} rows, {result.cycles} cycles, {best:.3f} s, {n / best / 1e6:.2f} M rows/s")


if __name__ == "__main__":
    main()
