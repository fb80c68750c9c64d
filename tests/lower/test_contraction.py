"""Matrix products on the neural engine equal numpy for any shape, layout, transposition and cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.one_op import Arg, check, one_op, random_plan, with_plan

from tx8fast.lower import variants
from tx8fast.tile.tiling import Plan

CHANNELS = (1, 2, 3, 4, 5, 7, 8, 9, 17, 31, 32, 33, 63, 64, 65, 96, 97, 100, 127, 128, 129, 130, 192, 193, 200)
LAYOUTS = ("dense", "blocked")


@st.composite
def gemms(draw):
    """A gemm of rank 2 to 4 with broadcast batches, transpositions, bias, activation and any layouts."""
    size = st.sampled_from(CHANNELS)
    m, k, n = draw(size), draw(size), draw(size)
    lead = draw(st.lists(st.integers(1, 3), max_size=2))
    wide = draw(st.sampled_from(["left", "right", "both", "one"]))
    small = [1] * len(lead) if wide == "one" else []
    left = lead if wide in ("left", "both", "one") else []
    right = lead if wide in ("right", "both") else small
    trans_a, trans_b = draw(st.booleans()), draw(st.booleans())
    dtype = draw(st.sampled_from(["bf16", "f16", "f32"]))
    la, lb, out = (draw(st.sampled_from(LAYOUTS)) for _ in range(3))
    args = [
        Arg((*left, *((k, m) if trans_a else (m, k))), dtype, la),
        Arg((*right, *((n, k) if trans_b else (k, n))), dtype, lb),
    ]
    if draw(st.booleans()):
        args.append(Arg((n,), dtype))
    act = draw(st.sampled_from(["none", "none", "relu"]))
    machine = draw(st.sampled_from(["tx8", "test_2x2"]))
    return one_op("gemm", *args, out=out, machine=machine, trans_a=trans_a, trans_b=trans_b, act=act)


def any_plans(case, seed: int) -> None:
    """Compare under the found plan and under a random one of every lowering."""
    rng = np.random.default_rng(seed)
    inputs = [a.values(rng) for a in case.args]
    check(case, inputs)
    for low in (case.lowering(), *variants(case.records[0], case.machine)):
        plan = random_plan(case, rng, low)
        if plan is not None:
            check(with_plan(case, plan, low), inputs)


@given(gemms(), st.integers(0, 1 << 20))
def test_gemm_with_the_found_and_with_any_other_plan(case, seed) -> None:
    assert case.segment.info["engine"] == "contraction", case.program.meta["kernel_core"]
    any_plans(case, seed)


SCORES = "b s (h g d), b t (h d) -> b (h g) s t"
VALUES = "b (h g) s t, b t (h d) -> b s (h g d)"


@st.composite
def attention_products(draw):
    """Scores or values of grouped-query attention with heads inside the channel dimension."""
    d = draw(st.sampled_from([8, 16, 32, 64, 80, 128]))
    h, g, b = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    s, t = draw(st.sampled_from([1, 5, 8, 33, 65])), draw(st.sampled_from([1, 5, 20, 64, 65, 130]))
    dtype = draw(st.sampled_from(["bf16", "f32"]))
    layout = draw(st.sampled_from(LAYOUTS))
    out = draw(st.sampled_from(LAYOUTS))
    machine = draw(st.sampled_from(["tx8", "test_2x2"]))
    if draw(st.booleans()):
        args = [Arg((b, s, h * g * d), dtype, layout), Arg((b, t, h * d), dtype, layout)]
        return one_op("contract", *args, out=out, machine=machine, equation=SCORES, sizes=("h", h, "d", d))
    args = [Arg((b, h * g, s, t), dtype, layout), Arg((b, t, h * d), dtype, layout)]
    return one_op("contract", *args, out=out, machine=machine, equation=VALUES, sizes=("h", h, "d", d))


@given(attention_products(), st.integers(0, 1 << 20))
def test_attention_products(case, seed) -> None:
    assert case.segment.info["engine"] == "contraction", case.program.meta["kernel_core"]
    any_plans(case, seed)


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_long_reduction_is_split_and_accumulates_in_f32(trans_b: bool, layout: str) -> None:
    k = 40_000
    right = (64, k) if trans_b else (k, 64)
    case = one_op("gemm", Arg((9, k), "bf16", layout), Arg(right, "bf16", layout), Arg((64,), "bf16"), out=layout,
                  trans_b=trans_b, act="relu")  # fmt: skip
    reduced = case.segment.info["slices"][-1]
    assert case.segment.info["engine"] == "contraction" and reduced <= 16384
    check(case)


def test_equation_without_matrix_form_still_runs() -> None:
    case = one_op("contract", Arg((3, 5, 7)), Arg((5, 7, 4)), equation="a b c, b c d -> d a", sizes=())
    check(case)


@pytest.mark.parametrize("d", [16, 64, 80])
def test_heads_of_a_result_that_end_in_a_channel_tail(d: int) -> None:
    """Tiles and slices whose channels begin alike may lie before or inside the tail region: they share no code."""
    heads, groups = 2, 3
    args = [Arg((1, heads * groups, 5, 9), "bf16"), Arg((1, 9, heads * d), "bf16")]
    case = one_op("contract", *args, out="blocked", equation=VALUES, sizes=("h", heads, "d", d))
    check(case)
    one_tile = Plan((1,) * 6, case.lowering().sizes, (1, 5, 1, 1, d, 9), (0, 1, 2, 3, 4, 5), 2, 0, 0, "")
    check(with_plan(case, one_tile))


def test_bias_of_a_product_whose_batch_is_on_the_right() -> None:
    case = one_op("gemm", Arg((30, 70)), Arg((3, 70, 65)), Arg((65,)))
    assert case.segment.info["engine"] == "contraction"
    check(case)


def test_left_operand_that_stays_while_the_reduction_is_cut() -> None:
    """Every slice of the reduction reads the resident operand at its own place."""
    case = one_op("gemm", Arg((9, 1000), "bf16"), Arg((1000, 64), "bf16"))
    (low,) = variants(case.records[0], case.machine)
    plan = Plan((1, 1, 1), (9, 64, 1000), (9, 64, 192), (0, 1, 2), 2, 0, 0, "")
    check(with_plan(case, plan, low))
