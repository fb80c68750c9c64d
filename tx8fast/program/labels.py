"""Short names of groups for people: in which layers, and made of which ops.

May import: program.model. Must not: know models; it reads names.

A launch is called after the call that leads to it and its step: `layers.5.attn_norm/layers.0.mlp_norm+act`. Repeated layers are one function
named after the first of them, so the first number in a launch's name is its layer.
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


def layer_of(name: str) -> tuple[str, int] | None:
    """Return the word and the number of the layer that a launch belongs to, None outside layers: ("layers", 12)."""
    found = _LAYER.search(name)
    return None if found is None else (found[1], int(found[2]))


def ranges_text(numbers: Iterable[int]) -> str:
    """Return "0-3, 7"."""
    out: list[list[int]] = []
    for n in sorted(set(numbers)):
        if out and out[-1][1] == n - 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


def layers_text(launches: Iterable[str]) -> str:
    """Return the layers of launches, "layers 0-31"; "" outside layers."""
    found: dict[str, list[int]] = {}
    for name in launches:
        layer = layer_of(name)
        if layer is not None:
            found.setdefault(layer[0], []).append(layer[1])
    return ", ".join(f"{word} {ranges_text(numbers)}" for word, numbers in found.items())


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


def label(launches: Sequence[str], ops: Sequence[str]) -> str:
    """Return "layers 0-31: mlp_norm + gate + up" of launches with the same ops."""
    layers, what = layers_text(launches), ops_text(ops)
    return ": ".join(filter(None, (layers, what))) or (launches[0] if launches else "")


def segment_labels(program: Program) -> list[str]:
    """Return a label per segment."""
    names: list[list[str]] = [[] for _ in program.segments]
    for launch in program.launches:
        names[launch.segment].append(launch.name)
    return [label(n, s.ops or [s.name]) for n, s in zip(names, program.segments, strict=True)]
