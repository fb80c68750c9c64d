"""Short names of groups for people: in which layers, and made of which ops.

May import: program.model. Must not: know models; it reads names.

A launch is called after the call that leads to it and its step: `layers.5.attn_norm/layers.0.mlp_norm+act`. Repeated layers are one function
named after the first of them, so the first number in a launch's name is its layer; where several layers are repeated together, the first of them:
`layers.4.attn_norm/layers.1.mlp_norm+act` is of layer 5 if the names in that call begin with layer 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tx8fast.program.model import Program

#: a word and the number of the layer, block, stage ... behind it: "layers.12.", "encoder/layer/3/"
_LAYER = re.compile(r"([A-Za-z_]\w*?)[./](\d{1,9})(?=[./]|$)")
_SPLIT = re.compile(r"[./]+")
#: the end of a name that only says that there is a matrix
_DULL = "_proj"


#: pieces of a list of numbers that stand in a label; of longer lists the ends and how many there are
PIECES = 3
#: numbers at equal distances that are told as one piece
EVENLY = 4


class Layers:
    """The layers of a program's launches, from all of their names."""

    def __init__(self, launches: Iterable[str]) -> None:
        self._first: dict[str, int] = {}  # call -> the first layer that the names inside it have
        for name in launches:
            found = _call(name)
            if found is not None:
                call, _, inside = found
                self._first[call] = min(inside, self._first.get(call, inside))

    def of(self, name: str) -> tuple[str, int] | None:
        """Return the word and the number of the layer that a launch belongs to, None outside layers: ("layers", 12)."""
        own = _LAYER.search(name)
        if own is None:
            return None
        found = _call(name)
        if found is None:
            return own[1], int(own[2])
        call, outside, inside = found
        return own[1], outside + inside - self._first.get(call, inside)

    def text(self, launches: Iterable[str], most: int = 1 << 30) -> str:
        """Return the layers of launches, "layers 0-31"; "" outside layers."""
        found: dict[str, list[int]] = {}
        for name in launches:
            layer = self.of(name)
            if layer is not None:
                found.setdefault(layer[0], []).append(layer[1])
        return ", ".join(f"{word} {ranges_text(numbers, most)}" for word, numbers in found.items())


def _call(name: str) -> tuple[str, int, int] | None:
    """Return of a launch inside a call what names the call, and the numbers of the layers outside and inside; None of others."""
    places = list(_LAYER.finditer(name))
    if not places:
        return None
    first, last = places[0], next(p for p in reversed(places) if p[1] == places[0][1])
    if "/" not in name[first.end() : last.start()]:
        return None
    return name[: last.start()], int(first[2]), int(last[2])


def ranges_text(numbers: Iterable[int], most: int = 1 << 30) -> str:
    """Return "0-3, 7", "0-40 by 2", and of more than `most` such pieces "0-60 (51 of them)"."""
    left = sorted(set(numbers))
    count = len(left)
    ends = f"{left[0]}-{left[-1]} ({count} of them)" if left else ""
    out: list[str] = []
    while left:
        step = left[1] - left[0] if len(left) > 1 else 1
        n = 1
        while n < len(left) and left[n] - left[n - 1] == step:
            n += 1
        if step > 1 and n < EVENLY:
            n = 1
        by = f" by {step}" if step > 1 else ""
        out.append(f"{left[0]}-{left[n - 1]}{by}" if n > 1 else str(left[0]))
        left = left[n:]
    return ", ".join(out) if len(out) <= most else ends


def ops_text(ops: Sequence[str]) -> str:
    """Return the last part of every op's name, "mlp_norm + gate + up"; with the part before it where two would be equal."""
    parts = {}
    for op in dict.fromkeys(ops):
        parts[op] = [p for p in _SPLIT.split(op.removesuffix(_DULL)) if p] or [op]
    length = dict.fromkeys(parts, 1)
    while True:
        shown = {op: ".".join(p[-length[op] :]) for op, p in parts.items()}
        equal = [op for op, text in shown.items() if list(shown.values()).count(text) > 1]
        longer = [op for op in equal if length[op] < len(parts[op]) and not parts[op][-length[op] - 1].isdecimal()]
        if not longer:
            return " + ".join(dict.fromkeys(shown.values()))
        for op in longer:
            length[op] += 1


def label(launches: Sequence[str], ops: Sequence[str], layers: Layers | None = None) -> str:
    """Return "layers 0-31: mlp_norm + gate + up" of launches with the same ops. layers: of the whole program."""
    where, what = (layers or Layers(launches)).text(launches, PIECES), ops_text(ops)
    return ": ".join(filter(None, (where, what))) or (launches[0] if launches else "")


def segment_labels(program: Program) -> list[str]:
    """Return a label per segment."""
    names: list[list[str]] = [[] for _ in program.segments]
    for launch in program.launches:
        names[launch.segment].append(launch.name)
    layers = Layers(launch.name for launch in program.launches)
    return [label(n, s.ops or [s.name], layers) for n, s in zip(names, program.segments, strict=True)]
