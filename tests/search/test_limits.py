"""What bounds the search: slices of a launch, operands of an op, work for chains; and plans with other cuts."""

from __future__ import annotations

import time

import pytest
from support.one_op import MACHINES, Arg, best_plan, one_op, tables

from tx8fast.errors import InfeasibleError
from tx8fast.graph_table import FunctionTable, GraphTable, OpRecord, Step, TensorSpec
from tx8fast.search import wide
from tx8fast.search.exact import SearchReport
from tx8fast.search.partition import closure, in_line
from tx8fast.search.plan import MAX_SLICES
from tx8fast.search.planning import Planner
from tx8fast.search.program import plan_table
from tx8fast.search.wide import MAX_OPERANDS, split_wide

pytestmark = pytest.mark.feature("B11", "B48")
CHIP = MACHINES["tx8"]


def test_a_plan_with_other_slices_has_other_trips() -> None:
    plan = best_plan(one_op("gemm", Arg((1, 512, 1024)), Arg((1024, 2048)), out="blocked"))
    trips = plan.trips
    finer = plan.but(slices=tuple(max(1, n // 2) for n in plan.slices))
    assert finer.trips == tuple(-(-a // b) for a, b in zip(plan.shard, finer.slices, strict=True)) != trips
    assert plan.but(bufs=1).trips == trips


def test_a_product_of_too_many_slices_is_refused_soon() -> None:
    n = 1 << 16
    low = one_op("gemm", Arg((n, n)), Arg((n, n)), out="blocked")
    began = time.process_time()
    with pytest.raises(InfeasibleError, match=f"slices per tile, at most {MAX_SLICES:,}") as err:
        Planner(CHIP).plan(low.record, "huge")
    assert "huge" in str(err.value) and "65,536 x 65,536" in str(err.value)
    assert time.process_time() - began < 10
