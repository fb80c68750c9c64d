"""Nests of one launch: in whatever order their rows go, values are right, and what they overlap with is used by nobody."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.one_op import Arg, build, check

from tests.simulator.planting import findings
from tx8fast import isa
from tx8fast.schedule import nests
from tx8fast.schedule.nests import LaunchCode
from tx8fast.tile import seams, sharing
from tx8fast.tile.joined import nest_of


def feed_forward(rows: int, results: int = 1) -> tuple[tuple[Arg, ...], object]:
    """A product added to its rows, and a block of normalised rows added to that; results: 2: the first sum is one, too."""
    width, inner = 512, 1536
    wide, deep = (Arg(shape, "bf16", "blocked", -0.1, 0.1) for shape in ((width, inner), (inner, width)))

    def body(b, x, first, gate, up, down, gain):
        make = lambda kind, *v: b.op(kind, *v, mem_layout="blocked").results[0]  # noqa: E731
        h = make("add", make("gemm", x, first), x)
        y = make("rmsnorm", h, gain)
        out = make("add", make("gemm", make("swiglu", make("gemm", y, gate), make("gemm", y, up)), down), h)
        return [out, h][:results]

    square = Arg((width, width), "bf16", "blocked", -0.1, 0.1)
    return (Arg((rows, width), "bf16", "blocked"), square, wide, wide, deep, Arg((width,), "bf16")), body


def watch(monkeypatch: pytest.MonkeyPatch, count: Callable[[np.ndarray, np.ndarray], int]) -> list[int]:
    """Share small operands; return a list of what is counted in every code, given its rows and their nests, -1 of what orders add."""
    monkeypatch.setattr(sharing, "SHARE_MIN_BYTES", 256)
    made, seen = LaunchCode._made, []

    def watched(of, t, found, aliased):
        code = made(of, t, found, aliased)
        seen.append(count(code, np.where(code["op"] >= 0, nest_of(code), -1)))
        return code

    monkeypatch.setattr(nests.LaunchCode, "_made", watched)
    return seen


def of(unit: str, code: np.ndarray) -> np.ndarray:
    return isa.units(code) == isa.UNITS.index(unit)


@pytest.mark.parametrize("rows", [256, 200])
@pytest.mark.slow
def test_nests_overlap_and_are_right(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Both orders, one behind the other and together; in the latter loads of a later nest go before the nest before it is over."""

    def loads_ahead(code: np.ndarray, nest: np.ndarray) -> int:
        ends = [np.flatnonzero(nest == i - 1).max(initial=0) for i in range(1, nest.max() + 1)]
        return sum([int((of("rdma", code) & (nest == i))[:end].sum()) for i, end in enumerate(ends, 1)])

    ahead = watch(monkeypatch, loads_ahead)
    args, body = feed_forward(rows)
    found = {}
    for name, choice in (("apart", 0), ("together", 1)):
        monkeypatch.setattr(seams, "better", lambda cycles, choice=choice: choice)
        ahead.clear()
        case = build(args, body, opt=3)
        assert any(len(s.info.get("nests", ())) > 1 for s in case.program.segments)
        check(case, tolerance=0.05)
        assert not findings(case.program)
        found[name] = sum(ahead)
    assert found["apart"] == 0 < found["together"]


@pytest.mark.parametrize("rows", [256, 384])
@pytest.mark.slow(but_every=2)
def test_last_stores_may_wait_for_what_the_next_nest_needs_first(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """A result that nothing in the launch waits for is stored behind the next nest's first messages, and is right."""

    def sent_before(code: np.ndarray, nest: np.ndarray) -> int:
        lasts = [np.flatnonzero(of("wdma", code) & (nest == i)).max(initial=0) for i in range(nest.max())]
        return sum([int(of("dte", code)[:last].sum()) for last in lasts])

    late = watch(monkeypatch, sent_before)
    args, body = feed_forward(rows, results=2)
    found = {}
    for name, choice in (("at once", lambda n: 1), ("late", lambda n: n - 1)):
        monkeypatch.setattr(seams, "better", lambda cycles, choice=choice: choice(len(cycles)))
        late.clear()
        case = build(args, body, opt=3)
        assert any(len(s.info.get("nests", ())) > 1 for s in case.program.segments)
        check(case, tolerance=0.05)
        assert not findings(case.program)
        found[name] = sum(late)
    assert found["at once"] < found["late"]
