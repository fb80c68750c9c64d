"""Slices of unequal work: in which order a tile goes through them."""

from __future__ import annotations

import pytest
from lower.test_attention import attention, folded, lowering
from support.one_op import grouped

from tx8fast.tile.nest import loop_slices
from tx8fast.tile.tiling import Plan, Tiling


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("cuts", [1, 2, 3, 8, 13])
@pytest.mark.slow(but_every=7)
def test_short_slices_stand_behind_the_longest(pairs, cuts) -> None:
    """Every row of every head once, heads one after the other. Of all keys in a slice the last one is short, and those behind the longest
    fall; of some of the keys, rows with most of them go first."""
    rows, group = 32 * cuts, 3
    case = grouped(attention("bf16", 1, 1, group, rows, rows, 64, "full", (0, 0)))
    low = folded(case) if pairs else lowering(case)
    n = len(low.sizes)
    for keys in (rows, 16):
        cut = {"parts": (1,) * n, "shard": low.sizes, "slices": (*[1] * (n - 2), 16, keys), "order": tuple(range(n))}
        tiling = Tiling(low, Plan(**cut, bufs=2, estimate_cycles=0, spm_bytes=0, bound=""))
        ends = [low.row.range(a, b)[1] for a, b, first, *_ in loop_slices(tiling, (0,) * n, low.sizes) if first]
        own = len(ends) // group
        assert own == 2 * cuts and ends == ends[:own] * group and sorted(ends[:own]) == list(range(16, rows + 1, 16))
        work = [-(-end // 64) if keys == rows else end for end in ends[:own]]  # whole blocks of keys are looked at
        longest = max(i for i, n in enumerate(work) if n == max(work))
        behind = sorted(work[longest:], reverse=True)
        assert work == [*sorted(work[:longest]), *behind] and (keys == rows or longest == 0)
        assert own < 8 or work[-1] <= work[longest] / 3
