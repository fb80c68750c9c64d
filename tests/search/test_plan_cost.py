"""The pricing kernel equals its readable twin on the spaces of real ops and on random ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.one_op import MACHINES, Arg, one_op

from tx8fast._kernels import BOUNDS, PlanSpace, plan_costs
from tx8fast._kernels.reference import plan_cost as twin
from tx8fast.errors import InternalError
from tx8fast.search import cuts, prices

B = "blocked"
OPS = {
    "gemm": ("gemm", [Arg((1, 512, 1024), "bf16", B), Arg((1024, 2048), "bf16", B)], B, {}),
    "scores": ("contract", [Arg((1, 128, 1024), "f32", B), Arg((1, 128, 256), "f32", B)], B,
               {"equation": "b s (h g d), b t (h d) -> b (h g) s t", "sizes": ("h", 4, "d", 64)}),
    "softmax": ("softmax", [Arg((2, 8, 128, 384), "bf16", B), Arg((128, 384), "bf16", B)], B, {}),
    "add": ("add", [Arg((3, 200, 1000)), Arg((1000,))], "dense", {}),
    "conv": ("conv", [Arg((2, 57, 57, 65), "bf16", B), Arg((3, 3, 130, 65), "bf16", B)], B, {"stride": (2, 2)}),
    "transpose": ("transpose", [Arg((64, 100, 90))], "dense", {"perm": (1, 0, 2)}),
}  # fmt: skip


def by_twin(space: PlanSpace, parts, slices, inner):
    n = len(inner)
    out = np.empty(n), np.empty(n, np.int64), np.empty(n, np.int64)
    twin.plan_cost(space, parts, slices, inner, *out)
    return out


def same(space: PlanSpace, parts, slices, inner) -> None:
    cycles, size_bytes, bound = plan_costs(space, parts, slices, inner)
    cycles_, size_bytes_, bound_ = by_twin(space, parts, slices, inner)
    np.testing.assert_allclose(cycles, cycles_, rtol=1e-12)
    np.testing.assert_array_equal(size_bytes, size_bytes_)
    np.testing.assert_array_equal(bound, bound_)
    assert bound.size == 0 or 0 <= bound.min() <= bound.max() < len(BOUNDS)


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("machine", ["tx8", "test_2x2"])
def test_kernel_equals_twin_on_real_ops(name: str, machine: str) -> None:
    kind, args, out, attrs = OPS[name]
    low = one_op(kind, *args, out=out, machine=machine, **attrs).lowering()
    space = prices.plan_space(low, MACHINES[machine])
    parts, slices, inner = cuts.candidates(low, MACHINES[machine].n_tiles)
    some = np.unique(np.linspace(0, len(inner) - 1, 300).astype(int))
    same(space, *(np.ascontiguousarray(x[some]) for x in (parts, slices, inner)))


@st.composite
def spaces(draw):
    """A space whose accesses have arbitrary dimensions over up to four factors, and candidates for it."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    nf, na = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    size = rng.integers(1, 600, nf)
    unit = np.minimum(size, rng.choice([1, 1, 8, 64], nf))
    dims = [int(rng.integers(1, 5)) for _ in range(na)]
    nd = sum(dims)
    terms = [int(rng.integers(0, 3)) for _ in range(nd)]
    low = prices.plan_space(one_op("abs", Arg((5, 5))).lowering(), MACHINES["tx8"])
    i64 = lambda x: np.asarray(x, np.int64)  # noqa: E731
    u8 = lambda x: np.asarray(x, np.uint8)  # noqa: E731
    more = {}
    if hasattr(low, "share"):
        more["share"] = u8(rng.integers(0, 2, na))
    matrix = bool(rng.integers(2))
    fields = dict(
        size=i64(size), unit=i64(unit), reduce=u8(rng.random(nf) < 0.3), role=i64(rng.integers(0, 4, nf)),
        store=u8([0] * (na - 1) + [1]), item=i64(rng.choice([1, 2, 4], na)), blocked=u8(rng.integers(0, 2, na)),
        local_blocked=u8(rng.integers(0, 2, na)), block=i64(rng.choice([64, 128], na)),
        dim_ptr=i64(np.cumsum([0, *dims])), dim_size=i64(rng.integers(1, 900, nd)), dim_reach=i64(rng.integers(0, 4, nd)),
        dim_full=u8(rng.random(nd) < 0.2), term_ptr=i64(np.cumsum([0, *terms])),
        term_fac=i64(rng.integers(0, nf, sum(terms))), term_coef=i64(rng.integers(1, 5, sum(terms))),
        machine=low.machine, bufs=int(rng.integers(1, 4)), shared_bufs=int(rng.integers(1, 3)), is_matrix=matrix, per_point=float(rng.random()),
        scratch_per_point=float(rng.random() * 4), **more,
    )  # fmt: skip
    n = 12
    parts = i64(rng.integers(1, 6, (n, nf)))
    slices = i64([[rng.integers(1, s + 1) for s in size] for _ in range(n)])
    free = [f for f in range(nf) if not fields["reduce"][f]] or [-1]
    return PlanSpace(**fields), parts, slices, i64(rng.choice([-1, *free], n))


@settings(max_examples=100)
@given(spaces())
def test_kernel_equals_twin_on_random_spaces(made) -> None:
    same(*made)


def test_the_door_refuses_what_the_kernel_trusts() -> None:
    low = one_op("abs", Arg((64, 64))).lowering()
    space = prices.plan_space(low, MACHINES["tx8"])
    nf = len(space.size)
    one = np.ones((2, nf), np.int64)
    inner = np.full(2, -1, np.int64)
    plan_costs(space, one, one, inner)
    for parts, slices, last in ((one[:1], one, inner), (one * 0, one, inner), (one, one, inner + nf + 1)):
        with pytest.raises(InternalError):
            plan_costs(space, parts, slices, last)
