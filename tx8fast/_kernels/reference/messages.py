"""Readable twin of the message network: every link has a queue of message heads.

May import: the standard library. Must not: be fast, share code with the kernel.

A head that is granted a link occupies it for the time of the message's bytes and stands at the next link, or
links where the tree branches, `hop` cycles later. A tile has a message once its last byte is over the last link.
"""

from __future__ import annotations


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
    def __init__(self, key, row, tree, src):
        self.key = key  # (tile, row number): who comes first where several come at once
        self.row = row
        self.tree = tree  # link -> links behind it; None -> links at the source
        self.open = set(row["tiles"])  # destinations whose arrival is not decided
        self.src = src
        self.last = 0


class Mesh:
    def __init__(self, n_tiles, tiles_x, link_rate, hop, engines):
        self.tiles_x, self.link_rate, self.hop, self.engines = tiles_x, link_rate, hop, engines
        self.monitors = [[0] * 4 for _ in range(n_tiles)]
        self.heads = []  # (time, key, link, message): on their way to a link
        self.queues = {}  # link -> messages whose heads wait
        self.free = {}  # link -> time
        self.landings = []  # (time, tile, message)
        self.link_bytes = {}

    def send(self, src, number, row, at):
        tree = {}
        for dst in row["tiles"]:
            before = None
            for link in path(src, dst, self.tiles_x):
                branches = tree.setdefault(before, [])
                if link not in branches:
                    branches.append(link)
                before = link
        self.heads.append((at, (src, number), None, _Message((src, number), row, tree, src)))

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
                if message.src in message.open:
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
        return -(-message.row["bytes"] // self.link_rate)

    def _grant(self, link, message, now):
        self.free[link] = now + self._cycles(message)
        self.link_bytes[link] = self.link_bytes.get(link, 0) + message.row["bytes"]
        for behind in message.tree.get(link, []):
            self.heads.append((now + self.hop, message.key, behind, message))
        if link[1] in message.open:
            self._land(message, link[1], now + self.hop + self._cycles(message))

    def _land(self, message, tile, at):
        message.open.discard(tile)
        self.landings.append((at, tile, message))
        message.last = max(message.last, at)
        if not message.open:
            message.row["end"] = message.last
