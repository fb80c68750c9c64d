"""Attention in scratchpad equals numpy for any head grouping, mask, band of visible keys and cut."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.attention_case import HIDDEN, LOOSE, attention, band, inputs_of, lowering
from support.one_op import Case, check, grouped, random_plan, with_plan

from tx8fast import isa
from tx8fast.api import CompiledProgram
from tx8fast.lower import lower, score_packing, variants
from tx8fast.lower.attention import Attention
from tx8fast.lower.base import Slice
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.score_pieces import pieces
from tx8fast.lower.transfer import Local
from tx8fast.simulator.cycle import simulate
from tx8fast.tile.nest import loop_slices, loop_steps
from tx8fast.tile.order import tile_order
from tx8fast.tile.sharing import sharers
from tx8fast.tile.tiling import Plan, Tiling


def agrees(case: Case, mask: np.ndarray | None, seed: int) -> None:
    """Compare under the searched plan of the group and under a random one."""
    case = grouped(case)
    rng = np.random.default_rng(seed)
    feed = inputs_of(case, rng, mask)
    limit = LOOSE[case.args[0].dtype]
    check(case, feed, tolerance=limit)
    low = lower(case.records[0], case.machine)[0]
    assert isinstance(low, Attention)
    plan = random_plan(case, rng, low)
    if plan is None:
        return
    if rng.integers(2):
        kept = dataclasses.replace(plan, kept=tuple(k for k in (1, 2) if Tiling(low, plan).trips[-1] > 1))
        plan = kept if Tiling(low, kept).demand_bytes() <= case.machine.spm_limit - case.machine.spm_base else plan
    check(with_plan(case, plan, low), feed, tolerance=limit)


DTYPES = st.sampled_from(["bf16", "f16", "f32"])
MACHINES = st.sampled_from(["tx8", "test_2x2"])
HEADS = st.tuples(st.integers(1, 2), st.integers(1, 3), st.sampled_from([1, 2, 5]))
DEPTHS = st.sampled_from([32, 64, 72, 80, 96, 112, 128])


@settings(max_examples=30)
@given(DTYPES, HEADS, st.integers(1, 40), st.sampled_from([1, 64, 100, 200, 257]), DEPTHS,
       st.sampled_from(["", "row", "full"]), MACHINES, st.integers(0, 1 << 20))  # fmt: skip
@pytest.mark.slow
def test_any_mask(dtype, heads, rows, keys, depth, mask, machine, seed) -> None:
    case = attention(dtype, *heads, rows, keys, depth, mask, machine=machine)
    rng = np.random.default_rng(seed)
    hidden = rng.random((rows if mask == "full" else 1, keys)) < 0.3
    hidden[:, rng.integers(keys)] = False
    agrees(case, np.where(hidden, HIDDEN[dtype], 0.0) if mask else None, seed)


@settings(max_examples=30)
@given(DTYPES, HEADS, st.integers(2, 150), st.integers(0, 130), st.sampled_from([0, 0, 1, 17, 64, 100]), DEPTHS, MACHINES,
       st.integers(0, 1 << 20))  # fmt: skip
@pytest.mark.slow
def test_known_band_of_visible_keys(dtype, heads, rows, offset, window, depth, machine, seed) -> None:
    keys = rows + offset
    case = attention(dtype, *heads, rows, keys, depth, "full", (offset, window), machine)
    agrees(case, band(rows, keys, offset, window, dtype), seed)


@settings(max_examples=6)
@given(st.sampled_from([(1, 1, 2), (1, 2, 1)]), st.integers(260, 700), st.sampled_from([0, 0, 70, 300]), st.sampled_from([64, 96, 128]),
       st.sampled_from([0, 1, 2]), st.integers(0, 1 << 20))  # fmt: skip
@pytest.mark.slow
def test_keys_come_by_chunks(heads, rows, window, depth, cuts, seed) -> None:
    """Slices of all keys, and of several chunks of them."""
    case = grouped(attention("bf16", *heads, rows, rows, depth, "full", (0, window)))
    feed = inputs_of(case, np.random.default_rng(seed), band(rows, rows, 0, window, "bf16"))
    low = lower(case.records[0], case.machine)[0]
    keys = rows if not cuts else min(rows, -(-rows // (cuts + 1) // 64) * 64)
    n = len(low.sizes)
    shard = (*low.sizes[: n - 2], -(-rows // 3), rows)
    slices = (*[1] * (n - 2), 128 if depth == 64 else 96, keys)
    plan = Plan((*[1] * (n - 2), 3, 1), shard, slices, tuple(range(n)), 2, 0, 0, "")
    check(with_plan(case, plan, low), feed, tolerance=LOOSE["bf16"])


BETWEEN = [("mul", "tanh"), ("tanh",), ("mul",), ("add", "sigmoid", "mul"), ("gelu_tanh",), ("mul", "softsign", "neg")]


@given(DTYPES, HEADS, st.integers(1, 40), st.sampled_from([1, 64, 100, 257]), st.sampled_from([32, 72, 128]), MACHINES,
       st.sampled_from(BETWEEN), st.sampled_from(["", "full"]), st.integers(0, 1 << 20))  # fmt: skip
@pytest.mark.slow
def test_ops_on_the_scores(dtype, heads, rows, keys, depth, machine, between, mask, seed) -> None:
    case = attention(
        dtype, *heads, rows, keys, depth, mask, (max(0, keys - rows), 0) if mask else (), machine, between, 0.7
    )
    agrees(case, band(rows, keys, max(0, keys - rows), 0, dtype) if mask else None, seed)


def test_a_factor_goes_to_the_queries_and_a_cap_stays_on_the_scores() -> None:
    """Of a soft cap the vector engine does tanh and the softmax's scale on scores, its factor on queries; in f16 all of them on scores."""
    for dtype, on_queries in (("bf16", True), ("f16", False)):
        case = grouped(attention(dtype, 1, 1, 1, 32, 64, 64, machine="test_2x2", between=("mul", "tanh"), scale=50.0))
        low = lowering(case)
        assert (low.between.factor >= 0) == on_queries and len(low.between.steps) == 2 - on_queries
        assert (
            lowering(grouped(attention(dtype, 1, 1, 1, 32, 64, 64, between=("mul",), scale=0.5))).between.scale == 0.5
        )


