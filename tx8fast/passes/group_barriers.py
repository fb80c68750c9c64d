"""Which groups end with a barrier over all tiles, and an order of groups that needs few of them.

May import: ir, passes.base, passes.layout_forms. Must not: know addresses; the schedule adds barriers where memory is reused.

Groups get layers from their users backwards; a layer is contiguous after a stable sort, and only its last group has
a barrier (back-end notes 15.1). A call is a border: nothing moves across it, and it ends with a barrier of its own.
"""

from __future__ import annotations

from typing import ClassVar

from tx8fast.ir.core import TERMINATOR, Block, Op
from tx8fast.ir.program import IRProgram
from tx8fast.ir.types import TensorType
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.layout_forms import is_alias
from tx8fast.records import dataclass


@dataclass(frozen=True)
class GroupBarriers(CompilerPass):
    """`enabled=false` keeps the order and a barrier after every group."""

    name: ClassVar[str] = "group-barriers"
    requires: ClassVar[tuple[str, ...]] = ("groups",)
    enabled: bool = True

    def run(self, program: IRProgram) -> PassResult:
        groups = barriers = 0
        for symbol in program.functions:
            for block in symbol.regions[0].blocks:
                if self.enabled:
                    for segment in segments(block):
                        layer_and_sort(block, segment)
                listed = [op for op in block if op.kind == "group"]
                for i, group in enumerate(listed):
                    group.attrs["group_id"] = i
                    if not self.enabled:
                        group.attrs["need_barrier"] = True
                groups += len(listed)
                barriers += sum(g.attrs["need_barrier"] for g in listed)
        return PassResult(groups > 0, {"groups": groups, "barriers": barriers})


def segments(block: Block) -> list[list[Op]]:
    """Return the runs of ops between calls and other ops with effects."""
    out: list[list[Op]] = [[]]
    for op in block:
        if op.kind in ("call", "set_param", "set_params", "barrier", "send", "recv") or op.has(TERMINATOR):
            out.append([])
        else:
            out[-1].append(op)
    return [s for s in out if s]


def layer_and_sort(block: Block, segment: list[Op]) -> None:
    """Layer the groups of one segment, move each layer together, set need_barrier."""
    keys = layers(segment)
    anchor = segment[-1].next
    ordered = sorted(segment, key=lambda op: -keys[op])
    if ordered != segment:
        for op in ordered:
            op.detach()
        for op in ordered:
            block.insert_before(anchor, op)
    last: dict[float, Op] = {keys[op]: op for op in ordered if op.kind == "group" and not _is_empty(op)}
    for op in ordered:
        if op.kind == "group":
            op.attrs["need_barrier"] = last.get(keys[op]) is op


def _is_empty(group: Op) -> bool:
    """True if the group makes no element: it has no code, and no barrier."""
    return all(isinstance(r.type, TensorType) and 0 in (r.type.shape or ()) for r in group.results)


def layers(segment: list[Op]) -> dict[Op, float]:
    """Return a sort key per op: groups have whole layers, 0 the last; aliases stand half a step before their users.

    An op without operands comes first. What a group writes over is read by groups that it needs, directly or not
    (`passes/functional_to_inplace.py`): they have higher layers.
    """
    inside = set(segment)
    keys: dict[Op, float] = {}
    for op in reversed(segment):
        users = [u for r in op.results for u in r.users if u in inside]
        top = max((keys[u] for u in users), default=-1.0)
        if op.kind == "group":
            keys[op] = float(max(int(top + 1), 0))
        elif not op.operands:
            keys[op] = float("inf")
        elif is_alias(op):
            keys[op] = top + 0.5
        else:
            keys[op] = float(int(top + 1)) + 0.25 if users else -0.75
    return keys
