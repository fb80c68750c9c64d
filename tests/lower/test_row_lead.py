"""Products whose left operand is normalised in scratchpad, and products side by side with columns in whole ratios."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.one_op import Arg, Case, build, check, grouped, random_plan, with_plan

from tests.simulator.planting import findings
from tx8fast.lower import NotLowerable, lower, row_lead
from tx8fast.lower.fused import Fused
from tx8fast.lower.row_lead import RowLead
from tx8fast.simulator.cycle import simulate
from tx8fast.tile.order import LATE_FILLS, tile_order
from tx8fast.tile.tiling import Plan, Tiling

B = "blocked"
LIMIT = {"bf16": 4e-2, "f16": 1e-2, "f32": 2e-4}


def blocked(b):
    return lambda kind, *v, **a: b.op(kind, *v, mem_layout=B, **a).result


def side_by_side(
    kind: str, dtype: str, rows: tuple[int, ...], depth: int, cols: tuple[int, ...], beta: bool, machine: str,
    gains: str = "",
):  # fmt: skip
    """[norm], then a product per entry of `cols`, the first with a ReLU behind it. gains: format of the norm's vectors, if another."""
    args = [Arg((*rows, depth), dtype, B), *(Arg((depth, n), dtype, B) for n in cols)]
    if kind:
        args += [Arg((depth,), gains or dtype, lo=0.5)] * (1 + beta)

    def body(b, x, *rest):
        op = blocked(b)
        y = op(kind, x, *rest[len(cols) :]) if kind else x
        made = [op("gemm", y, w) for w in rest[: len(cols)]]
        return [op("relu", made[0]), *made[1:]]

    return grouped(build(args, body, machine))


def check_both(case, seed: int, dtype: str):
    """Compare the searched plan and any other one with the reference."""
    low = case.lowering()
    assert isinstance(low, Fused)
    rng = np.random.default_rng(seed)
    feed = [a.values(rng) for a in case.args]
    check(case, feed, tolerance=LIMIT[dtype])
    plan = random_plan(case, rng, low)
    if plan is not None:
        check(with_plan(case, plan, low), feed, tolerance=LIMIT[dtype])
    return low


@settings(max_examples=15)
@given(
    st.sampled_from(["layernorm", "rmsnorm"]), st.sampled_from(["bf16", "f16", "f32"]), st.integers(1, 150),
    st.sampled_from([20, 64, 130, 256, 300, 576]), st.sampled_from([(64,), (192,), (192, 192), (256, 64, 64)]),
    st.booleans(), st.sampled_from(["tx8", "test_2x2"]), st.sampled_from(["", "f32"]), st.integers(0, 1 << 20),
)  # fmt: skip
@pytest.mark.slow
def test_norm_leads_products(kind, dtype, rows, depth, cols, beta, machine, gains, seed) -> None:
    case = side_by_side(kind, dtype, (1, rows), depth, cols, beta and kind == "layernorm", machine, gains)
    low = check_both(case, seed, dtype)
    assert low.prepared == 0 and isinstance(low.members[0].low, RowLead)


@settings(max_examples=10)
@given(
    st.sampled_from(["bf16", "f32"]), st.integers(1, 100), st.sampled_from([64, 130, 320]),
    st.sampled_from([(256, 64), (64, 448, 64), (128, 384), (128, 128, 512)]), st.sampled_from(["tx8", "test_2x2"]),
    st.integers(0, 1 << 20),
)  # fmt: skip
def test_columns_in_whole_ratios(dtype, rows, depth, cols, machine, seed) -> None:
    """The narrowest product's columns are the group's; a slice of the others is as much wider."""
    low = check_both(side_by_side("", dtype, (1, rows), depth, cols, False, machine), seed, dtype)
    assert low.sizes[low.lead.n[0]] == min(cols) and len(low.reads) == 1 + len(cols)


def test_projections_with_rotations() -> None:
    """Queries of 8 heads, keys and values of 2: all read the rows once."""
    args = [Arg((1, 96, 256), "bf16", B), Arg((256,), "bf16", lo=0.5), Arg((256, 512), "bf16", B), Arg((256, 128), "bf16", B),
            Arg((256, 128), "bf16", B), Arg((96, 64), "bf16", B), Arg((96, 64), "bf16", B)]  # fmt: skip

    def body(b, x, gamma, q, k, v, cos, sin):
        op = blocked(b)
        y = op("rmsnorm", x, gamma)
        first = op("rope", op("gemm", y, q), cos, sin, heads=8)
        value = op("gemm", y, v)
        return [first, value, op("rope", op("gemm", y, k), cos, sin, heads=2)]

    low = check_both(grouped(build(args, body, "tx8")), 3, "bf16")
    assert len(low.reads) == 7 and low.sizes[low.lead.n[0]] == 128


