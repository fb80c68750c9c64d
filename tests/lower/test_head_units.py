"""Heads that fill whole channel blocks together: attention loads them together, and takes them one after the other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.attention_case import HIDDEN, LOOSE, attention, inputs_of
from support.one_op import Case, check, grouped, random_plan, with_plan

from tx8fast.api import CompiledProgram
from tx8fast.lower import variants
from tx8fast.lower.attention import Attention
from tx8fast.simulator.cycle import simulate

DTYPES = st.sampled_from(["bf16", "f16", "f32"])
MACHINES = st.sampled_from(["tx8", "test_2x2"])


def together(case: Case) -> Attention:
    return next(
        low for low in variants(grouped(case).records[0], case.machine) if isinstance(low, Attention) and low.heads
    )


@settings(max_examples=12)
@given(DTYPES, st.integers(1, 2), st.integers(2, 9), st.sampled_from([1, 2, 3]), st.integers(1, 3), st.sampled_from([1, 63, 100, 257]),
       st.sampled_from([24, 40, 72, 80, 96, 112]), st.sampled_from(["", "row", "full"]), MACHINES, st.integers(0, 1 << 20))  # fmt: skip
@pytest.mark.slow
def test_heads_that_fill_whole_blocks_are_loaded_together(
    dtype, batch, kv, group, rows, keys, depth, mask, machine, seed
) -> None:
    """Any number of heads, the last ones fewer than fill their blocks, and slices of all keys or some; nothing unwritten is read."""
    case = grouped(attention(dtype, batch, kv, group, rows, keys, depth, mask, machine=machine))
    rng = np.random.default_rng(seed)
    hidden = rng.random((rows if mask == "full" else 1, keys)) < 0.3
    hidden[:, rng.integers(keys)] = False
    feed = inputs_of(case, rng, np.where(hidden, HIDDEN[dtype], 0.0) if mask else None)
    low = together(case)
    unit = 64 // math.gcd(64, depth)
    assert max(low.units[:2]) == min(kv, unit)
    plan = random_plan(case, rng, low)
    assert plan is not None
    made = with_plan(case, plan, low)
    check(made, feed, tolerance=LOOSE[dtype])
    CompiledProgram(made.program).run({f"x{i}": a for i, a in enumerate(feed)}, sanitize=True)


@pytest.mark.parametrize("depth", [72, 80, 96, 112])
def test_whole_blocks_are_loaded_without_a_gap(depth) -> None:
    """Keys of a unit of heads are one run per block, or one where slices have all of them; alone every row may be a run."""
    low = together(attention("bf16", 2, 16, 1, 1, 256, depth))
    unit = low.units[1]
    for keys in (256, 128):
        lo, hi = (1, unit, 0, 0), (2, 2 * unit, 1, keys)
        for access in low.reads[1:3]:
            moved = access.transfers(lo, hi)
            runs = sum(math.prod([n for _, n in d.loops]) for d in moved)
            assert len(moved) == 1 and runs == (1 if keys == 256 else unit * depth // 64)
            assert moved[0].size_bytes == access.size_bytes(lo, hi) == unit * keys * depth * 2


def test_decode_takes_heads_together_where_that_is_faster() -> None:
    """Single heads would be read at a rate of runs of half a block; these are read at nearly that of the DDR."""
    case = grouped(attention("bf16", 8, 32, 1, 1, 1024, 96, "full"))
    assert case.segment.info["slices"][1] == 2
    moved_bytes = 2 * 8 * 1024 * 32 * 96 * 2
    assert simulate(case.program).cycles < 1.05 * moved_bytes / case.machine.ddr_bytes_per_cycle


def test_heads_stay_alone_where_keys_are_looked_at_again_or_begin_with_blocks() -> None:
    for case in (
        attention("bf16", 1, 4, 1, 65, 100, 96),
        attention("bf16", 2, 4, 1, 1, 100, 64),
        attention("bf16", 2, 1, 4, 1, 100, 96),
    ):
        assert not any(
            isinstance(low, Attention) and low.heads for low in variants(grouped(case).records[0], case.machine)
        )
