"""Readable twin of the event kernel: steps through the events with exact fractions.

May import: the standard library, numpy. Must not: be fast, share code with the kernel.

It keeps the state of every engine, queue, transfer and message explicitly and, at every event, asks every
waiting thing whether it may go on now. Times of transfers are rational numbers; a row that ends with a transfer
ends at the next whole cycle. Messages between tiles: `messages` beside this file.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np

from tx8fast._kernels.reference.messages import Mesh

RDMA, WDMA, KCORE, WAIT, BARRIER, ISSUE, DTE = 2, 3, 5, 6, 7, 7, 8
SEND, RECV, SEND_WAIT, WAIT_WORKER, BARRIER_SUB, HANDSHAKE = 8, 9, 10, 11, 12, 13


class Stuck(RuntimeError):
    """Tiles that wait for each other: `rows` maps a tile to its row, `monitors` holds what arrived."""

    def __init__(self, rows, monitors):
        super().__init__(f"stuck at {rows}")
        self.rows = rows
        self.monitors = monitors


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
        self.meeting = None  # what it waits for other tiles at: ("all", number), ("some", tiles), ("peer", tile)
        self.sends = []


def _hits(ranges_a, ranges_b):
    return any(
        lo_a < hi_b and lo_b < hi_a and lo_a < hi_a and lo_b < hi_b
        for lo_a, hi_a in ranges_a
        for lo_b, hi_b in ranges_b
    )


def conflicts(new, old):
    """Whether `new` must wait for `old`: RAW, WAR or WAW on SPM, and on DDR among the DMA engines, of one worker."""
    if new.get("worker", 0) != old.get("worker", 0):
        return False
    spaces = ["spm"]
    if new["kind"] in (RDMA, WDMA) and old["kind"] in (RDMA, WDMA):
        spaces.append("ddr")
    return any(
        _hits(old[f"{s}_write"], new[f"{s}_read"])
        or _hits(new[f"{s}_write"], old[f"{s}_read"])
        or _hits(new[f"{s}_write"], old[f"{s}_write"])
        for s in spaces
    )


def simulate(tiles, depth, port_rate, total_rate, serial=False, mesh=None):
    """Simulate `tiles`: per tile a list of row dicts with keys kind, issue, fixed, ddr_bytes,
    spm_read, spm_write, ddr_read, ddr_write (lists of half-open ranges), and where they apply worker, bytes,
    tiles (of a send or a partial barrier), monitor, workers, peer.

    mesh: (tiles_x, link bytes per cycle, cycles per hop, transfer engines per tile).
    Returns (start, end, busy, blocked, link bytes by (from, to), monitors): lists of lists for the first two,
    (n_tiles, 9) arrays for the next two. Raises Stuck.
    """
    mesh = Mesh(len(tiles), *(mesh or (len(tiles), 1, 0, 1)))
    state = [_Tile(i, [dict(r) for r in rows]) for i, rows in enumerate(tiles)]
    busy = np.zeros((len(tiles), 9), np.int64)
    blocked = np.zeros((len(tiles), 9), np.int64)
    flows = []  # [remaining bytes, tile, row]
    n_barriers = [sum(r["kind"] == BARRIER for r in rows) for rows in tiles]
    now = Fraction(0)
    while True:
        while any(
            _step(tile, now, depth, serial, flows, busy, blocked, mesh) for tile in state
        ) or _release(state, n_barriers, now, busy, blocked):
            pass
        if mesh.step(now):
            continue
        rate = min(Fraction(port_rate), Fraction(total_rate) / len(flows)) if flows else None
        times = [now + f[0] / rate for f in flows]
        for tile in state:
            times += [r["end"] for r in tile.running.values() if r.get("end") is not None]
            times += [r["data_at"] for r in tile.running.values() if r.get("data_at") is not None]
            times += [t for t in (tile.issued_at, tile.core_free) if t is not None]
        times = [t for t in times + mesh.times() if t > now]
        if not times:
            break
        later = min(times)
        for flow in flows:
            flow[0] -= (later - now) * rate
        now = later
        for flow in [f for f in flows if f[0] == 0]:
            flow[2]["end"] = ceil(now)
        flows[:] = [f for f in flows if f[0] != 0]
    stuck = {t.index: t.pc for t in state if t.pc != len(t.rows) or t.unfinished}
    if stuck:
        raise Stuck(stuck, mesh.monitors)
    start = [[r["start"] for r in tile.rows] for tile in state]
    end = [[r["end"] for r in tile.rows] for tile in state]
    for tile in state:
        for row in tile.sends:
            busy[tile.index, DTE] += row["end"] - row["start"]
    return start, end, busy, blocked, mesh.link_bytes, mesh.monitors


def _step(tile, now, depth, serial, flows, busy, blocked, mesh):
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
    return _core(tile, now, depth, serial, busy, blocked, mesh)


def _core(tile, now, depth, serial, busy, blocked, mesh):
    """One action of the tile's kernel core."""
    if tile.pc == len(tile.rows) or tile.meeting or now < tile.core_free or now.denominator != 1:
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
    elif kind == SEND:
        if len(tile.sends) >= mesh.engines and not _ended(tile.sends[-mesh.engines], now):
            return False
        blocked[tile.index, DTE] += int(now) - tile.issued_at
        row["start"] = tile.core_free = int(now)
        mesh.send(tile.index, tile.pc, row, int(now) + row["fixed"])
        tile.sends.append(row)
    elif kind in (BARRIER, BARRIER_SUB, HANDSHAKE):
        row["start"] = tile.issued_at
        tile.meeting = {
            BARRIER: lambda: ("all", tile.barriers),
            BARRIER_SUB: lambda: ("some", tuple(sorted(row["tiles"]))),
            HANDSHAKE: lambda: ("peer", row["peer"]),
        }[kind]()
        return True
    else:
        if kind == RECV:
            if mesh.monitors[tile.index][row["monitor"]] < row["bytes"]:
                return False
            mesh.monitors[tile.index][row["monitor"]] -= row["bytes"]
        elif kind == SEND_WAIT:
            if not all(_ended(s, now) for s in tile.sends):
                return False
        elif kind == WAIT_WORKER:
            if any(r.get("worker", 0) in row["workers"] for r in tile.unfinished):
                return False
        elif tile.unfinished:
            return False
        blocked[tile.index, WAIT] += int(now) - tile.issued_at
        row["start"] = int(now)
        row["end"] = tile.core_free = int(now) + row["fixed"]
        busy[tile.index, KCORE if kind == KCORE else WAIT] += row["fixed"]
    tile.issued_at = None
    tile.pc += 1
    return True


def _ended(row, now):
    return row.get("end") is not None and row["end"] <= now


def _release(state, n_barriers, now, busy, blocked):
    """Let the first complete meeting end; False if there is none."""
    for tile in state:
        if tile.meeting is None:
            continue
        what, which = tile.meeting
        if what == "all":
            takers = [t for t in state if n_barriers[t.index] > which]
            complete = all(t.meeting == tile.meeting for t in takers)
        elif what == "some":
            takers = [state[i] for i in which]
            complete = all(t.meeting == tile.meeting for t in takers)
        else:
            takers = [tile, state[which]]
            complete = state[which].meeting == ("peer", tile.index)
        if not complete:
            continue
        for taker in takers:
            row = taker.rows[taker.pc]
            blocked[taker.index, WAIT] += int(now) - row["start"]
            busy[taker.index, WAIT] += row["fixed"]
            row["end"] = taker.core_free = int(now) + row["fixed"]
            taker.meeting, taker.issued_at = None, None
            taker.pc += 1
            taker.barriers += what == "all"
        return True
    return False
