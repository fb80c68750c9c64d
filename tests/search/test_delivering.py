"""Results that tiles send each other between two nests: right values, proved, whatever the grids of both are, and only what is there."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from support.checkpoints import make_checkpoint
from support.one_op import MACHINES, Arg, build, check

from tests.simulator.planting import findings
from tx8fast.cli.app import run
from tx8fast.program.model import Segment
from tx8fast.search import memory
from tx8fast.tile import deliveries
from tx8fast.tile.tiling import Tiling

CHIP = MACHINES["tx8"]


def layer(
    rows: int, width: int, kv: int, group: int, depth: int, dtype: str = "bf16"
) -> tuple[tuple[Arg, ...], object]:
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
@pytest.mark.parametrize("rows, width, kv, group, depth", [
    (64, 256, 8, 1, 64), (128, 256, 4, 2, 128), (77, 192, 6, 1, 64), (96, 128, 4, 4, 64),
    (50, 256, 2, 2, 128), (33, 128, 12, 1, 64),
])  # fmt: skip
@pytest.mark.slow(but_every=3)
def test_what_is_delivered_is_right(rows: int, width: int, kv: int, group: int, depth: int) -> None:
    case = build(*layer(rows, width, kv, group, depth), opt=2)
    assert any(sum(delivered_to(s)) for s in case.program.segments)
    check(case, tolerance=0.05)
    assert not findings(case.program)


def step(sequences: int, keys: int, heads: int, depth: int) -> tuple[tuple[Arg, ...], object]:
    """Attention of one query of each sequence, whose scores are a row per head."""
    sizes, wide = ("h", heads, "d", depth), heads * depth
    args = [Arg((sequences, n, wide), "f32", "blocked") for n in (1, keys, keys)]

    def body(b, q, k, v):
        make = lambda kind, *v, **a: b.op(kind, *v, mem_layout="blocked", **a).result  # noqa: E731
        s = make("contract", q, k, equation="b s (h d), b t (h d) -> b h s t", sizes=sizes)
        p = make("softmax", s, axis=-1, scale=1 / math.sqrt(depth))
        return [make("contract", p, v, equation="b h s t, b t (h d) -> b s (h d)", sizes=sizes)]

    return tuple(args), body


@pytest.mark.parametrize("sequences, keys, heads", [(16, 16, 14), (32, 5, 14), (24, 8, 12)])
def test_scores_of_several_sequences_are_delivered_whole(sequences: int, keys: int, heads: int) -> None:
    """Rows of scores are shorter than a matrix is in scratchpad: those of several sequences are not one run of bytes there."""
    case = build(*step(sequences, keys, heads, 64), opt=2)
    assert any(sum(delivered_to(s)) for s in case.program.segments)
    check(case, tolerance=1e-4)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("machine, opt", [("test_2x2", 2), ("test_2x2", 3), ("port", 2), ("no port", 2)])
def test_small_machines_deliver(machine: str, opt: int) -> None:
    case = build(*layer(48, 128, 4, 1, 64), machine=machine, opt=opt)
    check(case, tolerance=0.05)
    assert not findings(case.program)
    assert any(sum(delivered_to(s)) for s in case.program.segments)


@pytest.mark.usefixtures("eager")
def test_every_byte_arrives_where_its_load_would_put_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages, done on memories that hold the numbers of the bytes in DDR."""
    seen: list[tuple[Tiling, Tiling, tuple, deliveries.Deliveries]] = []
    inner = deliveries.delivered

    def spied(a: Tiling, b: Tiling, ways: list) -> deliveries.Deliveries | None:
        made = inner(a, b, ways)
        seen.append((a, b, tuple(ways), made))
        return made

    monkeypatch.setattr(deliveries, "delivered", spied)
    build(*layer(128, 256, 4, 2, 128), opt=2)
    assert seen
    for a, b, ways, made in seen:
        before, after = (np.full((CHIP.n_tiles, CHIP.spm_limit), -1, np.int64) for _ in range(2))
        for value, (ka, _, source, _) in enumerate(ways):
            for ddr, tile, at, n in deliveries.pieces(a, ka).tolist():
                before[tile, source + at : source + at + n] = (value << 40) + np.arange(ddr, ddr + n)
        for tile, own in enumerate(made):
            for m in own:
                for to in (t for t in range(CHIP.n_tiles) if m.mask >> t & 1):
                    target = after[to, m.target : m.target + m.size_bytes]
                    assert (target == -1).all(), "a byte arrives twice"
                    target[:] = before[tile, m.source : m.source + m.size_bytes]
        for value, (_, kb, _, target) in enumerate(ways):
            for ddr, tile, at, n in deliveries.pieces(b, kb).tolist():
                assert (after[tile, target + at : target + at + n] == (value << 40) + np.arange(ddr, ddr + n)).all()


