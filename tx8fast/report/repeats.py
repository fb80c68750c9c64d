"""A sequence with its repetitions folded: what runs again and again is shown once.

May import: the standard library. Must not: know what the items are.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tx8fast.records import dataclass

#: items of the longest body that is looked for; a period of layers with all their groups
LONGEST = 256


@dataclass(frozen=True)
class Item:
    """One item: its index in the sequence, and those of its repetitions (itself among them)."""

    first: int
    all: tuple[int, ...]


@dataclass(frozen=True)
class Repeat:
    """A body that occurs `count` times, one after the other."""

    count: int
    body: tuple[Node, ...]


Node = Item | Repeat


def fold(keys: Sequence[Hashable]) -> tuple[Node, ...]:
    """Return the sequence as items and repeats; of equal cover the shorter body wins, bodies are folded too."""
    numbers: dict[Hashable, int] = {}
    return _fold([numbers.setdefault(k, len(numbers)) for k in keys], [(i,) for i in range(len(keys))])


def _fold(keys: Sequence[int], where: Sequence[tuple[int, ...]]) -> tuple[Node, ...]:
    out: list[Node] = []
    at, n = 0, len(keys)
    while at < n:
        best, times = 0, 1
        for p in range(1, min(LONGEST, (n - at) // 2) + 1):
            end = at + p
            while end < n and keys[end] == keys[end - p]:
                end += 1
            count = (end - at) // p
            if count > 1 and count * p > best * times:
                best, times = p, count
        if times == 1:
            out.append(Item(where[at][0], tuple(where[at])))
            at += 1
            continue
        spots = [tuple(i for k in range(times) for i in where[at + k * best + j]) for j in range(best)]
        out.append(Repeat(times, _fold(keys[at : at + best], spots)))
        at += best * times
    return tuple(out)


def flat(nodes: Sequence[Node], depth: int = 0) -> list[tuple[Item, int]]:
    """Return every item with the number of repeats around it, in order."""
    out: list[tuple[Item, int]] = []
    for node in nodes:
        out += [(node, depth)] if isinstance(node, Item) else flat(node.body, depth + 1)
    return out
