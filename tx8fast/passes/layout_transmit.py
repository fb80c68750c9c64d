"""Spreads the seeded layout names over the graph, breadth first; what no seed reaches gets a default.

May import: ir, passes.base, passes.layout_init. Must not: insert ops. Every op is named once: the first to reach it wins.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from tx8fast.ir.core import Op, Value
from tx8fast.ir.interfaces import infer_layout_backward, infer_layout_forward
from tx8fast.ir.program import IRProgram
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.layout_init import UNKNOWN, default_name
from tx8fast.records import dataclass


def result_name(v: Value) -> str | None:
    """Return the layout name of a value, None if its producer has none."""
    name = v.op.attrs.get("layout_str", UNKNOWN) if v.op is not None else UNKNOWN
    return None if name == UNKNOWN else name.rpartition("-")[2]


@dataclass(frozen=True)
class LayoutTransmit(CompilerPass):
    name: ClassVar[str] = "layout-transmit"
    requires: ClassVar[tuple[str, ...]] = ("layout-seeds",)

    def run(self, program: IRProgram) -> PassResult:
        named = [op for op in program.module.walk() if "layout_str" in op.attrs]
        frontier = deque(op for op in named if op.attrs["layout_str"] != UNKNOWN)
        spread = 0
        while frontier:
            op = frontier.popleft()
            for reached, name in (*_producers(op), *_consumers(op)):
                if name is not None and name != UNKNOWN and _open(reached):
                    reached.attrs["layout_str"] = name
                    frontier.append(reached)
                    spread += 1
        rest = [op for op in named if _open(op)]
        for op in rest:
            op.attrs["layout_str"] = default_name(op.results[0]) if op.results else "Tensor"
        return PassResult(spread + len(rest) > 0, {"spread": spread, "defaults": len(rest)})


def _open(op: Op) -> bool:
    return op.attrs.get("layout_str") == UNKNOWN


def _producers(op: Op) -> list[tuple[Op, str | None]]:
    own = result_name(op.results[0]) if op.results else None
    names = infer_layout_backward(op, own)
    return [(v.op, n) for v, n in zip(op.operands, names) if v.op is not None and _open(v.op)]


def _consumers(op: Op) -> list[tuple[Op, str | None]]:
    users = dict.fromkeys(u for r in op.results for u in r.users if _open(u))
    return [(u, infer_layout_forward(u, [result_name(v) for v in u.operands])) for u in users]