def test_what_tiles_do_not_have_is_not_delivered() -> None:
    have = np.array([(0, 0, 0, 64), (64, 1, 0, 64)])
    want = np.array([(0, 2, 0, 128)])
    assert deliveries.sent([(have, want, 0, 256)], 4) == (
        (deliveries.Message(0, 256, 64, 4),), (deliveries.Message(0, 320, 64, 4),), (), ())  # fmt: skip
    assert deliveries.sent([(have[:1], want, 0, 256)], 4) is None  # half of it
    twice = np.array([(0, 0, 0, 64), (32, 1, 0, 96)])
    assert deliveries.sent([(twice, want, 0, 256)], 4) is None  # two tiles have the same bytes
    assert deliveries.sent([(have, want - [0, 0, 0, 64], 0, 256)], 4) is None  # what one tile has nobody wants
    lanes = np.array([(0, 2, 0, 64), (64, 2, 48, 48)])
    assert deliveries.sent([(have, lanes, 0, 256)], 4) is None  # the next one's bytes lie where idle lanes would be
    rows = np.array([(i * 256, 0, i * 128, 128) for i in range(2 * deliveries.MOST_MESSAGES)])
    assert (
        deliveries.sent([(rows, rows + np.array([0, 1, 0, 0]), 0, 1 << 20)], 4) is not None
    )  # they lie one behind the other
    apart = rows + np.arange(len(rows))[:, None] * np.array([0, 0, 128, 0])
    assert deliveries.sent([(rows, apart + np.array([0, 1, 0, 0]), 0, 1 << 20)], 4) is None  # too many messages


@pytest.mark.slow
def test_plans_that_deliver_are_saved_and_read(tmp_path) -> None:
    make_checkpoint(
        tmp_path / "model", hidden=1024, heads=16, kv_heads=16, intermediate=2048, vocab=512, layers=2, dtype="bfloat16"
    )
    given = ["compile", str(tmp_path / "model"), "--phase", "prefill", "--seq", "384"]
    assert run([*given, "-o", str(tmp_path / "a.tx8"), "--save-plans", str(tmp_path / "plans.json")]) == 0
    plans = json.loads((tmp_path / "plans.json").read_text())
    assert any(nest["delivered"] for plan in plans["plans"].values() for nest in plan["nests"])
    assert run([*given, "-o", str(tmp_path / "b.tx8"), "--load-plans", str(tmp_path / "plans.json")]) == 0
    assert (tmp_path / "a.tx8").read_bytes() == (tmp_path / "b.tx8").read_bytes()
    edits = (
        lambda plan: [nest.update(kept=[]) for nest in plan["nests"]],
        lambda plan: [nest.update(delivered=nest["delivered"][:1]) for nest in plan["nests"]],
        lambda plan: plan.update(holds=[hold + hold for hold in plan["holds"]]),
    )
    for edit in edits:
        edited = json.loads((tmp_path / "plans.json").read_text())
        for plan in edited["plans"].values():
            edit(plan)
        (tmp_path / "edited.json").write_text(json.dumps(edited))
        assert run([*given, "-o", str(tmp_path / "c.tx8"), "--load-plans", str(tmp_path / "edited.json")]) == 2
