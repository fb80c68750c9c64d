"""Sums that are finished in bands of columns: the values of a plan that finishes them at once, in fewer bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.one_op import MACHINES, Arg, Case, build, check, grouped, random_plan, with_plan

from tests.simulator.planting import findings
from tx8fast.lower import in_bands, lower
from tx8fast.lower.banded import COLUMNS
from tx8fast.lower.base import Lowering
from tx8fast.tile.tiling import Plan, Tiling

CHIP = MACHINES["test_2x2"]
#: what follows the product, given it, what is added and a second operand of that shape
FOLLOWERS = {
    "add": lambda op, y, x, _: op("add", x, y),
    "add behind": lambda op, y, x, _: op("add", y, x),
    "act, add": lambda op, y, x, _: op("add", op("gelu", y), x),
    "two operands": lambda op, y, x, z: op("add", op("mul", y, z), x),
    "bias, act, add": lambda op, y, x, b: op("add", op("gelu", op("add", y, b)), x),
    "row sums, add": lambda op, y, x, b: op("add", op("mul", y, b), x),
    "the less": lambda op, y, x, z: op("add", op("select", op("lt", y, z), y, z), x),
    "product": lambda op, y, x, _: op("mul", y, x),
}


def product(rows: int, depth: int, columns: int, follow: str, dtype: str = "bf16") -> Case:
    """A product with what follows it, on a chip of four tiles."""
    left, right = Arg((rows, depth), dtype, "blocked", -1.0, 1.0), Arg((depth, columns), dtype, "blocked", -1.0, 1.0)
    beside = Arg((rows, columns), dtype, "blocked")
    more = {"bias": Arg((columns,), dtype), "row s": Arg((rows, 1), dtype, "blocked")}.get(
        follow[:5].rstrip(","), beside
    )

    def body(b, left, right, x, z=None):
        op = lambda kind, *v: b.op(kind, *v, mem_layout="blocked").results[0]  # noqa: E731
        return [FOLLOWERS[follow](op, op("gemm", left, right), x, z)]

    several = FOLLOWERS[follow].__code__.co_varnames[-1] != "_"
    return grouped(build((left, right, beside, *[more] * several), body, machine="test_2x2"))


def cut(case: Case, plan: Plan, length: int) -> Plan:
    """Return the plan with slices of the reduction of such a length, without shared loads."""
    low = lower(case.records[0], CHIP)[0]
    f = next(g for g, r in enumerate(low.reduce) if r)
    made = Tiling(low, plan.but(slices=(*plan.slices[:f], length, *plan.slices[f + 1 :]), shared=(), kept=()))
    return made.but(spm_bytes=made.demand_bytes()).plan


def values(case: Case, plan: Plan, inputs: list[np.ndarray], low: Lowering | None = None) -> list[np.ndarray]:
    """Return the results under a plan, right and proved."""
    program = with_plan(case, plan, low)
    assert not findings(program.program)
    return check(program, inputs)


def compared(rows: int, depth: int, columns: int, follow: str, seed: int) -> bool:
    """Compare bands with whole slices under one drawn plan; False if there is none."""
    case = product(rows, depth, columns, follow)
    low = in_bands(case.records[0], CHIP)
    assert low is not None or columns < 64
    rng = np.random.default_rng(seed)
    inputs, plan = [a.values(rng) for a in case.args], random_plan(case, rng)
    if plan is None or low is None:
        return False
    plan = cut(case, plan, 64)
    for a, b in zip(values(case, plan, inputs, low), values(case, plan, inputs), strict=True):
        np.testing.assert_array_equal(a.view(np.uint16), b.view(np.uint16))
    return True


@pytest.mark.parametrize("follow", FOLLOWERS)
@pytest.mark.slow(but_every=5)
def test_bands_have_the_bits_of_whole_slices(follow: str) -> None:
    """Of one band, of several, of columns that are no whole blocks."""
    assert all([compared(24, 192, columns, follow, 5) for columns in (64, 128, 256, 384, 200, 330)])


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 70),
    st.integers(65, 400),
    st.integers(1, 400),
    st.sampled_from(sorted(FOLLOWERS)),
    st.integers(0, 1 << 30),
)
@pytest.mark.slow
def test_bands_of_any_sizes_have_the_bits_of_whole_slices(
    rows: int, depth: int, columns: int, follow: str, seed: int
) -> None:
    compared(rows, depth, columns, follow, seed)


def test_a_result_takes_the_place_of_what_is_added() -> None:
    case = product(24, 192, 384, "add")
    low, plain = in_bands(case.records[0], CHIP), lower(case.records[0], CHIP)[0]
    assert low is not None
    slices = (24, 384, 64) if len(low.sizes) == 3 else (1, 24, 384, 64)
    whole, apart = (
        Tiling(x, Plan((1,) * len(slices), x.sizes, slices, tuple(range(len(slices))), 1, 0, 0, ""))
        for x in (low, plain)
    )
    result = 24 * 384 * 2
    assert apart.demand_bytes() - whole.demand_bytes() == result - 2 * 24 * COLUMNS * 2


@pytest.mark.parametrize("dtype, follow", [("f32", "add"), ("bf16", "none"), ("bf16", "vector")])
def test_other_groups_have_no_bands(dtype: str, follow: str) -> None:
    """Sums that are not rounded, none that follow, and an operand that lacks the rows."""
    left, right, x = (Arg(shape, dtype, "blocked") for shape in ((24, 192), (192, 384), (24, 384)))
    x = Arg((384,), dtype) if follow == "vector" else x

    def body(b, left, right, x):
        y = b.op("gemm", left, right, mem_layout="blocked").results[0]
        return [y, x] if follow == "none" else [b.op("add", y, x, mem_layout="blocked").results[0]]

    case = build((left, right, x), body, machine="test_2x2")
    assert in_bands((case if follow == "none" else grouped(case)).records[0], CHIP) is None