def test_projections_with_norms_and_rotations_of_heads() -> None:
    """A norm of every head stands between a projection and its rotation: eight ops that read the rows once."""
    args = [Arg((1, 96, 256), "bf16", B), Arg((256,), "bf16", lo=0.5), Arg((256, 512), "bf16", B), Arg((256, 128), "bf16", B),
            Arg((256, 128), "bf16", B), Arg((96, 128), "bf16", B), Arg((96, 128), "bf16", B), Arg((128,), "bf16", lo=0.5)]  # fmt: skip

    def body(b, x, gamma, q, k, v, cos, sin, own):
        op = blocked(b)
        y = op("rmsnorm", x, gamma)
        first = op("rope", op("rmsnorm", op("gemm", y, q), own, heads=4), cos, sin, heads=4)
        value = op("gemm", y, v)
        return [first, value, op("rope", op("gemm", y, k), cos, sin, heads=1)]

    low = check_both(grouped(build(args, body, "tx8")), 3, "bf16")
    assert low.sizes[low.lead.n[0]] == 128 and low.units[low.lead.n[0]] == 128


def test_a_norm_of_heads_leads_no_products() -> None:
    args = [Arg((1, 96, 256), "bf16", B), Arg((128,), "bf16", lo=0.5), Arg((256, 512), "bf16", B)]
    body = lambda b, x, gamma, w: blocked(b)("gemm", blocked(b)("rmsnorm", x, gamma, heads=2), w)  # noqa: E731
    with pytest.raises(NotLowerable, match="leads no products"):
        grouped(build(args, body, "tx8")).lowering()


def test_columns_in_no_whole_ratio_are_no_group() -> None:
    case = side_by_side("", "f32", (1, 32), 64, (192, 192), False, "tx8")
    ops = list(case.records[0].ops)
    other = side_by_side("", "f32", (1, 32), 64, (128, 128), False, "tx8").records[0].ops
    with pytest.raises(NotLowerable, match="whole ratio"):
        lower(dataclasses.replace(case.records[0], ops=(ops[0], other[1], ops[2])), case.machine)


def test_other_users_of_the_rows_keep_the_norm_apart() -> None:
    case = side_by_side("rmsnorm", "f32", (1, 32), 64, (64, 64), False, "tx8")
    record = case.records[0]
    with pytest.raises(NotLowerable, match="nothing else"):
        lower(dataclasses.replace(record, outputs=(0, *record.outputs)), case.machine)


def test_statistics_hide_behind_the_load_of_the_rows() -> None:
    """The estimate and the simulation agree, and the group beats the norm alone with the product behind it."""
    args = [Arg((1, 1024, 2048), "bf16", B), Arg((2048,), "bf16"), Arg((2048, 2048), "bf16", B)]
    body = lambda b, x, g, w: blocked(b)("gemm", blocked(b)("rmsnorm", x, g), w)  # noqa: E731
    apart, case = build(args, body, opt=1), grouped(build(args, body))
    found, single = simulate(case.program).cycles, simulate(apart.program).cycles
    assert found < 0.9 * single
    assert abs(case.segment.estimate_cycles / found - 1) < 0.05


@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
def test_the_vector_engine_has_few_passes(kind) -> None:
    """Of what normalises rows it squares, sums and scales; the matrix engine repeats, adds and widens, and narrows where there is a
    shift. Without one the vector engine widens and narrows once. Short instructions take a third more."""
    case = side_by_side(kind, "bf16", (1, 64), 2048, (64,), kind == "layernorm", "test_2x2")
    low = case.lowering()
    check(case, [a.values(np.random.default_rng(1)) for a in case.args], tolerance=LIMIT["bf16"])
    assert isinstance(low.members[0].low, RowLead)
    pass_cycles = 64 * 2048 * 4 / case.machine.ct.bytes_per_cycle
    assert simulate(case.program).busy["ct"] < (5 if kind == "layernorm" else 6.6) * pass_cycles


