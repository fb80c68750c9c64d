"""Products whose results are normalised before they leave scratchpad."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.one_op import Arg, build, check_drawn, grouped

from tx8fast.lower import lower
from tx8fast.lower.fused import Fused


@settings(max_examples=30)
@given(
    st.sampled_from(["layernorm", "rmsnorm"]), st.sampled_from(["bf16", "f32"]), st.integers(1, 70),
    st.sampled_from([64, 130, 192]), st.sampled_from([20, 64, 100, 192]), st.booleans(), st.booleans(),
    st.sampled_from(["tx8", "test_2x2"]), st.integers(0, 1 << 20),
)  # fmt: skip
@pytest.mark.slow
def test_norm_follows_a_product(kind, dtype, rows, depth, cols, residual, both, machine, seed) -> None:
    """The sum may leave the group too: the next layer adds to it."""
    args = [Arg((1, rows, depth), dtype, "blocked"), Arg((cols, depth), dtype, "blocked"), Arg((cols,), dtype, lo=0.5)]
    if residual:
        args.append(Arg((1, rows, cols), dtype, "blocked"))

    def body(b, x, w, gamma, *rest):
        op = lambda kind, *v, **a: b.op(kind, *v, mem_layout="blocked", **a).result  # noqa: E731
        y = op("gemm", x, w, trans_b=True)
        y = op("add", y, rest[0]) if rest else y
        z = op(kind, y, gamma)
        return [y, z] if both else z

    case = grouped(build(args, body, machine))
    low = lower(case.records[0], case.machine)[0]
    assert isinstance(low, Fused)
    (columns,) = low.lead.n  # type: ignore[attr-defined]
    assert low.sizes[columns] == cols and not low.shard[columns]
    rng = np.random.default_rng(seed)
    feed = [a.values(rng) for a in case.args]
    limit = 4e-2 if dtype == "bf16" else 2e-4
    check_drawn(case, low, rng, feed, tolerance=limit)


@settings(max_examples=8)
@given(
    st.sampled_from(["bf16", "f32"]), st.integers(2, 5), st.integers(2, 40), st.sampled_from([16, 64, 80]),
    st.sampled_from(["tx8", "test_2x2"]), st.integers(0, 1 << 20),
)  # fmt: skip
def test_an_op_follows_a_product_that_splits_heads(dtype, heads, rows, dim, machine, seed) -> None:
    """The product's slice has the columns of all its heads side by side, the op's slice one head below the other."""
    table = Arg((rows, dim), dtype)
    args = [Arg((1, rows, 96), dtype, "blocked"), Arg((heads * dim, 96), dtype, "blocked"), table, table]

    def body(b, x, w, cos, sin):
        op = lambda kind, *v, **a: b.op(kind, *v, mem_layout="blocked", **a).result  # noqa: E731
        y = op("contract", x, w, equation="b s k, (h d) k -> b h s d", sizes=("h", heads, "d", dim))
        return op("rope", y, cos, sin, heads=1, style="half", rotary_dim=-1)

    case = grouped(build(args, body, machine))
    low = lower(case.records[0], case.machine)[0]
    assert isinstance(low, Fused)
    rng = np.random.default_rng(seed)
    feed = [a.values(rng) for a in case.args]
    limit = 4e-2 if dtype == "bf16" else 2e-4
    check_drawn(case, low, rng, feed, 3, limit)


@settings(max_examples=10)
@given(
    st.sampled_from(["bf16", "f32"]), st.integers(2, 4), st.integers(5, 40), st.sampled_from([64, 130]),
    st.booleans(), st.sampled_from(["tx8", "test_2x2"]), st.integers(0, 1 << 20),
)  # fmt: skip
def test_an_operand_lacks_a_dimension_of_the_rows(dtype, batch, rows, cols, dense, machine, seed) -> None:
    """A slice has one point of the dimension that is missing: there the operand's rows are the slice's. Dense rows are put into
    blocks in scratchpad."""
    beside = Arg((1, rows, cols), dtype, "dense" if dense else "blocked")
    args = [Arg((batch, rows, 96), dtype, "blocked"), Arg((cols, 96), dtype, "blocked"), beside]

    def body(b, x, w, other):
        op = lambda kind, *v, **a: b.op(kind, *v, mem_layout="blocked", **a).result  # noqa: E731
        return op("add", op("gemm", x, w, trans_b=True), other)

    case = grouped(build(args, body, machine))
    low = lower(case.records[0], case.machine)[0]
    assert isinstance(low, Fused) and low.max_len[0] == 1
    rng = np.random.default_rng(seed)
    feed = [a.values(rng) for a in case.args]
    limit = 4e-2 if dtype == "bf16" else 2e-4
    check_drawn(case, low, rng, feed, tolerance=limit)
