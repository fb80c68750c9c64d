"""Ops on rows that follow each other without a product: normalisations, sums, functions of one element, a result or several."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.one_op import Arg, build, check_drawn, grouped

from tx8fast.lower import lower
from tx8fast.lower.fused import Fused

KINDS = ("rmsnorm", "layernorm", "add", "mul", "add", "tanh", "gelu_tanh", "sub")


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from(KINDS), min_size=2, max_size=5), st.sampled_from(["bf16", "f32"]), st.integers(1, 3),
    st.integers(1, 70), st.sampled_from([20, 64, 130, 192]), st.booleans(), st.sampled_from(["tx8", "test_2x2"]),
    st.integers(0, 1 << 20),
)  # fmt: skip
def test_rows_in_one_launch(kinds, dtype, batch, rows, cols, all_leave, machine, seed) -> None:
    """Each op works on what the one before makes; what they make may leave the group too."""
    shape = (batch, rows, cols)
    args = [Arg(shape, dtype, "blocked")]
    for k in kinds:
        if k in ("rmsnorm", "layernorm"):
            args.append(Arg((cols,), dtype, lo=0.5))
        elif k in ("add", "mul", "sub"):
            args.append(Arg(shape, dtype, "blocked") if k != "mul" else Arg((cols,), dtype, lo=0.5))

    def body(b, x, *more):
        rest, made = iter(more), []
        for k in kinds:
            own = () if k in ("tanh", "gelu_tanh") else (next(rest),)
            x = b.op(k, x, *own, mem_layout="blocked").result
            made.append(x)
        return made if all_leave else x

    case = grouped(build(args, body, machine))
    low = lower(case.records[0], case.machine)[0]
    assert len(case.records) == 1 and isinstance(low, Fused) and not low.products
    rng = np.random.default_rng(seed)
    feed = [a.values(rng) for a in case.args]
    limit = 5e-2 if dtype == "bf16" else 2e-4
    check_drawn(case, low, rng, feed, tolerance=limit)
