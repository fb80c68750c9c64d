"""Results that stay with their tiles and are gathered by the next nest: right values, proved, and only where both plans fit."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from support.checkpoints import make_checkpoint
from support.one_op import MACHINES, Arg, build, check
from support.recorded_families import make_recorded

import tx8fast
from tests.simulator.planting import findings
from tx8fast import isa
from tx8fast.cli.app import run
from tx8fast.lower import base
from tx8fast.program.model import Segment
from tx8fast.schedule import buffers
from tx8fast.schedule.buffers import Buffers
from tx8fast.search import chained, memory
from tx8fast.search.handover import columns_left
from tx8fast.tile import gathers, sharing
from tx8fast.tile.order import LATE_FILLS, tile_order
from tx8fast.tile.pins import Pins
from tx8fast.tile.tiling import Tiling

CHIP = MACHINES["tx8"]


def block(rows: int, width: int, inner: int, lead: bool, out: int) -> tuple[tuple[Arg, ...], object]:
    """A feed-forward block: rows that a norm may lead, two products, one that closes, and what comes in added if sizes allow."""
    wide, deep = (Arg(shape, "bf16", "blocked", -0.1, 0.1) for shape in ((width, inner), (inner, out)))

    def body(b, x, gate, up, down, gain):
        make = lambda kind, *v: b.op(kind, *v, mem_layout="blocked").results[0]  # noqa: E731
        y = make("rmsnorm", x, gain) if lead else x
        z = make("gemm", make("swiglu", make("gemm", y, gate), make("gemm", y, up)), down)
        return [make("add", z, x) if out == width else z]

    return (Arg((rows, width), "bf16", "blocked"), wide, wide, deep, Arg((width,), "bf16")), body


def gathering(segment: Segment) -> bool:
    """True for a chain one of whose nests sends rows that it did not load."""
    return any(n.get("gathered") for n in segment.info.get("nests", ()))


@pytest.mark.usefixtures("small", "eager")
@pytest.mark.parametrize("rows, width, inner, lead, out", [  # then tiles with fewer rows, and columns that are no whole channel blocks
    (256, 512, 2048, True, 512), (256, 512, 2048, False, 512), (128, 384, 1280, True, 384),
    (320, 640, 1536, True, 512), (64, 448, 1152, False, 448), (77, 256, 1024, False, 256), (200, 256, 2048, False, 256), (104, 192, 1536, True, 256),
    (256, 512, 1040, True, 512), (77, 256, 1096, True, 256), (121, 192, 2100, True, 192), (91, 256, 1100, False, 256),
])  # fmt: skip
@pytest.mark.slow(but_every=5)
def test_blocks_that_gather_are_right(rows: int, width: int, inner: int, lead: bool, out: int) -> None:
    case = build(*block(rows, width, inner, lead, out), opt=3)
    assert any(map(gathering, case.program.segments))
    check(case, tolerance=0.05)
    assert not findings(case.program)


@pytest.mark.usefixtures("small")
def test_buffers_that_no_nest_finds_are_where_they_were_put(monkeypatch: pytest.MonkeyPatch) -> None:
    """With bytes between the slices that stay, as where buffers begin at one bank each."""
    first, ka, _, _ = plans(monkeypatch)[0]
    monkeypatch.setattr(buffers, "phases", lambda *_: [(k, 512) for k in range(len(first.copies))])
    alone = Buffers(first)
    assert first.copies[ka] > 1 and all(alone.on(r).access == alone.at.access for r in first.ranges)
    found = Buffers(
        first, Pins({ka: CHIP.spm_base}, {}, ((CHIP.spm_base, first.copies[ka] * first.slot_bytes(ka)),), frozenset())
    )
    assert [found.on(r).access[ka][0] for r in first.ranges] == [CHIP.spm_base] * len(first.ranges)


def test_parts_of_a_group_are_found_wherever_barriers_put_it(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """Attention and a feed-forward layer that read the same rows stand in another order once barriers are placed; a norm that may
    stand apart belongs to its own group then, too."""
    seen: list[bool] = []
    inner = chained._chained

    def spied(fn, memory, parts):
        seen.append([s.outputs for s in fn.steps] != list(parts) and any(parts.values()))
        for step in fn.steps:
            first, *rest = parts[step.outputs] or (step,)
            made = {*first.outputs, *(v for s in rest for v in s.outputs)}
            assert {*step.outputs} <= made and {*first.inputs} <= {*step.inputs}
        return inner(fn, memory, parts)

    monkeypatch.setattr(chained, "_chained", spied)
    make_recorded(tmp_path, "falcon-grouped")
    tx8fast.compile(tmp_path, phase="prefill", seq=11, batch=2, dtype="fp32")
    assert any(seen)


def plans(monkeypatch: pytest.MonkeyPatch, case: tuple | None = None) -> list[tuple[Tiling, int, Tiling, int]]:
    """Return pairs of plans that were found to fit each other."""
    found = []
    inner = memory.gathered

    def listed(of, first, ka, b, kb, leaves=()):
        how = inner(of, first, ka, b, kb, leaves)
        found.extend([(first, ka, how, kb)] if how is not None else [])
        return how

    monkeypatch.setattr(memory, "gathered", listed)
    build(*(case or block(256, 512, 2048, True, 512)), opt=3)
    return found


@pytest.mark.usefixtures("small")
def test_what_tiles_send_is_the_slice_each_byte_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = plans(monkeypatch)
    assert found
    for first, ka, how, kb in found:
        columns, access = columns_left(first, ka, how, kb), how.low.reads[kb]
        assert how.plan.gathered == ((kb, columns),)
        for lo in range(0, how.low.sizes[-1], how.plan.slices[-1]):
            a = (*how.ranges[0].lo[:-1], lo)
            b = (
                *(x + n for x, n in zip(a[:-1], how.plan.slices[:-1], strict=True)),
                min(lo + how.plan.slices[-1], how.low.sizes[-1]),
            )
            sent = [gathers.piece(access, columns, rank, a, b) for rank in range(how.plan.shared[kb])]
            at = sorted((start, start + size) for _, start, size in sent if size)
            assert at[0][0] == 0 and at[-1][1] == access.size_bytes(a, b)
            assert all(x[1] == y[0] for x, y in zip(at, at[1:], strict=False))


@pytest.mark.usefixtures("small")
def test_gathered_rows_that_are_prepared_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles meet for them alone if they are worth it, and once per slice for all else as before."""
    args, body = block(256, 512, 2048, True, 512)
    square = Arg((512, 512), "bf16", "blocked", -0.1, 0.1)
    found = plans(
        monkeypatch,
        ((*args, square), lambda b, x, *w: body(b, b.op("gemm", x, w[-1], mem_layout="blocked").result, *w[:-1])),
    )
    found = [(how, kb) for _, _, how, kb in found if how.low.prepared == kb]
    assert found
    for how, kb in found:
        shared, r = [k for k, n in enumerate(how.plan.shared) if n > 1], how.ranges[0]
        for least in (1, how.slice_bytes[kb], how.slice_bytes[kb] + 1):
            monkeypatch.setattr(base, "MEETING_BYTES", least)
            order = tile_order(how, r.lo, r.hi, shared)
            fills = order.fills
            assert order.late_fills == {*(LATE_FILLS if fills[0].ahead else LATE_FILLS[:1])}
            alone = [f for f in fills if f.changed == (kb,)]
            assert bool(alone) == (least <= how.slice_bytes[kb]) and alone in ([], fills[:1])
            assert len([f for f in fills if kb in f.changed]) == how.fills(how.low.reads[kb].factors)


