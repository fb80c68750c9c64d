"""The door to the event kernel: checks what the kernel trusts, allocates its outputs.

May import: numpy and the package's own door and kernels. Must not: know instructions or machines.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tx8fast._kernels import events as _events
from tx8fast._kernels._checks import check_status, int_array, require

Ints = npt.NDArray[np.int64]

KERNEL = "events"
N_UNITS = 8
N_ENGINES = 5
MAX_DEPTH = 15  # the kernel remembers 16 rows per queue
# Kinds of rows: the engines 0 ct, 1 ne, 2 rdma, 3 wdma, 4 tdma, then what the kernel core does itself.
KIND_KCORE, KIND_WAIT, KIND_BARRIER = 5, 6, 7


@dataclass(frozen=True)
class EventInput:
    """Rows of one stretch of code. Row i of tile t is code row `code_begin[t] + i` and tile row `tile_begin[t] + i`.

    Code rows (shared by tiles with the same code): kind (n_code,) uint8; issue (n_code,) cycles;
    spm_read (n_code, 4, 2), spm_write (n_code, 2, 2) half-open byte ranges, (0, 0) = none.
    Tile rows: fixed (n,) cycles without the bandwidth part; ddr_bytes (n,) bytes of the bandwidth part,
    non-zero for rdma and wdma only; ddr_read, ddr_write (n, 2) half-open byte ranges.
    code_begin (n_tiles,), tile_begin (n_tiles + 1,). All int64 unless said otherwise.
    """

    kind: npt.NDArray[np.uint8]
    issue: Ints
    spm_read: Ints
    spm_write: Ints
    code_begin: Ints
    tile_begin: Ints
    fixed: Ints
    ddr_bytes: Ints
    ddr_read: Ints
    ddr_write: Ints


@dataclass(frozen=True)
class EventResult:
    """Times in cycles from the beginning of the stretch.

    start, end (n,): per tile row (for kernel-core rows: when the wait is over, when the core goes on; for a
    barrier: arrival, departure). busy, blocked (n_tiles, 8) by unit: 0..4 the engines (blocked = at the head of the queue
    of a free engine, waiting for a conflicting row), 5 kernel-core routines (blocked = core stalled by a full
    queue), 6 waits and barriers (busy = their fixed cost, blocked = waiting), 7 issue.
    tile_cycles (n_tiles,): when everything of the tile is over. cycles: the largest of them.
    """

    start: Ints
    end: Ints
    busy: Ints
    blocked: Ints
    tile_cycles: Ints
    cycles: int


def simulate_events(
    rows: EventInput,
    depth: npt.ArrayLike,
    port_rate: float,
    total_rate: float,
    serial: bool = False,
) -> EventResult:
    """Run all tiles from cycle 0. `depth` (5,) queue depths; rates in bytes per cycle: one transfer moves at most
    `port_rate`, all transfers together at most `total_rate`, shared equally. `serial` = one queue, no overlap.
    """
    kind = np.ascontiguousarray(rows.kind, np.uint8)
    issue = int_array(KERNEL, "issue", rows.issue)
    spm_read = int_array(KERNEL, "spm_read", rows.spm_read, 3)
    spm_write = int_array(KERNEL, "spm_write", rows.spm_write, 3)
    code_begin = int_array(KERNEL, "code_begin", rows.code_begin)
    tile_begin = int_array(KERNEL, "tile_begin", rows.tile_begin)
    fixed = int_array(KERNEL, "fixed", rows.fixed)
    ddr_bytes = int_array(KERNEL, "ddr_bytes", rows.ddr_bytes)
    ddr_read = int_array(KERNEL, "ddr_read", rows.ddr_read, 2)
    ddr_write = int_array(KERNEL, "ddr_write", rows.ddr_write, 2)
    depth_ = int_array(KERNEL, "depth", depth)
    n_code, n, n_tiles = len(kind), len(fixed), len(code_begin)
    require(KERNEL, kind.ndim == 1 and issue.shape == (n_code,), "kind and issue differ in shape")
    require(KERNEL, spm_read.shape == (n_code, 4, 2), "spm_read is not (n_code, 4, 2)")
    require(KERNEL, spm_write.shape == (n_code, 2, 2), "spm_write is not (n_code, 2, 2)")
    require(KERNEL, ddr_bytes.shape == (n,), "ddr_bytes and fixed differ in length")
    require(KERNEL, ddr_read.shape == (n, 2) == ddr_write.shape, "ddr ranges are not (n, 2)")
    require(KERNEL, tile_begin.shape == (n_tiles + 1,), "tile_begin is not (n_tiles + 1,)")
    sizes = np.diff(tile_begin)
    require(
        KERNEL,
        tile_begin[0] == 0 and tile_begin[-1] == n and (sizes >= 0).all(),
        "tile_begin does not partition the rows",
    )
    require(
        KERNEL,
        bool(((code_begin >= 0) & (code_begin <= n_code) & (sizes <= n_code - code_begin)).all()),
        "a tile's code lies outside the code rows",
    )
    require(KERNEL, kind.max(initial=0) <= KIND_BARRIER, "unknown kind of row")
    for name, values in (("issue", issue), ("fixed", fixed), ("ddr_bytes", ddr_bytes)):
        require(KERNEL, values.min(initial=0) >= 0, f"negative value in {name}")
        require(KERNEL, values.max(initial=0) < 1 << 40, f"value of 2**40 or more in {name}")
    require(KERNEL, n < 1 << 22 or float(fixed.sum()) < 2.0**61, "cycles add up to more than 2**61")
    require(
        KERNEL,
        depth_.shape == (N_ENGINES,) and 1 <= depth_.min() and depth_.max() <= MAX_DEPTH,
        f"queue depths must be {N_ENGINES} numbers in 1..{MAX_DEPTH}",
    )
    require(KERNEL, port_rate > 0 and total_rate > 0, "rates must be positive")
    start = np.full(n, -1, np.int64)
    end = np.full(n, -1, np.int64)
    busy = np.zeros((n_tiles, N_UNITS), np.int64)
    blocked = np.zeros((n_tiles, N_UNITS), np.int64)
    status = _events.simulate(
        kind, issue, spm_read, spm_write, code_begin, tile_begin, fixed, ddr_bytes, ddr_read,
        ddr_write, depth_, float(port_rate), float(total_rate), serial, start, end, busy, blocked,
    )  # fmt: skip
    check_status(KERNEL, status)
    tile_cycles = np.zeros(n_tiles, np.int64)
    filled = np.flatnonzero(sizes)
    if len(filled):
        tile_cycles[filled] = np.maximum.reduceat(end, tile_begin[filled])
    return EventResult(start, end, busy, blocked, tile_cycles, int(tile_cycles.max(initial=0)))