@pytest.mark.parametrize("depth", [24, 72, 80, 96, 112])
@pytest.mark.slow(but_every=3)
def test_heads_that_begin_inside_of_blocks(depth) -> None:
    """Their rows come in few transfers, however many there are, and nothing is read that was never written."""
    case = grouped(attention("bf16", 1, 3, 2, 48, 100, depth, "full", (52, 0), "test_2x2"))
    low = lowering(case)
    assert all(len(a.transfers((0, h, g, 0, 0), (1, h + 1, g + 1, 48, 100))) <= 3
               for a in (*low.reads[:3], *low.writes) for h in range(3) for g in range(2))  # fmt: skip
    feed = inputs_of(case, np.random.default_rng(depth), band(48, 100, 52, 0, "bf16"))
    check(case, feed, tolerance=LOOSE["bf16"])
    CompiledProgram(case.program).run({f"x{i}": a for i, a in enumerate(feed)}, sanitize=True)
    alone = attention("bf16", 1, 4, 1, 64, 256, depth, machine="test_2x2").program
    assert sum(s.estimate_cycles for s in alone.segments) == pytest.approx(simulate(alone).cycles, rel=0.05)


def test_keys_and_values_are_packed_once(monkeypatch) -> None:
    """With further rows of the same head nothing is moved but queries and results; a range of the keys is packed by every slice where all
    of them are too many to stay packed."""
    low = lowering(grouped(attention("bf16", 1, 2, 1, 96, 200, 72, machine="test_2x2")))
    assert low.prepares((1, 2)) and not low.prepares((0,))

    def moves(keys: tuple[int, int], fresh: bool) -> int:
        n, em = len(low.sizes), Emitter()
        lo, hi = (*[0] * (n - 2), 48, keys[0]), (*[1] * (n - 2), 96, keys[1])
        places = lambda count: [(i + 1) << 20 for i in range(count)]  # noqa: E731
        low.emit(
            em,
            Slice(
                lo,
                hi,
                places(len(low.reads)),
                places(1),
                places(len(low.scratch_bytes(lo, hi))),
                places(3),
                fresh=fresh,
            ),
        )
        rows = isa.rows(em.rows)
        return int((rows["opcode"] == isa.INSTRUCTIONS["gather_scatter"].OPCODE).sum())

    assert moves((0, 200), True) > moves((0, 200), False)
    assert moves((0, 128), True) > moves((0, 128), False) == moves((128, 200), False)
    monkeypatch.setattr(score_packing, "STAYS", 0)
    assert moves((0, 128), True) == moves((0, 128), False) and moves((0, 200), True) > moves((0, 200), False)