def shared_rows(kind: str, dtype: str, rows: int, depth: int) -> tuple[Case, Plan]:
    """A normalisation and two products of rows that four tiles share, and the plan."""
    case = side_by_side(kind, dtype, (1, rows), depth, (512, 256), kind == "layernorm", "tx8")
    low = case.lowering()
    lengths = {0: 1, 1: -(-rows // 4), len(low.sizes) - 1: 512}
    slices = tuple([lengths.get(f, low.units[f]) for f in range(len(low.sizes))])
    parts = (1, 4, 4, 1)
    shard = tuple([-(-n // p) for n, p in zip(low.sizes, parts, strict=True)])
    order = (0, 1, 2, 3)
    return case, Plan(
        parts, shard, slices, order, bufs=2, estimate_cycles=0, spm_bytes=0, bound="",
        shared=tuple([4 if k == 0 else 1 for k in range(len(low.reads))]),
    )  # fmt: skip


@pytest.mark.parametrize("kind, dtype, rows, depth", [
    ("rmsnorm", "bf16", 512, 2560), ("layernorm", "bf16", 800, 2624), ("rmsnorm", "f16", 640, 3000), ("rmsnorm", "bf16", 512, 4096),
])  # fmt: skip
@pytest.mark.slow
def test_rows_that_tiles_share_arrive_by_chunks(kind, dtype, rows, depth, monkeypatch) -> None:
    """What else changes with them comes behind; the bits are those of rows that arrive as a whole, and they are there sooner."""
    case, plan = shared_rows(kind, dtype, rows, depth)
    low, feed = case.lowering(), [a.values(np.random.default_rng(depth)) for a in case.args]
    tiling = Tiling(low, plan)
    r = tiling.ranges[0]
    chunks = -(-depth // row_lead.MOST)
    order = tile_order(tiling, r.lo, r.hi, (0,))
    assert [(fill.chunk, fill.changed) for fill in order.fills] == [(i, (0,)) for i in range(chunks)]
    spans = [low.reads[0].chunk(r.lo, r.hi, i) for i in range(chunks)]
    assert [a for ((a, _),) in spans[1:]] == [b for ((_, b),) in spans[:-1]]
    assert (spans[0][0][0], spans[-1][0][1]) == (0, low.reads[0].size_bytes(r.lo, r.hi))
    made = with_plan(case, plan, low)
    got = check(made, feed, tolerance=LIMIT[dtype])
    assert not findings(made.program)
    monkeypatch.setattr(row_lead, "FEW", 100)
    whole = with_plan(case, plan, case.lowering())
    for a, b in zip(got, check(whole, feed, tolerance=LIMIT[dtype]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert depth < 4096 or simulate(made.program).cycles < simulate(whole.program).cycles


@pytest.mark.parametrize("rows, depth", [(64, 4096), (250, 2560), (512, 2048), (1, 8192)])
def test_few_or_small_chunks_arrive_together(rows, depth) -> None:
    case, plan = shared_rows("rmsnorm", "bf16", rows, depth)
    r = (tiling := Tiling(case.lowering(), plan)).ranges[0]
    assert [fill.chunk for fill in tile_order(tiling, r.lo, r.hi, (0,)).fills] == [-1]


def test_tiles_fall_behind_once_more_where_they_have_waited_for_statistics() -> None:
    case, plan = shared_rows("rmsnorm", "bf16", 512, 2560)
    both = dataclasses.replace(plan, shared=tuple([4 if k in (0, 2) else 1 for k in range(len(plan.shared))]))
    tiling = Tiling(case.lowering(), both)
    r = tiling.ranges[0]
    order = tile_order(tiling, r.lo, r.hi, (0, 2))
    assert [f.chunk for f in order.fills[:6]] == [0, 1, 2, 3, 4, -1] and order.fills[5].changed == (2,)
    assert order.late_fills == {5 + f for f in LATE_FILLS}
    assert tile_order(tiling, r.lo, r.hi, (2,)).late_fills == {LATE_FILLS[0]}


@pytest.mark.parametrize("value", [1.3, -200.0, 3e-3])
def test_rows_of_one_number_are_the_shift(value: float) -> None:
    """Their deviation is that of eps alone, a million times the number: what is multiplied by it must be nothing."""

    def body(b, x, gain, shift, w):
        return blocked(b)("gemm", blocked(b)("layernorm", x, gain, shift, eps=1e-12), w)

    args = [Arg((1, 64, 768), "bf16", B), *[Arg((768,), "bf16", "dense", 0.5, 1.5)] * 2, Arg((768, 256), "bf16", B)]
    case = build(args, body)
    assert any(isinstance(m.low, RowLead) for m in grouped(case).lowering().members)
    shift = args[2].values(np.random.default_rng(2))
    x = np.full((1, 64, 768), value).astype(shift.dtype)
    (y,) = case.run([x, args[1].values(np.random.default_rng(3)), shift, np.eye(768, 256).astype(shift.dtype)]).values()
    assert np.array_equal(y, np.broadcast_to(shift[:256], y.shape))
