"""Results that tiles send each other between two nests: right values, proved, whatever the grids of both are, and only what is there."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from support.checkpoints import make_checkpoint
from support.one_op import MACHINES, Arg, build, check

import tx8fast
from tests.simulator.planting import findings
from tx8fast import isa
from tx8fast.cli.app import run
from tx8fast.program.model import Segment
from tx8fast.search import delivering, memory
from tx8fast.simulator.cycle import simulate
from tx8fast.tile import deliveries
from tx8fast.tile.tiling import Tiling

CHIP = MACHINES["tx8"]


def layer(rows: int, width: int, kv: int, group: int, depth: int, causal: bool, dtype: str = "bf16") -> tuple[tuple[Arg, ...], object]:
    """Products with queries, keys and values, attention, and a product that closes."""
    sizes, wide = ("h", kv, "g", group, "d", depth), kv * group * depth
    args = [Arg((1, rows, width), dtype, "blocked", -1, 1),
            *(Arg((width, n), dtype, "blocked", -0.1, 0.1) for n in (wide, kv * depth, kv * depth)),
            Arg((wide, width), dtype, "blocked", -0.1, 0.1)]  # fmt: skip

    def body(b, x, wq, wk, wv, wo):
        make = lambda kind, *v, **a: b.op(kind, *v, mem_layout="blocked", **a).result  # noqa: E731
        q, k, v = (make("gemm", x, w) for w in (wq, wk, wv))
        s = make("contract", q, k, equation="b s (h g d), b t (h d) -> b (h g) s t", sizes=sizes)
        p = make("softmax", s, axis=-1, scale=1 / math.sqrt(depth))
        y = make("contract", p, v, equation="b (h g) s t, b t (h d) -> b s (h g d)", sizes=sizes)
        return [make("gemm", y, wo)]

    return tuple(args), body


def delivering_nests(segment: Segment) -> int:
    """Return how many nests of a segment begin with what tiles have sent each other."""
    rows = segment.codes[0]
    return int((rows["opcode"] == isa.rows([isa.make("send_wait")])["opcode"][0]).sum())


def delivered_to(segment: Segment) -> list[int]:
    return [len(n.get("delivered", ())) for n in segment.info.get("nests", ())]


@pytest.fixture()
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is delivered, or left for others, seems to take next to no time."""
    inner, way = memory.Memory.cycles, memory.Memory.delivery

    def cheap(of: memory.Memory, how: Tiling, held: frozenset[int], closely: bool = False) -> int:
        cycles = inner(of, how, held, closely)
        return cycles // 16 if how.plan.delivered or any(k >= len(how.low.reads) for k in how.plan.kept) else cycles

    monkeypatch.setattr(memory.Memory, "cycles", cheap)
    monkeypatch.setattr(memory.Memory, "delivery", lambda *a: min(way(*a), 10))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("rows, width, kv, group, depth, causal", [
    (64, 256, 8, 1, 64, False), (128, 256, 4, 2, 128, False), (77, 192, 6, 1, 64, False), (96, 128, 4, 4, 64, False),
    (50, 256, 2, 2, 128, False), (33, 128, 12, 1, 64, False),
])  # fmt: skip
def test_what_is_delivered_is_right(rows: int, width: int, kv: int, group: int, depth: int, causal: bool) -> None:
    case = build(*layer(rows, width, kv, group, depth, causal), opt=2)
    assert any(sum(delivered_to(s)) for s in case.program.segments)
    check(case, tolerance=0.05)
    assert not findings(case.program)