@pytest.mark.parametrize("stays", [0, 1 << 19])
@pytest.mark.parametrize("kept", [(), (1, 2), (2,)])
@pytest.mark.parametrize("depth", [72, 96])
@pytest.mark.slow(but_every=5)
def test_packed_keys_lie_where_no_others_do(kept, stays, depth, monkeypatch) -> None:
    """Several heads, bands of rows and ranges of keys on a tile, the last range a short one."""
    monkeypatch.setattr(score_packing, "STAYS", stays)
    case = grouped(attention("bf16", 1, 3, 1, 200, 300, depth, "full", (100, 0), machine="test_2x2"))
    low = lowering(case)
    n = len(low.sizes)
    cuts = {"parts": (1, 2, 1, 1, 1), "shard": (1, 2, 1, 200, 300), "slices": (1, 1, 1, 64, 128)}
    drop = 5 - n
    cuts = {name: (cut[0], cut[1], *cut[2 + drop :]) for name, cut in cuts.items()}
    plan = Plan(**cuts, order=tuple(range(n)), bufs=2, estimate_cycles=0, spm_bytes=0, bound="", kept=kept)
    feed = inputs_of(case, np.random.default_rng(depth), band(200, 300, 100, 0, "bf16"))
    made = with_plan(case, plan, low)
    check(made, feed, tolerance=LOOSE["bf16"])
    code = made.program.segments[0].codes[0]
    ran = code[isa.execution(code)[0]]["opcode"] == isa.INSTRUCTIONS["gather_scatter"].OPCODE
    monkeypatch.setattr(score_packing, "STAYS", 0)
    twice = with_plan(case, plan, lowering(case)).program.segments[0].codes[0]
    every = int((twice[isa.execution(twice)[0]]["opcode"] == isa.INSTRUCTIONS["gather_scatter"].OPCODE).sum())
    assert (ran.sum() < every) == (stays > 0 and kept == (1, 2))


@pytest.mark.parametrize("depth", [64, 72])
def test_scores_in_pieces(depth, monkeypatch) -> None:
    """Where the vector engine is the busier one, it waits less; values are added piece by piece, as before in sum."""
    case = grouped(attention("bf16", 1, 1, 2, 384, 700, depth, machine="test_2x2"))
    check(case, inputs_of(case, np.random.default_rng(depth), None), tolerance=LOOSE["bf16"])
    scores = Local(200, 700, "bf16", True)
    found = pieces(1 << 16, scores, Attention.ends, depth, case.machine)
    assert [p.cols for _, p in found] == [192, 256, 252]
    assert [at for at, _ in found] == [(1 << 16) + scores.offset(0, c) for c in (0, 192, 448)]
    assert len(pieces(0, scores, Attention.ends, 128, case.machine)) == 1
    cycles = simulate(case.program).cycles
    monkeypatch.setattr(Attention, "ends", ())
    whole = grouped(attention("bf16", 1, 1, 2, 384, 700, depth, machine="test_2x2"))
    assert cycles < 0.99 * simulate(whole.program).cycles


@settings(max_examples=25)
@given(st.integers(2, 700), st.integers(0, 300), st.integers(0, 400), st.integers(1, 7), st.integers(1, 7),
       st.integers(1, 3))  # fmt: skip