@pytest.mark.usefixtures("small")
def test_plans_that_do_not_fit_each_other_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    first, ka, how, kb = plans(monkeypatch)[0]
    assert columns_left(first, ka, how, kb)
    assert not columns_left(first.but(kept=()), ka, how, kb)  # nothing stays
    assert not columns_left(first, ka, how.but(shared=tuple([1] * len(how.plan.shared))), kb)  # every tile for itself
    parts = (
        first.plan.parts[::-1]
        if first.plan.parts != first.plan.parts[::-1]
        else (16, *[1] * (len(first.plan.parts) - 1))
    )
    other = Tiling(first.low, replace(first.plan, parts=parts, shard=tuple(first.low.sizes)))
    assert not columns_left(other, ka, how, kb)  # other tiles have the rows


def test_code_of_every_tile_sends_from_what_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources of messages lie in buffers that the nest before has written."""
    monkeypatch.setattr(sharing, "SHARE_MIN_BYTES", 256)
    case = build(*block(256, 512, 2048, True, 512), opt=3)
    (segment,) = [s for s in case.program.segments if gathering(s)]
    send = isa.instruction("send")
    starts = segment.buffers[:, 0]
    for code in segment.codes:
        for row in code[code["opcode"] == send.OPCODE]:
            source = row["spm"][send.FIELDS_SPM.index("src")]
            assert ((starts <= source) & (source < starts + segment.buffers[:, 1])).any()
    assert np.unique(segment.tile_code).size > 1


def test_plans_that_gather_are_saved_and_read(tmp_path) -> None:
    make_checkpoint(
        tmp_path / "model", hidden=512, heads=8, kv_heads=4, intermediate=2048, vocab=512, layers=2, dtype="bfloat16"
    )
    given = ["compile", str(tmp_path / "model"), "--phase", "prefill", "--seq", "256"]
    assert run([*given, "-o", str(tmp_path / "a.tx8"), "--save-plans", str(tmp_path / "plans.json")]) == 0
    assert '"gathered": [[' in re.sub(r"\s+", " ", (tmp_path / "plans.json").read_text()).replace("[ ", "[")
    assert run([*given, "-o", str(tmp_path / "b.tx8"), "--load-plans", str(tmp_path / "plans.json")]) == 0
    assert (tmp_path / "a.tx8").read_bytes() == (tmp_path / "b.tx8").read_bytes()
    plans = json.loads((tmp_path / "plans.json").read_text())
    for plan in plans["plans"].values():  # what would be gathered is not what the nest before leaves
        for nest in plan["nests"]:
            nest["gathered"] = [[k, 2 * n] for k, n in nest["gathered"]]
    (tmp_path / "plans.json").write_text(json.dumps(plans))
    assert run([*given, "-o", str(tmp_path / "c.tx8"), "--load-plans", str(tmp_path / "plans.json")]) == 2


@pytest.mark.parametrize("rows", [77, 205, 257])
def test_slices_with_gaps_between_them_do_not_stay(rows: int) -> None:
    """Odd rows of a slice end inside a unit of scratchpad, so what several slices have is no run of bytes."""
    x, first, second = (Arg(shape, "bf16", "blocked", -0.1, 0.1) for shape in ((rows, 320), (320, 512), (512, 256)))

    def body(b, x, first, second):
        make = lambda *v: b.op("gemm", *v, mem_layout="blocked").results[0]  # noqa: E731
        return [make(make(x, first), second)]

    case = build((x, first, second), body, machine="test_2x2", opt=3)
    check(case, tolerance=0.05)
    assert not findings(case.program)


@pytest.mark.usefixtures("small", "eager")
@pytest.mark.parametrize("machine, batch, queries, keys, heads, width, depth", [
    ("tx8", 2, 76, 16, 2, 128, 192), ("test_2x2", 3, 30, 45, 2, 128, 64), ("test_2x2", 2, 63, 32, 4, 64, 128), ("test_2x2", 2, 21, 16, 4, 96, 64),
    ("test_2x2", 3, 64, 64, 2, 96, 128), ("test_2x2", 2, 40, 31, 3, 64, 64), ("tx8", 1, 64, 64, 4, 32, 128), ("tx8", 3, 33, 63, 3, 128, 192),
])  # fmt: skip
@pytest.mark.slow(but_every=5)
def test_values_of_heads_are_right(
    machine: str, batch: int, queries: int, keys: int, heads: int, width: int, depth: int
) -> None:
    """Several heads of a slice are matrices of their own, of as many bytes as one of all columns."""
    x, w, weights = (Arg(shape, "bf16", "blocked", -0.3, 0.3)
                     for shape in ((batch, keys, depth), (depth, heads * width), (batch, heads, queries, keys)))  # fmt: skip

    def body(b, x, w, weights):
        values = b.op("gemm", x, w, mem_layout="blocked").results[0]
        equation = "b h s t, b t (h d) -> b s (h d)"
        made = b.op(
            "contract", weights, values, equation=equation, sizes=("h", heads, "d", width), mem_layout="blocked"
        )
        return [made.results[0]]

    case = build((x, w, weights), body, machine=machine, opt=3)
    check(case, tolerance=0.05)
    assert not findings(case.program)


@pytest.mark.parametrize("rows", [256, 255, 511])
@pytest.mark.slow
def test_heads_that_begin_apart_are_not_gathered(rows: int, small: None, eager: None) -> None:
    """In scratchpad every head of an operand begins at an address of its own: odd rows leave gaps between them."""
    x, w, q = (Arg(shape, "bf16", "blocked", -0.1, 0.1) for shape in ((1, rows, 1024), (1024, 1024), (1, 256, 1024)))

    def body(b, x, w, q):
        keys = b.op("gemm", x, w, mem_layout="blocked").results[0]
        equation = "b s (h g d), b t (h d) -> b (h g) s t"
        made = b.op("contract", q, keys, equation=equation, sizes=("h", 16, "d", 64), mem_layout="blocked")
        return [made.results[0]]

    case = build((x, w, q), body, machine="tx8", opt=3)
    check(case, tolerance=0.05)
    assert not findings(case.program)
