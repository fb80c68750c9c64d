"""Readable twin of slack bubbling.

May import: the standard library. Must not: be fast, share code with the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence


class Steps:
    """Transfers in their steps, each step a list in the order of arrival."""

    def __init__(
        self, cycles: Sequence[int], limit: Sequence[int], step: Sequence[int], computed: Sequence[int]
    ) -> None:
        self.cycles, self.limit, self.step, self.computed = cycles, limit, list(step), computed
        self.lists: list[list[int]] = [[j for j, t in enumerate(step) if t == q] for q in range(len(computed))]

    def slack(self, t: int) -> int:
        return self.computed[t] - sum(self.cycles[j] for j in self.lists[t])

    def length(self, t: int, more: int = 0) -> int:
        """What the step's transfers take longer than its computing, with `more` cycles of them."""
        return max(0, more - self.slack(t))

    def longer(self) -> int:
        return sum(self.length(t) for t in range(len(self.lists)))

    def profit(self, j: int, to: int) -> int:
        c, at = self.cycles[j], self.step[j]
        return self.length(at) + self.length(to) - self.length(at, -c) - self.length(to, c)

    def way(self, j: int) -> list[int]:
        at, end = self.step[j], self.limit[j]
        return list(range(at - 1, end - 1, -1)) if end < at else list(range(at + 1, end + 1))

    def choice(self, t: int) -> tuple[int, int] | None:
        gains = [
            (-gain, self.cycles[j] * abs(q - t), place, abs(q - t), j, q)
            for place, j in enumerate(self.lists[t])
            for q in self.way(j)
            if self.slack(q) > 0 and (gain := self.profit(j, q)) > 0
        ]
        return min(gains)[4:] if gains else None

    def put(self, j: int, to: int) -> None:
        self.lists[self.step[j]].remove(j)
        self.lists[to].append(j)
        self.step[j] = to

    def carry(self, j: int, to: int) -> list[tuple[int, int]]:
        """Return what moved, each with where it was."""
        moved = []
        for q in self.way(j)[: abs(to - self.step[j])]:
            moved.append((j, self.step[j]))
            self.put(j, q)
            if q == to:
                break
            going = [
                (-self.profit(y, to), self.cycles[y], place, y)
                for place, y in enumerate(self.lists[q])
                if to in self.way(y)
            ]
            going = [x for x in going if x[0] < 0 or (x[0] == 0 and x[1] < self.cycles[j])]
            if not going:
                break
            j = min(going)[3]
        return moved


def bubble(cycles: Sequence[int], limit: Sequence[int], step: Sequence[int], computed: Sequence[int]) -> list[int]:
    """Return the steps of transfers; arguments as in the facade."""
    steps, again = Steps(cycles, limit, step, computed), True
    while again:
        again = False
        for t in range(len(computed)):
            while steps.slack(t) < 0 and (found := steps.choice(t)):
                before = steps.longer()
                moved = steps.carry(*found)
                if steps.longer() >= before:
                    for j, at in reversed(moved):
                        steps.put(j, at)
                    break
                again = True
    return steps.step