@pytest.mark.slow
def test_slices_with_work_are_counted(rows, offset, window, band_cuts, key_cuts, parts) -> None:
    """The closed count, the slices of the loop and the mask itself agree; every row meets a key it sees."""
    keys = rows + offset
    low = lowering(attention("bf16", 1, 1, 1, rows, keys, 64, "full", (offset, window)))
    shard = (1, 1, 1, -(-rows // parts), keys)[-len(low.sizes) :]
    lens = (*shard[:-2], -(-shard[-2] // band_cuts), min(keys, -(-keys // key_cuts // 64) * 64 or 64))
    plan = Plan((*[1] * (len(shard) - 2), parts, 1), shard, lens, tuple(range(len(shard))), 2, 0, 0, "")
    tiling = Tiling(low, plan)
    lo, hi = tiling.busiest
    steps = list(loop_slices(tiling, lo, hi))
    assert len(steps) == tiling.steps
    seen = band(rows, keys, offset, window, "f32") == 0
    covered = np.zeros_like(seen)
    for a, b, *_ in steps:
        box = (slice(a[-2], b[-2]), slice(a[-1], b[-1]))
        covered[box] = True
        assert seen[box].any(), "a slice without visible keys has no work"
        assert low.needs(3, a, b) or seen[box].all(), "an unmasked slice hides nothing"
    assert covered[lo[-2] : hi[-2]][seen[lo[-2] : hi[-2]]].all()
    assert sum(s[2] for s in steps) == sum(s[3] for s in steps) == -(-(hi[-2] - lo[-2]) // lens[-2])


def test_kept_keys_are_loaded_once() -> None:
    low = lowering(attention("bf16", 1, 1, 1, 512, 512, 64, "full", (0, 0)))
    shape = {"parts": (1,) * len(low.sizes), "shard": low.sizes, "slices": (*low.sizes[:-2], 128, 128)}
    plan = Plan(**shape, order=tuple(range(len(low.sizes))), bufs=2, estimate_cycles=0, spm_bytes=0, bound="")
    for kept, loads in (((), 10), ((1, 2), 4)):
        steps = loop_steps(Tiling(low, plan.but(kept=kept)), (0,) * len(low.sizes), low.sizes)
        assert [sum(k in s.load for s in steps) for k in (1, 2)] == [loads, loads]
        assert sum(3 in s.load for s in steps) == 1, "the mask looks alike at every place of the diagonal"


def test_kept_keys_are_not_loaded_over_those_at_work() -> None:
    """The first keys of a head lie where the last slice of the head before still finds its own."""
    low = lowering(attention("bf16", 1, 2, 1, 512, 512, 64, "full", (0, 0)))
    shape = {"parts": (1,) * len(low.sizes), "shard": low.sizes, "slices": (*(1,) * (len(low.sizes) - 2), 128, 128)}
    plan = Plan(
        **shape, order=tuple(range(len(low.sizes))), bufs=2, estimate_cycles=0, spm_bytes=0, bound="", kept=(1, 2)
    )
    order = tile_order(Tiling(low, plan), (0,) * len(low.sizes), low.sizes)
    done, again = 0, 0
    for kind, step, access, _ in order.actions:
        done += kind == "emit"
        if kind == "load" and access in plan.kept:
            copy = order.steps[step].copy[access]
            users = [i for i, s in enumerate(order.steps[:step]) if s.copy[access] == copy]
            assert not users or users[-1] < done
            again += bool(users) and users[-1] == step - 1
    assert again


@pytest.mark.parametrize("keys, kept", [(640, True), (256, False)])
def test_keys_are_shared_by_the_tiles_whose_heads_have_them_in_common(keys, kept) -> None:
    """They come from the DDR once; what stays for all rows of a tile is loaded together, too."""
    case = grouped(attention("bf16", 1, 4, 4, 640, keys, 64, "full" if kept else "", (0, 0) if kept else ()))
    mask = band(640, keys, 0, 0, "bf16") if kept else None
    check(case, inputs_of(case, np.random.default_rng(keys), mask), tolerance=LOOSE["bf16"])
    segment = case.program.segments[-1]
    assert min(segment.info["shared"][1:3]) >= 4
    low = lowering(case)
    plan = dataclasses.replace(random_plan(case, np.random.default_rng(0), low), **{
        "parts": (1, 4, 4, 1, 1), "shard": (1, 1, 1, 640, keys), "slices": (1, 1, 1, 160, 128),
        "order": (0, 1, 2, 3, 4), "shared": (1, 4, 4, 1)[: len(low.reads)], "kept": (1, 2), "bufs": 2})  # fmt: skip
    drawn = with_plan(case, plan, low)
    check(drawn, inputs_of(case, np.random.default_rng(keys), mask), tolerance=LOOSE["bf16"])
    steps = tile_order(made := Tiling(low, plan), *(lambda r: (r.lo, r.hi))(made.ranges[0]), (1, 2))
    assert len(steps.fills) == -(-keys // 128)  # every slice of keys once, whichever rows come first
    alone = with_plan(case, dataclasses.replace(plan, shared=()), low)
    saved = simulate(alone.program).ddr_bytes - simulate(drawn.program).ddr_bytes
    assert (
        saved == 3 * 2 * keys * 4 * 64 * 2
    )  # three of four tiles load neither keys nor values, of 4 heads with 64 numbers each


def folded(case: Case) -> Attention:
    low = next(low for low in variants(case.records[0], case.machine) if low.balanced)
    assert isinstance(low, Attention)
    return low


@settings(max_examples=20)
@given(DTYPES, HEADS, st.integers(1, 75), st.integers(0, 130), st.sampled_from([0, 0, 1, 17, 64]), DEPTHS, MACHINES,
       st.integers(0, 1 << 20))  # fmt: skip
@pytest.mark.slow
def test_rows_in_pairs_from_either_end(dtype, heads, half, offset, window, depth, machine, seed) -> None:
    """Any cut of rows in pairs gives what the oracle says."""
    keys = 2 * half + offset
    case = grouped(attention(dtype, *heads, 2 * half, keys, depth, "full", (offset, window), machine))
    if not math.prod(heads) % case.machine.n_tiles:
        assert not any(low.balanced for low in variants(case.records[0], case.machine))
        return
    low, rng = folded(case), np.random.default_rng(seed)
    plan = random_plan(case, rng, low)
    if plan is not None:
        feed = inputs_of(case, rng, band(2 * half, keys, offset, window, dtype))
        check(with_plan(case, plan, low), feed, tolerance=LOOSE[dtype])


@pytest.mark.parametrize("parts", [(3, 1, 5), (1, 3, 2), (1, 1, 8)])
@pytest.mark.slow(but_every=4)
def test_pairs_of_rows_are_equal_work(parts) -> None:
    """Every tile looks at as many scores, and every row is in one slice; what tiles have in common they load together and get in step;
    the bits are those of rows one after the other."""
    rows = 480
    case = grouped(attention("bf16", 1, 3, 3, rows, rows, 64, "full", (0, 0)))
    low, plain = folded(case), lowering(case)
    n = len(low.sizes)
    shard = (1, -(-3 // parts[0]), -(-3 // parts[1]), 2, rows // 2 // parts[2], rows)[-n:]
    shape = {
        "parts": (1, parts[0], parts[1], 1, parts[2], 1)[-n:],
        "shard": shard,
        "slices": (*[1] * (n - 2), 16, rows),
    }
    plan = Plan(**shape, order=tuple(range(n)), bufs=2, estimate_cycles=0, spm_bytes=0, bound="")
    tiling = Tiling(low, plan)
    work, seen = [], np.zeros((9, rows), int)
    for r in tiling.ranges:
        if r.idle:
            continue
        steps = list(loop_slices(tiling, r.lo, r.hi))
        assert len(steps) == tiling.steps
        work.append(0)
        for a, b, *_ in steps:
            lo, hi = low.row.range(a, b)
            assert hi - lo == b[-2] - a[-2]
            seen[a[-5] * 3 + a[-4], lo:hi] += 1
            work[-1] += sum(range(lo + 1, hi + 1))
    assert (seen == 1).all() and len(set(work)) == 1
    assert plain.chains and not low.chains, "no nest behind takes the rows of a tile for one range"
    assert not low.writes[0].is_solid(*(lambda r: (r.lo, r.hi))(tiling.ranges[0])) or parts[2] == 1
    feed = inputs_of(case, np.random.default_rng(1), band(rows, rows, 0, 0, "bf16"))
    tiles = math.prod(parts) // parts[0]
    assert sharers(tiling)[1:3] == (tiles, tiles)
    made = check(with_plan(case, plan.but(shared=(1, tiles, tiles, 1)), low), feed, tolerance=LOOSE["bf16"])
    whole = {"parts": (1, 3, 3, 1, 1), "shard": (1, 1, 1, rows, rows), "slices": (1, 1, 1, 16, rows)}
    whole = {name: cut[1 - n :] for name, cut in whole.items()}
    alone = Plan(**whole, order=tuple(range(n - 1)), bufs=2, estimate_cycles=0, spm_bytes=0, bound="")
    np.testing.assert_array_equal(made, check(with_plan(case, alone, plain), feed, tolerance=LOOSE["bf16"]))


def test_heads_that_are_no_equal_work_are_cut_by_rows() -> None:
    """Of 14 heads, 16 tiles have two without one; the search finds the cut that has none."""
    case = grouped(attention("bf16", 1, 2, 7, 1024, 1024, 64, "full", (0, 0)))
    (plan,) = [s.info for s in case.program.segments]
    assert len(plan["parts"]) == len(lowering(case).sizes) + 1 and math.prod(plan["parts"]) == 16
