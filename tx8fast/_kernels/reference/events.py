"""Readable twin of the event kernel: steps through the events with exact fractions.

May import: the standard library, numpy. Must not: be fast, share code with the kernel.

It keeps the state of every engine, queue, transfer and message explicitly and, at every event, asks every
waiting thing whether it may go on now. Times of transfers are rational numbers; a row that ends with a transfer
ends at the next whole cycle. Every link between tiles has a queue of message heads: a head that is granted a link
occupies it for the time of the message's bytes and stands at the next link, or links where the tree branches,
`hop` cycles later. A tile has a message once its last byte is over the last link.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import ceil

import numpy as np

RDMA, WDMA, KCORE, WAIT, BARRIER, ISSUE, DTE = 2, 3, 5, 6, 7, 7, 8
SEND, RECV, SEND_WAIT, WAIT_WORKER, BARRIER_SUB, HANDSHAKE, CORE = 8, 9, 10, 11, 12, 13, 14


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


def path(src, dst, tiles_x):
    """Return the directed links from src to dst, along x first."""
    links = []
    at = src
    while at != dst:
        x, to_x = at % tiles_x, dst % tiles_x
        step = (1 if to_x > x else -1) if x != to_x else (tiles_x if dst > at else -tiles_x)
        links.append((at, at + step))
        at += step
    return links


class _Message:
    def __init__(self, key, row, tree, src, tiles, parts):
        self.key = key  # (tile, row number): who comes first where several come at once
        self.row = row
        self.tree = tree  # link -> links behind it; None -> links at the source
        self.open = tiles  # destinations whose arrival is not decided
        self.parts = parts  # what the same row sends, itself included
        self.src = src
        self.last = 0


def chip_path(src, dst, tiles_x, tiles_y, chips_x):
    """Return the links from src to dst where the meshes of chips continue each other, along x first.

    A link is a pair of tiles, or of chips ("chip", from, to): all rows that cross a side share it.
    """

    def place(tile):
        chip, own = divmod(tile, tiles_x * tiles_y)
        return [chip % chips_x * tiles_x + own % tiles_x, chip // chips_x * tiles_y + own // tiles_x]

    def tile(x, y):
        chip = y // tiles_y * chips_x + x // tiles_x
        return chip * tiles_x * tiles_y + y % tiles_y * tiles_x + x % tiles_x

    at, to, links = place(src), place(dst), []
    for axis in (0, 1):
        while at[axis] != to[axis]:
            a = tile(*at)
            at[axis] += 1 if to[axis] > at[axis] else -1
            b = tile(*at)
            chips = a // (tiles_x * tiles_y), b // (tiles_x * tiles_y)
            links.append((a, b) if chips[0] == chips[1] else ("chip", *chips))
    return links


class Mesh:
    def __init__(self, n_tiles, tiles_x, link_rate, hop, engines, chips=None, write_rate=0):
        self.tiles_x, self.link_rate, self.hop, self.engines = tiles_x, link_rate, hop, engines
        self.write_rate = write_rate  # bytes per cycle of the port behind which a tile's memory lies; 0: no such port
        self.chips = chips  # (tiles_y, chips_x, bytes per cycle of a link between chips, its cycles)
        self.monitors = [[0] * 4 for _ in range(n_tiles)]
        self.heads = []  # (time, key, link, message): on their way to a link
        self.queues = {}  # link -> messages whose heads wait
        self.free = {}  # link -> time
        self.landings = []  # (time, tile, message)
        self.link_bytes = {}

    def path(self, src, dst):
        port = [("port", dst)] if self.write_rate else []
        if self.chips is None:
            return path(src, dst, self.tiles_x) + port
        return chip_path(src, dst, self.tiles_x, *self.chips[:2]) + port

    def send(self, src, number, row, at):
        if row.get("scatter"):
            step, parts = self._cycles_of(row), []
            for k, dst in enumerate(sorted(row["tiles"])):
                links = self.path(src, dst)
                chain = dict(zip([None, *links], [[link] for link in links]))
                parts.append(_Message((src, number), row, chain, src, {dst}, parts))
                self.heads.append((at + k * step, (src, number), None, parts[-1]))
            return
        tree = {}
        for dst in row["tiles"]:
            before = None
            for link in self.path(src, dst):
                branches = tree.setdefault(before, [])
                if link not in branches:
                    branches.append(link)
                before = link
        message = _Message((src, number), row, tree, src, set(row["tiles"]), [])
        message.parts.append(message)
        self.heads.append((at, (src, number), None, message))

    def times(self):
        """Return when something may happen."""
        waiting = [self.free[link] for link, queue in self.queues.items() if queue]
        return [h[0] for h in self.heads] + [a[0] for a in self.landings] + waiting

    def step(self, now):
        """Do what is due at `now`; return whether there was anything."""
        arrived = [a for a in self.landings if a[0] == now]
        if arrived:
            for entry in arrived:
                self.landings.remove(entry)
                _, tile, message = entry
                self.monitors[tile][message.row["monitor"]] += message.row["bytes"]
            return True
        moved = False
        for head in sorted((h for h in self.heads if h[0] == now), key=lambda h: h[1]):
            self.heads.remove(head)
            moved = True
            _, _, link, message = head
            if link is None:
                if message.src in message.open and not self.write_rate:
                    self._land(message, message.src, int(now) + self._cycles(message))
                for first in message.tree.get(None, []):
                    self.queues.setdefault(first, []).append(message)
            else:
                self.queues.setdefault(link, []).append(message)
        for link, queue in self.queues.items():
            # sorted() above put heads of one cycle in order; older ones stand before them
            while queue and self.free.get(link, 0) <= now:
                self._grant(link, queue.pop(0), int(now))
                moved = True
        return moved

    def _cycles(self, message):
        return self._cycles_of(message.row)

    def _cycles_of(self, row, link=None):
        kind, chips = _kind(link), self.chips
        rate = self.write_rate if kind == "port" else chips[2] if chips and kind == "chip" else self.link_rate
        return -(-row["bytes"] // rate)

    def _grant(self, link, message, now):
        kind, chips = _kind(link), self.chips
        hop = 0 if kind == "port" else chips[3] if chips and kind == "chip" else self.hop
        self.free[link] = now + self._cycles_of(message.row, link)
        self.link_bytes[link] = self.link_bytes.get(link, 0) + message.row["bytes"]
        for behind in message.tree.get(link, []):
            self.heads.append((now + hop, message.key, behind, message))
        here = [t for t in message.open if self.path(message.src, t)[-1:] == [link]]
        for tile in here:
            # the engine that sends it is as fast as a link of the mesh
            slowest = max(self._cycles_of(message.row, each) for each in (None, *self.path(message.src, tile)))
            self._land(message, tile, now + hop + slowest)

    def _land(self, message, tile, at):
        message.open.discard(tile)
        self.landings.append((at, tile, message))
        message.last = max(message.last, at)
        if not any(m.open for m in message.parts):
            message.row["end"] = max(m.last for m in message.parts)


def _kind(link):
    """Return "port", "chip", or the tile where a link of a mesh begins; None without a link."""
    return link[0] if link is not None else None


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


def simulate(tiles, depth, port_rate, total_rate, serial=False, mesh=None, chip_tiles=0):
    """Simulate `tiles`: per tile a list of row dicts with keys kind, issue, fixed, ddr_bytes,
    spm_read, spm_write, ddr_read, ddr_write (lists of half-open ranges), and where they apply worker, bytes,
    tiles (of a send or a partial barrier), scatter (of a send), monitor, workers, peer.

    mesh: (tiles_x, link bytes per cycle, cycles per hop, transfer engines per tile), for several chips of `chip_tiles` tiles also
    (tiles_y, chips_x, bytes per cycle between chips, cycles per hop between chips), else None, and a write port's bytes per cycle.
    Returns (start, end, busy, blocked, link bytes by (from, to), monitors): lists of lists for the first two,
    (n_tiles, 9) arrays for the next two. Raises Stuck.
    """
    mesh = Mesh(len(tiles), *(mesh or (len(tiles), 1, 0, 1)))
    state = [_Tile(i, [dict(r) for r in rows]) for i, rows in enumerate(tiles)]
    busy = np.zeros((len(tiles), 9), np.int64)
    blocked = np.zeros((len(tiles), 9), np.int64)
    chip_tiles = chip_tiles or max(1, len(tiles))
    flows = []  # [remaining bytes, tile, row]
    n_barriers = [sum(r["kind"] == BARRIER for r in rows) for rows in tiles]
    now = Fraction(0)
    while True:
        while any(_step(tile, now, depth, serial, flows, busy, blocked, mesh) for tile in state) or _release(
            state, n_barriers, now, busy, blocked, chip_tiles
        ):
            pass
        if mesh.step(now):
            continue
        sharing = Counter(f[1].index // chip_tiles for f in flows)  # transfers by chip
        rates = {chip: min(Fraction(port_rate), Fraction(total_rate) / n) for chip, n in sharing.items()}
        rate = lambda flow: rates[flow[1].index // chip_tiles]  # noqa: E731
        times = [now + f[0] / rate(f) for f in flows]
        for tile in state:
            times += [r["end"] for r in tile.running.values() if r.get("end") is not None]
            times += [r["data_at"] for r in tile.running.values() if r.get("data_at") is not None]
            times += [t for t in (tile.issued_at, tile.core_free) if t is not None]
        times = [t for t in times + mesh.times() if t > now]
        if not times:
            break
        later = min(times)
        for flow in flows:
            flow[0] -= (later - now) * rate(flow)
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
        elif kind != CORE and tile.unfinished:
            return False
        blocked[tile.index, WAIT] += int(now) - tile.issued_at
        row["start"] = int(now)
        row["end"] = tile.core_free = int(now) + row["fixed"]
        busy[tile.index, KCORE if kind in (KCORE, CORE) else WAIT] += row["fixed"]
    tile.issued_at = None
    tile.pc += 1
    return True


def _ended(row, now):
    return row.get("end") is not None and row["end"] <= now


def _release(state, n_barriers, now, busy, blocked, chip_tiles):
    """Let the first complete meeting end; False if there is none."""
    for tile in state:
        if tile.meeting is None:
            continue
        what, which = tile.meeting
        if what == "all":
            chip = tile.index // chip_tiles
            takers = [t for t in state if t.index // chip_tiles == chip and n_barriers[t.index] > which]
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
