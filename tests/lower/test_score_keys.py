"""Keys and values that tiles share arrive by chunks: every byte once, where it belongs, and sooner."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lower.test_attention import LOOSE, attention, band, inputs_of, lowering
from support.one_op import Case, check, grouped, with_plan

from tx8fast import isa
from tx8fast.lower import score_keys
from tx8fast.lower.transfer import Descriptor
from tx8fast.simulator.cycle import simulate
from tx8fast.tile.order import tile_order
from tx8fast.tile.tiling import Plan, Tiling
from tx8fast.tile.transfers import chunk_of, in_spans, part_of


def moved(found: list[Descriptor]) -> dict[int, tuple[int, int]]:
    """Where every pair of bytes in scratchpad comes from: piece and byte in DDR."""
    out: dict[int, tuple[int, int]] = {}
    for d in found:
        places = [(d.ddr, d.spm)]
        inner = d.run_bytes
        for stride, count in d.loops:
            places = [(ddr + i * stride, spm + i * inner) for i in range(count) for ddr, spm in places]
            inner *= count
        for ddr, spm in places:
            for b in range(0, d.run_bytes, 2):
                assert spm + b not in out
                out[spm + b] = d.piece, ddr + b
    return out


@settings(max_examples=8)
@given(
    st.sampled_from([1, 700, 1025, 1100, 1280, 1300]),
    st.sampled_from([16, 64, 96, 128, 160]),
    st.integers(1, 5),
    st.data(),
)
def test_chunks_are_all_of_a_slice(keys, depth, tiles, data) -> None:
    low = lowering(attention("bf16", 1, 1, 2, 8, keys, depth, "full", (keys - 8 if keys > 8 else 0, 0)))
    lo, hi = [0] * len(low.sizes), [*low.sizes]
    lo[low.range] = data.draw(st.integers(0, (keys - 1) // 64)) * 64
    for k in (1, 2):
        access = low.reads[k]
        count, whole = access.chunks(lo, hi), moved(access.transfers(lo, hi))
        assert count == 1 or count >= score_keys.FEW
        found: dict[int, tuple[int, int]] = {}
        for i in range(count) if count > 1 else ():
            spans = access.chunk(lo, hi, i)
            own = chunk_of(access.transfers(lo, hi), spans)
            for rank in range(tiles):
                part, start, size, total = part_of(own, rank, tiles)
                assert total == sum(b - a for a, b in spans)
                staged = moved(part)
                for at, place, n in in_spans(spans, start, size):
                    for b in range(0, n, 2):
                        assert place + b not in found
                        found[place + b] = staged.get(at + b, (-1, -1))
        if count > 1:
            assert {at: place for at, place in found.items() if place != (-1, -1)} == whole


def shared(depth: int, keys: int, tiles: int) -> tuple[Case, Plan]:
    """Attention of one head of keys per set of so many tiles, and the plan in which they share it."""
    case = grouped(attention("bf16", 1, 2, tiles, keys, keys, depth, "full", (0, 0)))
    low = lowering(case)
    n = len(low.sizes)
    cuts = {"parts": (1, 2, tiles, 1, 1), "shard": (1, 1, 1, keys, keys), "slices": (1, 1, 1, 128, keys)}
    cuts = {name: cut[-n:] for name, cut in cuts.items()}
    return case, Plan(
        **cuts, order=tuple(range(n)), bufs=2, estimate_cycles=0, spm_bytes=0, bound="", shared=(1, tiles, tiles, 1)
    )


@pytest.mark.parametrize("depth, keys, tiles", [(64, 1280, 2), (128, 1100, 2), (96, 1200, 2), (64, 1300, 4)])
@pytest.mark.slow
def test_keys_that_tiles_share_arrive_by_chunks(depth, keys, tiles, monkeypatch) -> None:
    """Chunk by chunk, and before the last one is there first rows are worked on; the bits are those of keys that arrive as a whole."""
    case, plan = shared(depth, keys, tiles)
    low, feed = lowering(case), inputs_of(case, np.random.default_rng(depth), band(keys, keys, 0, 0, "bf16"))
    tiling = Tiling(low, plan)
    chunks, staged = -(-keys // score_keys.CHUNK), sum(n * size for _, size, n in tiling.staging)
    order = tile_order(tiling, *(lambda r: (r.lo, r.hi))(tiling.ranges[0]), (1, 2))
    assert [fill.chunk for fill in order.fills] == (list(range(chunks)) if 1 not in low.lanes else [-1])
    made = with_plan(case, plan, low)
    code = made.program.segments[0].codes[0]
    names = {isa.INSTRUCTIONS[name].OPCODE: name for name in ("recv", "exp_lp_v")}
    seen = [names[int(op)] for op in code[isa.execution(code)[0]]["opcode"] if int(op) in names]
    assert seen.count("recv") == len(order.fills)
    got, cycles = check(made, feed, tolerance=LOOSE["bf16"]), simulate(made.program).cycles
    monkeypatch.setattr(score_keys, "FEW", 100)
    whole = with_plan(case, plan, lowering(case))
    np.testing.assert_array_equal(got, check(whole, feed, tolerance=LOOSE["bf16"]))
    if 1 not in low.lanes:
        assert seen.index("exp_lp_v") < len(seen) - 1 - seen[::-1].index("recv"), "the last chunk is waited for"
        assert depth < 128 or cycles < simulate(whole.program).cycles
        assert staged < sum(n * size for _, size, n in Tiling(lowering(case), plan).staging)
