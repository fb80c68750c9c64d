"""Barriers between launches: steps that need each other are apart, and all others are not.

May import: graph_table. Must not: know plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tx8fast.graph_table import FunctionTable, Step


def place_barriers(fn: FunctionTable) -> None:
    """Sort steps by layer and put a barrier after each layer (back-end notes 15.1).

    A step's layer is one more than the highest layer of its users; steps of one layer are independent."""
    maker = {v: i for i, s in enumerate(fn.steps) for v in s.outputs}
    layer = [0] * len(fn.steps)
    for i in range(len(fn.steps) - 1, -1, -1):
        for v in fn.steps[i].inputs:
            if v in maker:
                layer[maker[v]] = max(layer[maker[v]], layer[i] + (fn.steps[i].kind != "alias"))
    fn.steps = in_epochs(fn.steps, [-n for n in layer])


def in_epochs(steps: Sequence[Step], epoch: Sequence[int]) -> list[Step]:
    """Return the steps by their epochs, those of one as before, with a barrier behind each epoch.

    Aliases and steps without elements have no code, and a call ends with a barrier of its own: the last step that runs decides."""
    order = sorted(range(len(steps)), key=epoch.__getitem__)
    ends = {epoch[i]: i for i in order if steps[i].kind != "alias" and not steps[i].is_empty}
    return [replace(steps[i], barrier=ends.get(epoch[i]) == i) for i in order]
