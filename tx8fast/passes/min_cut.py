"""A minimum cut: which of two sides every node is on, where what goes from one side to the other costs least.

May import: nothing. Must not: know what nodes stand for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

ENDLESS = 1 << 60
SOURCE, SINK = 0, 1


class MinCut:
    """Maximum flow by blocking flows (Dinic), iterative, in integers. Nodes `SOURCE` and `SINK` are there from the start."""

    def __init__(self) -> None:
        self.adjacent: list[list[int]] = [[], []]
        self.head: list[int] = []
        self.room: list[int] = []

    def add(self) -> int:
        self.adjacent.append([])
        return len(self.adjacent) - 1

    def edge(self, a: int, b: int, capacity: int) -> None:
        for x, y, room in ((a, b, capacity), (b, a, 0)):
            self.adjacent[x].append(len(self.head))
            self.head.append(y)
            self.room.append(room)

    def share(self, producer: int, users: Iterable[int], cost: int) -> None:
        """Let it cost once if any user is on the other side than the producer: users share what is converted for them. Per direction one
        auxiliary node stands between."""
        ends = sorted({*users})
        if ends == [producer]:
            return
        there, back = self.add(), self.add()
        self.edge(producer, there, cost)
        self.edge(back, producer, cost)
        for end in ends:
            self.edge(there, end, ENDLESS)
            self.edge(end, back, ENDLESS)

    def source_side(self) -> set[int]:
        """Saturate the network; return the nodes the source still reaches: of all cheapest cuts the one with the fewest on its side."""
        while SINK in (level := self._levels()):
            at = [0] * len(self.adjacent)
            while self._augment(level, at):
                pass
        return set(level)

    def _levels(self) -> dict[int, int]:
        level = {SOURCE: 0}
        queue = deque([SOURCE])
        while queue:
            n = queue.popleft()
            for e in self.adjacent[n]:
                if self.room[e] and self.head[e] not in level:
                    level[self.head[e]] = level[n] + 1
                    queue.append(self.head[e])
        return level

    def _augment(self, level: dict[int, int], at: list[int]) -> bool:
        path: list[int] = []
        n = SOURCE
        while n != SINK:
            edges = self.adjacent[n]
            while at[n] < len(edges):
                e = edges[at[n]]
                if self.room[e] and level.get(self.head[e], -1) == level[n] + 1:
                    break
                at[n] += 1
            else:
                if not path:
                    return False
                n = self.head[path.pop() ^ 1]
                at[n] += 1
                continue
            path.append(e)
            n = self.head[e]
        amount = min(self.room[e] for e in path)
        for e in path:
            self.room[e] -= amount
            self.room[e ^ 1] += amount
        return True
