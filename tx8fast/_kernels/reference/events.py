"""Readable twin of the event kernel: steps through the events with exact fractions.

May import: the standard library, numpy. Must not: be fast, share code with the kernel.

It keeps the state of every engine, queue and transfer explicitly and, at every event, asks every waiting
thing whether it may go on now. Times of transfers are rational numbers; a row that ends with a transfer
ends at the next whole cycle.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np

RDMA, WDMA, KCORE, WAIT, BARRIER, ISSUE = 2, 3, 5, 6, 7, 7


class _Tile:
    def __init__(self, index, rows):
        self.index = index
        self.rows = rows  # dicts, program order
        self.pc = 0
        self.issued_at = None  # the core finished issuing row pc at this cycle, None = not begun
        self.core_free = 0
        self.queues = {}  # queue -> rows that wait to start
        self.running = {}  # queue -> row
        self.unfinished = []  # engine rows issued and not finished, program order
        self.engine_free = {}
        self.barriers = 0
        self.at_barrier = False


def _hits(ranges_a, ranges_b):
    return any(
        lo_a < hi_b and lo_b < hi_a and lo_a < hi_a and lo_b < hi_b
        for lo_a, hi_a in ranges_a
        for lo_b, hi_b in ranges_b
    )


def conflicts(new, old):
    """Whether `new` must wait for `old`: RAW, WAR or WAW on SPM, and on DDR among the DMA engines."""
    spaces = ["spm"]
    if new["kind"] in (RDMA, WDMA) and old["kind"] in (RDMA, WDMA):
        spaces.append("ddr")
    return any(
        _hits(old[f"{s}_write"], new[f"{s}_read"])
        or _hits(new[f"{s}_write"], old[f"{s}_read"])
        or _hits(new[f"{s}_write"], old[f"{s}_write"])
        for s in spaces
    )


def simulate(tiles, depth, port_rate, total_rate, serial=False):
    """Simulate `tiles`: per tile a list of row dicts with keys kind, issue, fixed, ddr_bytes,
    spm_read, spm_write, ddr_read, ddr_write (lists of half-open ranges).

    Returns (start, end, busy, blocked): lists of lists for the first two, (n_tiles, 8) arrays for the others.
    """
    state = [_Tile(i, [dict(r) for r in rows]) for i, rows in enumerate(tiles)]
    busy = np.zeros((len(tiles), 8), np.int64)
    blocked = np.zeros((len(tiles), 8), np.int64)
    flows = []  # [remaining bytes, tile, row]
    n_barriers = [sum(r["kind"] == BARRIER for r in rows) for rows in tiles]
    now = Fraction(0)
    while True:
        while any(
            _step(tile, now, depth, serial, flows, busy, blocked) for tile in state
        ) or _release(state, n_barriers, now, busy, blocked):
            pass
        rate = min(Fraction(port_rate), Fraction(total_rate) / len(flows)) if flows else None
        times = [now + f[0] / rate for f in flows]
        for tile in state:
            times += [r["end"] for r in tile.running.values() if r.get("end") is not None]
            times += [r["data_at"] for r in tile.running.values() if r.get("data_at") is not None]
            times += [t for t in (tile.issued_at, tile.core_free) if t is not None]
        times = [t for t in times if t > now]
        if not times:
            break
        later = min(times)
        for flow in flows:
            flow[0] -= (later - now) * rate
        now = later
        for flow in [f for f in flows if f[0] == 0]:
            flow[2]["end"] = ceil(now)
        flows[:] = [f for f in flows if f[0] != 0]
    for tile in state:
        if tile.pc != len(tile.rows) or tile.unfinished:
            raise RuntimeError(f"tile {tile.index} is stuck at row {tile.pc}")
    start = [[r["start"] for r in tile.rows] for tile in state]
    end = [[r["end"] for r in tile.rows] for tile in state]
    return start, end, busy, blocked


def _step(tile, now, depth, serial, flows, busy, blocked):
    """Do one thing that tile can do at `now`; False if there is none."""
    for queue, row in list(tile.running.items()):
        if row.get("data_at") is not None and row["data_at"] <= now:
            row["data_at"] = None
            flows.append([Fraction(row["ddr_bytes"]), tile, row])
            return True
        if row.get("end") is not None and row["end"] <= now:
            del tile.running[queue]
            tile.unfinished.remove(row)
            tile.engine_free[queue] = row["end"]
            busy[tile.index, row["kind"]] += row["end"] - row["start"]
            return True
    for queue, waiting in tile.queues.items():
        if waiting and queue not in tile.running and waiting[0]["enqueued"] <= now:
            row = waiting[0]
            older = tile.unfinished[: tile.unfinished.index(row)]
            if not any(conflicts(row, old) for old in older):
                waiting.pop(0)
                tile.running[queue] = row
                row["start"] = ceil(now)
                ready = max(row["enqueued"], tile.engine_free.get(queue, 0))
                blocked[tile.index, row["kind"]] += row["start"] - ready
                if row["ddr_bytes"]:
                    row["data_at"] = row["start"] + row["fixed"]
                else:
                    row["end"] = row["start"] + row["fixed"]
                return True
    return _core(tile, now, depth, serial, busy, blocked)


def _core(tile, now, depth, serial, busy, blocked):
    """One action of the tile's kernel core."""
    if tile.pc == len(tile.rows) or tile.at_barrier or now < tile.core_free or now.denominator != 1:
        return False  # the core acts on whole cycles
    row = tile.rows[tile.pc]
    if tile.issued_at is None:
        tile.issued_at = tile.core_free + row["issue"]
        busy[tile.index, ISSUE] += row["issue"]
        return True
    if now < tile.issued_at:
        return False
    kind = row["kind"]
    if kind < KCORE:
        queue = tile.queues.setdefault(0 if serial else kind, [])
        if len(queue) >= depth[0 if serial else kind]:
            return False
        blocked[tile.index, KCORE] += int(now) - tile.issued_at
        row["enqueued"] = int(now)
        queue.append(row)
        tile.unfinished.append(row)
        tile.core_free = int(now)
    elif kind == BARRIER:
        row["start"] = tile.issued_at
        tile.at_barrier = True
        return True
    else:
        if tile.unfinished:
            return False
        blocked[tile.index, WAIT] += int(now) - tile.issued_at
        row["start"] = int(now)
        row["end"] = tile.core_free = int(now) + row["fixed"]
        busy[tile.index, kind] += row["fixed"]
    tile.issued_at = None
    tile.pc += 1
    return True


def _release(state, n_barriers, now, busy, blocked):
    """Open the first barrier that all its tiles have reached; False if there is none."""
    for which in range(max(n_barriers, default=0)):
        takers = [t for t in state if n_barriers[t.index] > which]
        if not all(t.at_barrier and t.barriers == which for t in takers):
            continue
        for tile in takers:
            row = tile.rows[tile.pc]
            blocked[tile.index, WAIT] += int(now) - row["start"]
            busy[tile.index, WAIT] += row["fixed"]
            row["end"] = tile.core_free = int(now) + row["fixed"]
            tile.at_barrier, tile.issued_at = False, None
            tile.pc += 1
            tile.barriers += 1
        return True
    return False
