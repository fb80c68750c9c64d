"""Messages between tiles packet by packet: what the links would do if they served packets of messages in turn.

Slow and obvious: every link has a queue of packets per message and serves the messages in turn; a packet's head is at the next link
`hop` cycles after it was let onto this one. The event kernel moves whole messages; tests say how far apart the two are.
"""

from __future__ import annotations

import heapq
from collections import deque

from tx8fast._kernels.reference.events import path


def tree_of(src, dsts, tiles_x, port):
    """Return link -> links behind it (None: at the source), and link -> tile that it ends at."""
    tree, leaf = {}, {}
    for dst in dsts:
        before = None
        for link in [*path(src, dst, tiles_x), *([("port", dst)] if port else [])]:
            branches = tree.setdefault(before, [])
            if link not in branches:
                branches.append(link)
            before = link
        leaf[before] = dst
    return tree, leaf


def arrivals(messages, tiles_x, rate, hop, packet, port):
    """Return (message, tile) -> cycle of its last byte there. messages: (start, source, destinations, bytes) each; rate: bytes per
    cycle of a link and, where tiles have one, of the port through which a tile writes what arrives."""
    trees = [tree_of(src, dsts, tiles_x, port) for _, src, dsts, _ in messages]
    sizes = [[packet] * (n // packet) + ([n % packet] if n % packet else []) for *_, n in messages]
    queues, served, free, out = {}, {}, {}, {}
    events = []  # (cycle, number, link, message, packet): a packet's head is at a link; message -1: the link is free again
    count = 0

    def later(when, link, message, number):
        nonlocal count
        count += 1
        heapq.heappush(events, (when, count, link, message, number))

    for m, (start, *_) in enumerate(messages):
        for link in trees[m][0][None]:
            for number in range(len(sizes[m])):
                later(start, link, m, number)
    while events:
        now, touched = events[0][0], []
        while events and events[0][0] == now:
            _, _, link, m, number = heapq.heappop(events)
            if m >= 0:
                queues.setdefault(link, {}).setdefault(m, deque()).append(number)
            if link not in touched:
                touched.append(link)
        for link in touched:
            waiting = sorted(m for m, q in queues.get(link, {}).items() if q)
            if free.get(link, 0) > now or not waiting:
                continue
            m = next((m for m in waiting if m > served.get(link, -1)), waiting[0])
            number = queues[link][m].popleft()
            cycles, step = -(-sizes[m][number] // rate), 0 if link[0] == "port" else hop
            served[link], free[link] = m, now + cycles
            later(now + cycles, link, -1, 0)
            tree, leaf = trees[m]
            for behind in tree.get(link, []):
                later(now + step, behind, m, number)
            if link in leaf:
                out[m, leaf[link]] = now + step + cycles
    return out
