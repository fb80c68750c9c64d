"""Projections of one group of which the graph has some results head by head: members work on rows, transfers put heads apart."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.one_op import Arg, build, check, grouped, random_plan, with_plan

from tx8fast.api import CompiledProgram
from tx8fast.lower import NotLowerable
from tx8fast.lower.heads_apart import HeadsApart

B = "blocked"
LIMIT = {"bf16": 4e-2, "f16": 1e-2, "f32": 2e-4}
APART = "m0 m1 k0, k0 (n0 n1) -> m0 n0 m1 n1"
TURNED = "m0 m1 k0, (n0 n1) k0 -> m0 n0 m1 n1"


def projections(
    dtype: str, batch: int, rows: int, depth: int, group: int, kv: int, lanes: int, norm: str = "", own: str = "", rotate: bool = True,
    turned: bool = False, machine: str = "tx8",
):  # fmt: skip
    """[norm], queries of kv * group heads as rows, values and keys of kv heads head by head. own: the norm of every head."""
    wide = (kv * lanes, depth) if turned else (depth, kv * lanes)
    args = [Arg((batch, rows, depth), dtype, B), Arg((depth, group * kv * lanes), dtype, B), *[Arg(wide, dtype, B)] * 2]
    args += [Arg((rows, lanes), dtype, B)] * 2 + [Arg((lanes,), dtype, lo=0.5), Arg((depth,), dtype, lo=0.5)]

    def body(b, x, q, k, v, cos, sin, head, gain):
        op = lambda kind, *v, **a: b.op(kind, *v, mem_layout=B, **a).result  # noqa: E731
        y = op(norm, x, gain) if norm else x
        apart = {"equation": TURNED if turned else APART, "sizes": ("n0", kv, "n1", lanes)}
        query, value, key = op("gemm", y, q), op("contract", y, v, **apart), op("contract", y, k, **apart)
        if own:
            query, key = op(own, query, head, heads=kv * group), op(own, key, head)
        if rotate:
            query, key = op("rope", query, cos, sin, heads=kv * group), op("rope", key, cos, sin, heads=1)
        return [query, value, key]

    return grouped(build(args, body, machine))


@settings(max_examples=25)
@given(
    st.sampled_from(["bf16", "f16", "f32"]), st.integers(1, 3), st.sampled_from([1, 7, 63, 64, 65, 130]), st.sampled_from([64, 130, 256]),
    st.integers(1, 4), st.sampled_from([2, 3, 8]), st.sampled_from([64, 128, 192]), st.sampled_from(["", "rmsnorm", "layernorm"]),
    st.sampled_from(["", "rmsnorm"]), st.booleans(), st.booleans(), st.sampled_from(["tx8", "test_2x2"]), st.integers(0, 1 << 20),
)  # fmt: skip
@pytest.mark.slow
def test_rows_are_put_apart(
    dtype, batch, rows, depth, group, kv, lanes, norm, own, rotate, turned, machine, seed
) -> None:
    case = projections(dtype, batch, rows, depth, group, kv, lanes, norm, own, rotate, turned, machine)
    low = case.lowering()
    assert [isinstance(w, HeadsApart) for w in low.writes] == [False, True, True]
    assert low.sizes[low.lead.n[0]] == kv * lanes and low.units[low.lead.n[0]] % lanes == 0
    rng = np.random.default_rng(seed)
    feed = [a.values(rng) for a in case.args]
    check(case, feed, tolerance=LIMIT[dtype])
    plan = random_plan(case, rng, low)
    if plan is not None:
        made = with_plan(case, plan, low)
        check(made, feed, tolerance=LIMIT[dtype])
        CompiledProgram(made.program).run({f"x{i}": a for i, a in enumerate(feed)}, sanitize=True)


def test_heads_of_a_slice_are_few_transfers() -> None:
    """A run per head and block of lanes, however many rows there are."""
    low = projections("bf16", 1, 256, 256, 2, 8, 128).lowering()
    moved = low.writes[1].transfers([0] * len(low.sizes), [1, 64, 512, 256])
    assert sum(math.prod([n for _, n in d.loops]) for d in moved) == 4 * 2
    assert {d.run_bytes for d in moved} == {64 * 64 * 2}


@pytest.mark.parametrize("lanes", [24, 80, 96])
def test_heads_that_are_no_whole_blocks_are_no_group_with_rows(lanes) -> None:
    with pytest.raises(NotLowerable, match="equal factors"):
        projections("bf16", 1, 64, 128, 2, 4, lanes, rotate=False)
